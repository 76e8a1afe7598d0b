"""How far people agree: Krippendorff's α, Gwet's AC1 and AC2, and the plain share, with intervals by prompt.

All three compare labels of one thing by two people, whoever the two are, so that people may label different
numbers of things. What is undefined is said and never called full agreement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from plaudit.collect.quality.result import Figure
from plaudit.evaluation.stats import Resampling, interval_levels

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

NO_OVERLAP = "undefined: nothing was labelled by two people"
ONE_VALUE = "undefined: only one value was used, so nothing shows that people tell things apart"
ONE_PROMPT = "no interval: all labels belong to one prompt"
TOO_MANY_VALUES = "no interval: there are more than 25 values"
RARELY_DEFINED = "no interval: in many draws of prompts only one value is left"
MOST_VALUES = 25
"""Values for whose coincidences of all draws there is room."""


MOST_KINDS = 20_000
"""Kinds of prompts up to which they are drawn together."""
_DRAWS = 100
"""How many draws are held at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What people said of things, a row a label."""

    unit_B: Int[np.ndarray, " B"]
    """The pair, answer or step that was labelled."""
    person_B: Int[np.ndarray, " B"]
    value_B: Int[np.ndarray, " B"]
    """What was said, from 0; of ordinal values in their order."""
    prompt_B: Int[np.ndarray, " B"]
    """The prompt that the unit belongs to."""
    guidelines_B: Int[np.ndarray, " B"]
    categories: int
    level: str

    def where(self, chosen_B: Bool[np.ndarray, " B"]) -> Values:
        names = ("unit_B", "person_B", "value_B", "prompt_B", "guidelines_B")
        return replace(self, **{name: getattr(self, name)[chosen_B] for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreements:
    """The three figures of some labels, and what they rest on."""

    alpha: Figure
    gwet: Figure
    """AC1 of nominal values, AC2 with ordinal weights of ordinal ones."""
    percent: Figure
    """The share of two people's labels that are the same."""
    labels: int
    """Labels of what at least two people labelled."""
    units: int
    people: int
    prompts: int


def agreements(values: Values, resampling: Resampling) -> Agreements:
    """α, AC and the share of the same, each with a percentile interval over prompts.

    Answers to one prompt are alike, so whole prompts are drawn anew (Field and Welsh 2007).

    >>> values = Values(
    ...     unit_B=np.repeat(np.arange(4), 2), person_B=np.tile(np.arange(2), 4),
    ...     value_B=np.array([0, 0, 1, 1, 0, 1, 1, 1]), prompt_B=np.repeat(np.arange(4), 2),
    ...     guidelines_B=np.zeros(8, dtype=int), categories=2, level="nominal")
    >>> found = agreements(values, Resampling(times=100))
    >>> round(found.alpha.value, 3), found.percent.value, found.units
    (0.533, 0.75, 4)
    """
    unit_B, counts_UC = _counts(values)
    several_U = counts_UC.sum(axis=1) >= 2
    several_B = several_U[unit_B]
    if not several_U.any():
        nothing = Figure(value=None, reason=NO_OVERLAP)
        return Agreements(
            alpha=nothing, gwet=nothing, percent=nothing, labels=0, units=0, people=0, prompts=0
        )
    prompt_U = np.zeros(len(counts_UC), dtype=np.int64)
    prompt_U[unit_B] = values.prompt_B
    sums_PA = _sums_by_prompt(counts_UC, prompt_U, values)
    whole_A = sums_PA.sum(axis=0, keepdims=True)
    varied = len(np.unique(values.value_B[several_B])) > 1
    units, prompts = int(several_U.sum()), len(np.unique(values.prompt_B[several_B]))
    draws_SA, reason = _draws(sums_PA, prompts, resampling, values.categories)
    measured = (
        (_alpha_of(values, counts_UC[several_U]) if varied else None, _alpha),
        (float(_gwet(whole_A, values)[0]) if varied else None, _gwet),
        (float(_percent(whole_A, values)[0]), _percent),
    )
    alpha, gwet, percent = (
        Figure(value=None, n=units, reason=ONE_VALUE)
        if value is None
        else _figure(value, None if draws_SA is None else measure(draws_SA, values), units, prompts, reason)
        for value, measure in measured
    )
    return Agreements(
        alpha=alpha,
        gwet=gwet,
        percent=percent,
        labels=int(several_B.sum()),
        units=units,
        people=len(np.unique(values.person_B[several_B])),
        prompts=prompts,
    )


def _counts(values: Values) -> tuple[Int[np.ndarray, " B"], Float[np.ndarray, "U C"]]:
    # The unit of each label, numbered anew, and how often each value was given to each unit.
    units, unit_B = np.unique(values.unit_B, return_inverse=True)
    cells_B = unit_B * values.categories + values.value_B
    counts = np.bincount(cells_B, minlength=len(units) * values.categories)
    return unit_B, counts.reshape(len(units), values.categories).astype(float)


def _alpha_of(values: Values, counts_UC: Float[np.ndarray, "U C"]) -> float:
    # Summed over all units first, so that many values take no more room than their square.
    scaled_UC = counts_UC / (counts_UC.sum(axis=1, keepdims=True) - 1)
    coincidences_CC = counts_UC.T @ scaled_UC - np.diag(scaled_UC.sum(axis=0))
    return float(_alpha_of_coincidences(coincidences_CC[None], values)[0])


def _weights(values: Values) -> Float[np.ndarray, "C C"]:
    # How far two values agree, from 0 to 1: the identity, or Gwet's ordinal weights.
    # w(k, l) = 1 − C(|k − l| + 1, 2) / C(q, 2) for q values in order (Gwet 2014, Handbook, chapter 3).
    if values.level == "nominal":
        return np.eye(values.categories)
    gap_CC = np.abs(np.subtract.outer(np.arange(values.categories), np.arange(values.categories)))
    distance_CC = gap_CC * (gap_CC + 1) / 2
    return 1 - distance_CC / max(distance_CC.max(), 1)


def _sums_by_prompt(
    counts_UC: Float[np.ndarray, "U C"], prompt_U: Int[np.ndarray, " U"], values: Values
) -> Float[np.ndarray, "P A"]:
    # All that the three figures are made of, as sums over prompts.
    order_U = np.argsort(prompt_U, kind="stable")
    start_P = np.unique(prompt_U[order_U], return_index=True)[1]
    # Most units were answered as many others were.
    index_K, kind_U, _ = _kinds(counts_UC, np.random.default_rng(0))
    sums_KA = _sums_by_unit(counts_UC[index_K], values)
    return np.add.reduceat(sums_KA[kind_U[order_U]], start_P, axis=0)


def _kinds(
    rows_NA: Float[np.ndarray, "N A"], rng: np.random.Generator
) -> tuple[Int[np.ndarray, " K"], Int[np.ndarray, " N"], Int[np.ndarray, " K"]]:
    # Of the different ones among rows where each is first, which of them every row is, and how many are.
    # By one number a row, which is sorted sooner than rows are: equal rows have equal ones, others do not.
    index_K, kind_N, count_K = np.unique(
        rows_NA @ rng.random(rows_NA.shape[1]), return_index=True, return_inverse=True, return_counts=True
    )[1:]
    return index_K, kind_N, count_K


def _sums_by_unit(counts_UC: Float[np.ndarray, "U C"], values: Values) -> Float[np.ndarray, "U A"]:
    size_U = counts_UC.sum(axis=1)
    several_U = size_U >= 2
    # Of a unit with one label nothing is compared; its value still says how common the value is.
    pairs_U = np.where(several_U, size_U * (size_U - 1), 1.0)
    weighted_UC = counts_UC @ _weights(values)
    columns = [
        np.where(several_U, (counts_UC * (weighted_UC - 1)).sum(axis=1) / pairs_U, 0.0),
        np.where(several_U, (counts_UC * (counts_UC - 1)).sum(axis=1) / pairs_U, 0.0),
        several_U.astype(float),
        np.ones(len(counts_UC)),
    ]
    shares_UC = counts_UC / size_U[:, None]
    parts = [np.stack(columns, axis=1), shares_UC]
    if values.categories <= MOST_VALUES:
        scale_U = np.where(several_U, 1 / np.maximum(size_U - 1, 1), 0.0)
        coincidences_UCC = counts_UC[:, :, None] * counts_UC[:, None, :] * scale_U[:, None, None]
        diagonal = np.arange(values.categories)
        coincidences_UCC[:, diagonal, diagonal] -= counts_UC * scale_U[:, None]
        parts.append(coincidences_UCC.reshape(len(counts_UC), -1))
    return np.concatenate(parts, axis=1)


def _draws(
    sums_PA: Float[np.ndarray, "P A"], prompts: int, resampling: Resampling, categories: int
) -> tuple[Float[np.ndarray, "S A"] | None, str]:
    # The sums of every draw of prompts, or why there is none.
    if prompts < 2:
        return None, ONE_PROMPT
    if categories > MOST_VALUES:
        return None, TOO_MANY_VALUES
    # Most prompts have the same sums as many others, and only how often each kind comes up matters: thousands
    # of prompts are then some hundred kinds, drawn by one multinomial.
    rng, size = np.random.default_rng(resampling.seed), len(sums_PA)
    index_D, kind_P, count_D = _kinds(sums_PA, rng)
    sums_DA, drawn = sums_PA[index_D], list[np.ndarray]()
    for start in range(0, resampling.times, _DRAWS):
        draws = min(_DRAWS, resampling.times - start)
        if len(index_D) <= MOST_KINDS:
            times_SD = rng.multinomial(size, count_D / size, size=draws)
        else:
            # One by one: that takes a fixed time a prompt, and a multinomial a longer one a kind.
            times_SD = np.stack(
                [
                    np.bincount(kind_P[rng.integers(size, size=size)], minlength=len(index_D))
                    for _ in range(draws)
                ]
            )
        drawn.append(times_SD @ sums_DA)
    return np.concatenate(drawn), ""


def _figure(
    value: float, drawn_S: Float[np.ndarray, " S"] | None, n: int, prompts: int, reason: str
) -> Figure:
    if drawn_S is None:
        return Figure(value=value, n=n, reason=reason)
    defined = np.isfinite(drawn_S)
    if defined.mean() < 0.95:
        return Figure(value=value, n=n, reason=RARELY_DEFINED)
    low, high = np.quantile(drawn_S[defined], interval_levels(prompts))
    return Figure(value=value, low=float(low), high=float(high), n=n)


def _percent(sums_SA: Float[np.ndarray, "S A"], values: Values) -> Float[np.ndarray, " S"]:
    return _ratio(sums_SA[:, 1], sums_SA[:, 2])


def _gwet(sums_SA: Float[np.ndarray, "S A"], values: Values) -> Float[np.ndarray, " S"]:
    # (p_a − p_e) / (1 − p_e), p_e = Σ w / (q(q − 1)) · Σ π(1 − π) (Gwet 2008).
    share_SC = _ratio(sums_SA[:, 4 : 4 + values.categories], sums_SA[:, 3:4])
    factor = _weights(values).sum() / (values.categories * (values.categories - 1))
    expected_S = factor * (share_SC * (1 - share_SC)).sum(axis=1)
    observed_S = _ratio(sums_SA[:, 0], sums_SA[:, 2])
    return _ratio(observed_S - expected_S, 1 - expected_S)


def _alpha(sums_SA: Float[np.ndarray, "S A"], values: Values) -> Float[np.ndarray, " S"]:
    size = values.categories
    return _alpha_of_coincidences(sums_SA[:, 4 + size :].reshape(-1, size, size), values)


def _alpha_of_coincidences(
    coincidences_SCC: Float[np.ndarray, "S C C"], values: Values
) -> Float[np.ndarray, " S"]:
    # 1 − D_observed / D_expected of coincidences (Krippendorff 2018, chapter 12), for many draws at once.
    count_SC = coincidences_SCC.sum(axis=2)
    if values.level == "nominal":
        distance_SCC = np.broadcast_to(1 - np.eye(values.categories), coincidences_SCC.shape)
    else:
        # Σ of what lies between two values, the ends by half, is the difference of their middle ranks.
        middle_SC = count_SC.cumsum(axis=1) - count_SC / 2
        distance_SCC = (middle_SC[:, :, None] - middle_SC[:, None, :]) ** 2
    total_S = count_SC.sum(axis=1)
    observed_S = _ratio((coincidences_SCC * distance_SCC).sum(axis=(1, 2)), total_S)
    expected_SCC = count_SC[:, :, None] * count_SC[:, None, :] * distance_SCC
    expected_S = _ratio(expected_SCC.sum(axis=(1, 2)), total_S * (total_S - 1))
    return 1 - _ratio(observed_S, expected_S)


def _ratio(part: Float[np.ndarray, "*A"], whole: Float[np.ndarray, "*A"]) -> Float[np.ndarray, "*A"]:
    # A quotient, and no number where the divisor is 0.
    return np.divide(
        part, whole, out=np.full(np.broadcast_shapes(part.shape, whole.shape), np.nan), where=whole != 0
    )
