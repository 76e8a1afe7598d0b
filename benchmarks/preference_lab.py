"""One preference run on the embedded world and what came of it, against the model that it began as."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.lab import Lab
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.exam import ScoredAnswer, compare_models, mean_utilities, score_model_answers
from plaudit.lab.world.prompts import Split
from plaudit.methods.config import ReferenceSettings, SampleSettings
from plaudit.methods.preference.algorithms import preference_algorithm
from plaudit.methods.preference.config import PreferenceConfig, preference_config_type
from plaudit.rollouts.sampler import SamplingSettings

SHOWN = 300
"""Demonstrations that the starting model has seen, once."""
ROWS = 2000
"""Comparisons that a policy learns from."""
PROMPTS = 800
"""Prompts of the test split that a model is judged on."""
RATE = 1e-4
"""The usual learning rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """An algorithm with what is unusual about it.

    Example: ``Way(algorithm="ipo", settings={"beta": 0.3})``
    """

    algorithm: str
    """Its name in the table of algorithms."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its cells."""
    rate: float = RATE
    """Its learning rate."""
    epochs: float = 3.0
    """How often the rows are gone through."""
    annotators: str = "crowd"
    """Who compares."""
    flipped: float = 0.0
    """The share of labels that are swapped."""
    thumbs: bool = False
    """Whether every answer gets a thumb of its own, twice as many answers being judged as there are pairs."""
    from_base: bool = False
    """Whether it begins with the base model in place of the fine-tuned one."""
    own: bool = True
    """Whether the answers compared are the fine-tuned model's own, or others in the manner of the corpus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of one run.

    Example: ``found(lab, Way(algorithm="dpo"), seed=0).won``
    """

    won: float
    """Of the prompts on which the two answers differ in worth, the share that is won."""
    with_ties: float
    """Of all prompts, a tie counting half."""
    gold: float
    """The mean utility."""
    length: float
    """The mean number of tokens of an answer."""
    kl: float
    """How far it is from the reference on held-out answers, in nats."""
    chosen: float
    """How much likelier the preferred held-out answers have become since the first look, in nats."""


def found(lab: Lab, way: Way, seed: int, split: Split = "test") -> Found:
    """One run, and how its answers stand against those of the fine-tuned model."""
    run = trained(lab, way, seed)
    mine, theirs = (sampled_answers(lab, model, split) for model in (run / "model", lab.sft_model(SHOWN)))
    last = json.loads((run / "summary.json").read_text("utf-8"))["last"]
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    first = next(line for line in map(json.loads, lines) if "held_out/logp_chosen" in line)
    comparison = compare_models(mine, theirs)
    return Found(
        won=comparison.win_share,
        with_ties=comparison.win_share_with_ties,
        gold=mean_utilities(mine)["all"].mean,
        length=mean_length(mine),
        kl=last.get("held_out/kl", math.nan),
        chosen=last["held_out/logp_chosen"] - first["held_out/logp_chosen"],
    )


def trained(lab: Lab, way: Way, seed: int) -> Path:
    """The run's folder; made once."""
    return lab.preferred(_name(way, seed), way.algorithm, config_of(lab, way, seed))


def _name(way: Way, seed: int) -> str:
    cells = "-".join(f"{name}{value}" for name, value in way.settings.items())
    start = "base" if way.from_base else "sft"
    kind = "thumbs-" if way.thumbs else "" if way.own else "corpus-"
    rest = f"{way.rate:g}-{way.epochs:g}-{kind}{way.annotators}-{way.flipped:g}-{start}-{seed}"
    return f"{way.algorithm}-{cells}-{rest}"


def config_of(lab: Lab, way: Way, seed: int) -> PreferenceConfig:
    """The settings of a run of this way."""
    start = lab.sft_model(SHOWN)
    referenced = "reference" in preference_algorithm(way.algorithm).needs
    if way.thumbs:
        data = lab.thumbed(start, way.annotators, 2 * ROWS, seed)
    elif way.own:
        data = lab.judged(start, way.annotators, ROWS, seed)
    else:
        data = lab.compared(way.annotators, ROWS, seed=seed)
    return preference_config_type(way.algorithm)(
        model=base_model_folder() if way.from_base else start,
        data=lab.flipped(data, way.flipped, seed) if way.flipped else data,
        out=lab.folder,
        epochs=way.epochs,
        batch_size=32,
        learning_rate=way.rate,
        seed=seed,
        device=lab.device,
        save_every=100_000,
        sample=SampleSettings(rows=0),
        reference=ReferenceSettings(cache=lab.folder / "cache" if referenced else None),
        **way.settings,
    )


@cache
def sampled_answers(lab: Lab, model: Path, split: Split = "test") -> list[ScoredAnswer]:
    """A model's answers to the prompts on which all are judged."""
    return score_model_answers(lab.sampler(model), SamplingSettings(), n=PROMPTS, split=split)


def mean_length(answers: Sequence[ScoredAnswer]) -> float:
    """The mean number of tokens."""
    return statistics.fmean(answer.answer.tokens for answer in answers)
