"""What is checked: the user's own tokenizer, rows, model, reward and sampler, those that there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from torch import nn

from plaudit.data.records import Prompt, Record, Steps, Text
from plaudit.engine.settings import OptimizerSettings
from plaudit.engine.step import ObjectiveResult
from plaudit.models.policy import Policy
from plaudit.models.reference import Reference
from plaudit.models.reward_model import RewardModel
from plaudit.rewards.base import Reward
from plaudit.rollouts.sampler import Sampler, SamplingSettings, WeightsVersion
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import AnsweredRecord, Encoder, encode_record_with_notes
from plaudit.tokens.microbatch import Microbatch

SAMPLE_SIZE = 8
"""Rows that are looked at where each costs a pass through the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRound:
    """A round of a few short answers, to be learnt from as often as a check wants.

    Example: ``TrialRound(microbatches=(…,), description="a round of 4 short answers")``
    """

    microbatches: tuple[Microbatch, ...]
    """Its pieces."""
    description: str
    """What it is, for the user."""


@runtime_checkable
class RolloutTrial(Protocol):
    """What a run that draws its answers offers to the checks, since its own pieces can be had once only."""

    def small_round(self) -> TrialRound | None:
        """A round of a few short answers; None where nothing could be learnt from it."""
        ...

    def likelihood(
        self, examples: Sequence[Example]
    ) -> tuple[Callable[[Any], ObjectiveResult], Sequence[Microbatch]]:
        """Likelihood of given text under the policy: what is minimised, and the pieces."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lesson:
    """What a run would learn, and how it would move.

    Example: ``Lesson(module=policy, objective=…, pieces=…, rows=64, rate=1e-5, optimizer=…)``
    """

    module: nn.Module
    """What is trained."""
    objective: Callable[[Any], ObjectiveResult]
    """From a piece to what a step minimises."""
    pieces: Callable[[int, Sequence[int]], Sequence[Microbatch]]
    """The pieces of a step, given its number and those of its rows."""
    rows: int
    """How many rows there are."""
    rate: int | float
    """The learning rate."""
    optimizer: OptimizerSettings
    """How weights move."""
    trial: RolloutTrial | None = None
    """What is tried in place of the run's own pieces where these are made of fresh answers."""

    @property
    def draws(self) -> bool:
        """Whether pieces are made of fresh answers."""
        return self.trial is not None


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
    weights: WeightsVersion = field(default_factory=WeightsVersion)
    """Counts how often the policy's weights have moved: whoever moves them for a check says so."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How they are drawn."""
    reward: Reward | None = None
    """What scores answers."""
    scorer: RewardModel | None = None
    """The reward model that learns."""
    lesson: Lesson | None = None
    """What a step does."""

    @property
    def answered(self) -> list[AnsweredRecord]:
        """The first few rows that hold answers."""
        return list(islice((one for one in self.records if not isinstance(one, Prompt | Steps)), SAMPLE_SIZE))

    @property
    def prompts(self) -> list[Text]:
        """The prompts of the first few rows, no two alike."""
        return list(islice(dict.fromkeys(one.prompt for one in self.records if one.prompt), SAMPLE_SIZE))

    def example(self, record: AnsweredRecord) -> Example:
        """A row as the tokens that are trained."""
        return encode_record_with_notes(record, self.encoder).example
