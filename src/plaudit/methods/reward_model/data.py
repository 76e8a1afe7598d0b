"""Rows of a reward model: judged answers, all of them judged in the same way."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from plaudit.data.records import Comparison, Ranking, Rating, Record, Steps
from plaudit.errors import UserError, located
from plaudit.files.stored import filtered, mapped
from plaudit.losses.reward import llama_margin
from plaudit.methods.data import EncodedData
from plaudit.methods.reward_model.config import RewardSettings
from plaudit.tokens.encode import Encoder
from plaudit.tokens.preferences import JudgedRecord, JudgedRow, encode_judged

ROW_KINDS = ("comparisons", "rankings", "ratings", "thumbs", "steps")


def encode_judged_rows(
    settings: RewardSettings, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> EncodedData[JudgedRow]:
    """Judged answers as tokens; of one kind only, since each kind has its own loss."""
    selected = _select_kind(records, settings.rows)
    # Raise for records of several kinds, or of a kind that no reward can be learnt from.
    counts_by_kind = Counter(_record_kind(record) for record in selected)
    unjudged = next((record for record in selected if _record_kind(record) not in ROW_KINDS), None)
    if unjudged is not None:
        raise UserError(
            f"{unjudged.origin}: this row is a {type(unjudged).__name__.lower()}: nobody judged its "
            "answer. A reward is learnt from comparisons, rankings, ratings, thumbs or labelled steps"
        )
    if len(counts_by_kind) > 1:
        other = next(record for record in selected if _record_kind(record) != _record_kind(selected[0]))
        counts = " and ".join(f"{count:,} {kind}" for kind, count in counts_by_kind.items())
        raise UserError(
            f"{other.origin}: the rows are {counts}, and each kind has its own loss: choose one kind with "
            "--reward.rows, and go on with the other from there (--model RUN/model)"
        )
    judged = mapped(_select_aspect(selected, settings.aspect), partial(_with_margin, settings=settings))
    left_out = len(records) - len(selected)
    notes = (f"{left_out:,} rows left out: they are no {settings.rows}",) if left_out else ()
    return EncodedData(encoding=encode_judged(judged, encoder, max_tokens), notes=notes)


def _select_kind(records: Sequence[Record], wanted: str) -> Sequence[Record]:
    """The records of the wanted kind: UltraFeedback has rankings and ratings of the same answers."""
    if wanted == "auto":
        return records
    selected = filtered(records, lambda record: _record_kind(record) == wanted)
    if not selected:
        kinds = ", ".join(sorted({_record_kind(record) for record in records}))
        raise UserError(f"reward.rows: none of the {len(records):,} rows are {wanted}; they are {kinds}")
    return selected


def _record_kind(record: Record) -> str:
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


def _select_aspect(records: Sequence[Record], aspect: str | None) -> Sequence[JudgedRecord]:
    # All of them are judged: others were refused before.
    judged = cast("Sequence[JudgedRecord]", records)
    aspects = sorted({row.aspect or "the answer as a whole" for row in judged if isinstance(row, Rating)})
    if aspect is None:
        if len(aspects) > 1:
            raise UserError(f"the ratings are of {', '.join(aspects)}: choose one with --reward.aspect")
        return judged
    selected = filtered(judged, lambda row: not isinstance(row, Rating) or row.aspect == aspect)
    if not selected or not aspects:
        raise UserError(
            f"reward.aspect: no rating is of {aspect!r}; there are {', '.join(aspects) or 'none'}"
        )
    return selected


def _with_margin(record: JudgedRecord, settings: RewardSettings) -> JudgedRecord:
    if not isinstance(record, Comparison) or settings.margin == "given":
        return record
    if settings.margin == "none":
        return replace(record, margin=None)
    if record.strength is None:
        raise UserError(
            f"{record.origin}: no strength to make a margin of; leave out --reward.margin, or give strengths"
        )
    with located(record.origin, ValueError):
        margin = llama_margin(record.strength, large=settings.margin == "large")
    return replace(record, margin=margin)
