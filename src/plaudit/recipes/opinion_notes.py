"""What is worth knowing of preference rows before a policy learns from them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from plaudit.batches.judged import JudgedRow
from plaudit.batches.tokens import Completion
from plaudit.recipes.preference_config import PreferenceSettings
from plaudit.training.pairing import labels_of, pairs_of
from plaudit.training.preference_row import PreferenceRow, SingleRow

LONGER = 1.25
"""From this ratio on preferred answers are said to be longer."""
BALANCED = (1.0, 4 / 3)
"""How much good answers may weigh for each bad one (Ethayarajh et al. 2024, section 4.1)."""


def notes_on(
    rows: Sequence[JudgedRow], row: PreferenceRow | SingleRow, settings: PreferenceSettings
) -> tuple[str, ...]:
    """Sentences about the rows that are trained."""
    found = _balance(rows, settings) if isinstance(row, SingleRow) else _length(rows, row)
    return () if found is None else (found,)


def _length(rows: Sequence[JudgedRow], row: PreferenceRow) -> str | None:
    """Whether length gives the preferred answer away; rows that charge for it need not be told."""
    pairs = [
        (one.example.completions[first], one.example.completions[second])
        for one in rows
        for first, second, chance in pairs_of(one)
        if chance > 0.5
    ]
    if not pairs or row.price:
        return None
    chosen, rejected = (fmean(_tokens(pair[side]) for pair in pairs) for side in (0, 1))
    if not chosen > LONGER * rejected:
        return None
    return (
        f"preferred answers have {chosen:.0f} tokens on average and the others {rejected:.0f}: the policy "
        "will learn to be long as well. r-dpo charges for length; ld-dpo, dpo-norm and simpo take it out of "
        "log-probs"
    )


def _balance(rows: Sequence[JudgedRow], settings: PreferenceSettings) -> str | None:
    """Whether good and bad answers weigh about the same."""
    labels = [label for one in rows for label in labels_of(one)]
    good = sum(labels)
    bad = len(labels) - good
    desirable, undesirable = (
        1.0 if value is None else value for value in (settings.desirable, settings.undesirable)
    )
    least, most = BALANCED
    if not good or not bad:
        kind = "good" if good else "bad"
        return f"all {len(labels):,} answers are {kind}: the policy learns nothing about what to do instead"
    ratio = desirable * good / (undesirable * bad) if undesirable else float("inf")
    if least <= ratio <= most or not desirable:
        return None
    middle = (least + most) / 2
    way = (
        f"--preference.desirable {middle * undesirable * bad / good:.2g}"
        if ratio < least
        else f"--preference.undesirable {desirable * good / (middle * bad):.2g}"
    )
    return (
        f"{good:,.0f} good answers and {bad:,.0f} bad ones: good ones weigh {ratio:.2g} times as much "
        f"altogether; between 1 and 1⅓ is usual: {way}"
    )


def _tokens(answer: Completion) -> int:
    return sum(answer.mask)
