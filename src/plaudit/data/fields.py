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
from typing import Literal

from plaudit.data.records import TOOLS_ROLE, Message, Part, Text, ToolCall, pictures, plain_text, split_tools

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
]
"""The families of problems, for counting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One fault of one row.

    Example: ``Problem(kind="wrong type", origin="a.jsonl:2", field="chosen", expected="a text", found="3")``
    """

    kind: ProblemKind
    origin: str
    field: str
    """The field, as a path (``answers[3].rank``); empty when the row as a whole is at fault."""
    expected: str
    found: str

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
    text: str = ""
    """The row as it stands in the file, as far as it can be shown."""
    cells: bool = False
    """True for CSV, where every value is a text."""


def bad_row(kind: ProblemKind, origin: str, *, expected: str, found: str, text: str = "") -> RawRow:
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
        value = self._decoded()
        if not isinstance(value, list | tuple):
            raise self.wrong_type_error("a list")
        return tuple(Node(value=item, path=f"{self.path}[{i}]") for i, item in enumerate(value))

    def text(self) -> str:
        if not isinstance(self.value, str):
            raise self.wrong_type_error("a text")
        if "\0" in self.value:
            raise self.error("NUL", "a text without NUL")
        # JSON can spell half a surrogate pair; a tokenizer would fail on it in the middle of a run.
        try:
            self.value.encode("utf-8")
        except UnicodeEncodeError:
            raise BadRowError(
                "bad UTF-8", self.path, expected="a text that UTF-8 can hold", found="half a surrogate pair"
            ) from None
        return self.value

    def number(self) -> float:
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
        number = self.number()
        if not low <= number <= high:
            raise self.error("wrong value", f"a number from {low:g} to {high:g}")
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

    def error(self, kind: ProblemKind, expected: str) -> BadRowError:
        """The complaint that something else was expected here."""
        return BadRowError(kind, self.path, expected=expected, found=describe_value(self.value))

    def wrong_type_error(self, expected: str) -> BadRowError:
        return self.error("wrong type", expected)

    def _decoded(self) -> object:
        """The value; in CSV, what its text says as JSON when it says something."""
        if not (self.cells and isinstance(self.value, str)):
            return self.value
        try:
            return json.loads(self.value)
        except (ValueError, RecursionError):
            return self.value


def optional_number(row: Node, field: str) -> float | None:
    node = row.optional(field)
    return None if node is None else node.number()


def optional_name(row: Node, field: str) -> str | None:
    node = row.optional(field)
    return None if node is None else node.name()


ROLES = ("system", "user", "assistant", "tool")
"""The roles that a chat template knows."""
_OTHER_ROLES = {"developer": "system", "function": "tool"}
_CALL_FIELDS = ("tool_calls", "function_call")
_MOST_LEVELS = 64
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")

Turns = tuple[Message, ...]
"""A conversation, or a part of one."""


def read_messages(node: Node) -> Turns:
    """A list of ``{"role": …, "content": …}`` as messages."""
    read = (_read_message(item) for item in node.items())
    turns = tuple(turn for turn in read if (turn.role, turn.content) != (TOOLS_ROLE, "[]"))
    for i, turn in enumerate(turns):
        if turn.role == "tool":
            _check_result(turn, turns[:i], f"{node.path}[{i}]")
        if turn.role == TOOLS_ROLE and i > 0:
            expected = "the schemas of the tools before all turns"
            raise BadRowError(
                "wrong value", f"{node.path}[{i}].role", expected=expected, found="turns before"
            )
    return turns


def _check_result(result: Message, before: Turns, path: str) -> None:
    """Complain of a tool's turn that no call stands before; calls may be written out in the words."""
    speakers = [turn for turn in before if turn.role == "assistant"]
    ids = {call.id for turn in speakers for call in turn.tool_calls}
    if not speakers or (ids and not speakers[-1].tool_calls):
        expected = "a result behind the assistant's turn that calls for it"
        raise BadRowError("wrong value", path, expected=expected, found="no call before it")
    if result.tool_call_id is not None and ids - {None} and result.tool_call_id not in ids:
        found = describe_value(result.tool_call_id)
        raise BadRowError(
            "wrong value", f"{path}.tool_call_id", expected="the id of a call before it", found=found
        )


def read_text_or_messages(node: Node) -> Text:
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
    turns = prompt if isinstance(prompt, str) else split_tools(prompt)[1]
    if not plain_text(turns).strip() and not pictures(prompt):
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


def is_messages(node: Node) -> bool:
    """Whether the value looks like a conversation: a list of objects with a role, and a content or calls."""
    try:
        items = [set(item.fields()) for item in node.items()]
    except BadRowError:
        return False
    return bool(items) and all("role" in names and names & {"content", *_CALL_FIELDS} for names in items)


def _read_message(node: Node) -> Message:
    name = node.get("role").text()
    role = _OTHER_ROLES.get(name, name)
    if role == TOOLS_ROLE:
        return next(iter(read_tools(node.get("content"))), Message(role=role, content="[]"))
    if role not in ROLES:
        raise node.get("role").error("unknown role", f"one of {', '.join((*ROLES, *_OTHER_ROLES))}")
    calls = _read_message_calls(node, role)
    content = node.optional("content") if calls else node.get("content")
    reasoning = next((found for name in _REASONING_FIELDS if (found := node.optional(name))), None)
    return Message(
        role=role,
        content="" if content is None else _read_content(content),
        reasoning=None if reasoning is None else reasoning.text().strip() or None,
        trained=_read_weight(node, role),
        tool_calls=calls,
        tool_call_id=optional_name(node, "tool_call_id") if role == "tool" else None,
        name=optional_name(node, "name") if role == "tool" else None,
    )


def _read_message_calls(node: Node, role: str) -> tuple[ToolCall, ...]:
    """The calls of a turn, in the field of several or the older one of a single call."""
    several, single = (node.optional(name) for name in _CALL_FIELDS)
    calls = () if several is None else read_tool_calls(several)
    calls += () if single is None else (_read_call(single),)
    if calls and role != "assistant":
        field = _CALL_FIELDS[several is None]
        expected = f"no call: a turn of the {role} calls nothing"
        raise BadRowError("wrong value", f"{node.path}.{field}", expected=expected, found="a call")
    return calls


def read_tool_calls(node: Node) -> tuple[ToolCall, ...]:
    listed = read_json(node, "a list of calls")
    return tuple(_read_call(read_json(item, "a call")) for item in listed.items())


def _read_call(node: Node) -> ToolCall:
    function = _function_of(node)
    given = function.optional("arguments")
    # A null stands for no arguments; what has none at all may call them by another name.
    if given is None and "arguments" not in function.fields():
        function.get("arguments")
    arguments = read_json(given or Node(value={}), 'an object, or its JSON: {"city": "Oslo"}')
    return ToolCall(
        name=_function_name(function),
        arguments=_json_of_object(arguments),
        id=optional_name(node, "id"),
    )


def read_tools(node: Node) -> Turns:
    """The schemas that a prompt's tools have, as the turn that it begins with; nothing where there are none.

    >>> read_tools(Node(value=[{"name": "now", "parameters": {}}]))[0].content
    '[{"type": "function", "function": {"name": "now", "parameters": {}}}]'
    """
    if isinstance(node.value, str) and not node.value.strip():
        return ()
    listed = read_json(node, "a list of the schemas of tools")
    schemas = [_read_schema(item, is_padded=not isinstance(node.value, str)) for item in listed.items()]
    content = f"[{', '.join(schemas)}]"
    return (Message(role=TOOLS_ROLE, content=content),) if schemas else ()


def _read_schema(item: Node, *, is_padded: bool) -> str:
    node = read_json(item, "the schema of a tool")
    function = _function_of(node)
    _function_name(function)
    fields = node.value if isinstance(node.value, dict) else {}
    if function is node:
        rest = {name: value for name, value in fields.items() if name != "type"}
        fields = {"type": "function", "function": rest}
    schema = {"type": "function", **fields}
    return _json_of_object(
        Node(value=without_nulls(schema) if is_padded and node is item else schema, path=node.path)
    )


def without_nulls(value: object) -> object:
    """The value without an object's fields that are null, but for a default or constant that may be one.

    >>> without_nulls({"a": None, "b": [{"default": None, "c": None}]})
    {'b': [{'default': None}]}
    """
    if isinstance(value, Mapping):
        retained = {
            name: item for name, item in value.items() if item is not None or name in ("default", "const")
        }
        return {name: without_nulls(item) for name, item in retained.items()}
    return [without_nulls(item) for item in value] if isinstance(value, list | tuple) else value


def _function_of(node: Node) -> Node:
    """The part that names the function: of OpenAI's objects an object within, of others the whole."""
    kind = node.optional("type")
    if kind is not None and kind.value != "function":
        raise kind.error("wrong value", "function")
    return node.optional("function") or node


def _function_name(function: Node) -> str:
    name = function.get("name")
    if not name.text().strip():
        raise BadRowError("empty side", name.path, expected="the name of a function", found="no word")
    return name.text()


def read_json(node: Node, expected: str) -> Node:
    """The value of a field, or what it says as JSON where it is a text."""
    if not isinstance(node.value, str):
        return node
    try:
        return Node(value=json.loads(node.text()), path=node.path)
    except (ValueError, RecursionError):
        raise node.error("wrong value", expected) from None


def _json_of_object(node: Node) -> str:
    """An object as JSON, in which everything can be written and tokenised."""
    if not isinstance(node.value, Mapping):
        raise node.wrong_type_error("an object")
    _check_json(node, 0)
    return json.dumps(node.value, ensure_ascii=False)


def _check_json(node: Node, depth: int) -> None:
    value = node.value
    if depth > _MOST_LEVELS:
        found = "more"
        raise BadRowError("wrong value", node.path, expected=f"at most {_MOST_LEVELS} levels", found=found)
    if isinstance(value, Mapping):
        for name, item in value.items():
            Node(value=name, path=node.path).text()
            _check_json(Node(value=item, path=f"{node.path}.{name}"), depth + 1)
    elif isinstance(value, list | tuple):
        for item in node.items():
            _check_json(item, depth + 1)
    elif isinstance(value, str):
        node.text()
    elif value is not None and not isinstance(value, bool):
        node.number()


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
        raise weight.error("wrong value", expected)
    return False


def _read_part(node: Node) -> Part:
    kind = node.get("type").text()
    if kind == "text":
        return Part(kind="text", text=node.get("text").text())
    if kind == "image":
        source = node.optional("image") or node.optional("url") or node.get("path")
        return Part(kind="image", source=source.text())
    raise node.get("type").error("wrong value", "text or image")
