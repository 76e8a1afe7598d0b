"""Which rows a reward model learns from: judged answers, all judged in the same way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from plaudit.batches.judged import Judged, JudgedRow, encode_judged
from plaudit.batches.template import Encoder
from plaudit.errors import UserError
from plaudit.losses.reward import llama_margin
from plaudit.recipes.reward_config import RewardSettings
from plaudit.recipes.rows import Prepared
from plaudit.records.feedback import Comparison, Ranking, Rating, Record, Steps

KINDS = ("comparisons", "rankings", "ratings", "thumbs", "steps")
"""The kinds of rows that a reward can be learnt from."""


def judged_rows(
    settings: RewardSettings, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> Prepared[JudgedRow]:
    """The judged answers as tokens; rows of one kind only, since each kind has its own loss."""
    kept = _of_kind(records, settings.rows)
    _refuse_mixed(kept)
    chosen = [_with_margin(one, settings) for one in _of_aspect(kept, settings.aspect)]
    left_out = len(records) - len(kept)
    notes = (f"{left_out:,} rows left out: they are no {settings.rows}",) if left_out else ()
    return Prepared(encoding=encode_judged(chosen, encoder, max_tokens), notes=notes)


def _of_kind(records: Sequence[Record], wanted: str) -> Sequence[Record]:
    """A file may hold several kinds: UltraFeedback has rankings and ratings of the same answers."""
    if wanted == "auto":
        return records
    kept = [record for record in records if _kind(record) == wanted]
    if not kept:
        there = ", ".join(sorted({_kind(record) for record in records}))
        raise UserError(f"reward.rows: none of the {len(records):,} rows are {wanted}; they are {there}")
    return kept


def _refuse_mixed(records: Sequence[Record]) -> None:
    """Only rows of one kind, of which a reward can be learnt."""
    found = Counter(_kind(record) for record in records)
    unknown = next((record for record in records if _kind(record) not in KINDS), None)
    if unknown is not None:
        raise UserError(
            f"{unknown.origin}: this row is a {type(unknown).__name__.lower()}: nobody judged its answer. A "
            "reward is learnt from comparisons, rankings, ratings, thumbs or labelled steps"
        )
    if len(found) > 1:
        other = next(record for record in records if _kind(record) != _kind(records[0]))
        counts = " and ".join(f"{count:,} {kind}" for kind, count in found.items())
        raise UserError(
            f"{other.origin}: the rows are {counts}, and each kind has its own loss: choose one kind with "
            "--reward.rows, and go on with the other from there (--model RUN/model)"
        )


def _kind(record: Record) -> str:
    match record:
        case Comparison():
            return "comparisons"
        case Ranking():
            return "rankings"
        case Rating():
            return "thumbs" if record.thumb else "ratings"
        case Steps():
            return "steps"
        case _:
            return "unjudged"


def _of_aspect(records: Sequence[Record], aspect: str | None) -> list[Judged]:
    judged = [one for one in records if isinstance(one, Comparison | Ranking | Rating | Steps)]
    aspects = sorted({one.aspect or "the answer as a whole" for one in judged if isinstance(one, Rating)})
    if aspect is None:
        if len(aspects) > 1:
            raise UserError(f"the ratings are of {', '.join(aspects)}: choose one with --reward.aspect")
        return judged
    kept = [one for one in judged if not isinstance(one, Rating) or one.aspect == aspect]
    if not kept or not aspects:
        raise UserError(
            f"reward.aspect: no rating is of {aspect!r}; there are {', '.join(aspects) or 'none'}"
        )
    return list(kept)


def _with_margin(record: Judged, settings: RewardSettings) -> Judged:
    if not isinstance(record, Comparison) or settings.margin == "given":
        return record
    if settings.margin == "none":
        return replace(record, margin=None)
    if record.strength is None:
        raise UserError(
            f"{record.origin}: no strength to make a margin of; leave out --reward.margin, or give strengths"
        )
    try:
        margin = llama_margin(record.strength, large=settings.margin == "large")
    except ValueError as error:
        raise UserError(f"{record.origin}: {error}") from error
    return replace(record, margin=margin)
