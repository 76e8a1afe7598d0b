"""What the commands that run pipelines share: what goes on is told, a stop is said, a config is copied."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.errors import UserError

if TYPE_CHECKING:
    from plaudit.pipeline.course import Told
    from plaudit.pipeline.running import StoppedError


@contextlib.contextmanager
def telling() -> Iterator[Told]:
    """Lines that stay, and on a terminal one that says what runs just now."""
    from rich.console import Console

    from plaudit.pipeline.course import Told
    from plaudit.training.sinks.console import is_live

    console = Console(stderr=True, file=sys.stderr, highlight=False, markup=False, soft_wrap=True)
    if not is_live(console, os.environ):
        yield Told(line=console.print)
        return
    with console.status("") as status:
        yield Told(line=console.print, now=status.update)


def stopped(stop: StoppedError) -> int:
    """Say what a signal ended; returns the exit code of that."""
    print(f"plaudit: {stop}; the same command goes on from here", file=sys.stderr)
    return 128 + stop.signum


def refuse_many_processes(verb: str) -> None:
    """Complain about being started by torchrun."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(f"plaudit {verb} is one process; give torchrun the training commands, one by one")


def copy_config(config: Path, target: Path) -> None:
    """Write a config that comes with plaudit to a new file."""
    if target.exists():
        raise UserError(f"{target}: something is there already; name a new file")
    try:
        target.write_text(config.read_text("utf-8"), "utf-8")
    except OSError as error:
        raise UserError(f"{target}: cannot be written ({error.strerror})") from error
