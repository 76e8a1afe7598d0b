"""A small module that knows eight tastes, a few comparisons of eight other groups, and questions for them."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from plaudit.data.judging import Task
from plaudit.data.records import assistant_turn, user_turn
from plaudit.engine.settings import OptimizerSettings
from plaudit.lab.world import base_model_folder
from plaudit.methods.reward_model.config import GroupConfig, GroupSettings
from plaudit.methods.reward_model.group_preference import group
from plaudit.rewards.base import TaskScores
from plaudit.rewards.combine.manifest import GroupManifest, save_manifest
from plaudit.rewards.learned.group import GroupReward
from plaudit.rewards.load import load_reward
from tests.engine.toy import make_toy
from tests.methods.reward_model.group_rows import TASTES, make_file, named, pair
from tests.rewards.scorers import known


def learn(where: Path) -> Path:
    """A run on 24 groups; 5 comparisons of each of 8 others, ``long-9`` and so on, lie beside it."""
    config = GroupConfig(
        model=base_model_folder(),
        data=make_file(where / "tastes.jsonl", named(3), 24),
        out=where / "groups",
        group=GroupSettings(most=12, targets=12, width=32, layers=2),
        **{"steps": 120, "save_every": 120, "learning_rate": 3e-3, "held_out": "0", "sinks": ()},
        optimizer=OptimizerSettings(schedule="cosine", warmup=0.05),
        device="cpu",
    )
    assert group(config) is not None
    make_file(where / "few.jsonl", [f"{taste}-9" for taste in TASTES], 5, seed=1)
    return where


def taste_of(learnt: Path, name: str | None) -> GroupManifest:
    return GroupManifest(
        module=learnt / "groups", embedder=base_model_folder(), context=learnt / "few.jsonl", group=name
    )


def reward_of(learnt: Path, out: Path, name: str | None) -> GroupReward:
    """The folder is made, and loaded as any reward is."""
    save_manifest(out, taste_of(learnt, name))
    reward = load_reward(out, device="cpu")
    assert isinstance(reward, GroupReward)
    return reward


def task(prompt: str, *answers: str) -> Task:
    said = tuple(assistant_turn(answer) for answer in answers)
    return Task(prompt=user_turn(prompt), answers=said, ended=(True,) * len(said))


def asked(taste: str, count: int) -> list[Task]:
    """Pairs of which a group of this taste likes the first better."""
    chance = random.Random(f"asked {taste}")
    return [task("Name four colours.", *pair("colours", taste, chance)) for _ in range(count)]


def right(rows: Sequence[TaskScores]) -> float:
    return sum(known(one) > known(other) for one, other in rows) / len(rows)


def scorer(where: Path) -> Path:
    folder = make_toy(where).model
    facts = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**facts, "architectures": ["LlamaForSequenceClassification"]})
    )
    return folder
