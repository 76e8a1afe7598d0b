"""Every way to learn by its name: where its recipe is and what it can be told; importing this is quick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from plaudit.recipes.config import ContextConfig, ControlConfig, DistilConfig, RunConfig
from plaudit.recipes.group_config import GroupConfig
from plaudit.recipes.loop_config import LoopConfig
from plaudit.recipes.loop_table import LOOPS
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.policy_table import POLICIES
from plaudit.recipes.preference_config import PreferenceConfig
from plaudit.recipes.preference_table import PREFERENCES
from plaudit.recipes.reward_config import RewardConfig
from plaudit.recipes.rlhf_config import RlhfConfig
from plaudit.recipes.worded_config import CriticConfig, RankerConfig, TextRewardConfig

METHODS: dict[str, tuple[str, str, type]] = {
    "sft": ("plaudit.recipes.sft:sft", "learn to say what demonstrations say", RunConfig),
    "preferred": (
        "plaudit.recipes.preferred:preferred",
        "learn the answers that were liked",
        RunConfig,
    ),
    "control": ("plaudit.recipes.control:control", "learn good and bad, told apart by a word", ControlConfig),
    "context": ("plaudit.recipes.context:context", "answer as if a context had been read", ContextConfig),
    "distil": ("plaudit.recipes.distil:distil", "learn from a teacher's distribution", DistilConfig),
    "group": (
        "plaudit.recipes.group:group",
        "learn how groups of people differ in what they prefer",
        GroupConfig,
    ),
    "reward": ("plaudit.recipes.reward:reward", "learn to score answers as people judged them", RewardConfig),
    "text-reward": (
        "plaudit.recipes.worded:text_reward",
        "learn to say in a word whether an answer is good",
        TextRewardConfig,
    ),
    "ranker": ("plaudit.recipes.worded:ranker", "learn to say which of two answers is better", RankerConfig),
    "critic": (
        "plaudit.recipes.worded:critic",
        "learn to write critiques, and points after them",
        CriticConfig,
    ),
    "rlhf": (
        "plaudit.recipes.rlhf:rlhf",
        "compare its own answers, learn the reward, improve by it; and again",
        RlhfConfig,
    ),
}
"""Each method: where its recipe is, what it does, what it can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Algorithms that are rows of a table, and so methods without an entry above.

    Example: ``TABLES[0].rows["dpo"].paper``
    """

    title: str
    """What they are, all together."""
    rows: Mapping[str, Any]
    """Each algorithm's facts, by its name."""
    recipe: str
    """Where the function is that takes a name and a config."""
    config: type
    """What an algorithm can be told."""


TABLES = (
    Table(
        title="Preference optimisation",
        rows=PREFERENCES,
        recipe="plaudit.recipes.preference:preference",
        config=PreferenceConfig,
    ),
    Table(
        title="Policy optimisation",
        rows=POLICIES,
        recipe="plaudit.recipes.policy:policy",
        config=PolicyConfig,
    ),
    Table(
        title="Loops that make their own rows",
        rows=LOOPS,
        recipe="plaudit.recipes.loop:loop",
        config=LoopConfig,
    ),
)
"""Each table of algorithms."""

LOOKED_AT = ("sft", "preferred", "reward")
"""Methods without a table that can be looked over and planned."""


def config_types() -> dict[str, type]:
    """What each method can be told, by its name.

    >>> config_types()["dpo"].__name__
    'PreferenceConfig'
    """
    alone = {name: config for name, (_, _, config) in METHODS.items()}
    return alone | {name: table.config for table in TABLES for name in table.rows}


def looked_at() -> dict[str, type]:
    """Each method whose run can be made ready and looked at, with what it can be told."""
    types = config_types()
    loops = TABLES[-1].rows
    return {
        name: one
        for name, one in types.items()
        if name in LOOKED_AT or (name not in METHODS and name not in loops)
    }


def run_method(name: str, config: Any) -> Any:
    """Run the recipe of a method; None where nothing was left to do."""
    for table in TABLES:
        if name in table.rows:
            return _recipe(table.recipe)(name, config)
    return _recipe(METHODS[name][0])(config)


def _recipe(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)
