"""plaudit: from a human's click to a better language model, each step proven.

The public index: each name is fetched from its home when it is first used, so that ``import plaudit`` and
``plaudit --help`` do not wait for torch.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from plaudit.advantages.baseline import updated_running_mean
    from plaudit.advantages.group import nonzero_std_groups, pass_rate
    from plaudit.advantages.temporal import last_value
    from plaudit.data.judging import Judge, Task, Verdict
    from plaudit.data.read import read_records
    from plaudit.data.records import (
        Comparison,
        Demonstration,
        Message,
        Part,
        Prompt,
        Ranking,
        Rating,
        Record,
        Steps,
        Text,
    )
    from plaudit.data.write import write_records
    from plaudit.errors import UserError
    from plaudit.losses.trust import clip_fraction, kl_below, ratio_within, recently_sampled
    from plaudit.methods.config import RunConfig
    from plaudit.methods.policy.config import PolicyConfig
    from plaudit.methods.policy.row import PolicyAlgorithm
    from plaudit.methods.policy.run import policy
    from plaudit.methods.preference.config import PreferenceConfig
    from plaudit.methods.preference.row import (
        PreferenceAlgorithm,
        UnpairedAlgorithm,
        pair_loss,
        unpaired_loss,
    )
    from plaudit.methods.preference.run import preference
    from plaudit.methods.reward_model.config import RewardConfig
    from plaudit.methods.reward_model.run import reward
    from plaudit.methods.supervised.run import sft
    from plaudit.models.load import load_model
    from plaudit.models.policy import Policy, TokenScores
    from plaudit.models.shared_backbone import SharedBackbone
    from plaudit.rewards.base import FunctionReward, Reward
    from plaudit.rewards.combine.aggregate import preference_disagreement
    from plaudit.rewards.load import load_reward
    from plaudit.rewards.shaping import overlong_filter_mask
    from plaudit.rollouts.local import LocalSampler
    from plaudit.rollouts.sampler import Answer, SamplingSettings
    from plaudit.tokens.batch import Completion, Example, TokenBatch, batch_of
    from plaudit.tokens.encode import Encoder, make_encoder
    from plaudit.tokens.extras import Extra

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Comparison",
    "Completion",
    "Demonstration",
    "Encoder",
    "Example",
    "Extra",
    "FunctionReward",
    "Judge",
    "LocalSampler",
    "Message",
    "Part",
    "Policy",
    "PolicyAlgorithm",
    "PolicyConfig",
    "PreferenceAlgorithm",
    "PreferenceConfig",
    "Prompt",
    "Ranking",
    "Rating",
    "Record",
    "Reward",
    "RewardConfig",
    "RunConfig",
    "SamplingSettings",
    "SharedBackbone",
    "Steps",
    "Task",
    "Text",
    "TokenBatch",
    "TokenScores",
    "UnpairedAlgorithm",
    "UserError",
    "Verdict",
    "batch_of",
    "clip_fraction",
    "kl_below",
    "last_value",
    "load_model",
    "load_reward",
    "make_encoder",
    "nonzero_std_groups",
    "overlong_filter_mask",
    "pair_loss",
    "pass_rate",
    "policy",
    "preference",
    "preference_disagreement",
    "ratio_within",
    "read_records",
    "recently_sampled",
    "reward",
    "sft",
    "unpaired_loss",
    "updated_running_mean",
    "write_records",
]

_HOMES = {
    "plaudit.advantages.baseline": ("updated_running_mean",),
    "plaudit.advantages.group": (
        "nonzero_std_groups",
        "pass_rate",
    ),
    "plaudit.advantages.temporal": ("last_value",),
    "plaudit.data.judging": (
        "Judge",
        "Task",
        "Verdict",
    ),
    "plaudit.data.read": ("read_records",),
    "plaudit.data.records": (
        "Comparison",
        "Demonstration",
        "Message",
        "Part",
        "Prompt",
        "Ranking",
        "Rating",
        "Record",
        "Steps",
        "Text",
    ),
    "plaudit.data.write": ("write_records",),
    "plaudit.errors": ("UserError",),
    "plaudit.losses.trust": (
        "clip_fraction",
        "kl_below",
        "ratio_within",
        "recently_sampled",
    ),
    "plaudit.methods.config": ("RunConfig",),
    "plaudit.methods.policy.config": ("PolicyConfig",),
    "plaudit.methods.policy.row": ("PolicyAlgorithm",),
    "plaudit.methods.policy.run": ("policy",),
    "plaudit.methods.preference.config": ("PreferenceConfig",),
    "plaudit.methods.preference.row": (
        "PreferenceAlgorithm",
        "UnpairedAlgorithm",
        "pair_loss",
        "unpaired_loss",
    ),
    "plaudit.methods.preference.run": ("preference",),
    "plaudit.methods.reward_model.config": ("RewardConfig",),
    "plaudit.methods.reward_model.run": ("reward",),
    "plaudit.methods.supervised.run": ("sft",),
    "plaudit.models.load": ("load_model",),
    "plaudit.models.policy": (
        "Policy",
        "TokenScores",
    ),
    "plaudit.models.shared_backbone": ("SharedBackbone",),
    "plaudit.rewards.base": (
        "FunctionReward",
        "Reward",
    ),
    "plaudit.rewards.combine.aggregate": ("preference_disagreement",),
    "plaudit.rewards.load": ("load_reward",),
    "plaudit.rewards.shaping": ("overlong_filter_mask",),
    "plaudit.rollouts.local": ("LocalSampler",),
    "plaudit.rollouts.sampler": (
        "Answer",
        "SamplingSettings",
    ),
    "plaudit.tokens.batch": (
        "Completion",
        "Example",
        "TokenBatch",
        "batch_of",
    ),
    "plaudit.tokens.encode": (
        "Encoder",
        "make_encoder",
    ),
    "plaudit.tokens.extras": ("Extra",),
}
"""Where each name of ``__all__`` lives."""


def __getattr__(name: str) -> object:
    """The public name, fetched from its home."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(_importlib.import_module(home), name)
    raise AttributeError(f"plaudit has no {name!r}; its public names are {', '.join(__all__)}")


def __dir__() -> list[str]:
    """The public names."""
    return [*__all__, "__version__"]
