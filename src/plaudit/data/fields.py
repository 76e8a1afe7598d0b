"""A file's raw rows, and values read from their fields and checked on the way.

A `Node` is a value of a raw row together with its path, so that any complaint names the field by itself.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
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


def shared_length(first: Sequence[object], second: Sequence[object]) -> int:
    """How many items two sequences begin with alike."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, pair in pairs if pair[0] != pair[1]), min(len(first), len(second)))


ROW_LIMIT = 10_000_000
"""Bytes that a row may have; a row beyond it is nearly always a missing line break."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRow:
    origin: str
    value: object = None
    """What the row says; None when it could not be read."""
    problem: Problem | None = None
    text: str = ""
    """The row as it stands in the file, as far as it can be shown."""
    cells: bool = False
    """True for CSV, where every value is a text."""


def bad_row(kind: ProblemKind, origin: str, *, expected: str, found: str, text: str = "") -> RawRow:
    problem = BadRowError(kind, "", expected=expected, found=found).problem_at(origin)
    return RawRow(origin=origin, problem=problem, text=text)


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
    expected = f"at most {limit:,} bytes"
    return bad_row("row too large", origin, expected=expected, found="more", text=shorten(head, 200))


def value_at(fields: Mapping[str, object], path: str) -> object:
    """The value of a field, or of one within it behind a dot: of an object, or of each object in a list.

    >>> value_at({"input": {"words": "Hi"}, "b": [{"c": 1}, {"c": 2}]}, "input.words")
    'Hi'
    >>> value_at({"b": [{"c": 1}, {"c": 2}]}, "b.c")
    [1, 2]
    """
    name, _, rest = path.partition(".")
    if path in fields or not rest:
        return fields.get(path)
    match fields.get(name):
        case Mapping() as within:
            return value_at(within, rest)
        case [*items] if items and all(isinstance(item, Mapping) for item in items):
            return [value_at(item, rest) for item in items]
        case _:
            return None


def without(value: object, path: str) -> object:
    """The value without a field, or without one within it, and without what is empty then.

    >>> without({"a": [{"b": 1, "c": 2}], "d": 3, "e": {"f": 4}}, "a.b"), without({"e": {"f": 4}}, "e.f")
    ({'a': [{'c': 2}], 'd': 3, 'e': {'f': 4}}, {})
    """
    if isinstance(value, list | tuple):
        return [without(item, path) for item in value]
    if not isinstance(value, Mapping):
        return value
    name, _, rest = path.partition(".")
    if path in value or not rest:
        return {key: item for key, item in value.items() if key != path}
    left = without(value.get(name), rest)
    is_empty = left == {} or (isinstance(left, list) and all(item == {} for item in left))
    return {key: left if key == name else item for key, item in value.items() if key != name or not is_empty}


_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_GOOD = """true|yes|y|1|+1|good|up|thumbs up|thumb up|thumbsup|👍|like|liked|upvote|positive|accept|accepted
|correct|right|chosen|desirable|desired|preferred|helpful|approve|approved|pass|passed"""
_BAD = """false|no|n|0|-1|bad|down|thumbs down|thumb down|thumbsdown|👎|dislike|disliked|downvote|negative
|reject|rejected|incorrect|wrong|undesirable|undesired|unhelpful|disapprove|disapproved|fail|failed"""
_VERDICTS = {word.strip(): words is _GOOD for words in (_GOOD, _BAD) for word in words.split("|")}


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
    names: Mapping[str, str] | None = None
    """What a field is called in this row, where it has another name: a path such as ``input.messages``."""

    def optional(self, field: str) -> "Node | None":
        """The field, or None where it is absent, null or an empty CSV cell."""
        if not isinstance(self.value, Mapping):
            raise self.wrong_type_error("an object")
        field = self._name_here(field)
        value = value_at(self.value, field)
        if value is None or (self.cells and value == ""):
            return None
        return Node(value=value, path=f"{self.path}.{field}" if self.path else field, cells=self.cells)

    def get(self, field: str) -> "Node":
        """The field; a row without it is bad."""
        node = self.optional(field)
        if node is not None:
            return node
        names, field = self.fields(), self._name_here(field)
        path = f"{self.path}.{field}" if self.path else field
        if field in names and self.cells:
            raise BadRowError("empty side", path, expected="a value", found="an empty cell")
        found = "null" if field in names else f"only {join_names(names)}" if names else "an empty object"
        raise BadRowError("missing field", path, expected="a value", found=found)

    def fields(self) -> tuple[str, ...]:
        """The names of an object's fields; none for anything else."""
        if not isinstance(self.value, Mapping):
            return ()
        called = {path.partition(".")[0]: name for name, path in (self.names or {}).items()}
        return tuple(called.get(name, name) for name in map(str, self.value))

    def _name_here(self, field: str) -> str:
        return field if self.names is None else self.names.get(field, field)

    def items(self) -> "tuple[Node, ...]":
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
            raise self.error("non-finite number", "a finite number")
        return float(value)

    def number_between(self, low: float, high: float) -> float:
        number = self.number()
        if not low <= number <= high:
            raise self.error("wrong value", f"a number from {low:g} to {high:g}")
        return number

    def verdict(self) -> bool:
        """Whether the value calls something good: true or false, 1 or -1, a word such as yes, bad or up."""
        value = f"{self.value}".removesuffix(".0") if isinstance(self.value, str | int | float) else ""
        spaced = re.sub(r"(?<=[a-z])[_-](?=[a-z])", " ", value.lower())
        word = " ".join(re.findall(r"[\w+👍👎-]+", spaced))
        if word not in _VERDICTS:
            raise self.wrong_type_error("a verdict (true or false, 1 or -1, yes or no, good or bad)")
        return _VERDICTS[word]

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
        return BadRowError(kind, self.path, expected=expected, found=describe_value(self.value))

    def wrong_type_error(self, expected: str) -> BadRowError:
        return self.error("wrong type", expected)

    def _decoded(self) -> object:
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


def optional_items(row: Node, field: str) -> tuple[Node, ...]:
    node = row.optional(field)
    return () if node is None else node.items()


def is_true(row: Node, field: str) -> bool:
    node = row.optional(field)
    return node is not None and node.boolean()


def read_json(node: Node, expected: str) -> Node:
    """The value of a field, or what it says as JSON where it is a text."""
    if not isinstance(node.value, str):
        return node
    try:
        return Node(value=json.loads(node.text()), path=node.path)
    except (ValueError, RecursionError):
        raise node.error("wrong value", expected) from None
