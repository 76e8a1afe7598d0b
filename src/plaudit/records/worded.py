"""Judging in words: rows become questions about answers, and a language model replies with a word.

Three ways to ask: whether an answer is good, which of two is better, and for a critique with points. Labels
are hard: how clear a preference was, and soft labels beyond the side that they favour, are not used.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from plaudit.errors import UserError
from plaudit.records.control import BETWEEN, OTHER_ASPECT, SCALE, TIE, UNJUDGED, LeftOut, Lesson
from plaudit.records.feedback import Comparison, Demonstration, Ranking, Rating, Record
from plaudit.records.messages import Text
from plaudit.records.preferred import preferred
from plaudit.records.worded_form import Form, ask_better, ask_critique, ask_good, ask_points
from plaudit.records.worded_settings import CriticSettings, RankerSettings, TextRewardSettings

ALONE = "one answer alone is not a pair"
"""Of thumbs, where pairs are wanted."""
NO_CRITIQUE = "nobody wrote a critique of the answer"
"""Of rows without the field, where critiques are learnt."""
NO_POINTS = "the score is not a whole number of points from 1 to {points}"
"""Of rows whose score is no point on the critic's scale."""


def good_or_bad(records: Iterable[Record], settings: TextRewardSettings, form: Form) -> Lesson:
    """Judged answers with the word for each: both sides of a comparison, a ranking's ends, thumbs.

    >>> pair = Comparison(prompt="Capital of France?", chosen="Paris.", rejected="Lyon.")
    >>> [row.completion for row in good_or_bad([pair], TextRewardSettings(), Form(chat=False)).demonstrations]
    ['Good', 'Bad']
    """
    rows: list[Demonstration] = []
    left_out: list[LeftOut] = []
    used: Counter[str] = Counter({settings.bad: 0, settings.good: 0})
    for record in records:
        for verdict in _told_apart(record, settings.aspect):
            if isinstance(verdict, LeftOut):
                left_out.append(verdict)
                continue
            answer, good = verdict
            word = settings.good if good else settings.bad
            used[word] += 1
            question = ask_good(settings, form, record.prompt, answer)
            rows.append(Demonstration(prompt=question, completion=form.reply(word), origin=record.origin))
    return _lesson(rows, left_out, used)


def first_or_second(
    records: Iterable[Record], settings: RankerSettings, form: Form, *, seed: int = 0
) -> Lesson:
    """Pairs with the label of the better answer: comparisons, and all pairs of a ranking that it tells apart.

    In a random order each (by the seed), or in both.
    """
    chance = random.Random(f"order {seed}")
    rows: list[Demonstration] = []
    left_out: list[LeftOut] = []
    used: Counter[str] = Counter({settings.first: 0, settings.second: 0})
    for record in records:
        for verdict in _pairs(record):
            if isinstance(verdict, LeftOut):
                left_out.append(verdict)
                continue
            orders = (False, True) if settings.order == "both" else (chance.random() < 0.5,)
            for turned in orders:
                word = settings.second if turned else settings.first
                used[word] += 1
                better, other = verdict
                shown = (other, better) if turned else verdict
                question = ask_better(settings, form, record.prompt, shown)
                rows.append(Demonstration(prompt=question, completion=form.reply(word), origin=record.origin))
    return _lesson(rows, left_out, used)


@dataclass(frozen=True, slots=True, kw_only=True)
class Critique:
    """What was written about an answer, and the points that it got.

    Example: ``Critique(prompt="2 + 2 =", completion="5", critique="It is wrong.", points=1)``
    """

    prompt: Text
    """What was asked."""
    completion: Text
    """What was answered."""
    critique: str | None
    """What was written about it; None where nothing was."""
    points: float
    """From 1, bad, to as many as the scale has."""
    origin: str = ""
    """File and row."""


def criticised(critiques: Iterable[Critique], settings: CriticSettings, form: Form) -> Lesson:
    """Two rows of each: the critique of an answer, and the points that follow from the two."""
    rows: list[Demonstration] = []
    left_out: list[LeftOut] = []
    used: Counter[str] = Counter(dict.fromkeys(settings.words, 0))
    for one in critiques:
        reason = _unfit(one, settings)
        if reason is not None or one.critique is None:
            left_out.append(LeftOut(origin=one.origin, reason=reason or NO_CRITIQUE))
            continue
        word = settings.words[int(one.points) - 1]
        used[word] += 1
        asked = ask_critique(settings, form, one.prompt, one.completion)
        then = ask_points(settings, form, (one.prompt, one.completion), one.critique)
        rows += [
            Demonstration(prompt=asked, completion=form.reply(one.critique), origin=one.origin),
            Demonstration(prompt=then, completion=form.reply(word), origin=one.origin),
        ]
    return _lesson(rows, left_out, used)


def _unfit(one: Critique, settings: CriticSettings) -> str | None:
    if one.critique is None or not one.critique.strip():
        return NO_CRITIQUE
    on_scale = one.points in range(1, settings.points + 1)
    return None if on_scale else NO_POINTS.format(points=settings.points)


def _told_apart(record: Record, aspect: str | None) -> Iterator[tuple[Text, bool] | LeftOut]:
    """Answers of a row, each with whether it is good."""
    match record:
        case Comparison():
            pairs = list(_pairs(record))
            for pair in pairs:
                yield from [pair] if isinstance(pair, LeftOut) else zip(pair, (True, False), strict=True)
        case Ranking():
            yield from _ends(record)
        case Rating() if record.thumb and record.score in (0.0, 1.0) and aspect in (None, record.aspect):
            yield record.completion, record.score == 1.0
        case Rating():
            yield LeftOut(origin=record.origin, reason=OTHER_ASPECT if record.thumb else SCALE)
        case _:
            yield LeftOut(origin=record.origin, reason=UNJUDGED)


def _ends(ranking: Ranking) -> Iterator[tuple[Text, bool] | LeftOut]:
    best, worst = min(ranking.ranks), max(ranking.ranks)
    for answer, rank in zip(ranking.completions, ranking.ranks, strict=True):
        if best < worst and rank in (best, worst):
            yield answer, rank == best
        else:
            yield LeftOut(origin=ranking.origin, reason=BETWEEN if best < worst else TIE)


def _pairs(record: Record) -> Iterator[tuple[Text, Text] | LeftOut]:
    """Two answers at a time, the better one first."""
    match record:
        case Comparison():
            winner = preferred(record)
            if winner is None:
                yield LeftOut(origin=record.origin, reason=TIE)
                return
            right = winner.completion == record.chosen
            yield (record.chosen, record.rejected) if right else (record.rejected, record.chosen)
        case Ranking():
            ranked = zip(record.completions, record.ranks, strict=True)
            for (one, one_rank), (other, other_rank) in combinations(ranked, 2):
                if one_rank == other_rank:
                    yield LeftOut(origin=record.origin, reason=TIE)
                else:
                    yield (one, other) if one_rank < other_rank else (other, one)
        case Rating():
            yield LeftOut(origin=record.origin, reason=ALONE)
        case _:
            yield LeftOut(origin=record.origin, reason=UNJUDGED)


def _lesson(rows: Sequence[Demonstration], left_out: Sequence[LeftOut], used: Counter[str]) -> Lesson:
    lesson = Lesson(demonstrations=tuple(rows), left_out=tuple(left_out), words=dict(used))
    reasons = ", ".join(f"{count} × {reason}" for reason, count in lesson.reasons.items())
    said = [word for word, count in used.items() if count]
    if len(said) < 2:
        what = f"all rows that can be used say {said[0]!r}" if said else "no row can be used"
        raise UserError(
            f"{what}, so nothing can be told apart ({reasons or 'nothing was left out'}); "
            "give rows with better and worse answers"
        )
    shares = ", ".join(f"{word} {count}" for word, count in used.items())
    return replace(lesson, notes=(f"the words that are learnt: {shares}",))
