"""Tasks: what one must hold to be taken, and what of it an annotator is shown."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from plaudit.collect.kinds import KINDS
from plaudit.collect.kinds.kind import Kind, refuse_unknown, words_of
from plaudit.collect.pictures import pictures_of
from plaudit.collect.project import Project
from plaudit.collect.refusals import MOST_CHARACTERS, FieldError
from plaudit.data.fields import BadRowError, Node, describe_value, shorten
from plaudit.data.records import Text
from plaudit.data.turns import read_completion, read_prompt

MOST_LEVELS = 16
"""How deep the objects of a task may be nested."""
_TEXTS = ("category", "language", "reference_answer", "method", "gold_reason")
_NUMBERS = ("score", "priority")
_COMMON = ("kind", "prompt", *_TEXTS, "metadata", *_NUMBERS, "probability", "gold", "qualify", "candidates")


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
    refuse_unknown(node, (*_COMMON, *kind.own), "task")
    prompt = _prompt(node, kind)
    # As it was sent: what is read of it only proves that it can be read, and ids are digests of words.
    task: dict[str, Any] = {"kind": kind.name, "prompt": node.get("prompt").value if prompt else ""}
    task |= _checked_common(node)
    task |= {"candidates": _checked_candidates(node, kind, prompt)}
    task |= kind.check_own(node, prompt)
    if pictures_of(task) and kind.conversation is not None:
        expected = "words alone, as a model is talked to in words"
        raise FieldError(field="prompt", found="a picture", expected=expected)
    # Behind its parts: a known answer names places among them.
    gold = node.optional("gold")
    if gold is not None:
        if kind.check_gold is None:
            raise FieldError(
                field="gold", found="a known answer", expected="none: this kind has no right one"
            )
        task["gold"] = kind.check_gold(gold, task, project)
    if task.get("qualify") and gold is None:
        raise FieldError(
            field="gold", found="nothing", expected="what is right, as the task qualifies people"
        )
    size = len(json.dumps(task, ensure_ascii=False))
    if size > MOST_CHARACTERS:
        raise FieldError(field="task", found=f"{size} characters", expected=f"at most {MOST_CHARACTERS}")
    return task


def _prompt(node: Node, kind: Kind) -> Text:
    if kind.empty_prompt and node.optional("prompt") in (None, Node(value="", path="prompt")):
        return ""
    return read_prompt(node.get("prompt"))


def _checked_common(node: Node) -> dict[str, Any]:
    readers: dict[str, Callable[[Node], Any]] = {
        **dict.fromkeys(_TEXTS, Node.text),
        **dict.fromkeys(_NUMBERS, Node.number),
        "probability": lambda value: value.number_between(0, 1),
        "qualify": Node.boolean,
        "metadata": plain_object,
    }
    given = {name: node.optional(name) for name in readers}
    return {name: readers[name](value) for name, value in given.items() if value is not None}


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
        refuse_unknown(item, ("text", "ended", "source"), "candidate")
        # Blanks at the ends nobody sees: answers that differ in nothing else cannot be compared.
        words = words_of(read_completion(item.get("text"), prompt))
        if words in before:
            raise FieldError(
                field=f"candidates[{place}].text",
                found=f"the same words as in candidates[{before[words]}]",
                expected="answers that differ, or there is nothing to compare",
            )
        before[words] = place
        candidate: dict[str, Any] = {"text": item.get("text").value}
        ended, source = item.optional("ended"), item.optional("source")
        candidate["ended"] = True if ended is None else ended.boolean()
        if source is not None:
            candidate["source"] = plain_object(source)
        candidates.append(candidate)
    return candidates


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
        **KINDS[body["kind"]].shown(body, project),
    }
    if "language" in body:
        shown["language"] = body["language"]
    if project.text == "markdown":
        shown["markdown"] = True
    if body.get("category") in project.upsetting:
        # Its name too: it says what to expect before anything is read.
        shown |= {"blurred": True, "category": body["category"]}
    return shown
