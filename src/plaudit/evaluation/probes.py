"""Probes for bias: what sways the model, and what sways the annotators whom it learnt from.

Both prefer for many reasons. A logistic regression of either's preferences on all features at once, and on
the true utility where it is known, asks what one feature does while the rest is equal. The model's odds over
the annotators' tell a bias of its own from a taste in the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import exp

import numpy as np
from jaxtyping import Float

from plaudit.evaluation.columns import columns
from plaudit.evaluation.features import FEATURES, Feature, differences, earlier
from plaudit.evaluation.odds import Fitted, contrast, fit
from plaudit.evaluation.pairs import ScoredPair
from plaudit.evaluation.probe_result import Odds, Probe, Probes
from plaudit.evaluation.probe_words import said

FEW = 30
"""Prompts below which errors that are clustered by prompt cannot be trusted."""
_Z = 1.959963984540054
_LIMIT = 50.0

PLACE = Feature(
    name="place", more="the answer shown earlier", less="the answer shown later", value=lambda answer: 0.0
)
"""Where an answer stands in its row."""
WORTH = Feature(
    name="worth", more="the better answer", less="the worse answer", value=lambda answer: 0.0, graded=True
)
"""The true utility."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A feature's differences in units of their spread, or as they are.

    Example: ``_column(FEATURES[0], np.array([0.4, -0.2]))``
    """

    feature: Feature
    values_B: Float[np.ndarray, " B"]
    unit: str


def probes(pairs: Sequence[ScoredPair]) -> Probes:
    """All probes of a model; pairs need a verdict, and a true utility to be compared at equal worth."""
    known = bool(pairs) and all(None not in pair.truths for pair in pairs)
    table = columns(pairs)
    prompts = len(np.unique(table.prompt_B))
    why = ""
    if prompts < FEW:
        why = f"probes need {FEW} prompts or more, and there are {prompts}"
    elif find_spec("statsmodels") is None:
        why = 'probes need statsmodels: pip install "plaudit[eval]"'
    if why:
        return Probes(pairs=len(pairs), at_equal_worth=False, features=(), words=why)
    found = _columns(pairs, known=known)
    judges = {"model": 0.5 + 0.5 * np.sign(table.gap_B), "annotators": table.chance_B}
    fitted = fit(np.stack([one.values_B for one in found], axis=1), judges, table.prompt_B)
    return Probes(
        pairs=len(pairs),
        at_equal_worth=known,
        features=tuple(_probe(found, place, fitted, known=known) for place in range(len(found))),
        words=_caution(known=known),
    )


def _columns(pairs: Sequence[ScoredPair], *, known: bool) -> list[_Column]:
    """With the worth first: what it decides alone is not asked of the others."""
    found = [_column(feature, differences(pairs, feature)) for feature in FEATURES]
    found.append(_column(PLACE, earlier(pairs)))
    if known:
        worth_B = [
            one - other for one, other in (p.truths for p in pairs) if one is not None and other is not None
        ]
        found.insert(0, _column(WORTH, np.array(worth_B, dtype=float)))
    return found


def _column(feature: Feature, values_B: Float[np.ndarray, " B"]) -> _Column:
    """Differences have no mean worth taking off, for either answer may stand first: their size is their
    root mean square."""
    size = float(np.sqrt((values_B**2).mean()))
    if not feature.graded or size == 0:
        unit = "earlier against later" if feature is PLACE else "with it against without it"
        return _Column(feature=feature, values_B=values_B, unit=unit)
    unit = f"{exp(size):.1f} times as long" if feature.name == "length" else f"{size:.2f} apart"
    return _Column(feature=feature, values_B=values_B / size, unit=unit)


def _probe(found: Sequence[_Column], place: int, fitted: Fitted, *, known: bool) -> Probe:
    model, annotators = (fitted.fits[name] for name in ("model", "annotators"))
    mine, theirs = model.places.get(place), annotators.places.get(place)
    excess = None if mine is None or theirs is None else _odds(fitted, {mine: 1.0, theirs: -1.0})
    column = found[place]
    probe = Probe(
        name=column.feature.name,
        what=column.feature.more,
        unit=column.unit,
        pairs=int((column.values_B != 0).sum()),
        model=None if mine is None else _odds(fitted, {mine: 1.0}),
        annotators=None if theirs is None else _odds(fitted, {theirs: 1.0}),
        excess=excess,
        beyond=_beyond(fitted, place) if known and place else None,
        words="",
    )
    return said(
        probe, column.feature, faults=(model.faults.get(place), annotators.faults.get(place)), known=known
    )


def _odds(fitted: Fitted, weights: dict[int, float]) -> Odds:
    value, error = contrast(fitted, weights)
    low, high = value - _Z * error, value + _Z * error
    return Odds(ratio=_exp(value), low=_exp(low), high=_exp(high))


def _beyond(fitted: Fitted, place: int) -> Odds | None:
    """The model's odds over the annotators', had they been as sure of worth as it is.

    A model decides alike each time and people do not, so all odds of a model are larger than theirs, also
    those of a taste that it learnt from them. The odds of worth tell how much surer it is: with
    s = β_worth(model)/β_worth(annotators), exp(β(model) − s β(annotators)), by the delta method.
    """
    model, annotators = (fitted.fits[name].places for name in ("model", "annotators"))
    if any(one not in judge for judge in (model, annotators) for one in (0, place)):
        return None
    mine, theirs = fitted.beta[model[place]], fitted.beta[annotators[place]]
    worth, their_worth = fitted.beta[model[0]], fitted.beta[annotators[0]]
    if their_worth <= 0:
        return None
    surer = worth / their_worth
    weights = {
        model[place]: 1.0,
        annotators[place]: -surer,
        model[0]: -theirs / their_worth,
        annotators[0]: theirs * surer / their_worth,
    }
    error = contrast(fitted, {at: float(weight) for at, weight in weights.items()})[1]
    value = float(mine - surer * theirs)
    return Odds(ratio=_exp(value), low=_exp(value - _Z * error), high=_exp(value + _Z * error))


def _exp(value: float) -> float:
    """Bounded, so that an interval without end remains a number."""
    return exp(min(_LIMIT, max(-_LIMIT, value)))


def _caution(*, known: bool) -> str:
    if known:
        return ""
    return (
        "the true utility is not known: what looks like a bias may be worth that goes along with it, and a "
        "model, which decides alike each time, has larger odds than people also where it shares their taste"
    )
