"""JSON that comes back as it went in: every float to the last bit, NaN and the infinities too.

Python prints a finite float with the shortest digits that read back as the same number; plain JSON has no
word for the others, so they are written as ``{"$float": "nan"}``. What could not come back equal (a tuple, a
key that is not a string, a tensor) is refused when it is written, not found when it is read.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_FLOAT_KEY = "$float"
_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def dumps(value: object, *, indent: int | None = None) -> str:
    """The value as strict JSON that any UTF-8 file can hold; ``ValueError`` names the place of what cannot.

    >>> dumps({"loss": float("inf"), "lr": 1e-05})
    '{"loss": {"$float": "inf"}, "lr": 1e-05}'
    """
    text = json.dumps(_encode(value, "value"), indent=indent, allow_nan=False, ensure_ascii=False)
    # Half of a surrogate pair is no UTF-8; Python's replacement for it is also JSON's escape.
    return text.encode("utf-8", "backslashreplace").decode()


def loads(text: str | bytes) -> Any:
    """What ``dumps`` was given; ``ValueError`` when the text is not its work.

    >>> loads('{"loss": {"$float": "inf"}, "lr": 1e-05}')
    {'loss': inf, 'lr': 1e-05}
    """
    try:
        return json.loads(text, object_pairs_hook=_decode, parse_constant=_refuse_constant)
    # A damaged file can be a million opening brackets; that is bad input and no fault of the program.
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None


def loads_foreign(text: str | bytes) -> Any:
    """JSON that somebody else wrote, of which one value is nobody's guess: a key that is there twice is a
    ``ValueError``, as is whatever is not JSON.

    >>> loads_foreign('{"score": 1, "score": 0}')
    Traceback (most recent call last):
    plaudit.files.exact_json.RepeatedKeyError: the key 'score' is there twice
    """
    try:
        return json.loads(text, object_pairs_hook=object_of_pairs)
    except RecursionError:
        raise ValueError("nested too deeply to be read") from None


def _encode(value: object, where: str) -> object:
    # By exact type: an IntEnum is an int too, and would come back as a plain one.
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_FLOAT_KEY: str(float(value))}
    if isinstance(value, list):
        return [_encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_checked_key(key, where): _encode(item, f"{where}[{key!r}]") for key, item in value.items()}
    raise ValueError(
        f"{where} is a {type(value).__name__}, which would not come back from JSON as it is; "
        "use null, true/false, whole numbers, floats, strings, lists and mappings with string keys"
    )


def _checked_key(key: object, where: str) -> str:
    if type(key) is not str or key == _FLOAT_KEY:
        raise ValueError(f"{where}: the key {key!r} must be a string other than {_FLOAT_KEY!r}")
    return key


class RepeatedKeyError(ValueError):
    """A key that is twice in one object: Python would keep the last and say nothing."""


def object_of_pairs(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """What a JSON object holds; an error where a key is there twice.

    >>> object_of_pairs([("a", 1), ("b", 2)])
    {'a': 1, 'b': 2}
    """
    item = dict(pairs)
    if len(item) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise RepeatedKeyError(f"the key {twice[:40]!r} is there twice")
    return item


def _decode(pairs: Sequence[tuple[str, Any]]) -> Any:
    item = object_of_pairs(pairs)
    if _FLOAT_KEY not in item:
        return item
    if len(item) != 1 or item[_FLOAT_KEY] not in _NON_FINITE:
        raise ValueError(f"unknown float {item!r}")
    return _NON_FINITE[item[_FLOAT_KEY]]


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON; plaudit writes it as {dumps(float(constant))}")
