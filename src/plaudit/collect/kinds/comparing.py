"""What kinds share whose labels say which of several answers is better."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plaudit.collect.kinds.kind import Body, Settings, Words, read_flags, read_whole, refuse_unknown, words_of
from plaudit.collect.refusals import FieldError
from plaudit.data.fields import BadRowError, Node
from plaudit.data.records import Comparison, Ranking, Rating, Record
from plaudit.data.transforms import preference_probability

COMPARED = (Comparison, Ranking, Rating)
"""Records that say which of several answers is better."""
UNKNOWN = "without --gold and --qualify"
"""How rows are added that say nothing of what is right."""


def read_strength(node: Node, settings: Settings) -> int:
    """How far the second of two answers is better, on the project's scale."""
    most = len(settings.scale)
    strength = read_whole(node, -most, most)
    if strength == 0 and not settings.ties:
        raise node.wrong_type_error("one of the two, as this project has no ties")
    return strength


def check_strength(field: str, value: object, settings: Settings) -> int:
    """The same of a value that was sent alone; a refusal names its field."""
    try:
        return read_strength(Node(value=value, path=field), settings)
    except BadRowError as error:
        raise FieldError(field=field, found=error.found, expected=error.expected) from error


def known_place(node: Node, name: str, task: Body, settings: Settings) -> dict[str, Any]:
    """Which answer is the best one, and what the answers deserve to be reported for where that is known."""
    refuse_unknown(node, (name, "flags"), "known answer")
    count = len(task["candidates"])
    place = node.get(name)
    # True is an int to Python, and would be the second answer.
    if isinstance(place.value, bool) or not isinstance(place.value, int) or not 0 <= place.value < count:
        raise place.wrong_type_error(f"a place in the task, from 0 to {count - 1}")
    return {name: place.value, **read_flags(node, count, settings)}


def sign(value: int) -> int:
    return (value > 0) - (value < 0)


# What rows say.


def best_place(records: Sequence[Record], answers: Sequence[Words]) -> int:
    """The place of the answer that all records of a row prefer."""
    whole = [record for record in records if isinstance(record, Rating) and record.aspect is None]
    compared = [record for record in records if not isinstance(record, Rating)]
    winners = {_winner(record) for record in compared}
    # Points of single aspects say nothing beside a ranking, and are not enough alone.
    winners |= {_best_rated(whole, answers)} if whole or not compared else set()
    if len(winners) > 1:
        raise FieldError(
            field="preference",
            found="judges who disagree",
            expected=f"one answer that is better (leave the row out, or add it {UNKNOWN})",
        )
    return answers.index(winners.pop())


def _winner(record: Record) -> Words:
    if isinstance(record, Comparison):
        probability = preference_probability(record)
        if probability == 0.5:
            raise _tie("probability")
        return words_of(record.chosen if probability > 0.5 else record.rejected)
    assert isinstance(record, Ranking)
    best = min(record.ranks)
    if record.ranks.count(best) > 1:
        raise _tie("ranks")
    return words_of(record.completions[record.ranks.index(best)])


def _best_rated(ratings: Sequence[Rating], answers: Sequence[Words]) -> Words:
    means = [sum(scores) / len(scores) for scores in scores_of(ratings, answers)]
    if means.count(max(means)) > 1:
        raise _tie("score")
    return answers[means.index(max(means))]


def scores_of(ratings: Sequence[Rating], answers: Sequence[Words]) -> list[list[float]]:
    """The scores of each answer as a whole."""
    scores: dict[Words, list[float]] = {words: [] for words in answers}
    for rating in ratings:
        if rating.aspect is None:
            scores[words_of(rating.completion)].append(rating.score)
    if not all(scores.values()):
        raise FieldError(
            field="score",
            found="none of at least one answer",
            expected=f"a score of each answer as a whole, of no single aspect (or add the row {UNKNOWN})",
        )
    return [*scores.values()]


def _tie(name: str) -> FieldError:
    return FieldError(
        field=name,
        found="a tie",
        expected=f"one answer that is better (leave the row out, or add it {UNKNOWN})",
    )
