"""The exercise over-optimisation: what it says of folders whose truth is known."""

from dataclasses import replace
from pathlib import Path

from examples.exercises.over_optimisation import EXERCISE, POLICIES_BY_OPTIMISER
from plaudit.evaluation.policies.over_optimisation import OverOptimisation
from plaudit.evaluation.policies.result import read_policy_evaluation, write_policy_evaluation
from plaudit.evaluation.stats import Estimate
from tests.examples.exercises.made import Habit, holds, made

STEPS = [step for steps in POLICIES_BY_OPTIMISER.values() for step in steps]
BENT = {1: Habit(worth=0.76, reward=0.5, kl=0.3), 2: Habit(worth=0.73, reward=1.0, kl=1.5)}
HARD = Habit(worth=0.5, reward=2.0, kl=9.0)
HABITS = {
    "sft": Habit(worth=0.7, kl=0.0),
    **{step: BENT.get(int(step[-1]), HARD) for step in STEPS},
    "truth": Habit(worth=0.9, reward=0.4, kl=0.8),
}


def test_where_worth_turns_every_claim_holds(tmp_path: Path) -> None:
    seen = EXERCISE.analyse(made(tmp_path, HABITS, {}))
    assert set(holds(seen).values()) == {True}
    assert seen.table is not None
    assert len(seen.table.rows) == 2 + len(STEPS)
    assert "PPO: by the curve d(α − β·ln d)" in seen.table.note
    assert "best of n" in seen.charts[0].chart


def test_worth_that_goes_on_rising_is_not_said_to_turn(tmp_path: Path) -> None:
    faultless = HABITS | {"dpo-3": replace(HARD, worth=0.9, kl=0.3), "truth": Habit(worth=0.1)}
    found = holds(EXERCISE.analyse(made(tmp_path, faultless, {})))
    assert found["DPO: pressed hard its answers are worth less than pressed a little."] is False
    assert found["PPO: pressed hard its answers are worth less than pressed a little."] is True
    promise = "A reward without faults keeps its promise: by the truth itself GRPO's answers are worth more."
    assert found[promise] is False


def test_the_best_of_n_is_said_to_bend_only_where_its_interval_does(tmp_path: Path) -> None:
    folder = made(tmp_path, HABITS, {})
    here = folder.stage("evaluation")
    curve = of_shape(alpha=(0.3, 0.2, 0.4), beta=(-0.1, -0.2, 0.1))
    write_policy_evaluation(replace(read_policy_evaluation(here), over_optimisation=curve), here)
    found = holds(EXERCISE.analyse(folder))
    assert found["Best of n: of few answers the reward chooses well."] is True
    assert found["Best of n: of many it chooses by its own mistakes."] is None


def of_shape(alpha: tuple[float, float, float], beta: tuple[float, float, float]) -> OverOptimisation:
    rise, bend = (
        Estimate(value=value, low=low, high=high, n=40, prompts=40) for value, low, high in (alpha, beta)
    )
    return OverOptimisation(
        form="best-of-n",
        alpha=rise,
        beta=bend,
        peak=None,
        height=None,
        furthest=1.3,
        error=0.01,
        note="the gain has not turned",
    )


def test_policies_that_went_nowhere_have_no_curve(tmp_path: Path) -> None:
    still = HABITS | {step: replace(HABITS["sft"], reward=0.1) for step in STEPS}
    seen = EXERCISE.analyse(made(tmp_path, still, {}))
    assert seen.table is not None
    assert "GRPO: too few distances for a curve." in seen.table.note
