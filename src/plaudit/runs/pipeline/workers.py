"""Stages carried out, each with its result sealed: here, or with several jobs in processes of their own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, cast

from plaudit.errors import UserError, WaitingError
from plaudit.files import atomic
from plaudit.runs.pipeline import begin_loading
from plaudit.runs.pipeline.kinds import StageResult
from plaudit.runs.pipeline.read import read_pipeline
from plaudit.runs.pipeline.spec import Stage
from plaudit.runs.pipeline.status import GOES_ON, PipelineContext, StageKey, can_resume
from plaudit.runs.pipeline.store import (
    LOG_FILE,
    MANIFEST_FILE,
    START_FILE,
    WAIT_FILE,
    PipelineFolder,
    output_hashes,
    result_hash,
    running_code_version,
    set_aside,
)

POLL_SECONDS = 0.5
"""Seconds between two looks at what a signal may have asked for."""


def run_stage(context: PipelineContext, stage: Stage, stage_key: StageKey, *, fresh: bool) -> str:
    """Carry out a stage and write its manifest; returns the hash of its result.

    Whatever ends the process, what is there then is either whole and sealed, or goes on, or is made anew.
    """
    stage_folder = context.folder.stage(stage.name)
    if fresh or not can_resume(context.folder, stage, stage_key.key):
        set_aside(context.folder, stage.name, stage_key.key)
    atomic.make_folder(stage_folder)
    began, start = _utc_now(), time.perf_counter()
    started = {"key": stage_key.key, "place": str(stage_folder), "began": began}
    atomic.write_json(stage_folder / START_FILE, started)
    waits_file = stage_folder / WAIT_FILE
    # A stage that waits says so anew: an old wait must not outlast what it waited for.
    waits_file.unlink(missing_ok=True)
    try:
        done = _run_action(context, stage)
    except WaitingError as waiting:
        atomic.write_json(waits_file, [cast("Any", wait).facts for wait in waiting.waits])
        raise
    outputs = output_hashes(stage_folder)
    result = result_hash(stage.kind, stage_key.key, outputs)
    manifest = {
        "name": stage.name,
        "do": stage.kind.name,
        "settings": stage_key.settings,
        "needs": [*stage.needs],
        "inputs": {name: dict(input_) for name, input_ in stage_key.inputs.items()},
        "key": stage_key.key,
        "result": result,
        "outputs": outputs,
        "code": dict(running_code_version()),
        "seconds": round(time.perf_counter() - start, 3),
        "began": began,
        "ended": _utc_now(),
        "command": done.command,
        "summary": [*done.sentences],
        "checks": [dict(check) for check in done.checks],
    }
    # The manifest is the seal: it is written last, so a stage without one is never taken as finished.
    atomic.write_json(stage_folder / MANIFEST_FILE, manifest)
    return result


def _run_action(context: PipelineContext, stage: Stage) -> StageResult:
    """Whatever is printed goes to the stage's own file, and a fault is told with the stage's name."""
    out, name = context.folder.stage(stage.name), f"stage {stage.name} ({stage.kind.name})"
    with (
        (out / LOG_FILE).open("a", encoding="utf-8", buffering=1) as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        try:
            return stage.kind.run(context.config(stage), out, stage, context)
        # Before the errors of users, of which it is one: it keeps what is missing, and is no fault.
        except WaitingError as waiting:
            raise WaitingError(f"{name}: {waiting}", *waiting.waits) from waiting
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
    status: Literal["done", "fault", "stopped", "waits"]
    """Whether it ended, failed, was asked to stop, or waits for people."""
    detail: str
    """The hash of the result, or what went wrong, or what is missing."""
    waits: tuple[Any, ...] = ()


class Workers:
    """Runs stages of the pipeline in a folder: one here, or up to ``jobs`` in processes of their own."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._folder, self._jobs = folder, jobs
        self._outcomes: list[StageOutcome] = []
        self._running: dict[Any, tuple[str, BaseProcess]] = {}
        self._context = multiprocessing.get_context("forkserver")
        if jobs > 1:
            begin_loading()

    @property
    def free(self) -> bool:
        return len(self._running) + len(self._outcomes) < self._jobs

    def start(self, name: str, stage_key: StageKey, *, fresh: bool) -> None:
        if self._jobs == 1:
            self._outcomes.append(_run_one(self._folder, name, stage_key, fresh))
            return
        connection, theirs = self._context.Pipe()
        process = self._context.Process(target=_main, args=(theirs, self._folder, name, stage_key, fresh))
        process.start()
        # Ours is closed, so that the pipe ends with the process and a killed one is noticed.
        theirs.close()
        self._running[connection] = name, process

    def wait(self) -> list[StageOutcome]:
        """The outcomes of the stages that have ended, after `POLL_SECONDS` at most."""
        ready = wait([*self._running], POLL_SECONDS) if self._running else []
        outcomes, self._outcomes = self._outcomes + [self._outcome(worker) for worker in ready], []
        return outcomes

    def stop(self) -> None:
        """Send SIGTERM to what runs: it saves and ends."""
        for _, process in self._running.values():
            process.terminate()

    def close(self) -> None:
        self.stop()
        for _, process in self._running.values():
            process.join()

    def _outcome(self, connection: Any) -> StageOutcome:
        """What the process sends; a fault, or a stop, where it is gone without a word."""
        name, process = self._running.pop(connection)
        try:
            outcome: StageOutcome = connection.recv()
        except EOFError:
            process.join()
            code = process.exitcode
            killed = "; the system kills what takes too much memory" if code == -signal.SIGKILL else ""
            detail = f"stage {name}: its process ended with {code}{killed}. What {GOES_ON}"
            status = "stopped" if code == -signal.SIGTERM else "fault"
            outcome = StageOutcome(name=name, status=status, detail=detail)
        connection.close()
        process.join()
        return outcome


def _main(connection: Connection, folder: Path, name: str, stage_key: StageKey, fresh: bool) -> None:
    # Ctrl-C reaches every process of a terminal; the one that was called asks the others to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection.send(_run_one(folder, name, stage_key, fresh))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        # sys.exit would end this thread and not the process.
        os._exit(1)


def _run_one(folder: Path, name: str, stage_key: StageKey, fresh: bool) -> StageOutcome:
    import torch

    from plaudit.engine.checkpoint.state import seed_everything
    from plaudit.engine.distributed import InterruptedRunError

    outcome, pipeline_folder = partial(StageOutcome, name=name), PipelineFolder(path=folder)
    threads = torch.get_num_threads()
    try:
        pipeline = read_pipeline(pipeline_folder.config)
        # The same threads and the same seed for a stage, whatever ran before it in this process.
        torch.set_num_threads(pipeline.threads or threads)
        seed_everything(pipeline.seed, 0)
        context = PipelineContext.of(pipeline_folder, pipeline)
        result = run_stage(context, pipeline.stage(name), stage_key, fresh=fresh)
    except WaitingError as waiting:
        return outcome(status="waits", detail=str(waiting), waits=waiting.waits)
    except UserError as error:
        return outcome(status="fault", detail=str(error))
    except InterruptedRunError as stop:
        return outcome(status="stopped", detail=str(stop))
    finally:
        torch.set_num_threads(threads)
    return outcome(status="done", detail=result)
