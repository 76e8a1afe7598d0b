"""Texts and conversations read from a row's fields, and checked while they are read.

A `Node` is a value of a raw row together with its path, so that any complaint names the field by itself. A
prompt and the answers to it are of one kind, all texts or all conversations. An answer is never empty; as a
conversation it begins and ends with the assistant's turn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from plaudit.data.records import Message, Part, Text, plain_text
from plaudit.data.row import BadRowError, describe_value, join_names

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One place in a raw row.

    Example: ``Node(value={"rank": 2}, path="answers[3]").get("rank").number()`` is 2.0
    """

    value: object
    """What the row holds there."""
    path: str = ""
    """Where it is: ``answers[3].rank``; empty for the row itself."""
    cells: bool = False
    """True for rows of CSV, where numbers, truths and lists are written as text."""

    def optional(self, field: str) -> Node | None:
        """The field, or None where it is absent, null or an empty CSV cell."""
        if not isinstance(self.value, Mapping):
            raise self.wrong_type_error("an object")
        value = self.value.get(field)
        if value is None or (self.cells and value == ""):
            return None
        return Node(value=value, path=f"{self.path}.{field}" if self.path else field, cells=self.cells)

    def get(self, field: str) -> Node:
        """The field; a row without it is bad."""
        node = self.optional(field)
        if node is not None:
            return node
        names = self.fields()
        path = f"{self.path}.{field}" if self.path else field
        if field in names and self.cells:
            raise BadRowError("empty side", path, expected="a value", found="an empty cell")
        found = "null" if field in names else f"only {join_names(names)}" if names else "an empty object"
        raise BadRowError("missing field", path, expected="a value", found=found)

    def fields(self) -> tuple[str, ...]:
        """The names of an object's fields; none for anything else."""
        return tuple(map(str, self.value)) if isinstance(self.value, Mapping) else ()

    def items(self) -> tuple[Node, ...]:
        """The elements of a list."""
        value = self._decoded()
        if not isinstance(value, list | tuple):
            raise self.wrong_type_error("a list")
        return tuple(Node(value=item, path=f"{self.path}[{i}]") for i, item in enumerate(value))

    def text(self) -> str:
        """The value as a text that can be encoded."""
        if not isinstance(self.value, str):
            raise self.wrong_type_error("a text")
        if "\0" in self.value:
            raise BadRowError(
                "NUL", self.path, expected="a text without NUL", found=describe_value(self.value)
            )
        try:
            self.value.encode("utf-8")
        except UnicodeEncodeError:
            raise BadRowError(
                "bad UTF-8", self.path, expected="a text that UTF-8 can hold", found="half a surrogate pair"
            ) from None
        return self.value

    def number(self) -> float:
        """The value as a finite number."""
        value = self._decoded()
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong_type_error("a number")
        if not (math.isfinite(value) if isinstance(value, float) else abs(value) < 2**1000):
            raise BadRowError(
                "non-finite number", self.path, expected="a finite number", found=describe_value(value)
            )
        return float(value)

    def number_between(self, low: float, high: float) -> float:
        """The value as a number of a closed interval."""
        number = self.number()
        if not low <= number <= high:
            raise BadRowError(
                "wrong value",
                self.path,
                expected=f"a number from {low:g} to {high:g}",
                found=describe_value(self.value),
            )
        return number

    def boolean(self) -> bool:
        """The value as true or false; 0 and 1 count as such."""
        if isinstance(self.value, bool) or (isinstance(self.value, int) and self.value in (0, 1)):
            return bool(self.value)
        if self.cells and isinstance(self.value, str) and self.value.strip().lower() in _BOOLEANS:
            return _BOOLEANS[self.value.strip().lower()]
        raise self.wrong_type_error("true or false")

    def name(self) -> str:
        """A short text that names someone or something; a whole number counts."""
        if isinstance(self.value, int) and not isinstance(self.value, bool):
            return str(self.value)
        return self.text()

    def wrong_type_error(self, expected: str) -> BadRowError:
        """The complaint that something else was expected here."""
        return BadRowError("wrong type", self.path, expected=expected, found=describe_value(self.value))

    def _decoded(self) -> object:
        """The value; in CSV, what its text says as JSON when it says something."""
        if not (self.cells and isinstance(self.value, str)):
            return self.value
        try:
            return json.loads(self.value)
        except (ValueError, RecursionError):
            return self.value


def optional_number(row: Node, field: str) -> float | None:
    """A number that may be absent."""
    node = row.optional(field)
    return None if node is None else node.number()


def optional_name(row: Node, field: str) -> str | None:
    """A name that may be absent."""
    node = row.optional(field)
    return None if node is None else node.name()


def optional_category(row: Node, field: str) -> str | None:
    """A category that may be absent; of several in a list, all their names.

    >>> optional_category(Node(value={"source": ["sharegpt", "flan"]}), "source")
    'sharegpt, flan'
    """
    node = row.optional(field)
    if node is None or not isinstance(node.value, list | tuple):
        return None if node is None else node.name()
    return ", ".join(item.name() for item in node.items()) or None


class AnnotationInfo(TypedDict):
    """Who judged a row, and its category."""

    annotator: str | None
    group: str | None
    category: str | None


def annotation_info(row: Node) -> AnnotationInfo:
    """What a row says, in fields that all may be absent, about who judged and about the question."""
    return AnnotationInfo(
        annotator=optional_name(row, "annotator"),
        group=optional_name(row, "group"),
        category=optional_category(row, "category"),
    )


ROLES = ("system", "user", "assistant", "tool")
"""The roles that a chat template knows."""

Turns = tuple[Message, ...]
"""A conversation, or a part of one."""


def read_messages(node: Node) -> Turns:
    """A list of ``{"role": …, "content": …}`` as messages."""
    return tuple(_read_message(item) for item in node.items())


def read_text_or_messages(node: Node) -> Text:
    """A text or a conversation of a field, whichever the field holds."""
    if isinstance(node.value, str) and not (node.cells and is_messages(node)):
        return node.text()
    if isinstance(node.value, str | list | tuple):
        return read_messages(node)
    raise node.wrong_type_error("a text or a list of messages")


def read_prompt(node: Node) -> Text:
    """A prompt: any text, the empty one too, or a conversation that says something."""
    prompt = read_text_or_messages(node)
    if not isinstance(prompt, str) and not plain_text(prompt).strip():
        raise BadRowError("empty side", node.path, expected="a prompt", found="a conversation without words")
    return prompt


def read_completion(node: Node, prompt: Text) -> Text:
    """An answer to a prompt, of the same kind as it and not empty."""
    completion = read_text_or_messages(node)
    if isinstance(completion, str) != isinstance(prompt, str):
        expected = "a text, as the prompt is one" if isinstance(prompt, str) else "messages, as in the prompt"
        raise node.wrong_type_error(expected)
    return require_not_empty(completion, node.path)


def require_not_empty(completion: Text, path: str) -> Text:
    """The same answer, when it says something in every turn of the assistant."""
    if isinstance(completion, str):
        if not completion.strip():
            raise BadRowError("empty side", path, expected="an answer", found=describe_value(completion))
        return completion
    if not completion:
        raise BadRowError("empty side", path, expected="an answer", found="no message")
    for turn in (completion[0], completion[-1]):
        if turn.role != "assistant":
            raise BadRowError(
                "wrong value",
                path,
                expected="an answer that begins and ends with the assistant's turn",
                found=f"the role {turn.role}",
            )
    if any(turn.role == "assistant" and not plain_text((turn,)).strip() for turn in completion):
        raise BadRowError("empty side", path, expected="an answer", found="an empty turn of the assistant")
    return completion


def require_different(chosen: Text, rejected: Text, path: str) -> None:
    """Complain when both sides of a comparison are the same."""
    if chosen == rejected:
        raise BadRowError(
            "chosen = rejected", path, expected="two different answers", found="the same answer twice"
        )


def split_prompt(turns: Turns, path: str) -> tuple[Turns, Turns]:
    """A conversation as its prompt (before the first assistant turn) and its answer (to the last one).

    User and tool turns between two assistant turns belong to the answer; what follows the last assistant
    turn has no reply to learn from and is not part of either.
    """
    assistant_indices = [i for i, turn in enumerate(turns) if turn.role == "assistant"]
    if not assistant_indices:
        raise BadRowError("empty side", path, expected="a turn of the assistant", found="none")
    prompt, completion = (
        turns[: assistant_indices[0]],
        turns[assistant_indices[0] : assistant_indices[-1] + 1],
    )
    if not plain_text(prompt).strip():
        raise BadRowError("empty side", path, expected="a turn before the assistant's first", found="none")
    require_not_empty(completion, path)
    return prompt, completion


def split_shared_turns(chosen: Turns, rejected: Turns) -> tuple[Turns, Turns, Turns]:
    """Two whole conversations as their common prompt and two answers; no message is ever split."""
    n = 0
    while n < min(len(chosen), len(rejected)) and chosen[n] == rejected[n]:
        n += 1
    if n == 0 or not plain_text(chosen[:n]).strip():
        raise BadRowError(
            "wrong value",
            "chosen, rejected",
            expected="two conversations that begin with the same prompt",
            found="different first turns" if n == 0 else "a prompt without words",
        )
    if n in (len(chosen), len(rejected)):
        raise BadRowError(
            "empty side",
            "chosen" if n == len(chosen) else "rejected",
            expected="an answer of its own",
            found="only the turns that the other side begins with",
        )
    return chosen[:n], chosen[n:], rejected[n:]


def split_shared_text(chosen: str, rejected: str) -> tuple[str, str, str]:
    """Two whole texts as their common prompt and two answers; no word is ever split.

    A space before the answers goes with them, as tokenisers have it; a line break stays with the prompt.

    >>> split_shared_text("The sky is blue.", "The sky is black.")
    ('The sky is', ' blue.', ' black.')
    >>> split_shared_text("It rains", "It rains today")
    ('It', ' rains', ' rains today')
    """
    n = 0
    while n < min(len(chosen), len(rejected)) and chosen[n] == rejected[n]:
        n += 1
    while n > 0 and not chosen[n - 1].isspace():
        n -= 1
    if chosen[:n].endswith(" "):
        n -= 1
    return chosen[:n], chosen[n:], rejected[n:]


def is_messages(node: Node) -> bool:
    """Whether the value looks like a conversation: a list of objects with a role and a content."""
    try:
        items = node.items()
    except BadRowError:
        return False
    return bool(items) and all({"role", "content"} <= set(item.fields()) for item in items)


def _read_message(node: Node) -> Message:
    role = node.get("role").text()
    if role not in ROLES:
        raise BadRowError(
            "unknown role",
            f"{node.path}.role",
            expected=f"one of {', '.join(ROLES)}",
            found=describe_value(role),
        )
    if node.optional("tool_calls") is not None and node.get("tool_calls").value != []:
        raise BadRowError(
            "unsupported",
            f"{node.path}.tool_calls",
            expected="tool calls written out in the content",
            found="a list of calls",
        )
    content = node.get("content")
    if isinstance(content.value, str):
        return Message(role=role, content=content.text())
    if isinstance(content.value, list | tuple):
        return Message(role=role, content=tuple(_read_part(item) for item in content.items()))
    raise content.wrong_type_error("a text or a list of parts")


def _read_part(node: Node) -> Part:
    kind = node.get("type").text()
    if kind == "text":
        return Part(kind="text", text=node.get("text").text())
    if kind == "image":
        source = node.optional("image") or node.optional("url") or node.get("path")
        return Part(kind="image", source=source.text())
    raise BadRowError(
        "wrong value", f"{node.path}.type", expected="text or image", found=describe_value(kind)
    )
