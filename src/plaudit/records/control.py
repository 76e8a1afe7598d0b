"""Data recipes: what the rows become before plain likelihood sees them; the loss stays what it is.

Preferred answers only; or good and bad ones alike, each behind a word for how good it is: binary reward
conditioning (Korbak et al. 2023, arXiv:2302.08582) and quantised rewards (Quark, Lu et al. 2022,
arXiv:2205.13636).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from plaudit.errors import UserError
from plaudit.records.context import Place, in_front
from plaudit.records.feedback import Comparison, Demonstration, Ranking, Rating, Record
from plaudit.records.messages import Text
from plaudit.records.preferred import preferred

TIE = "a tie prefers neither answer"
"""Of comparisons and rankings."""
UNJUDGED = "nobody judged the answer"
"""Of demonstrations, steps and bare prompts."""
BETWEEN = "an answer ranked between the best and the worst is neither good nor bad"
"""Of rankings."""
SCALE = "a score on a scale does not say where good begins: use levels for it"
"""Of ratings, where words are wanted."""
UNSCORED = "the row has no score: levels are made from ratings, words from comparisons and thumbs"
"""Of comparisons and rankings, where levels are wanted."""
OTHER_ASPECT = "the score is of another aspect"
"""Of ratings, where one aspect was chosen."""
NOT_FINITE = "the score is not a finite number"
"""Of ratings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """Which words tell the model how good an answer is.

    Example: ``ControlSettings(style="levels", levels=5, aspect="helpfulness")``
    """

    style: Literal["words", "levels"] = "words"
    """words: comparisons, rankings and thumbs, good or bad; levels: scores, in equal parts."""
    good: str = "GOOD"
    """The word before an answer that was preferred."""
    bad: str = "BAD"
    """The word before one that was not."""
    levels: int = 5
    """How many parts the scores are divided into; the words are <reward_0>, the worst, <reward_1> …"""
    aspect: str | None = None
    """Which aspect's scores count, where rows rate several."""

    def __post_init__(self) -> None:
        """Refuse words that say nothing."""
        if not self.good.strip() or not self.bad.strip() or self.good.strip() == self.bad.strip():
            raise UserError("control.good and control.bad must be two different words")
        if self.levels < 2:
            raise UserError(f"control.levels must be at least 2, not {self.levels}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """An answer that the recipe has no use for, and why.

    Example: ``LeftOut(origin="pairs.jsonl:12", reason=TIE)``
    """

    origin: str
    """File and row."""
    reason: str
    """The same sentence for every row that it holds for, so that they can be counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What the rows have become.

    Example: ``Lesson(demonstrations=(…,), words={"BAD": 40, "GOOD": 40})``
    """

    demonstrations: tuple[Demonstration, ...]
    """The answers to learn, in the order of the rows."""
    left_out: tuple[LeftOut, ...] = ()
    """What was not used."""
    words: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many demonstrations carry each control word, from the worst to the best."""
    notes: tuple[str, ...] = ()
    """What the user should know."""

    @property
    def best(self) -> str | None:
        """The word to put in front of a prompt when the model is asked; None without control words."""
        return list(self.words)[-1] if self.words else None

    @property
    def reasons(self) -> Mapping[str, int]:
        """Why answers were left out, and how many for each reason."""
        return Counter(one.reason for one in self.left_out)


def liked(records: Iterable[Record]) -> Lesson:
    """The preferred answer of each row, for rows that have one.

    >>> liked([Comparison(prompt="p", chosen="a", rejected="b", probability=0.5)]).reasons
    Traceback (most recent call last):
    ...
    plaudit.errors.UserError: no row has a preferred answer (1 × a tie prefers neither answer)
    """
    verdicts = [preferred(record) or LeftOut(origin=record.origin, reason=_why(record)) for record in records]
    demonstrations = tuple(one for one in verdicts if isinstance(one, Demonstration))
    lesson = Lesson(
        demonstrations=demonstrations, left_out=tuple(one for one in verdicts if isinstance(one, LeftOut))
    )
    if not demonstrations:
        raise UserError(f"no row has a preferred answer ({_counted(lesson)})")
    return lesson


def controlled(
    records: Iterable[Record], settings: ControlSettings | None = None, place: Place = "system"
) -> Lesson:
    """Good and bad answers alike, each behind the word for how good it is.

    >>> pair = Comparison(prompt="Capital of France?", chosen="Paris.", rejected="Lyon.")
    >>> lesson = controlled([pair])
    >>> [(row.prompt, row.completion) for row in lesson.demonstrations]
    [('GOOD\\n\\nCapital of France?', 'Paris.'), ('BAD\\n\\nCapital of France?', 'Lyon.')]
    >>> lesson.best
    'GOOD'
    """
    chosen = settings or ControlSettings()
    judge = {"words": _by_words, "levels": _by_levels}[chosen.style]
    verdicts = list(judge(tuple(records), chosen))
    told = [one for one in verdicts if isinstance(one, _Told)]
    used = Counter(one.word for one in told)
    order = (chosen.bad, chosen.good) if chosen.style == "words" else _level_words(len(used))
    lesson = Lesson(
        demonstrations=tuple(_spoken(one, place) for one in told),
        left_out=tuple(one for one in verdicts if isinstance(one, LeftOut)),
        words={word: used[word] for word in order if used[word]},
    )
    if len(lesson.words) < 2:
        raise UserError(_nothing_to_tell_apart(lesson))
    return replace(lesson, notes=_notes(lesson, chosen))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """An answer and the word for it."""

    record: Comparison | Ranking | Rating
    completion: Text
    word: str


def _spoken(told: _Told, place: Place) -> Demonstration:
    return Demonstration(
        prompt=in_front(told.record.prompt, told.word, place),
        completion=told.completion,
        annotator=told.record.annotator,
        group=told.record.group,
        category=told.record.category,
        origin=told.record.origin,
    )


def _by_words(records: Sequence[Record], settings: ControlSettings) -> Iterator[_Told | LeftOut]:
    _refuse_mixed_scales([one for one in records if isinstance(one, Rating) and one.thumb], settings)
    for record in records:
        match record:
            case Comparison():
                yield from _sides(record, settings)
            case Ranking():
                yield from _ends(record, settings)
            case Rating() if record.thumb and record.score in (0.0, 1.0) and _counts(record, settings):
                word = settings.good if record.score else settings.bad
                yield _Told(record=record, completion=record.completion, word=word)
            case _:
                yield LeftOut(origin=record.origin, reason=_why(record, settings))


def _sides(pair: Comparison, settings: ControlSettings) -> Iterator[_Told | LeftOut]:
    winner = preferred(pair)
    if winner is None:
        yield LeftOut(origin=pair.origin, reason=TIE)
        return
    loser = pair.rejected if winner.completion == pair.chosen else pair.chosen
    yield _Told(record=pair, completion=winner.completion, word=settings.good)
    yield _Told(record=pair, completion=loser, word=settings.bad)


def _ends(ranking: Ranking, settings: ControlSettings) -> Iterator[_Told | LeftOut]:
    best, worst = min(ranking.ranks), max(ranking.ranks)
    if best == worst:
        yield LeftOut(origin=ranking.origin, reason=TIE)
        return
    word = {best: settings.good, worst: settings.bad}
    for completion, rank in zip(ranking.completions, ranking.ranks, strict=True):
        if rank in word:
            yield _Told(record=ranking, completion=completion, word=word[rank])
        else:
            yield LeftOut(origin=ranking.origin, reason=BETWEEN)


def _by_levels(records: Sequence[Record], settings: ControlSettings) -> Iterator[_Told | LeftOut]:
    rated = [one for one in records if isinstance(one, Rating) and math.isfinite(one.score)]
    _refuse_mixed_scales(rated, settings)
    level = quantiles([one.score for one in rated if _counts(one, settings)], settings.levels)
    words = _level_words(settings.levels)
    for record in records:
        if isinstance(record, Rating) and math.isfinite(record.score) and _counts(record, settings):
            yield _Told(record=record, completion=record.completion, word=words[level[record.score]])
        else:
            yield LeftOut(origin=record.origin, reason=_why(record, settings))


def quantiles(scores: Sequence[float], levels: int) -> Mapping[float, int]:
    """The level of each score, 0 the worst: parts of about equal size, equal scores always together.

    Up to ``levels`` different scores have a level each. Where many equal scores fill several parts,
    fewer levels are left; they are numbered without gaps.

    >>> quantiles([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], levels=3)
    {1.0: 0, 2.0: 0, 3.0: 1, 4.0: 1, 5.0: 2, 6.0: 2}
    """
    count = Counter(scores)
    below, raw = 0, dict[float, int]()
    for i, score in enumerate(sorted(count)):
        raw[score] = i if len(count) <= levels else levels * below // len(scores)
        below += count[score]
    dense = {level: i for i, level in enumerate(dict.fromkeys(raw.values()))}
    return {score: dense[level] for score, level in raw.items()}


def _level_words(levels: int) -> tuple[str, ...]:
    return tuple(f"<reward_{level}>" for level in range(levels))


def _counts(rating: Rating, settings: ControlSettings) -> bool:
    return settings.aspect in (None, rating.aspect)


def _refuse_mixed_scales(ratings: Sequence[Rating], settings: ControlSettings) -> None:
    """Scores of different aspects, and thumbs and points, cannot be put in one order."""
    counted = [one for one in ratings if _counts(one, settings)]
    aspects = sorted({one.aspect or "the answer as a whole" for one in counted})
    if len(aspects) > 1:
        raise UserError(f"the scores are of {', '.join(aspects)}: choose one with control.aspect")
    if len({one.thumb for one in counted}) > 1:
        thumb = next(one for one in counted if one.thumb)
        raise UserError(
            f"{thumb.origin}: thumbs and scores on a scale are mixed; give the levels one kind of rows"
        )


def _why(record: Record, settings: ControlSettings | None = None) -> str:
    """Why a record carries no word, or has no preferred answer."""
    match record:
        case Rating() if not math.isfinite(record.score):
            return NOT_FINITE
        case Rating() if settings is not None and not _counts(record, settings):
            return OTHER_ASPECT
        case Rating() if record.thumb and settings is None:
            return "a thumb down prefers nothing"
        case Rating():
            return SCALE
        case Comparison() | Ranking():
            return TIE if settings is None or settings.style == "words" else UNSCORED
        case _:
            return UNJUDGED


def _notes(lesson: Lesson, settings: ControlSettings) -> tuple[str, ...]:
    shares = ", ".join(f"{word} {count}" for word, count in lesson.words.items())
    notes = [f"control words from worst to best: {shares}; to ask for the best, put {lesson.best!r} in front"]
    if settings.style == "levels" and len(lesson.words) < settings.levels:
        notes.append(f"{settings.levels} levels were asked for; the scores make {len(lesson.words)}")
    return tuple(notes)


def _nothing_to_tell_apart(lesson: Lesson) -> str:
    if not lesson.words:
        return f"no row can carry a control word ({_counted(lesson)})"
    ((word, count),) = lesson.words.items()
    return (
        f"all {count} answers that can be used are {word}, so the word would mean nothing; "
        f"give rows with better and worse answers ({_counted(lesson)})"
    )


def _counted(lesson: Lesson) -> str:
    reasons = [f"{count} × {reason}" for reason, count in lesson.reasons.items()]
    return ", ".join(reasons) or "nothing was left out"
