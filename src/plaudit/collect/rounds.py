"""People who compare answers of a loop's rounds, or of policies: what the core calls, before it knows
whether a store can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plaudit.collect.waiting import refuse_without_database
from plaudit.data.judging import Task, Verdict, known_probability, probable_verdict
from plaudit.data.records import Text, plain_text
from plaudit.errors import UserError
from plaudit.rewards.kinds import JudgeKind, JudgeSettings

if TYPE_CHECKING:
    from plaudit.collect.asking import People
    from plaudit.evaluation.policies.win_rate import JudgedPair


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


class PeopleJudge:
    """People as judges of policies, ``people:STORE#project``: each pair is a task of the store."""

    by_people = True

    def __init__(self, word: str, settings: JudgeSettings) -> None:
        self._place = _place_of(word)
        # Not the word, which may hold a database's password.
        self.name = f"people of project {self._place['project']}"
        self.notes: tuple[str, ...] = ()
        self._shares = dict[tuple[str, ...], dict[str, float]]()

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """The share of people that prefers the first; raises `WaitingError` while labels are missing."""
        known = [known_probability(*map(plain_text, task.answers)) for task in tasks]
        questions = [task for task, share in zip(tasks, known, strict=True) if share is None]
        with _people(**self._place) as people:
            given = iter(people.verdicts(questions, seed))
            self.notes = (people.sentence(questions),) if questions else ()
            for task, shares in zip(questions, people.shares_by_group(questions), strict=True):
                self._shares[_words(task.prompt, *task.answers)] = shares
        for count, why in (
            (known.count(0.5), "the same words twice: ties, and nobody was asked"),
            (len(tasks) - len(questions) - known.count(0.5), "lost by an empty answer, and nobody was asked"),
        ):
            self.notes += (f"{count} of {len(tasks)} pairs are {why}",) if count else ()
        return [
            next(given) if share is None else probable_verdict(share, annotator="people") for share in known
        ]

    def contest_notes(self, duels: Sequence[JudgedPair]) -> tuple[str, ...]:
        """The win rate by each group of people that is large enough to be told."""
        by_group = dict[str, list[tuple[float, str]]]()
        for duel in duels:
            for group, share in self._shares.get(_words(duel.prompt, duel.mine, duel.theirs), {}).items():
                by_group.setdefault(group, []).append((share, duel.prompt))
        return tuple(_group_sentence(group, shares) for group, shares in by_group.items())


def _words(*texts: Text) -> tuple[str, ...]:
    return tuple(map(plain_text, texts))


def _group_sentence(group: str, shares: Sequence[tuple[float, str]]) -> str:
    # Here and not above: who only asks need not load what computes.
    import numpy as np

    from plaudit.evaluation.shares import share_estimate

    wins_B = np.array([share for share, _ in shares])
    found = share_estimate(wins_B, np.unique([prompt for _, prompt in shares], return_inverse=True)[1])
    return f"by {group}: wins {found.text()} of {found.n} pairs"


def _place_of(word: str) -> dict[str, str]:
    store, _, project = word.partition(":")[2].partition("#")
    if not store:
        raise UserError(f"{word}: name a label store, as in people:labels.db or people:labels.db#policies")
    return {"store": store, "project": project or "policies"}


PEOPLE_KIND = JudgeKind(make=PeopleJudge, check=lambda word: check_people(**_place_of(word)))
