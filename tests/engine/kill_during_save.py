"""Saves checkpoints in forked children that are SIGKILLed, and prints what each left behind as JSON.

Run as a script: one import of torch serves every kill. A profile hook counts the calls into the operating
system (module posix and Python's file objects) without replacing any of them; the child kills itself just
before its n-th. usage: kill_during_save.py FOLDER
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

from plaudit.engine.checkpoint import save
from plaudit.engine.checkpoint.save import TrainState
from plaudit.files import atomic


def state_at(step: int, flavour: float = 0.0, size: int = 300) -> TrainState:
    weight = torch.arange(size, dtype=torch.float32) / 7 + step + flavour
    tensors = {"model": {"weight": weight, "tied": weight}, "optimizer": {"moment": weight.double() * step}}
    return TrainState(step=step, tensors=tensors, facts={"flavour": flavour, "lr": step / 3})


def same(one: TrainState, other: TrainState) -> bool:
    names = {part: list(named) for part, named in one.tensors.items()}
    if names != {part: sorted(named, key=names[part].index) for part, named in other.tensors.items()}:
        return False
    pairs = [(t, other.tensors[part][n]) for part, named in one.tensors.items() for n, t in named.items()]
    return one.facts == other.facts and all(torch.equal(a, b) and a.dtype == b.dtype for a, b in pairs)


SCENARIOS = {
    "first": ([], state_at(1)),
    "next": ([state_at(1)], state_at(2)),
    "again": ([state_at(1)], state_at(1, flavour=0.5)),
}


def save_until_call(folder: Path, state: TrainState, fatal: int, report: int) -> None:
    calls = 0

    def watch(_frame: object, event: str, function: object) -> None:
        nonlocal calls
        owner = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
        if event == "c_call" and owner in ("posix", "_io"):
            calls += 1
            if calls == fatal:
                os.write(report, str(getattr(function, "__name__", "?")).encode())
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(watch)
    save.save_checkpoint(folder, state, keep=1)
    sys.setprofile(None)


def killed_before_call(folder: Path, state: TrainState, fatal: int) -> str | None:
    """The name of the call before which the child died; None when it lived to the end."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        save_until_call(folder, state, fatal, writer)
        os._exit(0)
    os.close(writer)
    _, status = os.waitpid(pid, 0)
    name = os.read(reader, 100).decode()
    os.close(reader)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return name
    assert os.waitstatus_to_exitcode(status) == 0
    return None


def every_call(scenario: str, folder: Path) -> list[dict[str, object]]:
    before, after = SCENARIOS[scenario]
    cases: list[dict[str, object]] = []
    start = folder / "start"
    start.mkdir()
    for state in before:
        save.save_checkpoint(start, state, keep=1)
    for fatal in range(1, 10_000):
        case = Path(shutil.copytree(start, folder / f"{fatal}"))
        call = killed_before_call(case, after, fatal)
        cases.append({"call": call, **aftermath(case, [*before, after])})
        shutil.rmtree(case)
        if call is None:
            return cases
    raise AssertionError("the save never ended")


def aftermath(case: Path, possible: list[TrainState]) -> dict[str, object]:
    at_once = save.load_latest_checkpoint(case)
    atomic.remove_leftovers(case)
    loaded = save.load_latest_checkpoint(case)
    for path in save.list_checkpoints(case):
        save.load_checkpoint(path)
    leftovers = [path.name for path in case.iterdir() if path.name.startswith(".")]
    which = [i for i, state in enumerate(possible) if loaded and same(state, loaded.state)]
    which_at_once = [i for i, state in enumerate(possible) if at_once and same(state, at_once.state)]
    save.save_checkpoint(case, state_at(3), keep=1)
    final = save.load_latest_checkpoint(case)
    return {
        "state": which[0] if which else None,
        "state_at_once": which_at_once[0] if which_at_once else None,
        "complete": loaded is None or bool(which),
        "leftovers": leftovers,
        "notes": [] if loaded is None else list(loaded.notes),
        "goes_on": final is not None and same(final.state, state_at(3)),
    }


def any_moment(folder: Path, rounds: int = 15) -> list[dict[str, object]]:
    """A saver that is killed again and again, each time going on from what it finds."""
    chance = random.Random(0)
    cases: list[dict[str, object]] = []
    for _ in range(rounds):
        pid = os.fork()
        if pid == 0:
            save_for_ever(folder)
        time.sleep(chance.uniform(0.02, 0.12))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        loaded = save.load_latest_checkpoint(folder)
        step = 0 if loaded is None else loaded.state.step
        whole = loaded is None or same(loaded.state, state_at(step, size=300_000))
        cases.append({"step": step, "complete": whole})
    return cases


def save_for_ever(folder: Path) -> None:
    atomic.remove_leftovers(folder)
    loaded = save.load_latest_checkpoint(folder)
    step = 0 if loaded is None else loaded.state.step
    while True:
        step += 1
        save.save_checkpoint(folder, state_at(step, size=300_000), keep=2)


def subfolder(name: str) -> Path:
    folder = Path(sys.argv[1], name)
    folder.mkdir()
    return folder


if __name__ == "__main__":
    torch.set_num_threads(1)
    results = {"any": any_moment(subfolder("any"))}
    results |= {scenario: every_call(scenario, subfolder(scenario)) for scenario in SCENARIOS}
    print(json.dumps(results))
