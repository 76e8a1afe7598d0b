"""Which rows a policy learns preferences from: pairs, or answers called good or bad."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from plaudit.batches.cut import Refused
from plaudit.batches.judged import Compared, JudgedRow, Ranked, Rated, encode_judged
from plaudit.batches.rows import Encoding
from plaudit.batches.template import Encoder
from plaudit.errors import UserError
from plaudit.recipes.preference_table import PreferenceFacts
from plaudit.recipes.rows import Prepared, Recipe
from plaudit.records.feedback import Comparison, Ranking, Rating, Record

ADVICE = {
    "Prompt": "a prompt without answers: sample answers and have them judged first",
    "Demonstration": "a demonstration, and nobody compared it with another answer: `plaudit train sft` "
    "learns from such rows",
    "Steps": "a solution with labelled steps: `plaudit train reward` learns from such rows",
}
"""What to do with rows that hold no preference."""


def opinions(facts: PreferenceFacts, *, ties: bool, hard: bool) -> Recipe[JudgedRow]:
    """The recipe of an algorithm's rows; ``hard`` labels are certain, and ties then teach nothing."""
    if facts.data == "thumbs":
        return partial(_thumbs, facts.name)
    return partial(_pairs, facts.name, ties, hard)


def _pairs(
    name: str, ties: bool, hard: bool, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> Prepared[JudgedRow]:
    compared = {one.origin for one in records if isinstance(one, Comparison | Ranking)}
    kept = [one for one in records if not (isinstance(one, Rating) and one.origin in compared)]
    found = encode_judged([_pair(name, record) for record in kept], encoder, max_tokens)
    encoding = _usable(found, ties=ties, hard=hard)
    rankings = sum(isinstance(row.said, Ranked) for row in encoding.examples)
    notes: list[str] = []
    if len(kept) < len(records):
        notes.append(f"{len(records) - len(kept):,} ratings left out: their rows are ranked too")
    if rankings:
        notes.append(
            f"{rankings:,} rankings: all pairs of a ranking together count as much as one comparison"
        )
    return Prepared(encoding=encoding, notes=tuple(notes))


def _pair(name: str, record: Record) -> Comparison | Ranking:
    if isinstance(record, Comparison | Ranking):
        return record
    if isinstance(record, Rating):
        what = "a thumb" if record.thumb else "a rating"
        raise UserError(
            f"{record.origin}: this row is {what} of one answer, and {name} learns from two answers to one "
            "prompt. Use kto or bco, which learn from single thumbs, or give comparisons or rankings"
        )
    raise UserError(f"{record.origin}: this row is {_advice(record)}")


def _thumbs(name: str, records: Sequence[Record], encoder: Encoder, max_tokens: int) -> Prepared[JudgedRow]:
    judged = [_thumb(name, record) for record in records]
    found = encode_judged(judged, encoder, max_tokens)
    encoding = _usable(found, ties=True, hard=False)
    pairs = sum(isinstance(row.said, Compared) for row in encoding.examples)
    notes = (
        (
            f"{pairs:,} comparisons: {name} learns from single answers, so each became two of them, the "
            "preferred one good and the other bad",
        )
        if pairs
        else ()
    )
    return Prepared(encoding=encoding, notes=notes)


def _thumb(name: str, record: Record) -> Comparison | Rating:
    if isinstance(record, Comparison) or (isinstance(record, Rating) and record.thumb):
        return record
    if isinstance(record, Rating):
        raise UserError(
            f"{record.origin}: this row is a rating on a scale, and {name} learns from answers that are good "
            "or bad: say which points are good by turning ratings into thumbs (a label of true or false)"
        )
    if isinstance(record, Ranking):
        raise UserError(
            f"{record.origin}: this row is a ranking, and {name} learns from answers that are good or bad: "
            "use dpo or another algorithm of pairs, or say which ranks are good by giving thumbs"
        )
    raise UserError(f"{record.origin}: this row is {_advice(record)}")


def _advice(record: Record) -> str:
    return ADVICE.get(type(record).__name__, "no judgement of an answer")


def _usable(found: Encoding[JudgedRow], *, ties: bool, hard: bool) -> Encoding[JudgedRow]:
    """Rows that teach something; the others are refused with their reason."""
    kept: list[JudgedRow] = []
    refused = list(found.refused)
    for row in found.examples:
        reason = _objection(row, ties=ties, hard=hard)
        if reason is None:
            kept.append(row)
        else:
            refused.append(Refused(origin=row.origin, reason=reason))
    return Encoding(examples=tuple(kept), refused=tuple(refused), notes=found.notes)


def _objection(row: JudgedRow, *, ties: bool, hard: bool) -> str | None:
    answers = [answer.ids for answer in row.example.completions]
    if len(set(answers)) < len(answers):
        return "two answers are the same tokens, so there is nothing to prefer"
    if not all(any(answer.mask) for answer in row.example.completions):
        return "an answer has no token that the model would write"
    match row.said:
        case Compared(chance=chance) if hard and 0 < chance < 1:
            return (
                f"the label is {chance:g}, and this loss compares sorted batches, for which "
                "a label is certain: leave such rows out, or use dpo"
            )
        case Compared(chance=0.5) if not ties:
            return "a tie, and ties are left out"
        case Ranked(ranks=ranks) if not ties and len(set(ranks)) == 1:
            return "all answers are tied, and ties are left out"
        case Rated() | _:
            return None
