"""A file's raw rows, and texts and conversations read from their fields and checked on the way.

A `Node` is a value of a raw row together with its path, so that any complaint names the field by itself. A
prompt and the answers to it are of one kind, all texts or all conversations. An answer is never empty; as a
conversation it begins and ends with the assistant's turn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from plaudit.data.records import Message, Part, Text, pictures, plain_text

ProblemKind = Literal[
    "broken row",
    "bad UTF-8",
    "NUL",
    "row too large",
    "missing field",
    "wrong type",
    "wrong value",
    "non-finite number",
    "repeated key",
    "unknown role",
    "empty side",
    "chosen = rejected",
    "tie as preference",
    "too few answers",
    "unsupported",
]
"""The families of problems, for counting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One fault of one row.

    Example: ``Problem(kind="wrong type", origin="a.jsonl:2", field="chosen", expected="a text", found="3")``
    """

    kind: ProblemKind
    """The family that the problem belongs to."""
    origin: str
    """File and row."""
    field: str
    """The field, as a path (``answers[3].rank``); empty when the row as a whole is at fault."""
    expected: str
    """What should be there."""
    found: str
    """The value that the row has there."""

    @property
    def message(self) -> str:
        """The problem in one line.

        >>> Problem(kind="NUL", origin="a.jsonl:2", field="chosen", expected="a text", found="3").message
        'a.jsonl:2: field chosen: expected a text, found 3'
        """
        where = f"{self.origin}: field {self.field}" if self.field else self.origin
        return f"{where}: expected {self.expected}, found {self.found}"


class BadRowError(ValueError):
    """Raised by a layout that cannot read a row; the reader turns it into a ``Problem``."""

    def __init__(self, kind: ProblemKind, field: str, *, expected: str, found: str) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")
        self.kind: ProblemKind = kind
        self.field = field
        self.expected = expected
        self.found = found

    def problem_at(self, origin: str) -> Problem:
        """The same fault with its file and row."""
        return Problem(
            kind=self.kind, origin=origin, field=self.field, expected=self.expected, found=self.found
        )


class LeftOutError(ValueError):
    """Raised by a layout for a sound row without a record (a dropped tie): counted, and no fault."""


def describe_value(value: object) -> str:
    """A value in a few words, for the end of a sentence.

    >>> describe_value([1, 2]), describe_value(None), describe_value("hello")
    ('a list of 2', 'null', 'the text "hello"')
    """
    if value is None:
        return "null"
    if isinstance(value, str):
        return f'the text "{shorten(value)}"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return f"an object with {join_names([str(key) for key in value])}" if value else "an empty object"
    if isinstance(value, Sequence):
        return f"a list of {len(value)}"
    return shorten(str(value))


def shorten(text: str, limit: int = 60) -> str:
    """A text on one line, cut with an ellipsis; what cannot be printed is escaped.

    >>> print(shorten("été\\nnoir"), shorten("abcdefgh", 4))
    été\\nnoir abcd…
    """
    head = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text[:limit]
    )
    return head + ("…" if len(text) > limit else "")


def join_names(names: Sequence[str], limit: int = 8) -> str:
    """Names with commas, the long tail counted.

    >>> join_names(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    text = ", ".join(names[:limit])
    return f"{text} and {len(names) - limit} more" if len(names) > limit else text


ROW_LIMIT = 10_000_000
"""Bytes that a row may have; a row beyond it is nearly always a missing line break."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    """One row of a file, or the reason why it could not be had.

    Example: ``RawRow(origin="pairs.jsonl:12", value={"prompt": "Hi"}, text='{"prompt": "Hi"}')``
    """

    origin: str
    """File and row."""
    value: object = None
    """What the row says; None when it could not be read."""
    problem: Problem | None = None
    """Why it could not be read."""
    text: str = ""
    """The row as it stands in the file, as far as it can be shown."""
    cells: bool = False
    """True for CSV, where every value is a text."""


def bad_row(kind: ProblemKind, origin: str, *, expected: str, found: str, text: str = "") -> RawRow:
    """A row that could not be read."""
    return RawRow(
        origin=origin,
        problem=BadRowError(kind, "", expected=expected, found=found).problem_at(origin),
        text=text,
    )


def row_from_value(value: object, origin: str, text: str | None = None) -> RawRow:
    """The raw row of a value that is read already; a bad row where the value is no object."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str) if text is None else text
    except (ValueError, TypeError, RecursionError) as error:
        # Of Python's own objects: one that holds itself, or a key that is no text.
        return bad_row("broken row", origin, expected="a JSON object", found=shorten(str(error)))
    if not isinstance(value, dict):
        return bad_row("wrong type", origin, expected="a JSON object", found=shorten(text), text=text)
    return RawRow(origin=origin, value=value, text=text)


def too_large_row(origin: str, limit: int, head: str) -> RawRow:
    """A row beyond the limit, of which only the beginning is kept."""
    return bad_row(
        "row too large", origin, expected=f"at most {limit:,} bytes", found="more", text=shorten(head, 200)
    )


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
        # JSON can spell half a surrogate pair; a tokenizer would fail on it in the middle of a run.
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
        # An integer is compared as one: float() and isfinite() raise from 2^1024 on.
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
_OTHER_ROLES = {"developer": "system"}
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")

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


NO_EMPTY_PROMPT = "a prompt (of documents without one, give rows with the field text alone)"
"""What a row with an empty prompt should have."""


def read_prompt(node: Node) -> Text:
    """A prompt that says something: a text, or a conversation."""
    prompt = read_text_or_messages(node)
    if not plain_text(prompt).strip() and not pictures(prompt):
        found = describe_value(prompt) if isinstance(prompt, str) else "a conversation without words"
        raise BadRowError("empty side", node.path, expected=NO_EMPTY_PROMPT, found=found)
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
    # Back to a blank: half a word on either side of the cut would be other tokens than the word.
    while n > 0 and not chosen[n - 1].isspace():
        n -= 1
    if not chosen[:n].strip():
        raise BadRowError(
            "empty side",
            "chosen, rejected",
            expected="two texts that begin with the same prompt (or name its field: --columns prompt=FIELD)",
            found=f"{describe_value(chosen)} and {describe_value(rejected)}",
        )
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
    name = node.get("role").text()
    role = _OTHER_ROLES.get(name, name)
    if role not in ROLES:
        raise BadRowError(
            "unknown role",
            f"{node.path}.role",
            expected=f"one of {', '.join((*ROLES, *_OTHER_ROLES))}",
            found=describe_value(role),
        )
    # Dropped in silence, they would teach the model to answer without having called.
    if node.optional("tool_calls") is not None and node.get("tool_calls").value != []:
        raise BadRowError(
            "unsupported",
            f"{node.path}.tool_calls",
            expected="tool calls written out in the content",
            found="a list of calls",
        )
    reasoning = next((found for name in _REASONING_FIELDS if (found := node.optional(name))), None)
    return Message(
        role=role,
        content=_read_content(node.get("content")),
        reasoning=None if reasoning is None else reasoning.text().strip() or None,
        trained=_read_weight(node, role),
    )


def _read_content(content: Node) -> str | tuple[Part, ...]:
    if isinstance(content.value, str):
        return content.text()
    if isinstance(content.value, list | tuple):
        return tuple(_read_part(item) for item in content.items())
    raise content.wrong_type_error("a text or a list of parts")


def _read_weight(node: Node, role: str) -> bool:
    """Whether a turn is trained: weight 0 makes an answer context; of other turns no weight makes one."""
    weight = node.optional("weight")
    if weight is None or weight.number() == (1 if role == "assistant" else 0):
        return True
    if weight.number() not in (0, 1) or role != "assistant":
        expected = "0 or 1" if role == "assistant" else f"no weight: a turn of the {role} is never trained"
        raise BadRowError("wrong value", weight.path, expected=expected, found=describe_value(weight.value))
    return False


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
