"""Which rows of training come of a label: one function for each kind of task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plaudit.collect.answers import preferred_place
from plaudit.collect.project import Project
from plaudit.data.fields import Node, read_text_or_messages
from plaudit.data.judging import Mark, Task, Verdict, to_comparison
from plaudit.data.labels import (
    ComparedTurn,
    LabelledSteps,
    WrittenAnswer,
    attack_rows,
    steps_row,
    talk_rows,
    written_rows,
)
from plaudit.data.records import Message, Ranking, Rating, Record, Text, turns_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A label with all that its rows are made of.

    Example: ``Labelled(body=body, label={"strength": -2}, order=[1, 0], annotator="a3", group="people", …)``
    """

    body: Mapping[str, Any]
    """The task as the store holds it."""
    label: Mapping[str, Any]
    """What was said, in the order shown."""
    order: Sequence[int]
    """Which candidate was shown at which place."""
    annotator: str
    """Who, by pseudonym."""
    group: str | None
    """People or ai."""
    scale: int
    """How many degrees of better there were."""
    anchors: Mapping[str, Sequence[str]]
    """The words of the levels, by aspect, of those that have some."""

    @property
    def prompt(self) -> Text:
        """The prompt as rows have it."""
        return text_of(self.body["prompt"])

    @property
    def shared(self) -> dict[str, Any]:
        """What each row says of who and what."""
        category = self.body.get("category")
        return {"annotator": self.annotator, "group": self.group, "category": category}


def rows_of(
    body: Mapping[str, Any],
    label: Mapping[str, Any],
    order: Sequence[int],
    *,
    annotator: str,
    group: str | None,
    project: Project,
) -> list[Record]:
    """The rows of a label; none where the person could say nothing."""
    if label.get("none"):
        return []
    given = Labelled(
        body=body,
        label=label,
        order=order,
        annotator=annotator,
        group=group,
        scale=len(project.scale),
        anchors={name: project.words_of(name) for name in project.aspects},
    )
    origin = body.get("metadata", {}).get("origin")
    rows = _ROWS[body["kind"]](given)
    # Metadata is the owner's own, and may hold anything under this name.
    return [replace(row, origin=origin) for row in rows] if isinstance(origin, str) else rows


def text_of(value: object) -> Text:
    """A text of a task as rows have it."""
    return read_text_or_messages(Node(value=value, path="text"))


def task_of(given: Labelled) -> Task:
    """The task as a judge sees it, in its own order."""
    candidates = given.body["candidates"]
    return Task(
        prompt=given.prompt,
        answers=tuple(text_of(candidate["text"]) for candidate in candidates),
        ended=tuple(candidate.get("ended", True) for candidate in candidates),
        category=given.body.get("category"),
        reference_answer=given.body.get("reference_answer"),
        metadata=given.body.get("metadata", {}),
    )


def _pair_rows(given: Labelled) -> list[Record]:
    better = preferred_place(given.label, given.order)
    ranks = (1, 1) if better is None else (1, 2) if better == 0 else (2, 1)
    share = given.label.get("probability")
    verdict = Verdict(
        marks=tuple(Mark(rank=rank) for rank in ranks),
        annotator=given.annotator,
        group=given.group,
        # A judge's chance is of the answer that it was shown first, a verdict's of the task's first.
        probability=share if share is None or given.order[0] == 0 else 1 - share,
    )
    row = to_comparison(task_of(given), verdict)
    # A model says how sure it is, and not by how many degrees.
    if better is None or share is not None:
        return [row]
    strength = abs(given.label["strength"])
    # Llama 2's table: the clearest preference asks for the whole margin, the others for their share of it.
    return [replace(row, strength=float(strength), margin=round(strength / given.scale, 6))]


def _rank_rows(given: Labelled) -> list[Record]:
    task = task_of(given)
    answers, ranks, better = list[Text](), list[float](), 0
    for group in given.label["groups"]:
        for place in group:
            answers.append(task.answers[given.order[place]])
            ranks.append(float(better + 1))
        # A rank is one more than there are better answers: two that tie move the next one by two.
        better += len(group)
    ranking: Record = Ranking(
        prompt=task.prompt, completions=tuple(answers), ranks=tuple(ranks), **given.shared
    )
    return [ranking]


def _rate_rows(given: Labelled) -> list[Record]:
    task, rows = task_of(given), list[Record]()
    for aspect, points in given.label.get("points", {}).items():
        named = None if aspect == "overall" else aspect
        rows += _ratings(given, task, points, aspect=named, words=given.anchors.get(aspect, ()))
    return rows + _ratings(given, task, given.label.get("thumbs", ()), aspect=None, thumb=True)


def _ratings(
    given: Labelled,
    task: Task,
    scores: Sequence[int | None],
    *,
    aspect: str | None,
    words: Sequence[str] = (),
    thumb: bool = False,
) -> list[Record]:
    return [
        Rating(
            prompt=task.prompt,
            completion=task.answers[given.order[place]],
            score=float(score),
            aspect=aspect,
            level=words[score - 1] if words else None,
            thumb=thumb,
            **given.shared,
        )
        for place, score in enumerate(scores)
        if score is not None
    ]


def _write_rows(given: Labelled) -> list[Record]:
    draft = given.body.get("draft")
    written = WrittenAnswer(
        prompt=given.prompt,
        answer=given.label["answer"],
        draft=None if draft is None else text_of(draft),
        **given.shared,
    )
    return [*written_rows(written)]


def _steps_rows(given: Labelled) -> list[Record]:
    labelled = LabelledSteps(
        prompt=given.prompt,
        steps=tuple(given.body["steps"]),
        labels=tuple(given.label["labels"]),
        **given.shared,
    )
    row = steps_row(labelled)
    return [] if row is None else [row]


def _talk_rows(given: Labelled) -> list[Record]:
    turns = tuple(
        ComparedTurn(message=turn["message"], answers=tuple(turn["answers"]), strength=turn["strength"])
        for turn in given.label["turns"]
    )
    return [*talk_rows(given.prompt, turns, **given.shared)]


def _attack_rows(given: Labelled) -> list[Record]:
    opening = () if given.prompt == "" else turns_of(given.prompt)
    messages = (Message(role=turn["role"], content=turn["content"]) for turn in given.label["messages"])
    category = given.label.get("category", given.body.get("category"))
    shared = {**given.shared, "category": category}
    return [*attack_rows((*opening, *messages), success=given.label["success"], **shared)]


_ROWS: Mapping[str, Callable[[Labelled], list[Record]]] = {
    "pair": _pair_rows,
    "rank": _rank_rows,
    "rate": _rate_rows,
    "write": _write_rows,
    "steps": _steps_rows,
    "talk": _talk_rows,
    "attack": _attack_rows,
}
