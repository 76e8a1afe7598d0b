"""What is checked: the user's own tokenizer, rows, model, reward and sampler, those that there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from torch import nn

from plaudit.batches.template import Answered, Encoder, encode_record_noted
from plaudit.batches.tokens import Example
from plaudit.models.policy import Policy
from plaudit.models.reference import Reference
from plaudit.models.reward import RewardModel
from plaudit.records.feedback import Prompt, Record, Steps
from plaudit.records.messages import Text
from plaudit.rewards.reward import Reward
from plaudit.rollouts.sampler import Sampler
from plaudit.rollouts.sampling import SamplingSettings
from plaudit.training.companion import Companion
from plaudit.training.settings import OptimizerSettings
from plaudit.training.step import Terms

FEW = 8
"""Rows that are looked at where each costs a pass through the model."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lesson:
    """What a run would learn, and how it would move.

    Example: ``Lesson(module=policy, objective=…, pieces=…, alone=…, rows=64, rate=1e-5, optimizer=…)``
    """

    module: nn.Module
    """What is trained."""
    objective: Callable[[Any], Terms]
    """From a piece to what a step minimises."""
    pieces: Callable[[int, Sequence[int]], Sequence[Any]]
    """The pieces of a step, given its number and those of its rows."""
    alone: Callable[[Any], Sequence[Any]]
    """A piece divided into its rows, each still counted as part of the same batch."""
    rows: int
    """How many rows there are."""
    rate: int | float
    """The learning rate."""
    optimizer: OptimizerSettings
    """How weights move."""
    draws: bool = False
    """Whether pieces are made of fresh answers, so that a step's pieces can be had once only."""
    companions: Mapping[str, Companion] = field(default_factory=dict[str, Companion])
    """What moves beside the weights: the rounds of policy optimisation among them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subject:
    """Everything that a check may look at; what a run does not have is None or empty.

    Example: ``Subject(encoder=make_encoder(model), records=tuple(records), max_length=2048)``
    """

    encoder: Encoder
    """The tokenizer and its template."""
    records: Sequence[Record]
    """The rows as they were read: all that could be, those held out by a share among them."""
    max_length: int
    """The longest row in tokens."""
    held_out: Sequence[Record] = ()
    """Rows of a held-out file."""
    trained: Sequence[Example] = ()
    """What the run learns from, as its own tokens: too long ones cut, held-out ones left out; none where
    answers are drawn."""
    policy: Policy | None = None
    """The language model that learns."""
    adapted: bool = False
    """Whether only adapters beside its weights learn."""
    reference: Reference | None = None
    """What the policy is compared with."""
    same_reference: bool = False
    """Whether that is the very model that the run begins with."""
    products: Callable[[], AbstractContextManager[object]] = nullcontext
    """The context in which products are made."""
    sampler: Sampler | None = None
    """What draws answers, with the policy's weights of the moment when it is asked."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How they are drawn."""
    reward: Reward | None = None
    """What scores answers."""
    scorer: RewardModel | None = None
    """The reward model that learns."""
    lesson: Lesson | None = None
    """What a step does."""

    @property
    def answered(self) -> list[Answered]:
        """The first few rows that hold answers."""
        return list(islice((one for one in self.records if not isinstance(one, Prompt | Steps)), FEW))

    @property
    def prompts(self) -> list[Text]:
        """The prompts of the first few rows, no two alike."""
        return list(islice(dict.fromkeys(one.prompt for one in self.records if one.prompt), FEW))

    def example(self, record: Answered) -> Example:
        """A row as the tokens that are trained."""
        return encode_record_noted(record, self.encoder).example
