"""How far two texts differ, by words and by changes; and how a text looks: its length, lists, a refusal."""

import math
import re
from dataclasses import dataclass, field
from statistics import median

MOST_WORK = 2_000_000_000
"""Products of the lengths of two texts, summed, after which no more pairs are looked at: a few seconds."""
_WORD = re.compile(r"\w+|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Words and marks, each by itself.

    >>> split_words("Mice, mostly.")
    ['Mice', ',', 'mostly', '.']
    """
    return _WORD.findall(text)


def token_jaccard(first: str, other: str) -> float:
    """The share of all words and marks of two texts that stand in both, whatever their case and number.
    1 where both have the same words, 0 where they share none (Jaccard 1912). Pairs that differ less teach
    more of what differs (CLAIR, D'Oosterlinck et al. 2024, arXiv:2408.06266)."""
    words, others = set(split_words(first.lower())), set(split_words(other.lower()))
    return len(words & others) / len(words | others) if words or others else 1.0


def edit_distance(first: str, other: str) -> int:
    """The fewest characters to put in, take out or replace that make one text the other (Levenshtein 1966).
    Bit by bit in one column at a time (Myers 1999, in the form of Hyyrö 2003): the differences of a whole
    column of the table lie in two whole numbers, one bit for each character of the first text."""
    if not first or not other:
        return len(first) + len(other)
    places = dict[str, int]()
    for place, character in enumerate(first):
        places[character] = places.get(character, 0) | 1 << place
    every, last = (1 << len(first)) - 1, 1 << len(first) - 1
    # Going down the column of the empty text each step is one more.
    up, down, distance = every, 0, len(first)
    for character in other:
        same = places.get(character, 0)
        vertical = same | down
        # The carry of the sum runs along characters that match one after another: the diagonal's zeros.
        zero = (((same & up) + up) ^ up) | same
        more, less = down | ~(zero | up) & every, up & zero
        distance += bool(more & last) - bool(less & last)
        # The row of the empty text rises by one with every column.
        more, less = (more << 1 | 1) & every, less << 1 & every
        up, down = less | ~(vertical | more) & every, more & vertical
    return distance


def edit_share(first: str, other: str) -> float:
    """The edit distance as a share of the longer text's characters, so that long and short pairs compare."""
    return edit_distance(first, other) / max(len(first), len(other), 1)


@dataclass(slots=True, kw_only=True)
class PairDifferences:
    """How far the two texts of pairs differ; it grows pair by pair, until they have taken some seconds."""

    shared: list[float] = field(default_factory=list[float])
    characters: list[int] = field(default_factory=list[int])
    shares: list[float] = field(default_factory=list[float])
    passed_over: int = 0
    """Pairs that were not looked at, since those before them were long or many."""
    work: int = 0
    """The products of the lengths of pairs, summed."""

    def add(self, first: str, other: str) -> None:
        self.work += len(first) * len(other)
        if self.work > MOST_WORK:
            self.passed_over += 1
            return
        distance = edit_distance(first, other)
        self.shared.append(token_jaccard(first, other))
        self.characters.append(distance)
        self.shares.append(distance / max(len(first), len(other), 1))

    @property
    def sentence(self) -> str:
        """The medians in words.

        >>> found = PairDifferences()
        >>> found.add("Mice and voles.", "Mice and seeds.")
        >>> found.sentence
        '60% of words shared (token Jaccard), 4 characters apart (27% of the longer text); medians of 1 pair'
        """
        if not self.shared:
            return ""
        count = len(self.shared)
        rest = f" before {self.passed_over:,} others" if self.passed_over else ""
        return (
            f"{median(self.shared):.0%} of words shared (token Jaccard), {median(self.characters):g} "
            f"characters apart ({median(self.shares):.0%} of the longer text); medians of {count:,} "
            f"pair{'s' if count > 1 else ''}{rest}"
        )


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
