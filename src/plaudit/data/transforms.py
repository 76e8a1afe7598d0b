"""Changes of rows before training: which answers are kept, and what text is put in front of a prompt.

Kept are the preferred answers only; or good and bad ones alike, each behind a word for how good it is: binary
reward conditioning (Korbak et al. 2023, arXiv:2302.08582) and quantised rewards (Quark, Lu et al. 2022,
arXiv:2205.13636). The loss stays plain likelihood. A context that is to be distilled, or a control word, is
put before the prompt by the same function in training and in asking, so the model is asked exactly as it was
trained.
"""

import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Literal, TypeVar

from plaudit.bounds import FromTwo, check_bounds
from plaudit.data.records import (
    Comparison,
    Demonstration,
    Message,
    Part,
    Prompt,
    Ranking,
    Rating,
    Record,
    Safety,
    Steps,
    Text,
    answers_of,
    chosen_by,
    preference_probability,
    split_tools,
    text_to_json,
)
from plaudit.errors import UserError

PrefixRole = Literal["system", "user"]
"""The turn that takes the text: the system turn, or the first user turn."""


def with_context(record: Demonstration, context: str, role: PrefixRole = "system") -> Demonstration:
    """The same answer, to the prompt with a context in front.

    >>> with_context(Demonstration(prompt="Hi.", completion="Hello."), "Be kind.").prompt
    'Be kind.\\n\\nHi.'
    """
    if not context.strip():
        raise UserError("the context is empty: there is nothing to distil")
    return replace(record, prompt=prepend_to_prompt(record.prompt, context, role))


def prepend_to_prompt(prompt: Text, prefix: str, role: PrefixRole = "system") -> Text:
    """Words and an empty line before a prompt: the same in training and when the model is asked.
    A conversation gets them at the start of its system turn, or of its first user turn where the chat
    template knows no system turn; a conversation without such a turn gets one."""
    if isinstance(prompt, str):
        return f"{prefix}\n\n{prompt}"
    tools, prompt = split_tools(prompt)
    indices = [i for i, message in enumerate(prompt) if message.role == role]
    # Templates know a system turn at the very beginning only.
    if not indices or (role == "system" and indices[0] != 0):
        insert_at = 1 if role == "user" and prompt and prompt[0].role == "system" else 0
        return (*tools, *prompt[:insert_at], Message(role=role, content=prefix), *prompt[insert_at:])
    turn = prompt[indices[0]]
    content: str | tuple[Part, ...]
    if isinstance(turn.content, str):
        content = f"{prefix}\n\n{turn.content}"
    else:
        content = (Part(kind="text", text=f"{prefix}\n\n"), *turn.content)
    return (*tools, *prompt[: indices[0]], replace(turn, content=content), *prompt[indices[0] + 1 :])


def preferred_demonstration(record: Record) -> Demonstration | None:
    """The preferred answer of a record; None where nothing was preferred.
    A tie prefers nothing. Of several best answers of a ranking the first is taken, unless all are equal. A
    thumb up prefers its answer; a score on a scale does not say where good begins."""
    match record:
        case Demonstration():
            return record
        case Comparison():
            return _as_demonstration(record, _preferred_side(record))
        case Ranking():
            return _as_demonstration(record, _best_ranked(record))
        case Rating():
            return _as_demonstration(record, record.completion if record.thumb and record.score else None)
        case Steps() | Prompt():
            return None


def _as_demonstration(record: Comparison | Ranking | Rating, completion: Text | None) -> Demonstration | None:
    if completion is None:
        return None
    return Demonstration(prompt=record.prompt, completion=completion, **record.provenance)


def prefers_nothing(record: Record) -> bool:
    """Whether a record compares answers and prefers none of them.

    >>> prefers_nothing(Ranking(prompt="Hi", completions=("Yo", "No"), ranks=(1.0, 1.0)))
    True
    """
    match record:
        case Comparison():
            return preference_probability(record) == 0.5
        case Ranking(ranks=ranks):
            return len(set(ranks)) == 1
        case _:
            return False


def safety_rows(record: Record, wanted: Safety, unsafe: Sequence[str]) -> tuple[Record, ...]:
    """What is wanted of a record whose answers were looked at for flags; ``unsafe`` are those that count.

    >>> pair = Comparison(prompt="Hi", chosen="Yo", rejected="Die!", flags=((), ("harmful",)))
    >>> [len(safety_rows(pair, wanted, ["harmful"])) for wanted in ("both-safe", "one-safe", "thumbs")]
    [0, 1, 2]
    """
    if isinstance(record, Prompt):
        return ()
    is_safe = [not {*flags} & {*unsafe} for flags in record.flags]
    if wanted != "thumbs":
        sort = "both-safe" if all(is_safe) else "one-safe" if any(is_safe) else "both-unsafe"
        return (record,) if len(is_safe) > 1 and sort == wanted else ()
    thumb = Rating(
        prompt=record.prompt, completion="", score=1, aspect="harmlessness", thumb=True, **record.provenance
    )
    return tuple(
        replace(thumb, completion=answer, score=float(safe), flags=(flags,))
        for answer, safe, flags in zip(answers_of(record), is_safe, record.flags, strict=False)
    )


def _preferred_side(pair: Comparison) -> Text | None:
    probability = preference_probability(pair)
    return None if probability == 0.5 else pair.chosen if probability > 0.5 else pair.rejected


def _best_ranked(ranking: Ranking) -> Text | None:
    best = min(ranking.ranks)
    return None if max(ranking.ranks) == best else ranking.completions[ranking.ranks.index(best)]


TIE = "a tie prefers neither answer"
UNJUDGED = "nobody judged the answer"
MIDDLE_RANK = "an answer ranked between the best and the worst is neither good nor bad"
SCALE_SCORE = "a score on a scale does not say where good begins: use levels for it"
"""Why a rating on a scale is left out where only good and bad are wanted."""
UNSCORED = "the row has no score: levels are made from ratings, words from comparisons and thumbs"
"""Why a comparison or ranking is left out where reward levels are wanted."""
OTHER_ASPECT = "the score is of another aspect"
"""Why a rating is left out where one aspect was chosen and this is another."""
NOT_FINITE = "the score is not a finite number"
SINGLE_ANSWER = "one answer alone is not a pair"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    style: Literal["words", "levels"] = "words"
    """words: comparisons, rankings and thumbs, good or bad; levels: scores, in equal parts."""
    good: str = "GOOD"
    """The word before an answer that was preferred."""
    bad: str = "BAD"
    """The word before one that was not."""
    levels: FromTwo = 5
    """How many parts the scores are divided into; the words are <reward_0>, the worst, <reward_1> …"""
    aspect: str | None = None
    """Which aspect's scores count, where rows rate several."""

    def __post_init__(self) -> None:
        if not self.good.strip() or not self.bad.strip() or self.good.strip() == self.bad.strip():
            raise UserError("control.good and control.bad must be two different words")
        check_bounds(self, "control")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """An answer that the recipe has no use for, and why."""

    origin: str
    reason: str
    """The same sentence for every row that it holds for, so that they can be counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemonstrationSet:
    """The demonstrations that a data recipe made of the rows, and what it left out."""

    demonstrations: tuple[Demonstration, ...]
    left_out: tuple[LeftOut, ...] = ()
    """The answers that were not used, each with the reason."""
    word_counts: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many demonstrations carry each control word, from the worst to the best."""
    notes: tuple[str, ...] = ()

    @property
    def best_word(self) -> str | None:
        """The word to put in front of a prompt when the model is asked; None without control words."""
        return list(self.word_counts)[-1] if self.word_counts else None

    @property
    def reason_counts(self) -> Mapping[str, int]:
        """Why answers were left out, and how many for each reason."""
        return Counter(row.reason for row in self.left_out)

    @property
    def reasons(self) -> str:
        """The same in words."""
        reasons = ", ".join(f"{count} × {reason}" for reason, count in self.reason_counts.items())
        return reasons or "nothing was left out"


def preferred_only(records: Iterable[Record]) -> DemonstrationSet:
    """The preferred answer of each row, for rows that have one.

    >>> preferred_only([Comparison(prompt="p", chosen="a", rejected="b", probability=0.5)]).reasons
    Traceback (most recent call last):
    ...
    plaudit.errors.UserError: no row has a preferred answer (1 × a tie prefers neither answer)
    """
    outcomes = [preferred_demonstration(record) or _unpreferred(record) for record in records]
    demonstrations = tuple(outcome for outcome in outcomes if isinstance(outcome, Demonstration))
    left_out = tuple(outcome for outcome in outcomes if isinstance(outcome, LeftOut))
    result = DemonstrationSet(demonstrations=demonstrations, left_out=left_out)
    if not demonstrations:
        raise UserError(f"no row has a preferred answer ({result.reasons})")
    return result


def _unpreferred(record: Record) -> LeftOut:
    thumb = isinstance(record, Rating) and record.thumb
    reason = "a thumb down prefers nothing" if thumb else _reason_left_out(record)
    return LeftOut(origin=record.origin, reason=reason)


def with_control_words(
    records: Iterable[Record], settings: ControlSettings | None = None, role: PrefixRole = "system"
) -> DemonstrationSet:
    """Good and bad answers alike, each behind the word for how good it is."""
    resolved = settings or ControlSettings()
    label_records = {"words": _label_with_words, "levels": _label_with_levels}[resolved.style]
    outcomes = list(label_records(tuple(records), resolved))
    answers = [outcome for outcome in outcomes if isinstance(outcome, _LabelledAnswer)]
    word_counts = Counter(answer.word for answer in answers)
    order = (resolved.bad, resolved.good) if resolved.style == "words" else _level_words(len(word_counts))
    result = DemonstrationSet(
        demonstrations=tuple(
            Demonstration(
                prompt=prepend_to_prompt(answer.record.prompt, answer.word, role),
                completion=answer.completion,
                **answer.record.provenance,
            )
            for answer in answers
        ),
        left_out=tuple(outcome for outcome in outcomes if isinstance(outcome, LeftOut)),
        word_counts={word: word_counts[word] for word in order if word_counts[word]},
    )
    if len(result.word_counts) < 2:
        raise UserError(_no_contrast_message(result))
    shares = ", ".join(f"{word} {count}" for word, count in result.word_counts.items())
    notes = [
        f"control words from worst to best: {shares}; to ask for the best, put {result.best_word!r} in front"
    ]
    if resolved.style == "levels" and len(result.word_counts) < resolved.levels:
        notes.append(f"{resolved.levels} levels were asked for; the scores make {len(result.word_counts)}")
    return replace(result, notes=tuple(notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _LabelledAnswer:
    record: Demonstration | Comparison | Ranking | Rating | Steps
    completion: Text
    word: str


def _label_with_words(
    records: Sequence[Record], settings: ControlSettings
) -> Iterator[_LabelledAnswer | LeftOut]:
    _refuse_mixed_scales(
        [record for record in records if isinstance(record, Rating) and record.thumb], settings
    )
    for record in records:
        for judged in judged_answers(record, settings.aspect):
            if isinstance(judged, LeftOut):
                yield judged
            # Of a prompt alone no answer was judged.
            elif not isinstance(record, Prompt):
                answer, good = judged
                word = settings.good if good else settings.bad
                yield _LabelledAnswer(record=record, completion=answer, word=word)


def judged_answers(record: Record, aspect: str | None) -> Iterator[tuple[Text, bool] | LeftOut]:
    """Answers judged good (True) or bad: both of a pair, the ends of a ranking, those with thumbs."""
    match record:
        case Comparison():
            for pair in preference_pairs(record):
                yield from [pair] if isinstance(pair, LeftOut) else zip(pair, (True, False), strict=True)
        case Ranking() if not prefers_nothing(record):
            best, worst = min(record.ranks), max(record.ranks)
            for answer, rank in zip(record.completions, record.ranks, strict=True):
                if rank in (best, worst):
                    yield answer, rank == best
                else:
                    yield LeftOut(origin=record.origin, reason=MIDDLE_RANK)
        case Rating() if record.thumb and record.score in (0.0, 1.0) and aspect in (None, record.aspect):
            yield record.completion, record.score == 1.0
        case _:
            yield LeftOut(origin=record.origin, reason=_reason_left_out(record, aspect))


def preference_pairs(record: Record) -> Iterator[tuple[Text, Text] | LeftOut]:
    """The pairs of a record of which one answer, the first, is better than the other."""
    match record:
        case Comparison() if not prefers_nothing(record):
            better, worse = record.chosen, record.rejected
            yield (better, worse) if _preferred_side(record) == better else (worse, better)
        case Ranking():
            ranked = zip(record.completions, record.ranks, strict=True)
            for (first, first_rank), (second, second_rank) in combinations(ranked, 2):
                if first_rank == second_rank:
                    yield LeftOut(origin=record.origin, reason=TIE)
                else:
                    yield (first, second) if first_rank < second_rank else (second, first)
        case Rating():
            yield LeftOut(origin=record.origin, reason=SINGLE_ANSWER)
        case _:
            yield LeftOut(origin=record.origin, reason=_reason_left_out(record))


def _label_with_levels(
    records: Sequence[Record], settings: ControlSettings
) -> Iterator[_LabelledAnswer | LeftOut]:
    rated = [record for record in records if isinstance(record, Rating) and math.isfinite(record.score)]
    _refuse_mixed_scales(rated, settings)
    level_of_score = quantile_levels(
        [rating.score for rating in rated if _aspect_matches(rating, settings)], settings.levels
    )
    words = _level_words(settings.levels)
    for record in records:
        if isinstance(record, Rating) and math.isfinite(record.score) and _aspect_matches(record, settings):
            word = words[level_of_score[record.score]]
            yield _LabelledAnswer(record=record, completion=record.completion, word=word)
        else:
            compares = isinstance(record, Comparison | Ranking)
            reason = UNSCORED if compares else _reason_left_out(record, settings.aspect)
            yield LeftOut(origin=record.origin, reason=reason)


def quantile_levels(scores: Sequence[float], levels: int) -> Mapping[float, int]:
    """The level of each score, 0 the worst: parts of about equal size, equal scores always together.
    Up to ``levels`` different scores have a level each. Where many equal scores fill several parts,
    fewer levels are left; they are numbered without gaps.

    >>> quantile_levels([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], levels=3)
    {1.0: 0, 2.0: 0, 3.0: 1, 4.0: 1, 5.0: 2, 6.0: 2}
    """
    score_counts = Counter(scores)
    count_below, raw_levels = 0, dict[float, int]()
    for i, score in enumerate(sorted(score_counts)):
        # By how many scores lie below, not by interpolated quantiles: equal scores are never parted.
        raw_levels[score] = i if len(score_counts) <= levels else levels * count_below // len(scores)
        count_below += score_counts[score]
    dense_levels = {level: i for i, level in enumerate(dict.fromkeys(raw_levels.values()))}
    return {score: dense_levels[level] for score, level in raw_levels.items()}


def _level_words(levels: int) -> tuple[str, ...]:
    return tuple(f"<reward_{level}>" for level in range(levels))


def _aspect_matches(rating: Rating, settings: ControlSettings) -> bool:
    return settings.aspect in (None, rating.aspect)


def _refuse_mixed_scales(ratings: Sequence[Rating], settings: ControlSettings) -> None:
    """Scores of different aspects, and thumbs and points, cannot be put in one order."""
    counted = [rating for rating in ratings if _aspect_matches(rating, settings)]
    aspects = sorted({rating.aspect or "the answer as a whole" for rating in counted})
    if len(aspects) > 1:
        raise UserError(f"the scores are of {', '.join(aspects)}: choose one with control.aspect")
    if len({rating.thumb for rating in counted}) > 1:
        thumb = next(rating for rating in counted if rating.thumb)
        raise UserError(
            f"{thumb.origin}: thumbs and scores on a scale are mixed; give the levels one kind of rows"
        )


def _reason_left_out(record: Record, aspect: str | None = None) -> str:
    match record:
        case Rating() if not math.isfinite(record.score):
            return NOT_FINITE
        case Rating() if aspect not in (None, record.aspect):
            return OTHER_ASPECT
        case Rating():
            return SCALE_SCORE
        case Comparison() | Ranking():
            return TIE
        case _:
            return UNJUDGED


def _no_contrast_message(result: DemonstrationSet) -> str:
    if not result.word_counts:
        return f"no row can carry a control word ({result.reasons})"
    ((word, count),) = result.word_counts.items()
    return (
        f"all {count} answers that can be used are {word}, so the word would mean nothing; "
        f"give rows with better and worse answers ({result.reasons})"
    )


_Item = TypeVar("_Item")


def some_of(items: Sequence[_Item], n: int | None, draw: str | int) -> list[_Item]:
    """At most so many of these, in their order, chosen by chance; ``draw`` is what the choice hangs on.

    >>> some_of("abc", 2, "pairs 0"), some_of("abc", None, "pairs 0")
    (['a', 'b'], ['a', 'b', 'c'])
    """
    if n is None or n >= len(items):
        return list(items)
    chosen = sorted(random.Random(draw).sample(range(len(items)), n))
    return [items[place] for place in chosen]


_Record = TypeVar("_Record", bound=Record)


def measured_only(records: Sequence[_Record]) -> tuple[list[_Record], tuple[str, ...]]:
    """The records that no score chose, and a note on the others; refused where there are only others."""
    methods = {record.origin: method for record in records if (method := chosen_by(record)) is not None}
    measured = [record for record in records if chosen_by(record) is None]
    if not methods:
        return measured, ()
    if not measured:
        origin, method = next(iter(methods.items()))
        raise UserError(
            f"{origin}: this label was chosen ({method}) and carries no chance, so it speaks for itself "
            "alone, and so do all here: take the random share of the labels, or rows with a chance"
        )
    names = ", ".join(sorted({*methods.values()}))
    left_out = len(records) - len(measured)
    return measured, (f"{left_out} of {len(records)} rows left out, which a score chose ({names})",)


Judged = Comparison | Ranking | Rating | Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    held_out: tuple[str, ...]
    train: tuple[Record, ...]
    """Rows of all others, on the prompts that are learnt from."""
    test: tuple[Record, ...]
    """Rows of everybody, on the other prompts."""


def annotator_folds(
    records: Sequence[Record], groups: int = 5, *, test_share: float = 0.2, seed: int = 0
) -> list[Fold]:
    """As many folds as groups of people, of about as many rows each; every person is held out once.
    So a reward can be tried on people whose labels it never saw (Ouyang et al. 2022, arXiv:2203.02155, 4.1).
    Some prompts are kept from all training rows: those who were learnt from and those who were held out must
    be compared on prompts that are new for either.

    >>> rows = [Comparison(prompt=f"{n}", chosen="a", rejected="b", annotator=f"a{n % 4}") for n in range(40)]
    >>> folds = annotator_folds(rows, 2)
    >>> [fold.held_out for fold in folds], len(folds[0].train) + len(folds[1].train) + len(folds[0].test)
    ([('a0', 'a2'), ('a1', 'a3')], 40)
    """
    judged = [record for record in records if isinstance(record, Judged) and record.annotator is not None]
    counts = Counter(str(record.annotator) for record in judged)
    _refuse_impossible(groups, len(counts), test_share)
    is_test = [_uniform(seed, record) < test_share for record in judged]
    test = tuple(record for record, held in zip(judged, is_test, strict=True) if held)
    learnt = [record for record, held in zip(judged, is_test, strict=True) if not held]
    folds = [
        Fold(
            held_out=names,
            train=tuple(record for record in learnt if record.annotator not in names),
            test=test,
        )
        for names in _groups(counts, groups)
    ]
    if not test or not all(fold.train for fold in folds):
        raise UserError(
            f"{len(judged)} rows of {len(counts)} people are too few for {groups} groups with {test_share:g} "
            "of the prompts kept apart: take fewer groups, or more rows"
        )
    return folds


def _refuse_impossible(groups: int, people: int, test_share: float) -> None:
    if not 0 < test_share < 1:
        raise UserError(f"the share of prompts that are kept apart is between 0 and 1, not {test_share:g}")
    if people < 2:
        raise UserError(
            f"the rows name {people} annotators, and at least two are needed to hold one out: rows say who "
            'judged by "annotator"'
        )
    if not 2 <= groups <= people:
        raise UserError(f"{people} people can be divided into 2 to {people} groups, not {groups}")


def _groups(counts: Counter[str], groups: int) -> list[tuple[str, ...]]:
    members: list[list[str]] = [[] for _ in range(groups)]
    sizes = [0] * groups
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        smallest = sizes.index(min(sizes))
        members[smallest].append(name)
        sizes[smallest] += count
    return [tuple(sorted(names)) for names in members]


def _uniform(seed: int, record: Record) -> float:
    """By the prompt alone: whoever judged it, all its rows are on one side."""
    words = json.dumps([seed, text_to_json(record.prompt)], ensure_ascii=False)
    return int(hashlib.sha256(words.encode()).hexdigest()[:13], 16) / 16**13
