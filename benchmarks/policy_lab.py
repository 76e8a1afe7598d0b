"""One policy run on the embedded world and what came of it, against the model that it began as."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.lab import Lab
from benchmarks.policy_rewards import Taught, taught_reward
from benchmarks.preference_lab import PROMPTS, SHOWN, mean_length, sampled_answers
from plaudit.data.write import write_records
from plaudit.engine.settings import OptimizerSettings
from plaudit.lab.world.exam import compare_models, mean_utilities, score_model_answers
from plaudit.lab.world.making import prompts
from plaudit.lab.world.prompts import Split
from plaudit.lab.world.questions import CATEGORIES, Category
from plaudit.methods.config import SampleSettings
from plaudit.methods.policy.algorithms import policy_algorithm
from plaudit.methods.policy.config import (
    DrawSettings,
    JudgeSettings,
    PolicyConfig,
    ShapeSettings,
    policy_config_type,
)
from plaudit.methods.policy.run import policy
from plaudit.rollouts.sampler import SamplingSettings

ANSWERS = 128
"""Answers of a round, whatever the algorithm makes of them."""
ROUNDS = 40
"""Rounds of a run."""
RATE = 1e-4
"""The usual learning rate."""
LONGEST = 64
"""Tokens that an answer may have."""
GOLD = "plaudit.lab.world.gold:utility"
"""The truth, as a reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """An algorithm with what is unusual about it.

    Example: ``Way(algorithm="grpo", settings={"kl_coef": 0.1})``
    """

    algorithm: str
    """Its name in the table of algorithms."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its settings and cells, where they are not as it has them."""
    draw: DrawSettings = field(default_factory=DrawSettings)
    """How answers are drawn, but for their length."""
    shape: ShapeSettings = field(default_factory=ShapeSettings)
    """What is done to scores."""
    rate: float = RATE
    """Its learning rate."""
    rounds: int = ROUNDS
    """How often answers are drawn."""
    taught: Taught = "models"
    """What the comparisons taught."""
    reward: str = ""
    """Another reward than a taught one."""
    category: Category | None = None
    """The kind of prompts; all kinds where none is named."""
    longest: int = LONGEST
    """Tokens that an answer may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What was seen at one evaluation of a run.

    Example: ``Evaluation(root=0.4, proxy=1.2, gold=0.71, length=8.1)``
    """

    root: float
    """√KL."""
    proxy: float
    """The reward that teaches, on held-out prompts."""
    gold: float
    """The truth, on the same answers."""
    length: float
    """Their mean number of tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of one run.

    Example: ``found(lab, Way(algorithm="ppo"), seed=0).won``
    """

    won: float
    """Of the prompts on which the two answers differ in worth, the share that is won."""
    gold: float
    """The mean utility on the test split."""
    surest: float
    """The mean utility of its likeliest answers, without chance."""
    length: float
    """The mean number of tokens of an answer."""
    seconds: float
    """What the run took, evaluations included."""
    evaluations: tuple[Evaluation, ...]
    """What was seen on the way, from the first to the last."""


def found(lab: Lab, name: str, way: Way, seed: int, split: Split = "test") -> Found:
    """One run, and how its answers stand against those of the fine-tuned model."""
    run = trained(lab, name, way, seed)
    mine, theirs = (sampled_answers(lab, model, split) for model in (run / "model", lab.sft_model(SHOWN)))
    lines = map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines())
    evaluations = tuple(
        Evaluation(
            root=line["held_out/sqrt_kl"],
            proxy=line["held_out/reward"],
            gold=line.get("held_out/judge", math.nan),
            length=line["held_out/length_mean"],
        )
        for line in lines
        if "held_out/reward" in line
    )
    return Found(
        won=compare_models(mine, theirs).win_share,
        gold=mean_utilities(mine)["all"].mean,
        surest=surest(lab, run / "model", split),
        length=mean_length(mine),
        seconds=float((run / "finished").read_text("utf-8")),
        evaluations=evaluations,
    )


def surest(lab: Lab, model: Path, split: Split = "test") -> float:
    """The mean utility of a model's likeliest answers to the prompts on which all are judged."""
    likeliest = SamplingSettings(temperature=0)
    answers = score_model_answers(lab.sampler(model), likeliest, n=PROMPTS, split=split)
    return mean_utilities(answers)["all"].mean


def trained(lab: Lab, name: str, way: Way, seed: int) -> Path:
    """The run's folder; made once."""
    out = lab.folder / "runs" / f"policy-{name}-{seed}"
    if not (out / "finished").exists():
        config = config_of(lab, way, seed, out)
        began = time.perf_counter()
        policy(way.algorithm, config)
        (out / "finished").write_text(f"{time.perf_counter() - began:.3f}", encoding="utf-8")
    return out


def config_of(lab: Lab, way: Way, seed: int, out: Path) -> PolicyConfig:
    """The settings of a run of this way."""
    algorithm = policy_algorithm(way.algorithm, **way.settings)
    critic = {"value_lr_scale": 10.0} if "critic" in algorithm.needs else {}
    config_type: Any = policy_config_type(way.algorithm)
    reward = way.reward or str(taught_reward(lab, way.taught, seed))
    return config_type(
        **way.settings,
        **critic,
        model=lab.sft_model(SHOWN),
        prompts=evaluation_prompt_file(lab, way.category),
        reward=reward,
        out=out,
        rounds=way.rounds,
        batch_size=ANSWERS // algorithm.group_size,
        learning_rate=way.rate,
        seed=seed,
        device=lab.device,
        sinks=(),
        save_every=100_000,
        sample=SampleSettings(rows=0),
        draw=replace(way.draw, max_tokens=way.longest),
        shape=way.shape,
        judge=JudgeSettings(by=GOLD, chooses=False),
        optimizer=OptimizerSettings(schedule="linear", floor=0.1),
    )


def evaluation_prompt_file(lab: Lab, category: Category | None) -> Path:
    """The world's prompts of the training split, or those of one kind."""
    path = lab.folder / "data" / f"prompts-{category or 'all'}.jsonl"
    if not path.exists():
        write_records(prompts(categories=[category] if category else CATEGORIES), path)
    return path
