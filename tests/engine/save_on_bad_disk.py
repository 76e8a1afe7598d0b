"""Saves a good checkpoint, spoils the disk in one way, tries again, and prints what happened as JSON.

Run as a script. usage: save_on_bad_disk.py FAULT FOLDER
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from plaudit.engine import run_folder
from plaudit.engine.checkpoint import save
from plaudit.engine.checkpoint.save import TrainState
from plaudit.engine.sinks.files import JsonlFile
from plaudit.errors import UserError


def no_inodes(folder: Path) -> None:
    with suppress(OSError):
        for number in range(100_000):
            (folder / f"filler-{number}").touch()


def read_only(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)


def forbidden(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    if os.geteuid() == 0:
        os.setuid(65534)


def said_by(action: Callable[[], object]) -> str | None:
    try:
        action()
    except UserError as error:
        return str(error)
    return None


def open_and_close(run: Path) -> None:
    with run_folder.open_run_folder(run, config={"seed": 0}):
        pass


if __name__ == "__main__":
    faults = {fault.__name__: fault for fault in (no_inodes, read_only, forbidden)}
    fault, folder = faults[sys.argv[1]], Path(sys.argv[2])
    run = folder / "run"
    open_and_close(run)
    JsonlFile(run / "metrics.jsonl").close()
    small = TrainState(step=1, tensors={"model": {"w": torch.ones(1000)}}, facts={})
    large = TrainState(step=2, tensors={"model": {"w": torch.ones(600_000)}}, facts={})
    save.save_checkpoint(run / "checkpoints", small)
    before = sorted(path.name for path in run.rglob("*"))
    fault(folder)
    said = {
        "save": said_by(lambda: save.save_checkpoint(run / "checkpoints", large)),
        "open": said_by(lambda: open_and_close(run)),
        "new": said_by(lambda: open_and_close(folder / "other")),
    }
    after = sorted(path.name for path in run.rglob("*"))
    loaded = save.load_latest_checkpoint(run / "checkpoints")
    step = None if loaded is None else loaded.state.step
    print(json.dumps({"said": said, "unchanged": before == after, "step": step}))
