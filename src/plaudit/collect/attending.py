"""While a pipeline waits for people: the stores in which they answer are served on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from plaudit.collect.app.server import serve_in_background
from plaudit.collect.asking import People
from plaudit.collect.people import make_invite
from plaudit.collect.stage import store_of
from plaudit.collect.store import LabelStore, open_store
from plaudit.collect.waiting import Wait
from plaudit.errors import Wait as AnyWait
from plaudit.runs import PipelineFolder, Stage

LOOK_SECONDS = 2.0
"""Seconds between two looks at what was answered meanwhile."""
INVITED = 50
"""How many people an invite lets in."""


@contextmanager
def attending(folder: Path, say: Callable[[str], None]) -> Iterator[StoreAttendant]:
    """An attendant of the pipeline in a folder; all its servers end with the block."""
    with ExitStack() as stack:
        yield StoreAttendant(PipelineFolder(path=folder), say, stack)


class StoreAttendant:
    """Lets people answer over HTTP, and looks when they have."""

    def __init__(self, folder: PipelineFolder, say: Callable[[str], None], stack: ExitStack) -> None:
        self._folder, self._say, self._stack = folder, say, stack
        self._stores: dict[str, tuple[LabelStore, str]] = {}
        self._invited: set[tuple[str, str]] = set()
        self._waits: dict[str, list[tuple[People, Wait]]] = {}
        self._looked = 0.0

    def serve(self, stage: Stage, waits: Sequence[AnyWait]) -> None:
        """Serve the store of a stage, if that is not done yet, and say where, with an invite."""
        missing = [wait for wait in waits if isinstance(wait, Wait)]
        address = store_of(self._folder, stage)
        if address not in self._stores:
            store = self._stack.enter_context(closing(open_store(address)))
            server = self._stack.enter_context(serve_in_background(store))
            self._stores[address] = store, server.url
        store, url = self._stores[address]
        self._waits[stage.name] = [(People(store=store, project=wait.project), wait) for wait in missing]
        for project in sorted({wait.project for wait in missing}):
            # Once for a project: stages come back to wait, and an invite is a secret to be passed on once.
            if (address, project) not in self._invited:
                self._invited.add((address, project))
                secret = store.write(make_invite, project, uses=INVITED, actor="plaudit")
                self._say(
                    f"{url}: people answer here for project {project}; the invite {secret} lets {INVITED} in"
                )

    def answered(self) -> list[str]:
        now = time.monotonic()
        # The loop asks all the time; the database is spared.
        if now - self._looked < LOOK_SECONDS:
            return []
        self._looked = now
        names = [
            name
            for name, waits in self._waits.items()
            if all(people.wait(wait.tasks) is None for people, wait in waits)
        ]
        for name in names:
            del self._waits[name]
        return names
