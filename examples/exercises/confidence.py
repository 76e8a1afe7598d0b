"""Lost calibration: a policy that is trained hard grows surer, whether it is right or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from examples.exercises import pages
from examples.exercises.exercise import captioned, exercise, result_table
from examples.exercises.measure import (
    above_zero_claims,
    policy_figures,
    read_policy_results,
    value_with_interval,
)
from plaudit.errors import UserError
from plaudit.evaluation.policies.calibration import (
    ChoiceLogprobs,
    PolicyCalibration,
    at_temperature,
    fitted_temperature,
    policy_calibration,
)
from plaudit.evaluation.stats import Estimate, Resampling
from plaudit.lab.world.prompts import question_of_prompt

START, WITH_KL, WITHOUT_KL, SMALL_BETA_DPO = "sft", "leashed", "free", "sharp"
"""The policies of the config: before, GRPO with a leash and without, DPO with a small β."""
SUMS = "arithmetic"
"""The questions on which the policy begins about as sure as right."""
_LABELS = {
    START: "at the start",
    WITH_KL: "GRPO, leashed",
    WITHOUT_KL: "GRPO, free",
    SMALL_BETA_DPO: "DPO, small β",
}
_RESAMPLING = Resampling()
_LogprobsByPolicy = Mapping[str, Sequence[ChoiceLogprobs]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemperatureScaled:
    """A policy's calibration at a temperature that was fitted on other questions."""

    temperatures: tuple[float, float]
    """The temperatures of the two halves of the questions, each fitted on the other half."""
    calibration: PolicyCalibration
    """Of all questions, the change since before beside it."""


def analyse(folder: pages.PipelineFolder) -> pages.ExerciseResult:
    evaluation = read_policy_results(folder, "evaluation")
    by_policy = {
        name: [logprob for logprob in evaluation.choice_logprobs if logprob.policy == name]
        for name in _LABELS
    }
    sums = {
        name: [question for question in questions if question.category == SUMS]
        for name, questions in by_policy.items()
    }
    if not all(sums.values()):
        raise UserError(
            f"{folder.stage('evaluation')}: not every policy was asked sums with their choices; evaluate "
            f"{', '.join(_LABELS)} on the world's own questions, n 40 or more"
        )
    scaled = {name: temperature_scaled(questions) for name, questions in sums.items()}
    rows = []
    for name, label in _LABELS.items():
        unscaled, figures = policy_calibration(sums[name], _RESAMPLING), policy_figures(evaluation, name)
        temperatures = " / ".join(f"{value:.2f}" for value in scaled[name].temperatures)
        before = map(value_with_interval, (unscaled.accuracy, unscaled.confidence, unscaled.ece))
        after = map(value_with_interval, (scaled[name].calibration.ece, figures.gold))
        rows.append((label, *before, temperatures, *after))
    return pages.ExerciseResult(
        claims=_claims(by_policy, sums, scaled[WITHOUT_KL]),
        table=result_table("confidence", rows, sums=len(sums[START])),
        charts=captioned("confidence", _sure_and_right(by_policy), _reliability(sums, scaled[WITHOUT_KL])),
    )


def temperature_scaled(questions: Sequence[ChoiceLogprobs]) -> TemperatureScaled:
    """Each half of the questions at the temperature fitted on the other; no sum stands in both halves."""
    # By sum and not by question: each sum is asked in two wordings, and would stand in both halves.
    entities = sorted({_entity(question) for question in questions})
    first_half = {entity for index, entity in enumerate(entities) if index % 2 == 0}
    halves = [
        [question for question in questions if (_entity(question) in first_half) is half]
        for half in (True, False)
    ]
    if not all(halves):
        raise UserError(f"{len(questions)} questions cannot be halved; evaluate more of them")
    first_temperature, second_temperature = (fitted_temperature(half) for half in halves)
    scaled = [
        at_temperature([row], second_temperature if _entity(row) in first_half else first_temperature)[0]
        for row in questions
    ]
    return TemperatureScaled(
        # In the order of the halves that they are used on, not of those that they were fitted on.
        temperatures=(second_temperature, first_temperature),
        calibration=policy_calibration(scaled, _RESAMPLING, questions),
    )


def _entity(logprobs: ChoiceLogprobs) -> str:
    return question_of_prompt(logprobs.prompt).entity


def _claims(
    by_policy: _LogprobsByPolicy, sums: _LogprobsByPolicy, scaled: TemperatureScaled
) -> tuple[pages.Claim, ...]:
    def change(name: str, rows: _LogprobsByPolicy = by_policy, since: str = START) -> Estimate:
        return _require(policy_calibration(rows[name], _RESAMPLING, rows[since]).surplus_change)

    free = policy_calibration(sums[WITHOUT_KL], _RESAMPLING, sums[START])
    error = _require(scaled.calibration.ece_change)
    # What was lost by the error is gained: turned round, low and high change places.
    low, high = (None if end is None else -end for end in (error.high, error.low))
    return above_zero_claims(
        "confidence",
        (
            change(WITHOUT_KL),
            change(SMALL_BETA_DPO),
            free.surplus,
            _require(free.ece_change),
            change(WITHOUT_KL, sums, since=WITH_KL),
            replace(error, value=-error.value, low=low, high=high),
        ),
        temperatures=" and ".join(f"{heat:.2f}" for heat in scaled.temperatures),
    )


def _require(change: Estimate | None) -> Estimate:
    assert change is not None, "it was compared"
    return change


def _reliability(sums: _LogprobsByPolicy, scaled: TemperatureScaled) -> Markup:
    charts = [
        pages.policy_reliability_chart(_LABELS[name], policy_calibration(questions, _RESAMPLING))
        for name, questions in sums.items()
    ]
    last = pages.policy_reliability_chart(f"{_LABELS[WITHOUT_KL]}, at T", scaled.calibration)
    return pages.charts_side_by_side(*charts, last)


def _sure_and_right(by_policy: _LogprobsByPolicy) -> Markup:
    rows = []
    for name, questions in by_policy.items():
        for kind, label in (("fact", "facts"), (SUMS, "sums")):
            calibrated = policy_calibration([row for row in questions if row.category == kind], _RESAMPLING)
            name_of_row = f"{_LABELS[name]}: {label}"
            rows.append(pages.interval_row(name_of_row, calibrated.accuracy, calibrated.confidence))
    data = pages.IntervalRows(rows=rows, series=("right", "how sure"))
    return pages.share_chart("Sure and right", "of questions", data)


EXERCISE = exercise("confidence", analyse)
