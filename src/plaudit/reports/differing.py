"""Which words of an answer another answer does not have: what a reader's eye should be led to."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

_WORDS = re.compile(r"\s+|[^\s\w]|\w+")


def pieces(text: str, base: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it differs from the base; joined, they are the text.

    >>> pieces("The owl eats mice.", "The owl eats hay.")
    [('The owl eats ', False), ('mice', True), ('.', False)]

    What stands between two words that differ differs with them, where it is only white space.
    """
    old, new = _WORDS.findall(base), _WORDS.findall(text)
    found: list[tuple[str, bool]] = []
    for kind, _, _, start, end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if start < end:
            found.append(("".join(new[start:end]), kind != "equal"))
    return _joined(found)


def _joined(found: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    joined: list[tuple[str, bool]] = []
    for at, (piece, unlike) in enumerate(found):
        beside = found[max(at - 1, 0) : at + 2]
        between = len(beside) == 3 and beside[0][1] and beside[2][1] and not piece.strip()
        if (unlike or between) and joined and joined[-1][1]:
            joined[-1] = (joined[-1][0] + piece, True)
        else:
            joined.append((piece, unlike))
    return joined
