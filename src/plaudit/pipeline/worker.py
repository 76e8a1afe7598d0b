"""Where stages run: in this process, or several side by side in processes that end when their parent ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from plaudit.errors import UserError
from plaudit.pipeline.spec import Pipeline
from plaudit.pipeline.status import StageKey

POLL_SECONDS = 0.5
"""Seconds between two looks at what a signal may have asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOutcome:
    """How a stage ended.

    Example: ``StageOutcome(name="sft", status="done", detail="9f86…")``
    """

    name: str
    """The stage."""
    status: Literal["done", "fault", "stopped"]
    """Whether it ended, failed, or was asked to stop."""
    detail: str
    """The hash of the result, or what went wrong."""


class Workers:
    """Runs stages of the pipeline in a folder: one here, or up to ``jobs`` in processes of their own."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._folder, self._jobs = folder, jobs
        self._outcomes: list[StageOutcome] = []
        self._running: dict[Any, tuple[str, BaseProcess]] = {}
        # What training needs is loaded once, in the process that all others are forked from.
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["plaudit.methods.registry"])

    @property
    def free(self) -> bool:
        """Whether another stage can be started."""
        return len(self._running) + len(self._outcomes) < self._jobs

    def start(self, name: str, stage_key: StageKey, *, fresh: bool) -> None:
        """Run the stage; with one job it has ended when this returns."""
        if self._jobs == 1:
            self._outcomes.append(_run(self._folder, name, stage_key, fresh))
            return
        connection, theirs = self._context.Pipe()
        process = self._context.Process(target=_main, args=(theirs, self._folder, name, stage_key, fresh))
        process.start()
        theirs.close()
        self._running[connection] = name, process

    def wait(self) -> list[StageOutcome]:
        """The outcomes of the stages that have ended, after `POLL_SECONDS` at most."""
        ready = wait([*self._running], POLL_SECONDS) if self._running else []
        outcomes = self._outcomes + [self._outcome(one) for one in ready]
        self._outcomes = []
        return outcomes

    def stop(self) -> None:
        """Send SIGTERM to what runs: it saves and ends."""
        for _, process in self._running.values():
            process.terminate()

    def close(self) -> None:
        """End every process."""
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
            detail = (
                f"stage {name}: its process ended with {code}{killed}. What is finished is kept, and the "
                "same command goes on from here"
            )
            status = "stopped" if code == -signal.SIGTERM else "fault"
            outcome = StageOutcome(name=name, status=status, detail=detail)
        connection.close()
        process.join()
        return outcome


def _main(connection: Connection, folder: Path, name: str, stage_key: StageKey, fresh: bool) -> None:
    """One stage in a process of its own."""
    # Ctrl-C reaches every process of a terminal; the one that was called asks the others to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection.send(_run(folder, name, stage_key, fresh))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(folder: Path, name: str, stage_key: StageKey, fresh: bool) -> StageOutcome:
    """Carry out a stage of the pipeline in a folder, in this process."""
    from plaudit.engine.loop import InterruptedRunError
    from plaudit.pipeline.actions import run_stage_action
    from plaudit.pipeline.read import read_pipeline
    from plaudit.pipeline.stage_run import StageContext, run_stage
    from plaudit.pipeline.store import PipelineFolder

    pipeline_folder = PipelineFolder(path=folder)
    try:
        pipeline = read_pipeline(pipeline_folder.config)
        context = StageContext(stage=pipeline.stage(name), pipeline=pipeline, folder=pipeline_folder)
        with _fixed_threads_and_seed(pipeline):
            detail = run_stage(context, stage_key, run_stage_action, fresh=fresh)
    except UserError as error:
        return StageOutcome(name=name, status="fault", detail=str(error))
    except InterruptedRunError as stop:
        return StageOutcome(name=name, status="stopped", detail=str(stop))
    return StageOutcome(name=name, status="done", detail=detail)


@contextmanager
def _fixed_threads_and_seed(pipeline: Pipeline) -> Iterator[None]:
    """The same threads and the same seed for a stage, whatever ran before it in this process."""
    import torch

    from plaudit.engine.checkpoint.state import seed_everything

    thread_count = torch.get_num_threads()
    if pipeline.threads is not None:
        torch.set_num_threads(pipeline.threads)
    seed_everything(pipeline.seed, 0)
    try:
        yield
    finally:
        torch.set_num_threads(thread_count)
