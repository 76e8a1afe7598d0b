"""Stages carried out, each with its result sealed: here, or with several jobs in processes of their own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from io import StringIO
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from plaudit.engine.checkpoint.state import seed_everything
from plaudit.engine.distributed import LostPeersError, is_first_process, process_group
from plaudit.engine.ranks import rows_divided
from plaudit.engine.starters import is_last_try_of_torchrun, say_after
from plaudit.engine.step import InterruptedRunError
from plaudit.errors import CommandEnd, UserError, WaitingError, first_line
from plaudit.files import atomic, exact_json
from plaudit.files.restored import restore
from plaudit.runs.pipeline import begin_loading, store
from plaudit.runs.pipeline.kinds import StageResult
from plaudit.runs.pipeline.read import read_pipeline
from plaudit.runs.pipeline.spec import Pipeline, Stage
from plaudit.runs.pipeline.status import GOES_ON, PipelineContext, StageKey, can_resume

GRACE_SECONDS = 10
"""How long ranks may live on after one of them has failed."""
POLL_SECONDS = 0.5
"""Seconds between two looks at what a signal may have asked for."""


def prepare_stage(context: PipelineContext, stage: Stage, stage_key: StageKey, *, fresh: bool) -> None:
    """The stage's folder as it is to be found by whoever carries it out."""
    stage_folder = context.folder.stage(stage.name)
    if fresh or not can_resume(context.folder, stage, stage_key.key):
        store.set_aside(context.folder, stage.name, stage_key.key)
    atomic.make_folder(stage_folder)
    started = {"key": stage_key.key, "place": str(stage_folder), "began": _utc_now()}
    atomic.write_json(stage_folder / store.START_FILE, started)
    # A stage that waits says so anew: an old wait must not outlast what it waited for.
    (stage_folder / store.WAIT_FILE).unlink(missing_ok=True)


def run_stage(context: PipelineContext, stage: Stage, stage_key: StageKey) -> str:
    """Carry out a stage that was prepared, and write its manifest; returns the hash of its result.
    Whatever ends the process, what is there then is either whole and sealed, or goes on, or is made anew."""
    stage_folder = context.folder.stage(stage.name)
    began, start = store.read_start_file(stage_folder)["began"], time.perf_counter()
    try:
        done = _run_action(context, stage)
    except WaitingError as waiting:
        atomic.write_json(stage_folder / store.WAIT_FILE, [cast("Any", wait).facts for wait in waiting.waits])
        raise
    if not is_first_process():
        return ""
    outputs = store.output_hashes(stage_folder)
    result = store.result_hash(stage.kind, stage_key.key, outputs)
    manifest = {
        "name": stage.name,
        "do": stage.kind.name,
        "settings": stage_key.settings,
        "needs": [*stage.needs],
        "inputs": {name: dict(input_) for name, input_ in stage_key.inputs.items()},
        "key": stage_key.key,
        "result": result,
        "outputs": outputs,
        "code": dict(store.running_code_version()),
        "seconds": round(time.perf_counter() - start, 3),
        "began": began,
        "ended": _utc_now(),
        "command": done.command,
        "summary": [*done.sentences],
        "checks": [dict(check) for check in done.checks],
    }
    # The manifest is the seal: it is written last, so a stage without one is never taken as finished.
    atomic.write_json(stage_folder / store.MANIFEST_FILE, manifest)
    return result


def _run_action(context: PipelineContext, stage: Stage) -> StageResult:
    # Whatever is printed goes to the stage's own file, and a fault is told with the stage's name.
    out, name = context.folder.stage(stage.name), f"stage {stage.name} ({stage.kind.name})"
    with (
        (out / store.LOG_FILE).open("a", encoding="utf-8", buffering=1) as log,
        # What every rank would say alike is said once.
        contextlib.redirect_stdout(log if is_first_process() else StringIO()),
        contextlib.redirect_stderr(log),
        TemporaryDirectory() as scratch,
    ):
        try:
            config = context.config(stage)
            if stage.kind.trains or not stage.divides:
                return stage.kind.run(config, out, stage, context)
            with process_group(getattr(config, "device", "auto")) as ranks, rows_divided(ranks):
                # All ranks come to the same result, and the first one alone writes it where it belongs.
                return stage.kind.run(config, out if ranks.is_first else Path(scratch), stage, context)
        # Before the errors of users, of which they are: it keeps what is missing, and is no fault.
        except WaitingError as waiting:
            raise WaitingError(f"{name}: {waiting}", *waiting.waits) from waiting
        except LostPeersError:
            raise
        except UserError as error:
            raise UserError(f"{name}: {error}\nWhat {GOES_ON}") from error
        except Exception as error:
            error.add_note(f"in {name}; what {GOES_ON}")
            raise


def _utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOutcome:
    name: str
    status: Literal["done", "fault", "lost", "stopped", "waits"]
    """Whether it ended, failed, lost other ranks that failed, was asked to stop, or waits for people."""
    detail: str
    """The hash of the result, or what went wrong, or what is missing."""
    waits: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A stage, or one rank of it, for a process of its own."""

    folder: str
    stage: str
    stage_key: StageKey
    number: int
    """Which stage of this command it is; what is said of its ranks is said under it."""
    rank: int = 0
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """What a rank is to know of the others, as torchrun would say it."""


class Children:
    """Processes of this machine, each with an order."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._running: dict[Any, tuple[Order, BaseProcess]] = {}

    def start(self, order: Order) -> None:
        connection, theirs = self._context.Pipe()
        process = self._context.Process(target=_main, args=(theirs, order))
        process.start()
        # Ours is closed, so that the pipe ends with the process and a killed one is noticed.
        theirs.close()
        self._running[connection] = order, process

    def ended(self, seconds: float) -> list[tuple[Order, StageOutcome]]:
        """Those that have ended, after so many seconds at most."""
        return [self._outcome(connection) for connection in wait([*self._running], seconds)]

    def stop(self) -> None:
        """Send SIGTERM to what runs: it saves and ends."""
        for _, process in self._running.values():
            process.terminate()

    def kill(self, number: int) -> None:
        for order, process in self._running.values():
            if order.number == number:
                process.kill()

    def close(self) -> None:
        self.stop()
        for _, process in self._running.values():
            process.join()

    def _outcome(self, connection: Any) -> tuple[Order, StageOutcome]:
        # What the process sends; a fault, or a stop, where it is gone without a word.
        order, process = self._running.pop(connection)
        try:
            outcome: StageOutcome = connection.recv()
        except EOFError:
            process.join()
            code = process.exitcode
            killed = "; the system kills what takes too much memory" if code == -signal.SIGKILL else ""
            rank = f" (rank {order.rank})" if order.environment.get("WORLD_SIZE", "1") != "1" else ""
            detail = f"stage {order.stage}{rank}: its process ended with {code}{killed}. What {GOES_ON}"
            status = "stopped" if code == -signal.SIGTERM else "fault"
            outcome = StageOutcome(name=order.stage, status=status, detail=detail)
        connection.close()
        process.join()
        return order, outcome


class Place(NamedTuple):
    """Where a rank of a stage may run: in which process of the starter's, on which of its GPUs."""

    member: int
    local_rank: int


@dataclass(slots=True, kw_only=True)
class _StartedStage:
    name: str
    places: Sequence[Place]
    outcomes: dict[int, StageOutcome] = field(default_factory=dict[int, StageOutcome])
    failed_at: float | None = None

    @property
    def outcome(self) -> StageOutcome:
        # The first fault says why; who lost peers by it does not.
        every = [*self.outcomes.values()]
        for status in ("fault", "stopped", "lost"):
            if first := next((outcome for outcome in every if outcome.status == status), None):
                return replace(first, status="fault") if status == "lost" else first
        return self.outcomes[0]


class Workers:
    """Runs stages of the pipeline in a folder: one here, or several in processes of their own. A stage of
    several ranks has a process for each, on this machine or, by a `Crew`, where a starter began one."""

    def __init__(self, folder: Path, pipeline: Pipeline, crew: Crew | None = None) -> None:
        self._folder, self._pipeline, self._crew = folder, pipeline, crew
        self._outcomes: list[StageOutcome] = []
        self._running: dict[int, _StartedStage] = {}
        self._children, self._numbers, self._store = Children(), count(1), None
        self._ranks = {stage.name: self._ranks_of(stage) for stage in pipeline.stages}
        size = pipeline.jobs * max(self._ranks.values())
        self._places = {Place(0, at) for at in range(size)} if crew is None else crew.places
        for stage in pipeline.stages:
            if (ranks := self._ranks[stage.name]) > len(self._places):
                raise UserError(f"{stage.where}: processes {ranks} of {len(self._places)} that were started")
        if size > 1 or crew is not None:
            begin_loading()

    def _ranks_of(self, stage: Stage) -> int:
        whole = 1 if self._crew is None else len(self._crew.places)
        ranks = stage.processes or self._pipeline.processes or whole
        return ranks if stage.divides else 1

    def fits(self, stage: Stage) -> bool:
        """Whether it can start now, beside those that run."""
        running = len(self._running) + len(self._outcomes)
        return running < self._pipeline.jobs and self._ranks[stage.name] <= len(self._free_places())

    def _free_places(self) -> list[Place]:
        taken = {place for started in self._running.values() for place in started.places}
        return sorted(self._places - taken)

    def start(self, context: PipelineContext, stage: Stage, stage_key: StageKey, *, fresh: bool) -> None:
        prepare_stage(context, stage, stage_key, fresh=fresh)
        ranks = self._ranks[stage.name]
        number = next(self._numbers)
        order = Order(folder=str(self._folder), stage=stage.name, stage_key=stage_key, number=number)
        if self._crew is None and self._pipeline.jobs == ranks == 1:
            self._outcomes.append(_run_one(order))
            return
        if ranks > 1:
            # What the ranks read has to be there when the first of them looks.
            context.config(stage)
        places = self._free_places()[:ranks]
        self._running[number] = _StartedStage(name=stage.name, places=places)
        for rank, place in enumerate(places):
            environment = self._environment(number, rank, places)
            self._send(place, replace(order, rank=rank, environment=environment))

    def _environment(self, number: int, rank: int, places: Sequence[Place]) -> dict[str, str]:
        single = {"RANK": "0", "WORLD_SIZE": "1"}
        if len(places) == 1:
            return {} if self._crew is None else single
        local = {"LOCAL_RANK": str(places[rank].local_rank), "LOCAL_WORLD_SIZE": str(len(places))}
        meeting_place = self._store_here() if self._crew is None else self._crew.meeting_place
        return {
            **(local if self._crew is None else {}),
            **meeting_place,
            **{"RANK": str(rank), "WORLD_SIZE": str(len(places))},
            # All of them come to a store that is there, under a name of this stage's own.
            **{"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": f"stage {number}"},
        }

    def _store_here(self) -> dict[str, str]:
        if self._store is None:
            # It takes a port that is free, and holds it.
            self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self._store.port)}

    def _send(self, place: Place, order: Order) -> None:
        if self._crew is not None and place.member:
            self._crew.send(place.member, "start", asdict(order))
        else:
            self._children.start(order)

    def wait(self) -> list[StageOutcome]:
        """The outcomes of the stages that have ended, after `POLL_SECONDS` at most."""
        for order, outcome in self._children.ended(POLL_SECONDS) if self._running else ():
            self._note(order.number, order.rank, outcome)
        for _, (number, rank, outcome) in self._crew.received(self._crew.others) if self._crew else ():
            self._note(number, rank, StageOutcome(**outcome))
        ended = [number for number, it in self._running.items() if len(it.outcomes) == len(it.places)]
        outcomes, self._outcomes = self._outcomes + [self._running.pop(at).outcome for at in ended], []
        self._end_what_is_left()
        return outcomes

    def _note(self, number: int, rank: int, outcome: StageOutcome) -> None:
        if (started := self._running.get(number)) is None:
            return
        started.outcomes[rank] = outcome
        if outcome.status in ("fault", "lost"):
            started.failed_at = started.failed_at or time.monotonic()

    def _end_what_is_left(self) -> None:
        # Ranks whose peers have failed notice it themselves when they next meet; that may be in an hour.
        for number, started in self._running.items():
            waited = 0.0 if started.failed_at is None else time.monotonic() - started.failed_at
            if waited < GRACE_SECONDS:
                continue
            self._children.kill(number)
            if self._crew is not None:
                for member in {place.member for place in started.places} - {0}:
                    self._crew.send(member, "kill", number)
            for rank in range(len(started.places)) if waited > 3 * GRACE_SECONDS else ():
                gone = f"stage {started.name}: rank {rank} does not answer any more. What {GOES_ON}"
                lost = StageOutcome(name=started.name, status="lost", detail=gone)
                started.outcomes.setdefault(rank, lost)

    def stop(self) -> None:
        """Ask what runs to save and end."""
        self._children.stop()
        if self._crew is not None:
            for member in self._crew.others:
                self._crew.send(member, "stop")

    def close(self) -> None:
        self.stop()
        self._children.close()


class Crew:
    """The processes that torchrun or another starter began: the first leads, the others do what it says."""

    def __init__(self) -> None:
        try:
            shared, self._rank, self._size = next(iter(rendezvous("env://", timeout=timedelta(minutes=10))))
        except (dist.DistError, ValueError) as error:
            raise UserError(
                f"the processes that WORLD_SIZE announces did not find each other ({first_line(error)}): "
                "start them with torchrun, or unset WORLD_SIZE"
            ) from error
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self._store = PrefixStore(f"crew {restart}", shared)
        self._sent, self._read, self.others = Counter[int](), Counter[int](), range(1, self._size)
        # Which GPU it has, each knows itself.
        self.places = frozenset(Place(member, 0) for member in range(self._size))
        self.meeting_place = {name: os.environ[name] for name in ("MASTER_ADDR", "MASTER_PORT")}

    def send(self, member: int, word: str, value: object = None) -> None:
        self._store.set(f"{self._rank}>{member} {self._sent[member]}", exact_json.dumps([word, value]))
        self._sent[member] += 1

    def received(self, members: Iterable[int]) -> Iterator[tuple[str, Any]]:
        for member in members:
            while self._store.check([key := f"{member}>{self._rank} {self._read[member]}"]):
                self._read[member] += 1
                word, value = exact_json.loads(self._store.get(key))
                yield word, value

    def dismiss(self) -> None:
        """Tell the others that all is done, and wait for their word: what they hear it by goes with us."""
        for member in self.others:
            self.send(member, "end")
        begin, heard = time.monotonic(), 0
        while heard < len(self.others) and time.monotonic() - begin < GRACE_SECONDS:
            heard += sum(word == "ended" for word, _ in self.received(self.others))
            time.sleep(0.05)

    def follow(self) -> None:
        """Do what the first process says, until it says that all is done."""
        begin_loading()
        children = Children()
        # A starter that stops one process stops all; the first one hears it too, and says what is next.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: children.stop())
        try:
            while all(self._obeyed(children, *order) for order in self.received([0])):
                for order, outcome in children.ended(POLL_SECONDS):
                    self.send(0, "outcome", [order.number, order.rank, {**asdict(outcome), "waits": []}])
        except dist.DistError as error:
            raise UserError("the first process of this run is gone, which says what is to be done") from error
        finally:
            children.close()

    def _obeyed(self, children: Children, word: str, value: Any) -> bool:
        if word == "start":
            children.start(restore(Order, value))
        elif word == "kill":
            children.kill(value)
        elif word == "stop":
            children.stop()
        else:
            self.send(0, "ended")
        return word != "end"


@contextlib.contextmanager
def leading() -> Iterator[Crew]:
    """The crew, in the process that leads; the others come back at the end of the command alone."""
    crew = Crew()
    if not is_first_process():
        crew.follow()
        raise CommandEnd(0)
    try:
        yield crew
    except UserError as error:
        if is_last_try_of_torchrun():
            say_after(os.getppid(), f"plaudit: {error}")
        raise
    finally:
        crew.dismiss()


def _main(connection: Connection, order: Order) -> None:
    # Ctrl-C reaches every process of a terminal; the one that was called asks the others to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if order.environment:
        for name in [name for name in os.environ if name.startswith("TORCHELASTIC_")]:
            del os.environ[name]
        os.environ.update(order.environment)
    connection.send(_run_one(order))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        # sys.exit would end this thread and not the process.
        os._exit(1)


def _run_one(order: Order) -> StageOutcome:
    outcome, folder = partial(StageOutcome, name=order.stage), store.PipelineFolder(path=Path(order.folder))
    threads, here = torch.get_num_threads(), int(order.environment.get("LOCAL_WORLD_SIZE", "1"))
    try:
        pipeline = read_pipeline(folder.config)
        # The same threads and the same seed for a stage, whatever ran before it in this process.
        torch.set_num_threads(pipeline.threads or max(1, threads // here))
        seed_everything(pipeline.seed, 0)
        context = PipelineContext.of(folder, pipeline)
        result = run_stage(context, pipeline.stage(order.stage), order.stage_key)
    except WaitingError as waiting:
        return outcome(status="waits", detail=str(waiting), waits=waiting.waits)
    except LostPeersError as lost:
        return outcome(status="lost", detail=f"stage {order.stage}: {lost}")
    except UserError as error:
        return outcome(status="fault", detail=str(error))
    except CommandEnd:
        return outcome(status="lost", detail=f"stage {order.stage}: all of its ranks met the same fault")
    except InterruptedRunError as stop:
        return outcome(status="stopped", detail=str(stop))
    finally:
        torch.set_num_threads(threads)
    return outcome(status="done", detail=result)
