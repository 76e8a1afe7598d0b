"""People as a judge whose verdicts take days: tasks go into a store, and what was said comes out as rows.

A task is known by what is asked: the same prompt and the same answers, in whatever order. Who asks again, in
a later round or after a crash, is given what people said before, and nobody labels anything twice.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from sqlalchemy import bindparam, select

from plaudit.collect import adding, log, views
from plaudit.collect.export import Filters, Snapshot, export, group_of, selected_labels
from plaudit.collect.kinds import USUAL
from plaudit.collect.kinds.pair import preferred_place
from plaudit.collect.log import Entry
from plaudit.collect.own import PLAUDIT
from plaudit.collect.pictures import stored_bodies
from plaudit.collect.progress import project_people
from plaudit.collect.project import Project, large_enough
from plaudit.collect.store import LabelStore, Transaction
from plaudit.collect.tables import task
from plaudit.collect.waiting import Wait, waiting_error
from plaudit.data.judging import Task, Verdict, first_probability, probable_verdict
from plaudit.data.records import text_to_json
from plaudit.errors import UserError
from plaudit.evaluation.policies import POLICY
from plaudit.evaluation.stats import Resampling

_STANDING = select(task.c.id, task.c.state, task.c.wanted, task.c.done).where(
    task.c.project == bindparam("p")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    store: LabelStore
    project: str

    @property
    def name(self) -> str:
        return "people"

    def begin(self, settings: Project) -> Project:
        """Make the project where there is none of its name; gives the settings that hold.

        A project that is there stays as it is, since its owner may have changed it.
        """
        # Looked and made in one change: of two loops that begin at once only one makes it.
        with self.store.changing() as change:
            there = views.settings_of(change.connection, self.project)
            if there is None:
                adding.set_project(change, replace(settings, name=self.project), actor=PLAUDIT)
                return replace(settings, name=self.project)
        if there.ask != settings.ask:
            raise UserError(
                f"{self.store.where}: project {self.project} asks for {there.ask}, and {settings.ask} is "
                "wanted here; name another project, or another store"
            )
        return there

    def ask(self, bodies: Sequence[Mapping[str, Any]], *, draw: str | None = None) -> tuple[str, ...]:
        """The ids of tasks, in order; those that nobody asked yet are added, all of them or none.

        Under the name of a ``draw`` the log remembers them, and `requested` finds them without their words.
        """
        bodies = stored_bodies(self.store, self.project, bodies, Path())
        keys = [adding.content_key(body) for body in bodies]
        with self.store.changing() as change:
            there = adding.ids_by_content(change, self.project, bodies)
            # By what is asked: a pair that was drawn twice is one task, and its id is given twice.
            fresh = {key: body for key, body in zip(keys, bodies, strict=True) if key not in there}
            if fresh:
                adding.add_tasks(change, self.project, fresh.values(), actor=PLAUDIT)
                there = adding.ids_by_content(change, self.project, bodies)
            ids = tuple(there[key] for key in keys)
            if draw is not None and self._drawn(change, draw) is None:
                place = {"project": self.project, "subject": self.project, "key": _draw_key(draw)}
                change.record(Entry(actor=PLAUDIT, kind="asked", body={"tasks": [*ids]}, **place))
        return ids

    def requested(self, draw: str) -> tuple[str, ...] | None:
        """The ids of the tasks that were asked under this name; None where none were."""
        with self.store.looking() as moment:
            return self._drawn(moment, draw)

    def _drawn(self, look: Transaction, draw: str) -> tuple[str, ...] | None:
        event = log.by_key(look.connection, self.project, _draw_key(draw))
        return None if event is None or event.body is None else tuple(event.body["tasks"])

    def wait(self, tasks: Collection[str]) -> Wait | None:
        """What is missing of these tasks; None where they are settled.

        Settled is what wants no more labels: also a task on which people stay divided, whose labels are taken
        as they are unless a reviewer has decided by then, and one that was closed.
        """
        wanted_ids = {*tasks}
        with self.store.looking() as moment:
            rows = moment.connection.execute(_STANDING, {"p": self.project}).all()
        # Here and not in the question: databases bound how many ids it may have.
        rows = [row for row in rows if row.id in wanted_ids]
        missing = sum(max(row.wanted - row.done, 0) for row in rows if row.state == "open")
        if missing == 0:
            return None
        wanted = sum(row.wanted for row in rows)
        where = {"store": self.store.where, "project": self.project}
        return Wait(**where, missing=missing, wanted=wanted, tasks=tuple(sorted(wanted_ids)))

    def refuse_waiting(self, tasks: Collection[str]) -> None:
        wait = self.wait(tasks)
        if wait is not None:
            raise waiting_error(wait)

    def export(self, tasks: Collection[str], out: Path, *, group: str = "people") -> Snapshot:
        """Write what was said of these tasks, with its snapshot; raises while labels are missing."""
        self.refuse_waiting(tasks)
        return export(self.store, self.project, out, tasks=tasks, filters=Filters(group=group))

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """What people say of pairs: of several labels the share that prefers the first; None where none does.

        Raises while labels are missing; the seed means nothing to people.
        """
        ids, bodies = self._answered(tasks)
        by_task = self.labels(ids)
        return [_verdict(body, by_task.get(mine, ())) for mine, body in zip(ids, bodies, strict=True)]

    def shares_by_group(self, tasks: Sequence[Task]) -> list[dict[str, float]]:
        """Of each pair, by every group that is large enough, the share that prefers the first answer."""
        shares = [dict[str, float]() for _ in tasks]
        with self.store.looking() as moment:
            names = [*moment.settings(self.project).values_of_groups]
        if not names:
            return shares
        ids, bodies = self._answered(tasks)
        labels = self.labels(ids)
        for by in names:
            value_of = {row.seq: group_of(row, by) for rows in labels.values() for row in rows}
            members = {(row.annotator, value_of[row.seq]) for rows in labels.values() for row in rows}
            people = Counter(value for _, value in members)
            for value in sorted(large_enough(people) - {""}):
                for mine, body, share in zip(ids, bodies, shares, strict=True):
                    rows = [row for row in labels.get(mine, ()) if value_of[row.seq] == value]
                    if (verdict := _verdict(body, rows)) is not None:
                        share[f"{by} {value}, {people[value]} people"] = first_probability(verdict)
        return shares

    def sentence(self, tasks: Sequence[Task]) -> str:
        """Who judged these pairs, and how far they agree; raises while labels are missing."""
        # Here and not above: who only asks need not load what computes.
        from plaudit.collect.quality.agreement import agreements
        from plaudit.collect.quality.gathering import gather_rows

        rows = [row for labels in self.labels(self._answered(tasks)[0]).values() for row in labels]
        with self.store.looking() as moment:
            settings = moment.settings(self.project)
            names = {
                member["pseudonym"]: member["standing"] for member in project_people(moment, self.project)
            }
        who = sorted({row.annotator for row in rows})
        standings = Counter(names.get(name, "reviewer") for name in who)
        counts = ", ".join(f"{count} {standing}" for standing, count in sorted(standings.items()))
        agreement = "no pair was judged twice, so how far they agree is not known"
        figures = agreements(gather_rows(settings, rows).values[""], Resampling()) if rows else None
        if figures is not None and figures.percent.value is not None:
            agreement = f"two of them say the same in {figures.percent.value:.0%} of {figures.units} pairs"
            agreement += "" if figures.alpha.value is None else f" (α {figures.alpha.value:.2f})"
        return f"{len(rows)} labels by {len(who)} people ({counts}): {', '.join(who)}; {agreement}"

    def _answered(self, tasks: Sequence[Task]) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
        self.begin(Project(name=self.project))
        bodies = stored_bodies(self.store, self.project, map(task_body, tasks), Path())
        ids = self.ask(bodies)
        self.refuse_waiting(ids)
        return ids, bodies

    def labels(self, tasks: Collection[str]) -> dict[str, list[Any]]:
        """The rows of people's labels that count, by task."""
        with self.store.looking() as moment:
            result, _ = selected_labels(moment.connection, self.project, Filters(), tasks)
        by_task: dict[str, list[Any]] = {}
        for row in result:
            by_task.setdefault(row.task, []).append(row)
        return by_task

    def shares(self, tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
        """Of pairs that people labelled, the share that prefers the first answer of the body; None: no side.

        The tasks are bodies by their ids.
        """
        verdicts = {mine: _verdict(tasks[mine], rows) for mine, rows in self.labels(tasks).items()}
        return {mine: None if v is None else first_probability(v) for mine, v in verdicts.items()}


def task_body(
    task: Task,
    *,
    kind: str = USUAL,
    source: Mapping[str, Any] | None = None,
    sources: Sequence[str] = (),
    method: str | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """What a store asks of a task's answers, with what finds the task again; nobody is shown more than texts.

    ``sources`` says whose each answer is, where not all are the policy's in ``source``, and ``method`` how
    the task was chosen, where not all were taken.

    >>> task = Task(prompt="What does the owl eat?", answers=("Mice.", "Bark."), ended=(True, True))
    >>> task_body(task, source={"model": "sft"}, round=1)["candidates"][0]
    {'text': 'Mice.', 'ended': True, 'source': {'model': 'sft'}}
    """
    whose = [{**(source or {}), **({} if word == POLICY else {"model": word})} for word in sources]
    candidates = [
        {"text": text_to_json(answer), "ended": ended, **({"source": own} if own else {})}
        for answer, ended, own in zip(
            task.answers, task.ended, whose or [dict(source or {})] * len(task.answers), strict=True
        )
    ]
    body: dict[str, Any] = {"kind": kind, "prompt": text_to_json(task.prompt), "candidates": candidates}
    carried = {"category": task.category, "reference_answer": task.reference_answer, "method": method}
    body |= {name: value for name, value in carried.items() if value is not None}
    return body | ({"metadata": metadata} if metadata else {})


def _draw_key(draw: str) -> str:
    return f"asked/{draw}"


def _verdict(body: Mapping[str, Any], labels: Sequence[Any]) -> Verdict | None:
    # The verdict on a pair as it was asked here, in whichever order the store has its answers.
    probabilities, who = list[float](), set[str]()
    for row in labels:
        label, stored = json.loads(row.label), json.loads(row.body)
        if label.get("none"):
            continue
        place = preferred_place(label, json.loads(row.shown))
        preferred = None if place is None else stored["candidates"][place]["text"]
        probabilities.append(0.5 if place is None else float(preferred == body["candidates"][0]["text"]))
        who.add(row.annotator)
    if not probabilities:
        return None
    annotator = next(iter(who)) if len(who) == 1 else "people"
    return replace(probable_verdict(fmean(probabilities), annotator=annotator), group="people")
