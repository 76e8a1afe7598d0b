"""From a method's name and config to its run, before it begins: for checks, plans and measurements."""

from __future__ import annotations

from typing import Any

from plaudit.errors import UserError
from plaudit.methods.config import RunConfig
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.policy.run import policy_kind
from plaudit.methods.preference.config import PreferenceConfig
from plaudit.methods.preference.run import preference_kind
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.methods.reward_model.run import reward_kind
from plaudit.methods.run import Kind
from plaudit.methods.supervised.run import PREFERRED, SFT, supervised_kind

SUPERVISED_METHODS = {"sft": SFT, "preferred": PREFERRED}
"""Supervised methods that need no settings beside ``RunConfig``."""
METHODS_WITHOUT_TABLE = (*SUPERVISED_METHODS, "reward")
"""Methods without a table that can be prepared without being run."""


def named_run(method: str, config: RunConfig) -> Kind[Any]:
    """The run of a method with this config, before it begins; raises for methods of several runs."""
    if isinstance(config, PreferenceConfig):
        return preference_kind(method, config)
    if isinstance(config, PolicyConfig):
        return policy_kind(method, config)
    if isinstance(config, RewardConfig):
        return reward_kind(config)
    if method not in SUPERVISED_METHODS:
        raise UserError(f"{method} is made of other runs: look at those, one by one")
    return supervised_kind(config, SUPERVISED_METHODS[method])
