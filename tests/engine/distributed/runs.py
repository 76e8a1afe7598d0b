"""Commands one after the other in the same ranks, which are forks of a process that has the libraries.

Starting Python and its libraries takes ten times as long as a toy's run, and the command's own ``main`` is
what is under test: the ranks have the environment that ``torchrun`` gives; what is torchrun's own is tested
in test_faults.py. Each rank writes what came of each command to ``said-PLAN.rank<n>.json``.
"""

import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

from tests.engine.distributed.launch import PATIENCE
from tests.engine.toy_command import warm_server


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    code: int
    out: str
    err: str
    """What it said on the error stream."""
    left: tuple[str, ...] = ()
    """Threads of a process group that are still there afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    more_of_last_rank: tuple[str, ...] = ()
    """Arguments that only the last rank is given."""


def run_all(plan: Mapping[str, Run], folder: Path, *, ranks: int) -> dict[str, list[Said]]:
    """Run each command on so many ranks; what each of them said, in rank order."""
    path = folder / f"plan-{len(list(folder.glob('plan-*.json')))}.json"
    path.write_text(json.dumps({name: asdict(one) for name, one in plan.items()}))
    # Where ranks find each other: torchrun's own store outlives their groups too.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    processes = [
        warm_server().Process(target=_main, args=(path, environment_of(store, rank, ranks, folder)))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    join(processes)
    assert [process.exitcode for process in processes] == [0] * ranks
    said = [json.loads(_result(path, rank).read_text()) for rank in range(ranks)]
    return {name: [_said(one[name]) for one in said] for name in plan}


def _said(one: Mapping[str, Any]) -> Said:
    return Said(code=one["code"], out=one["out"], err=one["err"], left=tuple(one["left"]))


def environment_of(store: TCPStore, rank: int, ranks: int, folder: Path) -> dict[str, str]:
    """What torchrun tells a rank; nothing to one that is alone."""
    if ranks == 1:
        return {}
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": store.host,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_ERROR_FILE": str(folder / f"error-of-rank-{rank}.json"),
    }


def join(processes: Sequence[BaseProcess]) -> None:
    """Until all have ended; one that dies takes the others along, as under torchrun."""
    latest = time.monotonic() + PATIENCE
    while any(process.is_alive() for process in processes):
        if time.monotonic() > latest or any(process.exitcode for process in processes):
            for process in processes:
                process.kill()
        processes[0].join(0.02)
        time.sleep(0.005)


def _result(plan: Path, rank: int) -> Path:
    return plan.with_name(f"said-{plan.stem}.rank{rank}.json")


def _one(run: Run) -> Said:
    from plaudit.cli.main import main
    from tests.models.digits import ENVIRONMENT, every_digit

    out, err, before = io.StringIO(), io.StringIO(), dict(os.environ)
    os.environ.update(run.environment)
    try:
        digits = every_digit() if ENVIRONMENT in os.environ else nullcontext()
        with digits, redirect_stdout(out), redirect_stderr(err):
            rank, ranks = (int(os.environ.get(name, "0")) for name in ("RANK", "WORLD_SIZE"))
            code = main([*run.arguments, *(run.more_of_last_rank if rank == ranks - 1 else ())])
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os.environ.clear()
        os.environ.update(before)
    return Said(code=code, out=out.getvalue(), err=err.getvalue(), left=_group_threads())


def _group_threads() -> tuple[str, ...]:
    """One that waits for Python when Python ends would abort the process."""
    names = (path.read_text("utf-8").strip() for path in Path("/proc/self/task").glob("*/comm"))
    return tuple(sorted(name for name in names if "gloo" in name))


def _main(plan: Path, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    runs = {name: Run(**one) for name, one in json.loads(plan.read_text()).items()}
    said = {name: asdict(_one(run)) for name, run in runs.items()}
    _result(plan, int(os.environ.get("RANK", "0"))).write_text(json.dumps(said))
