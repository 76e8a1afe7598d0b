"""plaudit's own layout: one JSON object a row, its ``kind`` and the fields of that record."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace

from plaudit.data.fields import (
    BadRowError,
    Node,
    optional_name,
    read_completion,
    read_prompt,
    require_not_empty,
)
from plaudit.data.formats.layout import FieldType, ReadOptions, RowFormat, annotation_info
from plaudit.data.formats.trl import read_comparison
from plaudit.data.records import (
    RECORD_TYPES,
    Comparison,
    Demonstration,
    Prompt,
    Ranking,
    Rating,
    Record,
    Steps,
    Text,
)


def _demonstration(row: Node, origin: str) -> Demonstration:
    prompt, answer = _document_prompt(row), row.optional("answer")
    return Demonstration(
        prompt=prompt,
        completion=read_completion(row.get("completion"), prompt),
        answer=None if answer is None else answer.text(),
        origin=origin,
        **annotation_info(row),
    )


def _comparison(row: Node, origin: str) -> Comparison:
    prompt = read_prompt(row.get("prompt"))
    chosen, rejected = (read_completion(row.get(side), prompt) for side in ("chosen", "rejected"))
    return read_comparison(row, origin, prompt=prompt, chosen=chosen, rejected=rejected)


def _ranking(row: Node, origin: str) -> Ranking:
    prompt = read_prompt(row.get("prompt"))
    completions = tuple(read_completion(item, prompt) for item in row.get("completions").items())
    ranks = tuple(item.number() for item in row.get("ranks").items())
    if len(completions) < 2:
        raise BadRowError(
            "too few answers", "completions", expected="two answers or more", found=str(len(completions))
        )
    _require_equal_count(completions, ranks, "ranks")
    return Ranking(
        prompt=prompt,
        completions=completions,
        ranks=ranks,
        origin=origin,
        **annotation_info(row),
    )


def _rating(row: Node, origin: str) -> Rating:
    prompt = read_prompt(row.get("prompt"))
    thumb = row.optional("thumb")
    score = row.get("score").number()
    if thumb is not None and thumb.boolean() and score not in (0, 1):
        raise BadRowError("wrong value", "score", expected="0 or 1 for a thumb", found=f"{score:g}")
    return Rating(
        prompt=prompt,
        completion=read_completion(row.get("completion"), prompt),
        score=score,
        aspect=optional_name(row, "aspect"),
        level=optional_name(row, "level"),
        thumb=thumb is not None and thumb.boolean(),
        origin=origin,
        **annotation_info(row),
    )


def _steps(row: Node, origin: str) -> Steps:
    steps = tuple(str(require_not_empty(item.text(), item.path)) for item in row.get("steps").items())
    labels = tuple(item.number() for item in row.get("labels").items())
    if not steps:
        raise BadRowError("too few answers", "steps", expected="one step or more", found="none")
    _require_equal_count(steps, labels, "labels")
    return Steps(
        prompt=read_prompt(row.get("prompt")),
        steps=steps,
        labels=labels,
        origin=origin,
        **annotation_info(row),
    )


def _prompt(row: Node, origin: str) -> Prompt:
    prompt = read_prompt(row.get("prompt"))
    reference_answer, metadata = row.optional("answer"), row.optional("metadata")
    return Prompt(
        prompt=prompt,
        answer=None if reference_answer is None else reference_answer.text(),
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


def _plaudit_row(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    kind = row.get("kind").text()
    if kind not in _READERS:
        raise row.get("kind").error("wrong value", f"one of {', '.join(RECORD_TYPES)}")
    record = _READERS[kind](row, origin)
    # The row's own origin names the first source, through any number of conversions.
    return (replace(record, origin=optional_name(row, "origin") or origin),)


def _document_prompt(row: Node) -> Text:
    """The prompt of a demonstration; a document has none."""
    node = row.optional("prompt")
    if node is None and row.cells and "prompt" in row.fields():
        return ""
    prompt = row.get("prompt") if node is None else node
    return "" if prompt.value == "" else read_prompt(prompt)


def _require_equal_count(answers: tuple[object, ...], labels: tuple[float, ...], field: str) -> None:
    if len(answers) != len(labels):
        raise BadRowError("wrong value", field, expected=f"{len(answers)} numbers", found=str(len(labels)))


def _metadata(node: Node) -> dict[str, object]:
    """An object, or the JSON of one, as tables hold it."""
    value = node.value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise node.wrong_type_error("an object") from None
    if not isinstance(value, dict):
        raise node.wrong_type_error("an object")
    return {str(name): item for name, item in value.items()}


KIND = FieldType(name=f"one of {', '.join(RECORD_TYPES)}", matches=lambda node: node.value in [*RECORD_TYPES])

_RECORD_FIELDS = frozenset(part.name for record in RECORD_TYPES.values() for part in fields(record))

PLAUDIT_FORMATS = (
    RowFormat(
        name="plaudit",
        title="plaudit's own layout",
        schema={"kind": KIND},
        optional_fields=_RECORD_FIELDS,
        parse=_plaudit_row,
        produces="any record; round trips are exact",
        is_decisive=True,
    ),
)
