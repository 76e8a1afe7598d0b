"""How the shipped reward is learnt: from how many comparisons, and which of its settings matter.

    python -m benchmarks.reward_learning --out lab --seeds 5    # begun again, it goes on

For each seed one pipeline runs in ``lab/reward-learning``: the stages of `plaudit run` that lead to its
reward, as they ship; the same reward from fewer and from more comparisons (`SIZES`); and rewards that differ
from it in one setting each (`ABLATION`). All are judged on the same fresh comparisons, of prompts that no
stage has seen. Intervals are Student's over the seeds. Differences are paired: two rewards of a seed begin
with the same model, and are judged on the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from benchmarks.findings import judged_rewards, value_of
from benchmarks.intervals import numbers, shares
from benchmarks.lab import Lab
from benchmarks.studies import Table, run_studies
from plaudit.evaluation.reward_models.result import RewardEvaluation
from plaudit.runs.pipeline.read import DEFAULT_CONFIG

SEEDS = 5
"""Runs of everything, unless the command says otherwise."""
CHANGES: tuple[str, ...] = ()
"""What beats the config, as ``plaudit run --set`` takes it: for a small run."""
SHIPPED = ("demonstrations", "sft", "comparisons", "reward", "fresh", "reward-judged")
"""The stages of the default pipeline that lead to its reward and judge it."""
SIZES = (250, 500, 1000, 2000, 4000, 8000)
"""Comparisons that a reward is learnt from, each time by the shipped settings."""
Runs = Sequence[Mapping[str, RewardEvaluation]]
"""What was found about each reward, by its stage, in the run of each seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A reward that differs from the shipped one in one respect.

    Example: ``Variant(what="two epochs", settings={"epochs": 2})``
    """

    what: str
    """What is different, for the table."""
    settings: Mapping[str, str | float] = field(default_factory=dict[str, str | float])
    """The settings that say so, by name; they beat the shipped ones."""


ABLATION: Mapping[str, Variant] = {
    "one-member": Variant(what="one member", settings={"ensemble.members": 1}),
    "two-epochs": Variant(what="two epochs", settings={"epochs": 2}),
    "last-step": Variant(what="the last step, not the best look", settings={"keep.use-best": "false"}),
    "mean": Variant(what="mean over the answer's tokens", settings={"reward.pooling": "mean"}),
    "half-way": Variant(what="read after half of the layers", settings={"reward.layer": 0.5}),
    "language-loss": Variant(what="language-model loss × 0.1 beside it", settings={"reward.nll-coef": 0.1}),
}
"""The rewards of the ablation, by their stages."""


def learning_curve(lab: Lab) -> Table:
    """The shipped reward from fewer and from more comparisons."""
    yield (f"comparisons ({_seeds(lab)} seeds)", *JUDGED, "ceiling", "ceiling − right")
    runs = [seed_run(lab, seed) for seed in range(_seeds(lab))]
    for size in SIZES:
        stage = _learnt_from(size)
        short = [ceiling(run) - right(run[stage]) for run in runs]
        yield f"{size:,}", *_judged(runs, stage), shares([ceiling(run) for run in runs]), shares(short)


def ablation(lab: Lab) -> Table:
    """The shipped reward, and others that differ from it in one setting each."""
    yield (f"reward ({_seeds(lab)} seeds)", *JUDGED, "right − shipped", "log-loss − shipped")
    runs = [seed_run(lab, seed) for seed in range(_seeds(lab))]
    yield "as shipped", *_judged(runs, "reward"), "", ""
    for stage, variant in ABLATION.items():
        better = [right(run[stage]) - right(run["reward"]) for run in runs]
        losses = [log_loss(run[stage]) - log_loss(run["reward"]) for run in runs]
        yield variant.what, *_judged(runs, stage), shares(better), numbers(losses, 3)


def seed_run(lab: Lab, seed: int) -> Mapping[str, RewardEvaluation]:
    """What was found about every reward of a seed, whose pipeline runs as far as it has not yet."""
    changes = (*ablated(), *CHANGES)
    folder, _ = lab.piped("reward-learning", seed, pipeline_document(), changes)
    return {**judged_rewards(folder, "reward-judged"), **judged_rewards(folder, "others-judged")}


def pipeline_document() -> dict[str, Any]:
    """The shipped stages, and those of both tables, as YAML has them; `ablated` says what is different."""
    document = yaml.safe_load(DEFAULT_CONFIG.read_text("utf-8"))
    shipped = _shipped_stages()
    comparisons, reward, judged = (shipped[name] for name in ("comparisons", "reward", "reward-judged"))
    stages = {name: shipped[name] for name in SHIPPED}
    for size in SIZES:
        if _learnt_from(size) not in stages:
            share = size / comparisons["n"]
            weights = [max(1, round(stage["weight"] * share)) for stage in (comparisons, reward)]
            stages[f"comparisons-{size}"] = {**comparisons, "n": size, "weight": weights[0]}
            stages[f"reward-{size}"] = {**reward, "data": f"$comparisons-{size}", "weight": weights[1]}
    stages |= {name: dict(reward) for name in ABLATION}
    others = [f"${name}" for name in stages if name.startswith("reward-") and name != "reward-judged"]
    others += [f"${name}" for name in ABLATION]
    # The ceiling is the comparisons' own, so one look at it by the world is enough for all rewards.
    judged = {**judged, "models": others, "world": False}
    stages["others-judged"] = judged | {"weight": judged["weight"] * len(others) // 3}
    return document | {"name": "reward-learning", "stages": [{name: stages[name]} for name in stages]}


def ablated() -> list[str]:
    """What makes each reward of the ablation different from the shipped one, as ``--set`` takes it."""
    return [
        f"{stage}.{setting}={value}"
        for stage, variant in ABLATION.items()
        for setting, value in variant.settings.items()
    ]


def right(found: RewardEvaluation) -> float:
    """How often it is right about fresh comparisons."""
    return value_of(found.accuracy)


def log_loss(found: RewardEvaluation) -> float:
    """Its log-loss on them: ln 2 knows nothing."""
    return math.nan if found.calibration is None else found.calibration.log_loss


def calibration_error(found: RewardEvaluation) -> float:
    """How far its chances lie from what comes true, over bins of as many pairs each."""
    return math.nan if found.calibration is None else found.calibration.ece_mass


def ceiling(run: Mapping[str, RewardEvaluation]) -> float:
    """How often any reward could be right about the fresh comparisons of a run."""
    return value_of(run["reward"].ceiling.accuracy)


JUDGED: Mapping[str, tuple[Callable[[RewardEvaluation], float], Callable[[Sequence[float]], str]]] = {
    "right": (right, shares),
    "log-loss": (log_loss, lambda values: numbers(values, 3)),
    "calibration error": (calibration_error, lambda values: numbers(values, 3)),
}
"""The columns that are the same in both tables: what is measured, and how it is printed."""
STUDIES = {"learning-curve": learning_curve, "ablation": ablation}
"""The tables."""


def _judged(runs: Runs, stage: str) -> list[str]:
    return [shown([measure(run[stage]) for run in runs]) for measure, shown in JUDGED.values()]


def _learnt_from(size: int) -> str:
    return "reward" if size == _shipped_stages()["comparisons"]["n"] else f"reward-{size}"


def _seeds(lab: Lab) -> int:
    return lab.seeds or SEEDS


def _shipped_stages() -> dict[str, dict[str, Any]]:
    document = yaml.safe_load(DEFAULT_CONFIG.read_text("utf-8"))
    return {name: settings for stage in document["stages"] for name, settings in stage.items()}


if __name__ == "__main__":
    run_studies(__doc__, STUDIES)
