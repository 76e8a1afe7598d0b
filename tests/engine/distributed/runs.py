"""Commands one after the other in the same ranks: ``torchrun runs.py PLAN.json``, or plain ``python``.

Starting Python and its libraries takes longer than a toy's run, and the command's own ``main`` is what is
under test. Each rank writes what came of each command to ``PLAN.rank<n>.json``.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from tests.engine.distributed.launch import PATIENCE, ROOT, run


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What came of a command on one rank.

    Example: ``Said(code=0, out="The model is in runs/a/model", err="")``
    """

    code: int
    """What the command returned."""
    out: str
    """What it said."""
    err: str
    """What it said on the error stream."""
    left: tuple[str, ...] = ()
    """Threads of a process group that are still there afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A command and the environment that it runs in.

    Example: ``Run(arguments=("train", "sft", …), environment={"TOY_STOP": "1:3"})``
    """

    arguments: tuple[str, ...]
    """Behind ``plaudit``."""
    environment: Mapping[str, str]
    """Set while it runs."""


def run_all(plan: Mapping[str, Run], folder: Path, *, ranks: int) -> dict[str, list[Said]]:
    """Run each command on so many ranks; what each of them said, in rank order."""
    path = folder / f"plan-{len(list(folder.glob('plan-*.json')))}.json"
    path.write_text(json.dumps({name: asdict(one) for name, one in plan.items()}))
    if ranks == 1:
        process = _warm().Process(target=_main, args=([str(path)],))
        process.start()
        process.join(PATIENCE)
        assert process.exitcode == 0
    else:
        done = run(__file__, path, ranks=ranks, cwd=folder)
        assert done.code == 0, done.err
    said = [json.loads(_result(path, rank).read_text()) for rank in range(ranks)]
    return {name: [_said(one[name]) for one in said] for name in plan}


def _said(one: Mapping[str, Any]) -> Said:
    return Said(code=one["code"], out=one["out"], err=one["err"], left=tuple(one["left"]))


def _warm() -> ForkServerContext:
    """One process alone need not begin cold: torchrun is not part of what is under test there."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["plaudit.methods.supervised.run", "torch.distributed.fsdp", "peft.tuners.lora"]
    )
    return context


def _result(plan: Path, rank: int) -> Path:
    return plan.with_name(f"said-{plan.stem}.rank{rank}.json")


def _one(run: Run) -> Said:
    from plaudit.cli.main import main

    out, err, before = io.StringIO(), io.StringIO(), dict(os.environ)
    os.environ.update(run.environment)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(run.arguments)
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


def _main(arguments: Sequence[str]) -> None:
    plan = Path(arguments[0])
    runs = {name: Run(**one) for name, one in json.loads(plan.read_text()).items()}
    said = {name: asdict(_one(run)) for name, run in runs.items()}
    _result(plan, int(os.environ.get("RANK", "0"))).write_text(json.dumps(said))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    _main(sys.argv[1:])
