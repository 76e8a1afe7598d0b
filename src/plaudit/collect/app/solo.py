"""Labelling alone at one's own machine: a file of rows in, labels out, and the next start goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from plaudit.collect.adding import set_project
from plaudit.collect.app.pages import OnceLink, Solo
from plaudit.collect.asking import People
from plaudit.collect.export import EmptyExportError, Snapshot, export
from plaudit.collect.kinds import KINDS
from plaudit.collect.people import issue_token, revoke
from plaudit.collect.progress import project_people
from plaudit.collect.project import Project
from plaudit.collect.store import LabelStore, open_store
from plaudit.errors import UserError

NAME = "you"
"""What the store calls whoever labels alone."""
PROJECT = "solo"
"""The project of a store that one person works in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloWork:
    """A store that is ready for one person.

    Example: ``SoloWork(people=People(store=store, project="solo"), project=project, pseudonym="r1")``
    """

    people: People
    """Asks that person, and nobody else."""
    project: Project
    """What is asked."""
    pseudonym: str
    """The person."""

    @property
    def store(self) -> LabelStore:
        """Where labels lie."""
        return self.people.store

    def door(self) -> Solo:
        """How the browser is let in."""
        return Solo(project=self.project.name, pseudonym=self.pseudonym, link=OnceLink.new())


def store_path(out: Path) -> Path:
    """Where the labels of an output lie until they are exported.

    >>> store_path(Path("runs/labels.jsonl")).name
    'labels.db'
    """
    name = out.name
    for ending in (".gz", ".jsonl", ".parquet", ".json"):
        name = name.removesuffix(ending)
    return out.with_name(f"{name}.db")


@contextmanager
def opened_solo(out: Path, project: Project) -> Iterator[SoloWork]:
    """The store next to an output, made or gone on with."""
    where = store_path(out)
    with closing(open_store(where, create=True)) as store:
        _refuse_other_work(store, where, project)
        if PROJECT not in store.projects() or store.project(PROJECT) != project:
            store.write(set_project, project, actor=NAME)
        people = People(store=store, project=PROJECT)
        yield SoloWork(people=people, project=project, pseudonym=_person(store))


def _refuse_other_work(store: LabelStore, where: Path, project: Project) -> None:
    names = store.projects()
    if names and names != [PROJECT]:
        raise UserError(
            f"{where}: it is the store of a team ({', '.join(names)}); serve it with `plaudit collect serve "
            f"--store {where}`, or name another --out"
        )
    if names and store.project(PROJECT).ask != project.ask:
        raise UserError(
            f"{where}: its tasks are to {store.project(PROJECT).ask}, and now {project.ask} is wanted; say "
            f"--as {store.project(PROJECT).ask}, or name another --out"
        )


def _person(store: LabelStore) -> str:
    """The one person, who may also look at figures."""
    for row in store.read(project_people, PROJECT):
        if row["person"] == NAME:
            return row["pseudonym"]
    joined = store.write(issue_token, PROJECT, "reviewer", name=NAME)
    # The browser has a session; nobody uses the token.
    store.write(revoke, PROJECT, joined.pseudonym, actor=joined.pseudonym)
    return joined.pseudonym


def export_solo(work: SoloWork, out: Path) -> Snapshot | None:
    """Write what was labelled so far; None where that is nothing."""
    try:
        return export(work.store, work.project.name, out, actor=NAME)
    except EmptyExportError:
        return None


def project_solo(ask: str, question: str | None, guidelines: str) -> Project:
    """The settings for one person: every task once, and nobody else to agree with.

    >>> project_solo("rank", None, "").overlap
    1
    """
    project = Project(name=PROJECT, ask=ask, guidelines=guidelines)
    words = KINDS[ask].alone if question is None else question
    return project if words is None else replace(project, question=words)
