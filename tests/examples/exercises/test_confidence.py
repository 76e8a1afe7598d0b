"""The exercise confidence: what it says of policies whose calibration is known."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from examples.exercises.confidence import EXERCISE, temperature_scaled
from plaudit.data.records import plain_text
from plaudit.errors import UserError
from plaudit.evaluation.policies.calibration import ChoiceLogprobs
from plaudit.evaluation.policies.result import read_policy_evaluation, write_policy_evaluation
from plaudit.lab.world.exam import closed_questions
from plaudit.runs.pipeline.store import PipelineFolder
from tests.examples.exercises.made import Habit, holds, made

NAMES = ("sft", "leashed", "free", "sharp")


def sure(policy: str, confidence: float, accuracy: float, n: int = 160) -> Iterator[ChoiceLogprobs]:
    """A policy that is so sure of every answer, about, and so often right."""
    chance = random.Random(policy)
    for one in closed_questions(n):
        own = min(0.98, max(0.3, confidence + chance.uniform(-0.05, 0.05)))
        best = one.right if chance.random() < accuracy else (one.right + 1) % len(one.choices)
        rest = math.log((1 - own) / (len(one.choices) - 1))
        yield ChoiceLogprobs(
            policy=policy,
            prompt=plain_text(one.prompt),
            category=one.category,
            choices=one.choices,
            logp=tuple(math.log(own) if at == best else rest for at in range(len(one.choices))),
            right=one.right,
        )


def folder_of(path: Path, **known: tuple[float, float]) -> PipelineFolder:
    """An evaluation of policies that are so sure and so often right."""
    folder = made(path, {name: Habit() for name in NAMES}, {})
    place = folder.stage("evaluation")
    rows = tuple(row for name in NAMES for row in sure(name, *known[name]))
    write_policy_evaluation(replace(read_policy_evaluation(place), choice_logprobs=rows), place)
    return folder


LOST = {"sft": (0.85, 0.85), "leashed": (0.86, 0.84), "free": (0.95, 0.45), "sharp": (0.95, 0.65)}


@pytest.mark.slow
def test_where_calibration_is_lost_every_claim_holds(tmp_path: Path) -> None:
    seen = EXERCISE.analyse(folder_of(tmp_path, **LOST))
    assert set(holds(seen).values()) == {True}
    assert seen.table is not None
    names = ["at the start", "GRPO, leashed", "GRPO, free", "DPO, small β"]
    assert [row[0] for row in seen.table.rows] == names
    assert "Of 80 sums" in seen.table.note
    assert [one.title for one in seen.charts] == ["Sure and right", "Reliability on sums"]


def test_a_temperature_is_judged_on_other_sums_than_it_was_fitted_on() -> None:
    rows = [one for one in sure("free", 0.95, 0.5) if one.category == "arithmetic"]
    found = temperature_scaled(rows)
    assert min(found.temperatures) > 1.5
    assert found.calibration.ece.value < 0.15
    assert found.calibration.ece_change is not None
    assert found.calibration.ece_change.high is not None
    assert found.calibration.ece_change.high < -0.2
    with pytest.raises(UserError, match="cannot be halved"):
        temperature_scaled(rows[:1])
