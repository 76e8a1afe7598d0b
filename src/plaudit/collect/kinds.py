"""The seven kinds of task: what a task must hold, and what of it an annotator is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plaudit.collect.answers import read_flags
from plaudit.collect.project import Project
from plaudit.collect.refusals import MOST_CHARACTERS, FieldError
from plaudit.config import did_you_mean
from plaudit.data.fields import BadRowError, Node, describe_value, read_completion, read_prompt, shorten
from plaudit.data.labels import STEP_SCORES
from plaudit.data.records import Text, pictures, plain_text

MOST_LEVELS = 16
"""How deep the objects of a task may be nested."""
_COMMON = (
    "kind",
    "prompt",
    "category",
    "language",
    "reference_answer",
    "metadata",
    "method",
    "score",
    "probability",
    "priority",
    "gold",
    "qualify",
)
_TEXTS = ("category", "language", "reference_answer", "method")
_NUMBERS = ("score", "priority")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of task.

    Example: ``KINDS["pair"].answers == (2, 2)``
    """

    name: str
    """How projects and tasks name it."""
    answers: tuple[int, int]
    """How many candidates a task has, at least and at most."""
    own: tuple[str, ...] = ()
    """Fields that only tasks of this kind have."""
    empty_prompt: bool = False
    """Whether a task may begin with nothing: a conversation that the person opens."""


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(name="pair", answers=(2, 2)),
        Kind(name="rank", answers=(3, 9)),
        Kind(name="rate", answers=(1, 9)),
        Kind(name="write", answers=(0, 0), own=("draft",)),
        Kind(name="steps", answers=(0, 0), own=("steps",)),
        Kind(name="talk", answers=(0, 0), empty_prompt=True),
        Kind(name="attack", answers=(0, 0), empty_prompt=True),
    )
}
"""All kinds by name."""


def check_task(body: object, project: Project) -> dict[str, Any]:
    """A task as the store holds it; a refusal names its field."""
    try:
        return _checked_task(body, project)
    except BadRowError as error:
        raise FieldError(field=error.field or "task", found=error.found, expected=error.expected) from error


def _checked_task(body: object, project: Project) -> dict[str, Any]:
    node = Node(value=body)
    named = node.optional("kind")
    if named is not None and named.value != project.ask:
        raise FieldError(
            field="kind", found=describe_value(named.value), expected=f"{project.ask}, as the project asks"
        )
    kind = KINDS[project.ask]
    _refuse_unknown(node, (*_COMMON, "candidates", *kind.own), "task")
    prompt = _prompt(node, kind)
    # As it was sent: what is read of it only proves that it can be read, and ids are digests of words.
    task: dict[str, Any] = {"kind": kind.name, "prompt": node.value["prompt"] if prompt else ""}  # type: ignore[index]
    task |= _checked_common(node)
    task |= {"candidates": _checked_candidates(node, kind, prompt)}
    task |= _checked_own(node, kind, prompt)
    # Behind its parts: a known answer names places among them.
    gold = node.optional("gold")
    if gold is not None:
        task["gold"] = _GOLD[kind.name](gold, task, project)
    if task.get("qualify") and gold is None:
        raise FieldError(
            field="gold", found="nothing", expected="what is right, as the task qualifies people"
        )
    _refuse_long(task)
    return task


def _prompt(node: Node, kind: Kind) -> Text:
    if kind.empty_prompt and node.optional("prompt") in (None, Node(value="", path="prompt")):
        return ""
    return read_prompt(node.get("prompt"))


def _refuse_unknown(node: Node, known: Sequence[str], where: str) -> None:
    for name in node.fields():
        if name not in known:
            raise FieldError(
                field=f"{node.path}.{name}" if node.path else name,
                found=f"an unknown field of a {where}{did_you_mean(name, known)}",
                expected=f"one of {', '.join(known)}",
            )


def _checked_common(node: Node) -> dict[str, Any]:
    values = dict[str, Any]()
    for name in _TEXTS:
        value = node.optional(name)
        if value is not None:
            values[name] = value.text()
    for name in _NUMBERS:
        value = node.optional(name)
        if value is not None:
            values[name] = value.number()
    probability = node.optional("probability")
    if probability is not None:
        values["probability"] = probability.number_between(0, 1)
    qualify = node.optional("qualify")
    if qualify is not None:
        values["qualify"] = qualify.boolean()
    metadata = node.optional("metadata")
    if metadata is not None:
        values["metadata"] = plain_object(metadata)
    return values


def plain_object(node: Node) -> dict[str, Any]:
    """An object that JSON can hold, not nested too deeply."""
    if not isinstance(node.value, dict):
        raise node.wrong_type_error("an object")
    # First of all: Python gives up on writing what is nested deeply enough.
    refuse_deep(node.value, node.path, MOST_LEVELS)
    try:
        # Encoded too: half a letter passes as JSON, and no file in UTF-8 can hold it.
        json.dumps(node.value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError) as error:
        raise FieldError(
            field=node.path, found=shorten(str(error)), expected="plain JSON in UTF-8"
        ) from error
    if any("\0" in text for text in _texts_in(node.value)):
        raise FieldError(field=node.path, found="a NUL character", expected="texts without it")
    return node.value


def _texts_in(value: object) -> Iterator[str]:
    """All texts of an object, the names of its fields too."""
    if isinstance(value, str):
        yield value
    for part in (*value, *value.values()) if isinstance(value, dict) else ():
        yield from _texts_in(part)
    for part in value if isinstance(value, list) else ():
        yield from _texts_in(part)


def refuse_deep(value: object, path: str, levels: int) -> None:
    """Complain about objects and lists in one another beyond so many levels."""
    if levels == 0:
        raise FieldError(field=path, found="objects in objects", expected=f"at most {MOST_LEVELS} levels")
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        refuse_deep(part, path, levels - 1)


def _checked_candidates(node: Node, kind: Kind, prompt: Text) -> list[dict[str, Any]]:
    listed = node.optional("candidates")
    items = () if listed is None else listed.items()
    low, high = kind.answers
    if not low <= len(items) <= high:
        wanted = f"{low}" if low == high else f"{low} to {high}"
        raise FieldError(field="candidates", found=f"{len(items)} answers", expected=f"{wanted} of them")
    candidates, before = list[dict[str, Any]](), dict[tuple[object, ...], int]()
    for place, item in enumerate(items):
        _refuse_unknown(item, ("text", "ended", "source"), "candidate")
        text = read_completion(item.get("text"), prompt)
        # Blanks at the ends nobody sees: answers that differ in nothing else cannot be compared.
        words = (plain_text(text).strip(), *pictures(text))
        if words in before:
            raise FieldError(
                field=f"candidates[{place}].text",
                found=f"the same words as in candidates[{before[words]}]",
                expected="answers that differ, or there is nothing to compare",
            )
        before[words] = place
        candidate: dict[str, Any] = {"text": item.value["text"]}  # type: ignore[index]
        ended, source = item.optional("ended"), item.optional("source")
        candidate["ended"] = True if ended is None else ended.boolean()
        if source is not None:
            candidate["source"] = plain_object(source)
        candidates.append(candidate)
    return candidates


def _checked_own(node: Node, kind: Kind, prompt: Text) -> dict[str, Any]:
    if kind.name == "steps":
        steps = [item.text() for item in node.get("steps").items()]
        if not steps or not all(step.strip() for step in steps):
            raise FieldError(
                field="steps", found=describe_value(steps), expected="at least one step, none empty"
            )
        return {"steps": steps}
    draft = node.optional("draft") if kind.name == "write" else None
    if draft is None:
        return {}
    # For its refusal alone: the store keeps what was sent.
    read_completion(draft, prompt)
    return {"draft": draft.value}


def _gold_pair(node: Node, task: dict[str, Any], project: Project) -> dict[str, Any]:
    return _known_place(node, "better", task, project)


def _gold_rank(node: Node, task: dict[str, Any], project: Project) -> dict[str, Any]:
    return _known_place(node, "best", task, project)


def _known_place(node: Node, name: str, task: dict[str, Any], project: Project) -> dict[str, Any]:
    """Which answer is the best one, and what the answers deserve to be reported for where that is known."""
    _refuse_unknown(node, (name, "flags"), "known answer")
    count = len(task["candidates"])
    return {name: _place(node.get(name), count), **read_flags(node, count, project)}


def _place(node: Node, count: int) -> int:
    place = node.value
    # True is an int to Python, and would be the second answer.
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < count:
        raise node.wrong_type_error(f"a place in the task, from 0 to {count - 1}")
    return place


def _gold_rate(node: Node, task: dict[str, Any], project: Project) -> dict[str, Any]:
    """From and to how many points each answer may be given, as a whole or by aspect; flags too, or alone."""
    _refuse_unknown(node, (*(project.aspects or ("overall",)), "flags"), "known answer")
    count = len(task["candidates"])
    aspects = [name for name in node.fields() if name != "flags"]
    # By flags alone nobody qualifies: that is decided by what people prefer.
    if not aspects and (node.optional("flags") is None or task.get("qualify")):
        raise node.wrong_type_error("points of an aspect, from and to, for each answer")
    ranges = {name: _ranges(node.get(name), count, project.levels(name)) for name in aspects}
    return {**ranges, **read_flags(node, count, project)}


def _ranges(node: Node, count: int, most: int) -> list[list[float]]:
    ranges = [[end.number_between(1, most) for end in item.items()] for item in node.items()]
    if len(ranges) != count or any(len(both) != 2 or both[0] > both[1] for both in ranges):
        raise node.wrong_type_error(f"[low, high] for each of the {count} answers")
    return ranges


def _gold_steps(node: Node, task: dict[str, Any], project: Project) -> dict[str, Any]:
    del project
    _refuse_unknown(node, ("labels",), "known answer")
    listed = node.get("labels")
    labels = [item.value for item in listed.items()]
    words = all(isinstance(label, str) and label in STEP_SCORES for label in labels)
    count = len(task["steps"])
    # Too few would be met by whoever gives up at once.
    if not words or not (len(labels) == count or ("wrong" in labels and len(labels) < count)):
        raise listed.wrong_type_error(
            f"right, neutral or wrong for each of the {count} steps, or up to the first wrong one"
        )
    return {"labels": labels}


def _no_gold(node: Node, task: dict[str, Any], project: Project) -> dict[str, Any]:
    del task, project
    raise FieldError(field=node.path, found="a known answer", expected="none: this kind has no right one")


_GOLD: Mapping[str, Callable[[Node, dict[str, Any], Project], dict[str, Any]]] = {
    "pair": _gold_pair,
    "rank": _gold_rank,
    "rate": _gold_rate,
    "steps": _gold_steps,
    "write": _no_gold,
    "talk": _no_gold,
    "attack": _no_gold,
}


def _refuse_long(task: dict[str, Any]) -> None:
    size = len(json.dumps(task, ensure_ascii=False))
    if size > MOST_CHARACTERS:
        raise FieldError(field="task", found=f"{size} characters", expected=f"at most {MOST_CHARACTERS}")


def shown_task(body: Mapping[str, Any], order: Sequence[int], project: Project) -> dict[str, Any]:
    """What an annotator is shown: no source, no model, no right answer, no reason why it is asked."""
    # Named one by one: what tasks come to hold later is hidden until somebody decides otherwise.
    shown: dict[str, Any] = {
        "kind": body["kind"],
        "question": project.question,
        "prompt": body["prompt"],
        "answers": [body["candidates"][place]["text"] for place in order],
        "ended": [body["candidates"][place]["ended"] for place in order],
        "flags": list(project.flags),
    }
    if body["kind"] in ("pair", "talk"):
        shown["scale"] = list(project.scale)
    if body["kind"] in ("pair", "talk", "rank"):
        shown["ties"] = project.ties
    if body["kind"] == "rate":
        aspects = list(project.aspects) or ["overall"]
        anchors = {name: list(words) for name in aspects if (words := project.words_of(name))}
        shown |= {"aspects": aspects, "points": project.points, "anchors": anchors}
    for name in ("steps", "draft", "language"):
        if name in body:
            shown[name] = body[name]
    if project.text == "markdown":
        shown["markdown"] = True
    if body.get("category") in project.upsetting:
        # Its name too: it says what to expect before anything is read.
        shown |= {"blurred": True, "category": body["category"]}
    return shown
