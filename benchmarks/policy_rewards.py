"""What policies learn from on the embedded world: rewards that were taught by 2,000 comparisons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from benchmarks import preference_lab
from benchmarks.lab import Lab
from benchmarks.preference_lab import ROWS, SHOWN
from plaudit.methods.reward_model.config import EnsembleSettings
from plaudit.rewards.combine.aggregate import Combination
from plaudit.rewards.combine.manifest import COMBINED_FILE, ImplicitManifest, save_combination, save_manifest

Taught = Literal["models", "implicit", "both"]
"""Reward models; how much likelier DPO has made an answer; the sum of the two."""
MEMBERS = 3
"""Reward models whose mean is the reward: what one of them makes up, the others do not."""
REWARD_RATE = 3e-4
"""The learning rate of reward models."""
IMPLICIT_BETA = 0.3
"""The β of the DPO run whose log-ratios are a reward."""
SHARE = 0.2
"""The weight of the reward models beside it: both then speak about as loudly."""


def taught_reward(lab: Lab, kind: Taught, seed: int) -> Path:
    """The folder of a reward; made once."""
    if kind == "models":
        return reward_model(lab, seed)
    implicit = implicit_reward(lab, seed)
    if kind == "implicit":
        return implicit
    folder = lab.folder / "runs" / f"policy-rewards-both-{seed}"
    if not (folder / COMBINED_FILE).exists():
        members = [implicit, reward_model(lab, seed)]
        save_combination(folder, members, Combination(how="weighted", weights=(1.0, SHARE)))
    return folder


def reward_model(lab: Lab, seed: int) -> Path:
    """Reward models of comparisons of the start's own answers, and their mean."""
    start = lab.sft_model(SHOWN)
    data = lab.judged(start, "crowd", ROWS, seed)
    several = EnsembleSettings(members=MEMBERS, bootstrap=False)
    usual = replace(
        lab.usual(), model=start, epochs=2.0, learning_rate=REWARD_RATE, seed=seed, ensemble=several
    )
    return lab.trained(f"policy-rewards-{seed}", data, usual)


def implicit_reward(lab: Lab, seed: int) -> Path:
    """What DPO has learnt from the same comparisons, as a reward."""
    way = preference_lab.Way(algorithm="dpo", settings={"beta": IMPLICIT_BETA})
    run = preference_lab.trained(lab, way, seed)
    folder = run / "reward"
    if not (folder / COMBINED_FILE).exists():
        save_manifest(
            folder, ImplicitManifest(policy=run / "model", reference=lab.sft_model(SHOWN), beta=IMPLICIT_BETA)
        )
    return folder
