"""plaudit: from a human's click to a better language model, each step proven.

The public index: each name is fetched from its home when it is first used, so that ``import plaudit`` and
``plaudit --help`` do not wait for torch.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from plaudit.batches.template import Encoder, make_encoder
    from plaudit.batches.tokens import Completion, Example, TokenBatch, batch_of
    from plaudit.errors import UserError
    from plaudit.models.files import load_model
    from plaudit.models.policy import Policy, Scores
    from plaudit.recipes.config import RunConfig
    from plaudit.recipes.policy import policy
    from plaudit.recipes.policy_config import PolicyConfig
    from plaudit.recipes.preference import preference
    from plaudit.recipes.preference_config import PreferenceConfig
    from plaudit.recipes.reward import reward
    from plaudit.recipes.reward_config import RewardConfig
    from plaudit.recipes.sft import sft
    from plaudit.records.feedback import Comparison, Demonstration, Prompt, Ranking, Rating, Record, Steps
    from plaudit.records.judging import Judge, Task, Verdict
    from plaudit.records.messages import Message, Part, Text
    from plaudit.rewards.folder import load_reward
    from plaudit.rewards.reward import FunctionReward, Reward
    from plaudit.rollouts.local import LocalSampler
    from plaudit.rollouts.sampling import Answer, SamplingSettings
    from plaudit.sources import read_records, write_records
    from plaudit.training.policy_row import PolicyRow
    from plaudit.training.preference_row import PreferenceRow, SingleRow

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Comparison",
    "Completion",
    "Demonstration",
    "Encoder",
    "Example",
    "FunctionReward",
    "Judge",
    "LocalSampler",
    "Message",
    "Part",
    "Policy",
    "PolicyConfig",
    "PolicyRow",
    "PreferenceConfig",
    "PreferenceRow",
    "Prompt",
    "Ranking",
    "Rating",
    "Record",
    "Reward",
    "RewardConfig",
    "RunConfig",
    "SamplingSettings",
    "Scores",
    "SingleRow",
    "Steps",
    "Task",
    "Text",
    "TokenBatch",
    "UserError",
    "Verdict",
    "batch_of",
    "load_model",
    "load_reward",
    "make_encoder",
    "policy",
    "preference",
    "read_records",
    "reward",
    "sft",
    "write_records",
]

_HOMES = {
    "plaudit.batches.template": (
        "Encoder",
        "make_encoder",
    ),
    "plaudit.batches.tokens": (
        "Completion",
        "Example",
        "TokenBatch",
        "batch_of",
    ),
    "plaudit.errors": ("UserError",),
    "plaudit.models.files": ("load_model",),
    "plaudit.models.policy": (
        "Policy",
        "Scores",
    ),
    "plaudit.recipes.config": ("RunConfig",),
    "plaudit.recipes.policy": ("policy",),
    "plaudit.recipes.policy_config": ("PolicyConfig",),
    "plaudit.recipes.preference": ("preference",),
    "plaudit.recipes.preference_config": ("PreferenceConfig",),
    "plaudit.recipes.reward": ("reward",),
    "plaudit.recipes.reward_config": ("RewardConfig",),
    "plaudit.recipes.sft": ("sft",),
    "plaudit.records.feedback": (
        "Comparison",
        "Demonstration",
        "Prompt",
        "Ranking",
        "Rating",
        "Record",
        "Steps",
    ),
    "plaudit.records.judging": (
        "Judge",
        "Task",
        "Verdict",
    ),
    "plaudit.records.messages": (
        "Message",
        "Part",
        "Text",
    ),
    "plaudit.rewards.folder": ("load_reward",),
    "plaudit.rewards.reward": (
        "FunctionReward",
        "Reward",
    ),
    "plaudit.rollouts.local": ("LocalSampler",),
    "plaudit.rollouts.sampling": (
        "Answer",
        "SamplingSettings",
    ),
    "plaudit.sources": (
        "read_records",
        "write_records",
    ),
    "plaudit.training.policy_row": ("PolicyRow",),
    "plaudit.training.preference_row": (
        "PreferenceRow",
        "SingleRow",
    ),
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
