"""Judged rows → tokens with what was said of them: compared, ranked, rated, or step by step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

from plaudit.data.fields import shared_length
from plaudit.data.records import (
    Comparison,
    Ranking,
    Rating,
    Steps,
    Text,
    answer_to,
    answers_of,
    pictures,
    preference_probability,
)
from plaudit.errors import UserError
from plaudit.tokens.batch import Completion, Example
from plaudit.tokens.chat_template import without_whitespace
from plaudit.tokens.encode import EncodedRow, EncodedRows, Encoder, encode_each, encode_record_with_notes
from plaudit.wings import offered

JudgedRecord = Comparison | Ranking | Rating | Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLabel:
    """Of two answers, how surely the first is the better one."""

    probability: float
    """The chance that the first is better; ½ is a tie."""
    margin: float
    """The gap in reward that the loss asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingLabel:
    ranks: tuple[float, ...]
    """1 is the best; equal ranks are ties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatingLabel:
    """The points of one answer, or its thumb as 1 and 0."""

    score: float
    thumb: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLabels:
    ends: tuple[int, ...]
    """The last token of each step, counted from the answer's first."""
    labels: tuple[float, ...]
    """1 right, 0 wrong, or between."""


Judgement = PairLabel | RankingLabel | RatingLabel | StepLabels


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRow:
    """One prompt, its answers as tokens, and what was said of them."""

    example: Example
    judgement: Judgement
    counts: bool = True
    """False for a stand-in, with which a rank without rows computes along."""
    changed: Example | None = None
    """The preferred answer to the same prompt with changed pictures; None where nothing is to be changed."""

    @property
    def prompt(self) -> tuple[int, ...]:
        return self.example.prompt

    @property
    def prompt_id(self) -> str:
        return self.example.prompt_id

    @property
    def tokens(self) -> int:
        return self.example.tokens + (0 if self.changed is None else self.changed.tokens)

    @property
    def origin(self) -> str:
        return self.example.origin


ROW_CLASSES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (Example, Completion, JudgedRow, PairLabel, RankingLabel, RatingLabel, StepLabels)
}
"""What encoded rows are made of, as `plaudit.files.stored` puts them away."""


def muted(row: JudgedRow) -> JudgedRow:
    return replace(row, counts=False)


def row_pairs(row: JudgedRow, *, ties: bool = True) -> list[tuple[int, int, float]]:
    """The pairs of one row: two answers' numbers, and the chance (½ to 1) that the first is better."""
    match row.judgement:
        case PairLabel(probability=first_better):
            pairs = [(0, 1, first_better) if first_better >= 0.5 else (1, 0, 1 - first_better)]
        case RankingLabel(ranks=ranks):
            ordered = sorted(range(len(ranks)), key=lambda n: ranks[n])
            pairs = [(a, b, 1.0 if ranks[a] < ranks[b] else 0.5) for a, b in combinations(ordered, 2)]
        case feedback:
            raise ValueError(f"{row.origin}: no pair in {type(feedback).__name__}")
    return [pair for pair in pairs if ties or pair[2] != 0.5]


def row_labels(row: JudgedRow) -> tuple[float, ...]:
    """For each answer of one row how surely it is good, from 0 to 1."""
    match row.judgement:
        case PairLabel(probability=first_better):
            return (first_better, 1 - first_better)
        case RatingLabel(score=score):
            return (score,)
        case feedback:
            raise ValueError(f"{row.origin}: no label in {type(feedback).__name__}")


def row_rankings(row: JudgedRow) -> list[tuple[float, tuple[float, ...]]]:
    """The orders of one row's answers that may be meant: how likely each is, and the ranks.

    >>> example = Example(prompt=(1,), completions=())
    >>> row_rankings(JudgedRow(example=example, judgement=PairLabel(probability=0.75, margin=0.0)))
    [(0.75, (1.0, 2.0)), (0.25, (2.0, 1.0))]
    """
    if isinstance(row.judgement, RankingLabel):
        return [(1.0, row.judgement.ranks)]
    # Of a pair the likelier one first, as its answers lie.
    [(first, _, probability)] = row_pairs(row)
    orders = [(probability, (1.0, 2.0)), (1 - probability, (2.0, 1.0))]
    return [(share, ranks if first == 0 else ranks[::-1]) for share, ranks in orders if share]


def encode_judged(
    records: Sequence[JudgedRecord],
    encoder: Encoder,
    max_tokens: int | None = None,
    crop: float | None = None,
) -> EncodedRows[JudgedRow]:
    """All judged records as rows; one that cannot be used is refused with its reason.
    With ``crop`` the preferred answer of a pair also comes with so large a share of its pictures."""

    def encode(record: JudgedRecord) -> EncodedRow:
        if isinstance(record, Steps):
            return encoder.encode_with_notes(record.prompt, (_solution_text(record),), record.origin)
        return encode_record_with_notes(record, encoder)

    def finish(record: JudgedRecord, example: Example) -> JudgedRow:
        label, changed = _judgement_of(record, example, encoder), None
        if crop is not None and pictures(record.prompt) and isinstance(label, PairLabel):
            answer = answers_of(record)[0 if label.probability >= 0.5 else 1]
            prompt = offered("with_part_of_pictures", of="pictures")(record.prompt, crop)
            changed = encoder.encode(prompt, (answer,), record.origin)
        return JudgedRow(example=example, judgement=label, changed=changed)

    return encode_each(records, encode, finish, max_tokens, encoder.workshop)


def _judgement_of(record: JudgedRecord, example: Example, encoder: Encoder) -> Judgement:
    match record:
        case Comparison():
            probability = _check_probability(record, "probability", preference_probability(record))
            return PairLabel(probability=probability, margin=record.margin or 0.0)
        case Ranking():
            if len(record.completions) < 2:
                raise UserError(f"{record.origin}: a ranking of one answer orders nothing; leave it out")
            return RankingLabel(ranks=record.ranks)
        case Rating():
            if not math.isfinite(record.score):
                raise UserError(f"{record.origin}: the score is {record.score}, not a number; leave it out")
            return RatingLabel(score=record.score, thumb=record.thumb)
        case Steps():
            labels = tuple(_check_probability(record, "label", label) for label in record.labels)
            return StepLabels(ends=_step_ends(record, example, encoder), labels=labels)


def _check_probability(record: JudgedRecord, name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise UserError(f"{record.origin}: a {name} of {value}; it is a number from 0 to 1")
    return value


def _solution_text(record: Steps, count: int | None = None) -> Text:
    # A prefix of the whole solution: a step's tokens depend on what stands before it.
    return answer_to(record.prompt, "\n".join(record.steps[:count]))


def _step_ends(record: Steps, example: Example, encoder: Encoder) -> tuple[int, ...]:
    """Where each step's last character lies, found by encoding the solution as far as that step."""
    completion_ids = example.completions[0].ids
    solutions = [_solution_text(record, count) for count in range(1, len(record.steps) + 1)]
    parts = encoder.encode(record.prompt, solutions, record.origin).completions
    # Without the end of turn, which every shortened solution has and the whole one has only at its end.
    ends = tuple(_step_end(part.ids[:-1], completion_ids, encoder) for part in parts)
    for number, (before, end) in enumerate(pairwise([-1, *ends]), start=1):
        if not before < end < len(completion_ids) - 1:
            raise UserError(
                f"{record.origin}: step {number} ({record.steps[number - 1][:30]!r}) has no token of its "
                "own, or the tokenizer writes it otherwise when a line follows; join it with its neighbour"
            )
    return ends


def _step_end(part: tuple[int, ...], completion_ids: tuple[int, ...], encoder: Encoder) -> int:
    """The first token with which the text holds all of the beginning ``part``, blanks aside."""
    # Tokenizers join a step's last characters with the line's end, or cut them elsewhere when a line follows,
    # and some templates write a blank behind an answer: so texts are compared, and tokens only say where to
    # begin. The end-of-turn token where none is the last one.

    def holds(count: int) -> bool:
        return without_whitespace(encoder.info.decode(completion_ids[:count])).startswith(prefix_text)

    prefix_text = without_whitespace(encoder.info.decode(part))
    count = shared_length(part, completion_ids)
    # The first differing token may cut the step short or reach over
    # its end: the text decides, in both directions.
    while count < len(completion_ids) and not holds(count):
        count += 1
    while count > 0 and holds(count - 1):
        count -= 1
    return count - 1
