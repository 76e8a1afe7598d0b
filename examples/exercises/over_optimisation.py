"""One reward of few comparisons, pressed ever harder by several optimisers."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan, sqrt

import numpy as np

from examples.exercises import measure, pages
from examples.exercises.exercise import captioned, exercise, result_table
from plaudit.evaluation.policies.over_optimisation import OverOptimisation, fit_over_optimisation
from plaudit.evaluation.policies.result import PolicyEvaluation
from plaudit.evaluation.stats import Resampling

START, GOLD_TRAINED = "sft", "truth"
POLICIES_BY_OPTIMISER: Mapping[str, tuple[str, ...]] = {
    "PPO": ("ppo-1", "ppo-2", "ppo-3"),
    "GRPO": ("grpo-1", "grpo-2", "grpo-3"),
    "DPO": ("dpo-1", "dpo-2", "dpo-3"),
}
"""Of each optimiser its policies: a little, more, and hard."""
_MIN_DISTANCES = 3
_KL_BOUND_NOTE = "The distance of best of n is an upper bound."
_NO_CURVE = "too few distances for a curve"


def analyse(folder: pages.PipelineFolder) -> pages.ExerciseResult:
    evaluation = measure.read_policy_results(folder, "evaluation")
    *pressed, by_truth = measure.greater_claims("over-optimisation", evaluation)
    return pages.ExerciseResult(
        claims=(*pressed, *_best_of_n_claims(evaluation), by_truth),
        table=_table(evaluation),
        charts=captioned(
            "over-optimisation",
            pages.chart_over_root_kl(
                "Learnt reward", "what is optimised", _points_by_optimiser(evaluation, measure.mean_reward)
            ),
            pages.chart_over_root_kl(
                "True worth", "by the world, never shown", _points_by_optimiser(evaluation, measure.mean_gold)
            ),
        ),
    )


def _best_of_n_claims(evaluation: PolicyEvaluation) -> list[pages.Claim]:
    """The best of n by the curve d(α − β·d), α how fast its gain rises at first, β how fast it bends."""
    curve = evaluation.over_optimisation
    if curve is None:
        return []
    lines = (
        ("of few answers the reward chooses well", "α, how fast worth rises at first", curve.alpha),
        ("of many it chooses by its own mistakes", "β, how fast the rise bends down", curve.beta),
    )
    return [
        pages.Claim(
            statement=f"Best of n: {says}.",
            holds=measure.is_above_zero(value),
            evidence=f"{what}, is {measure.value_with_interval(value)}",
        )
        for says, what, value in lines
    ]


def _points_by_optimiser(
    evaluation: PolicyEvaluation, statistic: measure.AnswerStatistic
) -> dict[str, list[tuple[pages.Number, pages.Span]]]:
    lines = {
        name: [
            (
                _root_kl(evaluation, step),
                pages.estimate_span(measure.mean_over_prompts(evaluation, step, statistic))
                or pages.Span(value=nan),
            )
            for step in (START, *steps)
        ]
        for name, steps in POLICIES_BY_OPTIMISER.items()
    }
    best_points = [] if evaluation.best_of is None else evaluation.best_of.points
    best_of_n_points = [
        # The record has an interval of the truth at each n, and a mean alone of the proxy.
        (
            sqrt(at.kl),
            pages.estimate_span(at.truth) if statistic is measure.mean_gold else pages.Span(value=at.proxy),
        )
        for at in best_points
    ]
    return lines | ({"best of n": best_of_n_points} if best_of_n_points else {})


def _root_kl(evaluation: PolicyEvaluation, name: str) -> float:
    kl = measure.policy_figures(evaluation, name).kl
    return 0.0 if kl is None else sqrt(max(kl.value, 0.0))


def _table(evaluation: PolicyEvaluation) -> pages.Table:
    names = (START, *(step for steps in POLICIES_BY_OPTIMISER.values() for step in steps), GOLD_TRAINED)
    rows = [
        (
            name,
            pages.number_text(_root_kl(evaluation, name)),
            measure.value_text(measure.policy_figures(evaluation, name).reward),
            measure.value_text(measure.policy_figures(evaluation, name).gold),
            ""
            if name == START
            else measure.value_with_interval(
                measure.paired_difference(evaluation, (name, START), measure.mean_gold)
            ),
        )
        for name in names
    ]
    # The gain along √KL by the curves of Gao et al. (2023, arXiv:2210.10760).
    curves = {
        name: _fitted_curve(evaluation, (START, *steps)) for name, steps in POLICIES_BY_OPTIMISER.items()
    }
    best_of_n_curve = evaluation.over_optimisation
    curves |= {} if best_of_n_curve is None else {"Best of n": best_of_n_curve}
    sentences = [f"{name}: {curve.sentence if curve else _NO_CURVE}." for name, curve in curves.items()]
    sentences += _gain_comparison(curves)
    return result_table("over-optimisation", rows, sentences=" ".join(sentences))


def _fitted_curve(evaluation: PolicyEvaluation, names: tuple[str, ...]) -> OverOptimisation | None:
    kl_S = np.array([_root_kl(evaluation, name) ** 2 for name in names])
    # Two coefficients go through any two points; only a third can contradict the curve.
    if len(np.unique(kl_S[kl_S > 0])) < _MIN_DISTANCES:
        return None
    worth_by_policy = [measure.statistic_by_prompt(evaluation, name, measure.mean_gold) for name in names]
    prompts = [prompt for prompt in worth_by_policy[0] if all(prompt in worth for worth in worth_by_policy)]
    gain_PS = np.array(
        [[worth[prompt] - worth_by_policy[0][prompt] for worth in worth_by_policy] for prompt in prompts]
    )
    return fit_over_optimisation(kl_S, gain_PS, "policy", Resampling())


def _gain_comparison(curves: Mapping[str, OverOptimisation | None]) -> list[str]:
    fitted = {name: curve for name, curve in curves.items() if curve is not None}
    # As far as the nearest went: no curve is read beyond what was measured.
    furthest = min((curve.furthest for curve in fitted.values()), default=0.0)
    gains = {name: gain for name, curve in fitted.items() if (gain := curve.gain_at(furthest)) is not None}
    ranked = sorted(gains, key=lambda name: -gains[name])
    gains_text = ", ".join(f"{name} {gains[name]:+.3f}" for name in ranked)
    if not gains_text:
        return []
    at = pages.number_text(furthest)
    return [f"At √KL {at}, which all came to, the curves say: {gains_text}. {_KL_BOUND_NOTE}"]


EXERCISE = exercise("over-optimisation", analyse)
