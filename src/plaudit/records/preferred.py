"""The answer that people liked, as a demonstration: training on preferred answers only."""

from __future__ import annotations

from plaudit.records.feedback import Comparison, Demonstration, Prompt, Ranking, Rating, Record, Steps
from plaudit.records.messages import Text


def preferred(record: Record) -> Demonstration | None:
    """The preferred answer of a record; None where nothing was preferred.

    A tie prefers nothing. Of several best answers of a ranking the first is taken, unless all are equal.
    A thumb up prefers its answer; a score on a scale does not say where good begins.

    >>> preferred(Comparison(prompt="Capital of France?", chosen="Paris.", rejected="Lyon.")).completion
    'Paris.'
    """
    match record:
        case Demonstration():
            return record
        case Comparison():
            return _shown(record, _winner(record))
        case Ranking():
            return _shown(record, _best(record))
        case Rating():
            return _shown(record, record.completion if record.thumb and record.score == 1 else None)
        case Steps() | Prompt():
            return None


def chance_of(record: Comparison) -> float:
    """The chance that ``chosen`` is the better answer; ½ is a tie.

    >>> chance_of(Comparison(prompt="Hi", chosen="Yo", rejected="No", strength=0.0))
    0.5
    """
    if record.probability is not None:
        return float(record.probability)
    return 0.5 if record.strength == 0 else 1.0


def _shown(record: Comparison | Ranking | Rating, completion: Text | None) -> Demonstration | None:
    if completion is None:
        return None
    return Demonstration(
        prompt=record.prompt,
        completion=completion,
        annotator=record.annotator,
        group=record.group,
        category=record.category,
        origin=record.origin,
    )


def _winner(pair: Comparison) -> Text | None:
    chance = chance_of(pair)
    return None if chance == 0.5 else pair.chosen if chance > 0.5 else pair.rejected


def _best(ranking: Ranking) -> Text | None:
    best = min(ranking.ranks)
    if max(ranking.ranks) == best:
        return None
    return ranking.completions[ranking.ranks.index(best)]
