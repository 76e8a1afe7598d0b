"""Processes that carry out stages, one after another in each; they end when the one that began them ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Literal

from plaudit.errors import UserError
from plaudit.pipeline.keys import Decided
from plaudit.pipeline.stage import Pipeline

PATIENCE = 0.5
"""Seconds between two looks at what a signal may have asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A stage that is to be carried out.

    Example: ``Order(name="sft", decided=found, fresh=False)``
    """

    name: str
    """The stage; empty: look the whole pipeline over, and carry out nothing."""
    decided: Decided | None = None
    """What decides its result."""
    fresh: bool = False
    """Whether nothing half done is gone on with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it went.

    Example: ``Outcome(name="sft", how="done", said="9f86…")``
    """

    name: str
    """The stage."""
    how: Literal["done", "fault", "stopped"]
    """Whether it ended, failed, or was asked to stop."""
    said: str
    """The hash of the result, or what went wrong."""


def obey(folder: Path, order: Order) -> Outcome:
    """Carry out a stage of the pipeline in a folder, in this process."""
    from plaudit.pipeline.folder import Folder
    from plaudit.pipeline.looking import look_over
    from plaudit.pipeline.making import make
    from plaudit.pipeline.reading import read_pipeline
    from plaudit.pipeline.work import Work, carry_out
    from plaudit.training.interrupt import InterruptedRunError

    place = Folder(path=folder)
    pipeline = read_pipeline(place.config)
    try:
        if order.decided is None:
            look_over(pipeline)
            return Outcome(name=order.name, how="done", said="")
        work = Work(stage=pipeline.stage(order.name), pipeline=pipeline, folder=place)
        with _alike(pipeline):
            result = carry_out(work, order.decided, make, fresh=order.fresh)
    except UserError as error:
        return Outcome(name=order.name, how="fault", said=str(error))
    except InterruptedRunError as stop:
        return Outcome(name=order.name, how="stopped", said=str(stop))
    return Outcome(name=order.name, how="done", said=result)


@contextmanager
def _alike(pipeline: Pipeline) -> Iterator[None]:
    """The same threads and the same chance for a stage, whatever ran before it in this process."""
    import torch

    from plaudit.training.chance import seed_everything

    before = torch.get_num_threads()
    if pipeline.threads is not None:
        torch.set_num_threads(pipeline.threads)
    seed_everything(pipeline.seed, 0)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Here:
    """No process but this one: a stage is carried out when it is given."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._done: list[Outcome] = []

    @property
    def free(self) -> int:
        """One at a time, and what has ended is asked for before the next."""
        return 0 if self._done else 1

    def give(self, order: Order) -> None:
        """Carry it out."""
        self._done.append(obey(self._folder, order))

    def wait(self) -> list[Outcome]:
        """What has ended since."""
        done, self._done = self._done, []
        return done

    def stop(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing is left."""


class Lanes:
    """Several processes side by side, each with one stage at a time."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._lanes = [_Lane(folder) for _ in range(jobs)]

    @property
    def free(self) -> int:
        """How many have nothing to do."""
        return sum(lane.busy is None for lane in self._lanes)

    def give(self, order: Order) -> None:
        """Let a free one carry it out."""
        next(lane for lane in self._lanes if lane.busy is None).give(order)

    def wait(self) -> list[Outcome]:
        """What has ended, after a moment at most."""
        busy = [lane for lane in self._lanes if lane.busy is not None]
        ready = wait([lane.connection for lane in busy], PATIENCE) if busy else []
        return [lane.outcome() for lane in busy if lane.connection in ready]

    def stop(self) -> None:
        """Ask those that work to save and to end."""
        for lane in self._lanes:
            if lane.busy is not None:
                lane.process.terminate()

    def close(self) -> None:
        """End all of them."""
        for lane in self._lanes:
            lane.close()


class _Lane:
    """One process."""

    def __init__(self, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_work, args=(theirs, str(folder)), daemon=False)
        self.process.start()
        theirs.close()
        self.busy: str | None = None

    def give(self, order: Order) -> None:
        self.busy = order.name
        self.connection.send(order)

    def outcome(self) -> Outcome:
        """What it answers; a process that is gone answers nothing."""
        name, self.busy = self.busy or "", None
        try:
            return self.connection.recv()
        except EOFError:
            self.process.join()
            code = self.process.exitcode
            how = "stopped" if code == -signal.SIGTERM else "fault"
            killed = "; the system kills what takes too much memory" if code == -signal.SIGKILL else ""
            said = (
                f"stage {name}: its process ended with {code}{killed}. What is finished is kept, and the "
                "same command goes on from here"
            )
            return Outcome(name=name, how=how, said=said)

    def close(self) -> None:
        self.connection.close()
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join()


def _work(connection: Connection, folder: str) -> None:
    """The life of a lane: orders in, outcomes out, until nobody is at the other end."""
    # Ctrl-C reaches every process of a terminal; the one that was called asks the others to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Every lane trains sooner or later: what that needs is loaded while the first stages are given out.
    import_module("plaudit.recipes.kinds")
    while True:
        try:
            order: Order = connection.recv()
        except EOFError:
            return
        connection.send(obey(Path(folder), order))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
