"""People who compare in the rounds of a loop: what the core calls, before it knows whether a store can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.collect.waiting import refuse_without_database
from plaudit.data.judging import Task

if TYPE_CHECKING:
    from plaudit.collect.asking import People


def check_people(store: str, project: str) -> None:
    """Complain where people could not be asked in a project of a store; both are made where they are not."""
    with _people(store, project):
        pass


def ask_people(
    tasks: Sequence[tuple[Task, Mapping[str, Any]]],
    out: Path,
    *,
    store: str,
    project: str,
    source: Mapping[str, Any],
) -> str | None:
    """Write what people say of tasks as rows; why there are none, where nothing was said of any.

    Raises `WaitingError` while labels are missing. Beside each task stands what finds it again, and
    ``source`` says whose answers they are.
    """
    with _people(store, project) as people:
        from plaudit.collect.asking import task_body
        from plaudit.collect.export import EmptyExportError

        ids = people.ask([task_body(task, source=source, **facts) for task, facts in tasks])
        try:
            people.export(ids, out)
        except EmptyExportError as error:
            return str(error)
    return None


@contextmanager
def _people(store: str, project: str) -> Iterator[People]:
    refuse_without_database()
    # Here and not above: the database's packages are an extra, and only people need them.
    from plaudit.collect.asking import People
    from plaudit.collect.project import Project
    from plaudit.collect.store import open_store

    with closing(open_store(store, create=True)) as opened:
        people = People(store=opened, project=project)
        people.begin(Project(name=project))
        yield people
