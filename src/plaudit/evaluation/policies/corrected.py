"""True shares from a judge that errs: by people's labels of a part, or by the judge's card.

Prediction-powered inference (Angelopoulos et al. 2023, arXiv:2301.09633; tuned: PPI++, arXiv:2311.01453; by
strata of the judge's confidence: Fisch et al. 2024, arXiv:2406.04291): people say how far the judge is off,
and what it said of the rest makes that surer. A judge that is of no use gets no weight, and costs nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Rating, Text, plain_text, preference_probability, turns_of
from plaudit.data.transforms import measured_only
from plaudit.errors import UserError
from plaudit.evaluation.shares import wilson_at_size
from plaudit.evaluation.stats import Estimate

FEWEST_LABELS = 20
"""Prompts with labels of people below which nothing is corrected."""
_LABELS_A_STRATUM, _MOST_STRATA = 40, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSample:
    """What a judge says of rows, and people of some of them.
    Example: ``JudgedSample(judged=chances, people=np.array([1.0, np.nan]), prompts=np.arange(2))``."""

    judged: Float[np.ndarray, " B"]
    """The judge's chance, or its word as 0 or 1."""
    people: Float[np.ndarray, " B"]
    """What people say, from 0 to 1; nan of a row that nobody labelled."""
    prompts: Int[np.ndarray, " B"]
    """Whose prompt is whose: rows of one prompt are not independent."""
    probabilities: Float[np.ndarray, " B"] | None = None
    """With which chance each row came to be labelled; None: all with the same."""
    counted: Float[np.ndarray, " B"] | None = None
    """1 of rows that the figure is of, 0 of others that only show how the judge errs; None: all count."""
    strata: Int[np.ndarray, " B"] | None = None
    """Corrected by themselves; None: all together."""
    notes: tuple[str, ...] = ()

    @property
    def labelled(self) -> Float[np.ndarray, " B"]:
        return ~np.isnan(self.people)

    @property
    def weights(self) -> Float[np.ndarray, " B"]:
        """1/chance of what is labelled, 0 of the rest."""
        probabilities = np.ones(len(self.people)) if self.probabilities is None else self.probabilities
        return np.where(self.labelled, 1 / probabilities, 0.0)


def with_known(sample: JudgedSample, known: Sequence[float | None]) -> JudgedSample:
    """What people would say of pairs that nobody can be asked about: the same words, an empty answer."""
    known_B = np.array([np.nan if share is None else share for share in known])
    is_known_B = ~np.isnan(known_B)
    rest_B = sample.labelled[~is_known_B]
    if not is_known_B.any() or not rest_B.any():
        return sample
    of_rest = rest_B.mean() if sample.probabilities is None else sample.probabilities
    people = np.where(is_known_B, known_B, sample.people)
    return replace(sample, people=people, probabilities=np.where(is_known_B, 1.0, of_rest))


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectedMean:
    value: float
    standard_error: float
    """By the errors as they are, without an allowance for small samples; the interval has one."""
    low: float
    high: float
    tuning: float
    """The weight λ of the judge's word, from 0 to 1: the mean over strata."""
    labels: int
    worth: float
    """How many labels without the judge would say as much."""
    by_people: float
    strata: int


def corrected_mean(sample: JudgedSample, *, tuning: float | None = None) -> CorrectedMean:
    """θ = Σ_s (N_s/N) [λ_s mean_N(f) + Σ_n w(y − λ_s f)], with λ_s such that the interval is least wide.
    Variances are of influences, summed by prompt; the interval is Wilson's at the size the labels are
    worth."""
    fit = _fit(sample, tuning)
    # Without strata: what the labels would say if there were no judge.
    people = _fit(replace(sample, strata=None), 0.0)
    labels, prompts = int(sample.labelled.sum()), len(set(sample.prompts[sample.labelled].tolist()))
    weight_B = sample.weights
    size = min(float(weight_B.sum() ** 2 / (weight_B**2).sum()), prompts)
    gain = 1.0
    if people.spread > 0 and 0 < people.value < 1:
        size = people.value * (1 - people.value) / people.spread
        gain = people.spread / fit.spread if fit.spread > 0 else inf
    strata = len(fit.tunings)
    centre = min(max(fit.value, 0.0), 1.0)
    low, high = wilson_at_size(centre, size * gain, max(prompts - strata, 1))
    return CorrectedMean(
        value=centre if tuning is None else fit.value,
        standard_error=sqrt(fit.variance),
        low=low,
        high=high,
        tuning=float(np.mean(fit.tunings)),
        labels=labels,
        worth=labels * gain,
        by_people=people.value,
        strata=strata,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    value: float
    variance: float
    error_B: Float[np.ndarray, " B"]
    spread: float
    """The variance with an allowance for few labels."""
    tunings: tuple[float, ...]


def _fit(sample: JudgedSample, tuning: float | None) -> _Fit:
    rows = len(sample.judged)
    counted_B = np.ones(rows) if sample.counted is None else sample.counted
    strata_B = np.zeros(rows, dtype=int) if sample.strata is None else sample.strata
    value, between_B, tunings = 0.0, np.zeros(rows), list[float]()
    errors_B, allowed_B = np.zeros(rows), np.zeros(rows)
    for stratum in np.unique(strata_B):
        part_B = strata_B == stratum
        share = float(counted_B[part_B].sum() / counted_B.sum())
        mean, tuned, of_all_B, of_labels_B = _stratum(sample, counted_B * part_B, part_B, tuning)
        labelled = len(set(sample.prompts[part_B & sample.labelled].tolist()))
        # One degree of freedom goes to the mean, and one to the tuning where there is any.
        freedom = max(labelled - 1 - (tuned != 0 and tuning is None), 1)
        value += share * mean
        between_B += mean * counted_B * part_B / counted_B.sum()
        errors_B += share * (of_all_B + of_labels_B)
        allowed_B += share * (of_all_B + of_labels_B * sqrt(labelled / freedom))
        tunings.append(tuned)
    # How many rows fell into each stratum is chance too.
    between_B -= value * counted_B / counted_B.sum()
    allowed_B += between_B
    variance, spread = (_by_prompt(own_B, sample.prompts) for own_B in (between_B + errors_B, allowed_B))
    return _Fit(value=value, variance=variance, error_B=allowed_B, spread=spread, tunings=tuple(tunings))


def _stratum(
    sample: JudgedSample,
    counted_B: Float[np.ndarray, " B"],
    part_B: Float[np.ndarray, " B"],
    tuning: float | None,
) -> tuple[float, float, Float[np.ndarray, " B"], Float[np.ndarray, " B"]]:
    """The mean, λ, and the influences of what is counted and of what is labelled."""
    all_B = counted_B / counted_B.sum()
    label_B = sample.weights * part_B
    label_B = label_B / label_B.sum()
    judged_B, people_B = sample.judged, np.where(sample.labelled, sample.people, 0.0)
    judge, judge_of_labels, people = (
        float((weight_B * value_B).sum())
        for weight_B, value_B in ((all_B, judged_B), (label_B, judged_B), (label_B, people_B))
    )
    wrong_B = label_B * (people_B - people)
    gain_B = all_B * (judged_B - judge) - label_B * (judged_B - judge_of_labels)
    if tuning is None:
        used_B = part_B & ((counted_B > 0) | sample.labelled)
        # The judge's variance of all rows together, times what clusters and unequal chances make of it.
        effect = _by_prompt(gain_B, sample.prompts) / (float((gain_B**2).sum()) or 1.0)
        spread = float(judged_B[used_B].var(ddof=1)) if used_B.sum() > 1 else 0.0
        spread *= float(((all_B - label_B) ** 2).sum()) * effect
        shared = -float((_sums(wrong_B, sample.prompts) * _sums(gain_B, sample.prompts)).sum())
        tuning = min(max(shared / spread, 0.0), 1.0) if spread > 1e-12 else 0.0
    mean = people + tuning * (judge - judge_of_labels)
    of_all_B = tuning * all_B * (judged_B - judge)
    return mean, tuning, of_all_B, wrong_B - tuning * label_B * (judged_B - judge_of_labels)


def _sums(value_B: Float[np.ndarray, " B"], prompt_B: Int[np.ndarray, " B"]) -> Float[np.ndarray, " P"]:
    return np.bincount(np.unique(prompt_B, return_inverse=True)[1], value_B)


def _by_prompt(influence_B: Float[np.ndarray, " B"], prompt_B: Int[np.ndarray, " B"]) -> float:
    return float((_sums(influence_B, prompt_B) ** 2).sum())


def confidence_strata(sample: JudgedSample) -> Int[np.ndarray, " B"]:
    """Rows by how the judge's chance lies among all, in at most five strata with enough labels in each."""
    prompts = len(set(sample.prompts[sample.labelled].tolist()))
    count = max(1, min(_MOST_STRATA, prompts // _LABELS_A_STRATUM))
    edges = np.unique(np.quantile(sample.judged, np.arange(1, count) / count))
    strata_B = np.searchsorted(edges, sample.judged, side="left")
    # A stratum that people hardly saw joins the one below it, and the lowest the one above.
    for stratum in range(int(strata_B.max()), 0, -1):
        if (sample.labelled & (strata_B == stratum)).sum() < _LABELS_A_STRATUM:
            strata_B = np.where(strata_B == stratum, stratum - 1, strata_B)
    names = np.unique(strata_B)
    if len(names) > 1 and (sample.labelled & (strata_B == names[0])).sum() < _LABELS_A_STRATUM:
        strata_B = np.where(strata_B == names[0], names[1], strata_B)
    return np.unique(strata_B, return_inverse=True)[1]


def share_by_card(raw: Estimate, yes: Estimate, no: Estimate) -> tuple[float, float, float]:
    """The share, low and high, of which a judge says ``raw``: (raw − no)/(yes − no), Rogan and Gladen (1978).
    ``yes`` is how often it says Yes where people do, ``no`` how often where people say No. Fieller's interval
    (1954) knows how unsure all three are; where both are not told difference it is all from 0 to 1."""
    difference = yes.value - no.value
    spread, of_yes, of_no = (_variance(each) for each in (raw, yes, no))
    ends = _fieller(raw.value - no.value, difference, (spread + of_no, -of_no, of_yes + of_no))
    return _within((raw.value - no.value) / difference if difference > 0 else 0.5, ends)


def win_rate_by_card(raw: Estimate, agreement: Estimate) -> tuple[float, float, float]:
    """The same of a win rate, by how often the judge agrees with people, whoever's answer is better."""
    difference = 2 * agreement.value - 1
    ends = _fieller(2 * raw.value - 1, difference, (4 * _variance(raw), 0.0, 4 * _variance(agreement)))
    value = (2 * raw.value - 1) / difference if difference > 0 else 0.0
    return _within((1 + value) / 2, tuple((1 + end) / 2 for end in ends) if ends else None)


def doubt(agreement: Estimate) -> float:
    """The standard error of 1/(2a − 1), as a share of it."""
    return 2 * sqrt(_variance(agreement)) / (2 * agreement.value - 1)


def _within(value: float, ends: tuple[float, ...] | None) -> tuple[float, float, float]:
    low, high = ends or (0.0, 1.0)
    value, low, high = (min(max(each, 0.0), 1.0) for each in (value, low, high))
    return value, low, high


_Z_95 = 1.959963984540054


def _variance(estimate: Estimate) -> float:
    assert estimate.low is not None, "of one prompt alone nothing can be said"
    assert estimate.high is not None
    return ((estimate.high - estimate.low) / 2 / _Z_95) ** 2


def _fieller(part: float, whole: float, noise: tuple[float, float, float]) -> tuple[float, float] | None:
    """The x for which (part − x·whole)² ≤ z²(c₀ + 2 c₁ x + c₂ x²); None where no x is left out on a side."""
    c0, c1, c2 = (_Z_95**2 * each for each in noise)
    a, b, c = whole**2 - c2, part * whole + c1, part**2 - c0
    if a <= 0 or whole <= 0:
        return None
    root = sqrt(max(b * b - a * c, 0.0))
    return (b - root) / a, (b + root) / a


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A share that a judge gave, and what it is once the judge's errors are known."""

    raw: Estimate
    corrected: Estimate
    by: str
    labels: int
    """Rows that people labelled; of a card those that it was made on."""
    worth: float | None = None
    """How many labels without the judge would say as much; None of a card."""
    tuning: float | None = None
    """The weight of the judge's word, from 0 to 1; None of a card."""
    note: str = ""

    @property
    def sentence(self) -> str:
        worth = (
            "" if self.worth is None else f"; {self.labels} labels are worth {self.worth:.0f} with this judge"
        )
        note = f" ({self.note})" if self.note else ""
        return f"raw {self.raw.text()}, corrected by {self.by} {self.corrected.text()}{worth}{note}"


def by_people(raw: Estimate, sample: JudgedSample, known: Sequence[float | None] = ()) -> Correction | None:
    """The correction by people's labels, None where they are of fewer than 20 prompts; ``known`` is what rows
    tell by themselves, which helps, and is no label."""
    given, prompts = int(sample.labelled.sum()), len(set(sample.prompts[sample.labelled].tolist()))
    if prompts < FEWEST_LABELS:
        return None
    sample = _in_strata(sample, known)
    found = corrected_mean(sample)
    estimate = Estimate(
        value=found.value, low=found.low, high=found.high, n=len(sample.judged), prompts=raw.prompts
    )
    by_themselves = f" and {found.labels - given} pairs that need none" if found.labels > given else ""
    weighted = () if sample.probabilities is None else ("weighted by 1/chance of being labelled",)
    return Correction(
        raw=raw,
        corrected=estimate,
        by=f"{given} labels of people{by_themselves}",
        labels=found.labels,
        worth=found.worth,
        tuning=found.tuning,
        note="; ".join((*weighted, *sample.notes)),
    )


def _in_strata(sample: JudgedSample, values: Sequence[float | None]) -> JudgedSample:
    sample = with_known(sample, values) if values else sample
    return replace(sample, strata=confidence_strata(sample))


def corrected_rows(sample: JudgedSample, known: Sequence[float | None]) -> Float[np.ndarray, " B"]:
    """A value for each row: their mean is the corrected one, and errs by prompt as it does."""
    fit = _fit(_in_strata(sample, known), None)
    return fit.value + len(fit.error_B) * fit.error_B


CARD_HOLDS = "if it errs here as on the answers of its card"
CARD_HOLDS_ALIKE = f"{CARD_HOLDS}, and alike on both policies'"
NO_BETTER_THAN_A_COIN = "which does not tell it from a coin, so nothing is known"


def by_card(raw: Estimate, yes: Estimate, no: Estimate) -> Correction:
    """The correction by how often a judge says Yes where people do, and where they say No."""
    says = f"its card, Yes to {yes.value:.1%} of what people do and {no.value:.1%} of what they do not"
    return _by_card(raw, share_by_card(raw, yes, no), (yes.n + no.n, says), CARD_HOLDS)


def win_rate_correction(raw: Estimate, judged: Estimate, agreement: Estimate) -> Correction:
    """The correction of a win rate by a card's agreement; ``judged`` counts sides, as the agreement does."""
    says = f"its card, right by {agreement.value:.1%} of people's pairs"
    return _by_card(raw, win_rate_by_card(judged, agreement), (agreement.n, says), CARD_HOLDS_ALIKE)


def _by_card(
    raw: Estimate, found: tuple[float, float, float], card: tuple[int, str], holds: str
) -> Correction:
    value, low, high = found
    note = NO_BETTER_THAN_A_COIN if (low, high) == (0.0, 1.0) else holds
    estimate = Estimate(value=value, low=low, high=high, n=raw.n, prompts=raw.prompts)
    return Correction(raw=raw, corrected=estimate, labels=card[0], by=card[1], note=note)


Key = tuple[str, ...]
"""What a label is of: what is asked, the prompt's words, the answer's or both answers'."""
PAIR = "pair"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleLabels:
    """What people said of answers, by their words."""

    source: str
    values: Mapping[Key, float]
    """The mean of what people said, from 0 to 1; of a pair, that the first is the better one."""
    probabilities: Mapping[Key, float] = field(default_factory=dict[Key, float])
    """With which chance each came to be labelled; empty where all had the same."""
    notes: tuple[str, ...] = ()

    def value(self, *key: str) -> float:
        """What people said of it; nan where nobody did."""
        kind, prompt, *answers = key
        if kind == PAIR and key not in self.values:
            return 1 - self.values.get((kind, prompt, *reversed(answers)), np.nan)
        return self.values.get(key, np.nan)

    def sample(self, judged: Sequence[float], keys: Sequence[Sequence[Key]], prompts: Any) -> JudgedSample:
        """What is judged beside what people say; of a row's keys any may be true, and all are needed."""
        people_B = np.array(
            [max(values) if (values := [self.value(*key) for key in row]) else np.nan for row in keys]
        )
        missing_B = np.array([any(np.isnan(self.value(*key)) for key in row) for row in keys], dtype=bool)
        probabilities = (
            [min(self._probability(key) for key in row) for row in keys] if self.probabilities else None
        )
        return JudgedSample(
            judged=np.array(judged, dtype=float),
            people=np.where(missing_B, np.nan, people_B),
            prompts=prompts,
            probabilities=None if probabilities is None else np.array(probabilities),
            notes=self.notes,
        )

    def _probability(self, key: Key) -> float:
        return self.probabilities.get(key) or self.probabilities.get((*key[:2], *reversed(key[2:])), 1.0)


def read_people(path: Path) -> PeopleLabels:
    """Labels of people from rows of comparisons and ratings, as the label store exports them.
    Refuses rows of models, and rows that somebody chose without saying with which chance."""
    records, notes = measured_only(read_records(path).records)
    values, probabilities, other = dict[Key, list[float]](), dict[Key, float](), Counter[str]()
    for record in records:
        if getattr(record, "group", None) == "ai":
            raise UserError(
                f"{record.origin}: a row of a model (group ai) among labels of people; a judge does not say "
                "how far judges err: export the group people"
            )
        found = _label_of(record)
        if found is None:
            other[type(record).__name__.lower()] += 1
            continue
        key, value = found
        values.setdefault(key, []).append(value)
        if (probability := getattr(record, "propensity", None)) is not None:
            if not 0 < probability <= 1:
                raise UserError(
                    f"{record.origin}: propensity {probability:g}: expected more than 0, at most 1"
                )
            probabilities[key] = probability
    if not values:
        counted = ", ".join(f"{count} of kind {kind}" for kind, count in other.items()) or "no rows"
        raise UserError(
            f"{path}: no label that says something of answers ({counted}): comparisons for win rates; "
            "for attacks ratings with the aspect harm or refusal, 0 (no) to 1 (yes), or thumbs (down: harm)"
        )
    if probabilities and len(probabilities) < len(values):
        raise UserError(
            f"{path}: {len(probabilities)} of {len(values)} rows have a propensity; give it for all or none"
        )
    means = {key: sum(given) / len(given) for key, given in values.items()}
    return PeopleLabels(source=str(path), values=means, probabilities=probabilities, notes=notes)


def _label_of(record: object) -> tuple[Key, float] | None:
    if isinstance(record, Comparison):
        key = (PAIR, plain_text(record.prompt), plain_text(record.chosen), plain_text(record.rejected))
        return key, preference_probability(record)
    if not isinstance(record, Rating) or not 0 <= record.score <= 1:
        return None
    if record.aspect in ("harm", "refusal"):
        return answer_key(record.aspect, record.prompt, plain_text(record.completion)), record.score
    if record.thumb and record.aspect is None:
        return answer_key("harm", record.prompt, plain_text(record.completion)), 1 - record.score
    return None


def answer_key(matter: str, prompt: Text, answer: str) -> Key:
    return (matter, plain_text(turns_of(prompt)), answer)
