"""From what a user calls a method to the run that it begins: for those who only want to look at it."""

from __future__ import annotations

from typing import Any

from plaudit.errors import UserError
from plaudit.recipes.config import RunConfig
from plaudit.recipes.learner import Kind
from plaudit.recipes.policy import policy_kind
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.preference import preference_kind
from plaudit.recipes.preference_config import PreferenceConfig
from plaudit.recipes.preferred import PREFERRED
from plaudit.recipes.reward import reward_kind
from plaudit.recipes.reward_config import RewardConfig
from plaudit.recipes.sft import SFT
from plaudit.recipes.supervised import supervised_kind

SUPERVISED = {"sft": SFT, "preferred": PREFERRED}
"""Methods that learn answers as they stand."""
KNOWN = (*SUPERVISED, "reward")
"""Methods without a table that can be looked at."""


def kind_of(method: str, config: RunConfig) -> Kind[Any]:
    """The run of a method with this config, before it begins."""
    if isinstance(config, PreferenceConfig):
        return preference_kind(method, config)
    if isinstance(config, PolicyConfig):
        return policy_kind(method, config)
    if isinstance(config, RewardConfig):
        return reward_kind(config)
    if method not in SUPERVISED:
        raise UserError(f"{method} is made of other runs: look at those, one by one")
    return supervised_kind(config, SUPERVISED[method])
