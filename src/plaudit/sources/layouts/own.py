"""plaudit's own layout: one JSON object a row, its ``kind`` and the fields of that record."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace

from plaudit.records.dicts import KINDS
from plaudit.records.feedback import Comparison, Demonstration, Prompt, Ranking, Rating, Record, Steps
from plaudit.records.messages import Text, words
from plaudit.sources.conversation import answer, not_empty, question
from plaudit.sources.layouts.layout import Layout, ReadOptions, Shape
from plaudit.sources.layouts.trl import comparison
from plaudit.sources.node import Node, about, optional_name
from plaudit.sources.problems import BadRowError, shown


def _demonstration(row: Node, origin: str) -> Demonstration:
    prompt = _empty_or_question(row)
    return Demonstration(
        prompt=prompt,
        completion=answer(row.get("completion"), prompt),
        origin=origin,
        **about(row),
    )


def _comparison(row: Node, origin: str) -> Comparison:
    prompt = _empty_or_question(row)
    chosen, rejected = (answer(row.get(side), prompt) for side in ("chosen", "rejected"))
    return comparison(row, origin, prompt=prompt, chosen=chosen, rejected=rejected)


def _ranking(row: Node, origin: str) -> Ranking:
    prompt = _empty_or_question(row)
    completions = tuple(answer(item, prompt) for item in row.get("completions").items())
    ranks = tuple(item.number() for item in row.get("ranks").items())
    if len(completions) < 2:
        raise BadRowError(
            "too few answers", "completions", expected="two answers or more", found=str(len(completions))
        )
    _one_each(completions, ranks, "ranks")
    return Ranking(
        prompt=prompt,
        completions=completions,
        ranks=ranks,
        origin=origin,
        **about(row),
    )


def _rating(row: Node, origin: str) -> Rating:
    prompt = _empty_or_question(row)
    thumb = row.maybe("thumb")
    score = row.get("score").number()
    if thumb is not None and thumb.truth() and score not in (0, 1):
        raise BadRowError("wrong value", "score", expected="0 or 1 for a thumb", found=f"{score:g}")
    return Rating(
        prompt=prompt,
        completion=answer(row.get("completion"), prompt),
        score=score,
        aspect=optional_name(row, "aspect"),
        thumb=thumb is not None and thumb.truth(),
        origin=origin,
        **about(row),
    )


def _steps(row: Node, origin: str) -> Steps:
    steps = tuple(str(not_empty(item.text(), item.path)) for item in row.get("steps").items())
    labels = tuple(item.number() for item in row.get("labels").items())
    if not steps:
        raise BadRowError("too few answers", "steps", expected="one step or more", found="none")
    _one_each(steps, labels, "labels")
    return Steps(
        prompt=_empty_or_question(row),
        steps=steps,
        labels=labels,
        origin=origin,
        **about(row),
    )


def _prompt(row: Node, origin: str) -> Prompt:
    prompt = question(row.get("prompt"))
    if not words(prompt).strip():
        raise BadRowError("empty side", "prompt", expected="a prompt", found=shown(row.get("prompt").value))
    reference, metadata = row.maybe("answer"), row.maybe("metadata")
    return Prompt(
        prompt=prompt,
        answer=None if reference is None else reference.text(),
        metadata={} if metadata is None else _metadata(metadata),
        origin=origin,
    )


_READERS: dict[str, Callable[[Node, str], Record]] = {
    "demonstration": _demonstration,
    "comparison": _comparison,
    "ranking": _ranking,
    "rating": _rating,
    "steps": _steps,
    "prompt": _prompt,
}


def _own(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    kind = row.get("kind").text()
    if kind not in _READERS:
        raise BadRowError("wrong value", "kind", expected=f"one of {', '.join(KINDS)}", found=shown(kind))
    record = _READERS[kind](row, origin)
    return (replace(record, origin=optional_name(row, "origin") or origin),)


def _empty_or_question(row: Node) -> Text:
    """The prompt; in CSV an empty cell is the empty prompt."""
    if row.cells and "prompt" in row.fields() and row.maybe("prompt") is None:
        return ""
    return question(row.get("prompt"))


def _one_each(answers: tuple[object, ...], labels: tuple[float, ...], field: str) -> None:
    if len(answers) != len(labels):
        raise BadRowError("wrong value", field, expected=f"{len(answers)} numbers", found=str(len(labels)))


def _metadata(node: Node) -> dict[str, object]:
    """An object, or the JSON of one, as tables hold it."""
    value = node.value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise node.wrong("an object") from None
    if not isinstance(value, dict):
        raise node.wrong("an object")
    return {str(name): item for name, item in value.items()}


KIND = Shape(name=f"one of {', '.join(KINDS)}", fits=lambda node: node.value in KINDS)
"""The name of a kind of record."""

_FIELDS = frozenset(part.name for record in KINDS.values() for part in fields(record))

OWN_LAYOUTS = (
    Layout(
        name="plaudit",
        title="plaudit's own layout",
        schema={"kind": KIND},
        also=_FIELDS,
        parse=_own,
        gives="any record; round trips are exact",
        unmistakable=True,
    ),
)
"""plaudit's own."""
