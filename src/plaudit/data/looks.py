"""What an answer looks like: the features of its surface that sway people and models."""

from __future__ import annotations

import math
import re

_LIST_ITEM = re.compile(r"^\s*(?:[-*•+]|\d{1,2}[.)])\s+\S", re.MULTILINE)
_REFUSAL = re.compile(
    r"^\W*(?:(?:i(?:'m| am)|we(?:'re| are)) (?:very |so |really )?sorry\b[^.!?]*\b(?:but|can|could|not)\b"
    r"|(?:sorry|unfortunately|apologies)\b[^.!?]*\b(?:can|could|will|would|won't|not|unable)"
    r"|(?:i|we) (?:can ?not|can't|won't|will not|must decline|have to decline|am not able|am unable)\b"
    r"|(?:i(?:'m| am)|we(?:'re| are)) (?:not (?:able|going|comfortable|allowed)|unable)\b"
    r"|as an (?:ai|assistant|language model)\b[^.!?]*\b(?:can ?not|can't|unable|won't|not))",
    re.IGNORECASE,
)


def log_length(answer: str) -> float:
    """ln of the characters, so that twice as long is as far from 10 as from 1000.

    >>> round(log_length("a" * 99), 3)
    4.605
    """
    return math.log(1 + len(answer))


def has_list(answer: str) -> float:
    return float(_LIST_ITEM.search(answer) is not None)


def refuses(answer: str) -> float:
    return float(_REFUSAL.search(answer) is not None)
