"""What the stages of an exercise left behind, as numbers that are compared prompt by prompt or pair by pair.

Results that are not there are named. Of rewards it is measured how far two of them, or two sets of pairs,
differ.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot
from statistics import fmean
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from markupsafe import Markup

from examples.exercises import pages
from examples.exercises.exercise import claim_rows
from plaudit.data.edits import split_words
from plaudit.engine.sinks.files import METRICS_FILE
from plaudit.errors import UserError
from plaudit.evaluation.policies import result
from plaudit.evaluation.reward_models.pairs import group_index
from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean
from plaudit.files.restored import restore
from plaudit.methods.policy.algorithms import POLICY_ALGORITHMS


def read_policy_results(folder: pages.PipelineFolder, stage: str) -> result.PolicyEvaluation:
    return result.read_policy_evaluation(folder.stage(stage) / result.FIGURES_FILE)


def policy_figures(evaluation: result.PolicyEvaluation, name: str) -> result.PolicyFigures:
    figures_by_name = {policy.name: policy for policy in evaluation.policies}
    if name not in figures_by_name:
        raise UserError(f"the evaluation has no policy {name!r}; it has {', '.join(figures_by_name)}")
    return figures_by_name[name]


def read_reward_results(folder: pages.PipelineFolder, stage: str) -> Mapping[str, RewardEvaluation]:
    """The evaluations of a stage with ``do: judge-reward``, by the names of the rewards."""
    rows = pages.read_json(folder.stage(stage) / pages.REWARD_RESULTS_FILE)["evaluations"]
    return {item.model: item for item in (restore(RewardEvaluation, each) for each in rows)}


AnswerStatistic = Callable[[Sequence[result.PolicyAnswer]], pages.Number | None]
"""A number of one policy's answers to one prompt; None where there is none."""


def kl_coefficient(folder: pages.PipelineFolder, stage: str) -> float:
    """The KL coefficient of a policy run: its setting, or its algorithm's default."""
    seal = pages.read_manifest(folder.stage(stage))
    if seal is None:
        raise UserError(f"{folder.stage(stage)}: this stage has not ended; run the exercise again")
    setting = seal["settings"].get("kl_coef")
    described = POLICY_ALGORITHMS.get(seal["do"])
    default = 0.0 if described is None else described.defaults.get("kl_coef", 0.0)
    return float(default if setting is None else setting)


def beta_labels(folder: pages.PipelineFolder, *stages: str) -> dict[str, str]:
    """Labels of policy runs by their KL coefficients, with the stage's name where two are the same."""
    betas = {stage: kl_coefficient(folder, stage) for stage in stages}
    label_by_stage = {stage: f"β {beta:g}" if beta else "no leash" for stage, beta in betas.items()}
    labels = [*label_by_stage.values()]
    return {
        stage: label if labels.count(label) == 1 else f"{label} ({stage})"
        for stage, label in label_by_stage.items()
    }


def metric_curve(folder: pages.PipelineFolder, stage: str, name: str) -> list[tuple[int, float]]:
    """A metric of held-out prompts by step, where it is finite."""
    path, figure = folder.stage(stage) / "run" / METRICS_FILE, f"held_out/{name}"
    columns = pages.read_history(path).columns
    if figure not in columns:
        raise UserError(f"{path}: it has no figure {figure!r}; it has {', '.join(columns)}")
    points = zip(columns[figure].steps, columns[figure].values, strict=True)
    return [(step, value) for step, value in points if math.isfinite(value)]


def statistic_by_prompt(
    evaluation: result.PolicyEvaluation, name: str, statistic: AnswerStatistic
) -> dict[str, float]:
    """A number of a policy's answers for every prompt that has one."""
    policy_figures(evaluation, name)
    answers_by_prompt: dict[str, list[result.PolicyAnswer]] = {}
    # Rows of one prompt are several answers to it: together they make one number, and a prompt counts once.
    for row in evaluation.all_answers:
        answers_by_prompt.setdefault(row.prompt, []).extend(
            answer for answer in row.answers if answer.policy == name
        )
    numbers = {prompt: statistic(answers) for prompt, answers in answers_by_prompt.items()}
    return {prompt: float(number) for prompt, number in numbers.items() if number is not None}


def mean_over_prompts(
    evaluation: result.PolicyEvaluation, name: str, statistic: AnswerStatistic
) -> Estimate | None:
    """The mean of a policy's number over the prompts that have one; None where none has."""
    number_P = np.array([*statistic_by_prompt(evaluation, name, statistic).values()])
    return _mean_by_prompt(number_P) if len(number_P) else None


def paired_difference(
    evaluation: result.PolicyEvaluation,
    policies: tuple[str, str],
    statistic: AnswerStatistic,
    *,
    factor: int | float = 1.0,
) -> Estimate:
    """``factor`` times the first policy's number less the second's, over prompts of both, drawn anew."""
    first, other = (statistic_by_prompt(evaluation, name, statistic) for name in policies)
    gap_P = np.array([factor * first[prompt] - other[prompt] for prompt in first if prompt in other])
    if not len(gap_P):
        raise UserError(f"there is no prompt on which {' and '.join(policies)} can be compared")
    return _mean_by_prompt(gap_P)


def _mean_by_prompt(number_P: Float[np.ndarray, " P"]) -> Estimate:
    return bootstrap_mean(number_P, np.arange(len(number_P)), Resampling(), share=False)


def is_above_zero(gap: Estimate) -> bool | None:
    """Whether all of an interval is above 0, or none of it; None where it does not decide.

    >>> is_above_zero(Estimate(value=0.1, low=-0.05, high=0.2, n=9, prompts=9)) is None
    True
    """
    if gap.low is None or gap.high is None:
        return None
    return True if gap.low > 0 else False if gap.high <= 0 else None


def value_text(estimate: Estimate | None) -> str:
    return "not known" if estimate is None else pages.number_text(estimate.value)


def value_with_interval(estimate: Estimate | None) -> str:
    """A number with its interval.

    >>> value_with_interval(Estimate(value=0.71, low=0.66, high=0.75, n=400, prompts=180))
    '0.710 (0.660 to 0.750)'
    """
    ends = (
        ""
        if estimate is None or estimate.low is None or estimate.high is None
        else f" ({pages.number_text(estimate.low)} to {pages.number_text(estimate.high)})"
    )
    return f"{value_text(estimate)}{ends}"


def same_answer_rate(answers: Sequence[result.PolicyAnswer]) -> float | None:
    """The chance that two of some answers say the same (Simpson 1949); None of fewer than two."""
    counts = Counter(answer.text.strip() for answer in answers)
    pairs = len(answers) * (len(answers) - 1)
    return sum(count * (count - 1) for count in counts.values()) / pairs if pairs else None


def best_minus_mean_gold(answers: Sequence[result.PolicyAnswer]) -> float | None:
    golds = [answer.gold for answer in answers if answer.gold is not None]
    return max(golds) - fmean(golds) if golds else None


def mean_gold(answers: Sequence[result.PolicyAnswer]) -> float | None:
    return _finite_mean([answer.gold for answer in answers])


def mean_reward(answers: Sequence[result.PolicyAnswer]) -> float | None:
    return _finite_mean([answer.reward for answer in answers])


def mean_repetition(answers: Sequence[result.PolicyAnswer]) -> float | None:
    """The mean share of an answer's pairs of neighbouring words that it has said before."""
    return _finite_mean([repeated_pair_share(answer.text) for answer in answers])


def repeated_pair_share(text: str) -> float:
    """The share of pairs of neighbouring words that the same text has said before.

    >>> repeated_pair_share("It is so. It is so. It is so."), repeated_pair_share("The owl eats mice.")
    (0.636..., 0.0)
    """
    words = split_words(text)
    pairs = list(pairwise(words))
    return 1 - len(set(pairs)) / len(pairs) if pairs else 0.0


def _finite_mean(numbers: Sequence[pages.Number | None]) -> float | None:
    finite = [number for number in numbers if number is not None and math.isfinite(number)]
    return fmean(finite) if finite else None


STATISTICS: Mapping[str, AnswerStatistic] = {
    "tokens": lambda answers: _finite_mean([answer.tokens for answer in answers]),
    "worth": mean_gold,
    "reward": mean_reward,
    # The mean of log π − log π_ref: this prompt's part of the KL.
    "kl": lambda answers: _finite_mean([answer.kl for answer in answers]),
    "repetition": mean_repetition,
    "sameness": same_answer_rate,
    "best less mean": best_minus_mean_gold,
}
"""What claims are made of, by the words of ``exercise.yaml``."""


def greater_claims(
    exercise: str,
    evaluation: result.PolicyEvaluation,
    labels: Mapping[str, str] | None = None,
    *,
    parts: Mapping[Any, result.PolicyEvaluation] | None = None,
) -> tuple[pages.Claim, ...]:
    """All claims of an exercise that one policy has more of something, by the interval of their gap.

    labels: what the sentences call policies. parts: evaluations whose gold score is a part of the worth.
    """
    claims: list[pages.Claim] = []
    for row in claim_rows(exercise):
        part = (parts or {}).get(row["of"])
        measured, statistic = (evaluation, STATISTICS[row["of"]]) if part is None else (part, mean_gold)
        policies, factor = (row["more"], row["less"]), row.get("times", 1.0)
        gap = paired_difference(measured, policies, statistic, factor=factor)
        more, less = (value_text(mean_over_prompts(measured, name, statistic)) for name in policies)
        times = "" if factor == 1 else f"{factor:g} × "
        evidence = f"{times}{more} against {less} {row['unit']}: apart by {value_with_interval(gap)}"
        statement = row["says"].format(**(labels or {}))
        claims.append(pages.Claim(statement=statement, holds=is_above_zero(gap), evidence=evidence))
    return tuple(claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRewards:
    """The rewards of one model on one set of pairs; ties, and pairs without a verdict, are left out."""

    preferred_B: Float[np.ndarray, " B"]
    other_B: Float[np.ndarray, " B"]
    prompt_B: Int[np.ndarray, " B"]


PairMeasure = Callable[[PairRewards], Float[np.ndarray, " B"]]


def read_pair_rewards(
    folder: pages.PipelineFolder, stage: str, names: Iterable[str]
) -> Mapping[str, PairRewards]:
    """Rewards that a stage with ``do: judge-reward`` judged, by their names; all on the same pairs."""
    path = folder.stage(stage) / "scores.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    decided_rows = [row for row in rows if row["chance"] != 0.5]
    # Without one reward's verdict a pair leaves for all of them: they are compared on the same pairs.
    decided_rows = [row for row in decided_rows if all(None not in pair for pair in row["rewards"].values())]
    if not decided_rows:
        raise UserError(f"{path}: there is no pair in which an answer is preferred; make more of them")
    # A prompt may be a conversation, and a list is no key.
    prompt_B = group_index([json.dumps(row["prompt"]) for row in decided_rows])
    first_B = np.array([row["chance"] > 0.5 for row in decided_rows])
    rewards_by_name: dict[str, PairRewards] = {}
    for name in names:
        if name not in decided_rows[0]["rewards"]:
            raise UserError(f"{path}: no reward {name!r} was judged there; name it in models of {stage}")
        reward_B, other_B = np.array([row["rewards"][name] for row in decided_rows], dtype=float).T
        rewards_by_name[name] = PairRewards(
            preferred_B=np.where(first_B, reward_B, other_B),
            other_B=np.where(first_B, other_B, reward_B),
            prompt_B=prompt_B,
        )
    return rewards_by_name


def margin(rewards: PairRewards) -> Float[np.ndarray, " B"]:
    return rewards.preferred_B - rewards.other_B


def correct(rewards: PairRewards) -> Float[np.ndarray, " B"]:
    """1 where the preferred answer has the higher reward, ½ where both are equal, else 0."""
    return (np.sign(margin(rewards)) + 1) / 2


def preference_loss(rewards: PairRewards) -> Float[np.ndarray, " B"]:
    """−log σ(r_preferred − r_other), which a reward learns by (Bradley and Terry 1952)."""
    return np.logaddexp(0, -margin(rewards))


def overconfidence(rewards: PairRewards) -> Float[np.ndarray, " B"]:
    """The confidence σ(|r₁ − r₂|) less whether it is right: 0 on average for a calibrated reward."""
    return np.exp(-np.logaddexp(0, -np.abs(margin(rewards)))) - correct(rewards)


def mean_measure(rewards: PairRewards, measure: PairMeasure, *, share: bool = False) -> Estimate:
    return bootstrap_mean(measure(rewards), rewards.prompt_B, Resampling(), share=share)


def paired_reward_difference(pair_rewards: PairRewards, other: PairRewards, measure: PairMeasure) -> Estimate:
    """By how much the first reward's mean is above the second's, on the same pairs, drawn together."""
    return bootstrap_mean(
        measure(pair_rewards) - measure(other), pair_rewards.prompt_B, Resampling(), share=False
    )


def independent_difference(estimate: Estimate, other: Estimate, *, times: int = 1) -> Estimate:
    """The first less so many times the second, of estimates that rest on different prompts.

    low = v₁ − v₂ − √((v₁ − l₁)² + (h₂ − v₂)²), and the upper end the other way round (Zou and Donner 2008).

    >>> a = Estimate(value=0.9, low=0.87, high=0.93, n=100, prompts=100)
    >>> b = Estimate(value=0.6, low=0.56, high=0.64, n=100, prompts=100)
    >>> found = independent_difference(a, b)
    >>> round(found.low, 3), round(found.value, 3), round(found.high, 3)
    (0.25, 0.3, 0.35)
    """
    value = estimate.value - times * other.value
    n, prompts = estimate.n + other.n, estimate.prompts + other.prompts
    if estimate.low is None or estimate.high is None or other.low is None or other.high is None:
        return Estimate(value=value, low=None, high=None, n=n, prompts=prompts)
    # Each end takes the limits on its own side, so a lopsided interval stays lopsided.
    down = hypot(estimate.value - estimate.low, times * (other.high - other.value))
    up = hypot(estimate.high - estimate.value, times * (other.value - other.low))
    return Estimate(value=value, low=value - down, high=value + up, n=n, prompts=prompts)


def claim_above_zero(statement: str, gap: Estimate, gap_name: str) -> pages.Claim:
    """A claim that a gap is above 0, decided by its interval; ``gap_name`` says what the gap is."""
    return pages.Claim(
        statement=statement, holds=is_above_zero(gap), evidence=f"{gap_name}: {value_with_interval(gap)}"
    )


def above_zero_claims(exercise: str, gaps: Iterable[Estimate], **words: str) -> tuple[pages.Claim, ...]:
    """All claims of an exercise that a gap is above 0, in their order; ``words`` stand in what gaps are."""
    return tuple(
        claim_above_zero(row["says"], gap, row["gap"].format(**words))
        for row, gap in zip(claim_rows(exercise), gaps, strict=True)
    )


def reward_reliability_chart(title: str, evaluation: RewardEvaluation) -> Markup:
    assert evaluation.calibration is not None, "pairs with a preference were judged"
    bins, unit = evaluation.calibration.by_width, "share right over how sure it was"
    return pages.reliability_diagram(title, bins, unit=unit)
