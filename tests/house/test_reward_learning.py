"""How the shipped reward is learnt: what its stages differ in, its tables, and all of it on a few rows."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import reward_learning
from benchmarks.lab import Lab
from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.evaluation.stats import Estimate
from plaudit.runs.pipeline.read import DEFAULT_CONFIG, read_pipeline
from plaudit.runs.pipeline.run import validate_pipeline
from plaudit.runs.pipeline.spec import Pipeline
from tests.runs.pipeline.test_default import SMALL
from tests.runs.report.reward_models.page_zoo import FULL


def pipeline_in(folder: Path) -> Pipeline:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(reward_learning.pipeline_document(), sort_keys=False), "utf-8")
    pipeline = read_pipeline(path, changes=reward_learning.ablated(), seed=3)
    validate_pipeline(pipeline)
    return pipeline


def flat(settings: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{group}{name}.")
        else:
            yield f"{group}{name}".replace("_", "-"), value


def changed(pipeline: Pipeline, stage: str, other: str = "reward") -> dict[str, Any]:
    """The settings in which a stage differs from another one."""
    theirs = dict(flat(asdict(pipeline.stage(other).config({}))))
    return {
        name: value for name, value in flat(asdict(pipeline.stage(stage).config({}))) if value != theirs[name]
    }


@pytest.mark.slow
def test_the_shipped_stages_are_in_it_as_they_ship(tmp_path: Path) -> None:
    pipeline, shipped = pipeline_in(tmp_path), read_pipeline(DEFAULT_CONFIG, seed=3)
    for name in reward_learning.SHIPPED:
        assert pipeline.stage(name).config({}) == shipped.stage(name).config({}), name


def test_each_reward_of_the_ablation_differs_in_what_its_row_says_and_in_nothing_else(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path)
    for stage, variant in reward_learning.ABLATION.items():
        assert set(changed(pipeline, stage)) == {*variant.settings}, stage
    assert changed(pipeline, "half-way")["reward.layer"] == 0.5
    assert not pipeline.stage("last-step").config({}).keep.use_best


def test_rewards_of_the_curve_differ_in_their_comparisons_alone(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path)
    shipped = pipeline.stage("comparisons").config({}).n
    for size in {*reward_learning.SIZES} - {shipped}:
        assert set(changed(pipeline, f"reward-{size}")) == {"data"}
        assert changed(pipeline, f"comparisons-{size}", "comparisons") == {"n": size}


def test_all_are_judged_on_the_same_prompts_that_nothing_was_trained_on(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path)
    first, others = (pipeline.stage(name).config({}) for name in ("reward-judged", "others-judged"))
    assert first.data == others.data
    rewards = {stage.name for stage in pipeline.stages if stage.kind.name == "reward"}
    assert {name.removeprefix("$") for name in (*first.models, *others.models)} == rewards
    assert (
        pipeline.stage("fresh").config({}).split == "test" != pipeline.stage("comparisons").config({}).split
    )


def judged(accuracy: float, ceiling: float | None = None) -> RewardEvaluation:
    def share(value: float) -> Estimate:
        return Estimate(value=value, low=None, high=None, n=1000, prompts=1000)

    found = replace(FULL, accuracy=share(accuracy))
    return (
        found if ceiling is None else replace(found, ceiling=replace(found.ceiling, accuracy=share(ceiling)))
    )


def test_differences_are_taken_within_each_seed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reward differs much from seed to seed, and the variant is always two points below it."""
    names = [*reward_learning.ABLATION, *(f"reward-{size}" for size in reward_learning.SIZES)]
    monkeypatch.setattr(
        reward_learning,
        "seed_run",
        lambda _, seed: {
            "reward": judged(0.6 + seed / 10, 0.9),
            **{name: judged(0.58 + seed / 10) for name in names},
        },
    )
    head, shipped, *rest = reward_learning.ablation(Lab(folder=tmp_path, seeds=3))
    place = head.index("right − shipped")
    assert shipped[1] == "70.0% ± 24.8%"
    assert {row[place] for row in rest} == {"-2.0% ± 0.0%"}
    head, *rows = reward_learning.learning_curve(Lab(folder=tmp_path, seeds=3))
    assert head[0] == "comparisons (3 seeds)"
    assert [row[0] for row in rows] == ["250", "500", "1,000", "2,000", "4,000", "8,000"]
    assert rows[0][head.index("ceiling − right")] == "22.0% ± 24.8%"
    assert rows[0][head.index("ceiling")] == "90.0% ± 0.0%"


TINY = {
    **{name: value for name, value in SMALL.items() if name.split(".")[0] in reward_learning.SHIPPED},
    **{f"{name}.steps": 2 for name in ("one-member", "reward-24")},
    # Read by the world, so that there is a ceiling.
    "reward-judged.world": "true",
    "reward-judged.best-of": 2,
}
