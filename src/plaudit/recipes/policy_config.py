"""All that ``plaudit train ppo`` and its relatives can be told; importing this does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from plaudit.errors import UserError
from plaudit.recipes.config import RunConfig
from plaudit.recipes.policy_settings import (
    CriticSettings,
    DrawSettings,
    JudgeSettings,
    PolicySettings,
    PtxSettings,
    ShapeSettings,
    TrustSettings,
)
from plaudit.recipes.preference_config import ReferenceSettings
from plaudit.recipes.process_settings import ProcessSettings
from plaudit.training.settings import KeepSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig(RunConfig):
    """A run that improves a policy by what a reward says of its answers.

    Example: ``PolicyConfig(model=Path("sft"), prompts=Path("p.jsonl"), reward="number", out=Path("ppo"))``
    """

    data: Path = field(init=False, default=Path())
    """The prompts, under the name that all runs have."""
    prompts: Path
    """Rows with prompts; whatever else they hold is handed to the reward."""
    reward: str | None = None
    """A reward's folder, a rule, http://…, module:function or file.py:function."""
    environment: str | None = None
    """In place of a reward: module:function or file.py:function that answers the policy's turns."""
    max_turns: int | None = None
    """The most turns of the policy in an episode of the environment; none: 8."""
    epochs: float = 1.0
    """How often the prompts are gone through."""
    rounds: int | None = None
    """How many rounds of answers instead."""
    batch_size: int = 16
    """Prompts in a round, over all processes."""
    learning_rate: float = 1e-6
    """The peak learning rate; LoRA wants about ten times more."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    """The cells of the row."""
    draw: DrawSettings = field(default_factory=DrawSettings)
    """How answers are drawn."""
    shape: ShapeSettings = field(default_factory=ShapeSettings)
    """What is done to scores before they teach."""
    process: ProcessSettings = field(default_factory=ProcessSettings)
    """How the steps of an answer are paid, each at its last token."""
    critic: CriticSettings = field(default_factory=CriticSettings)
    """The model that says how much is to be expected."""
    reference: ReferenceSettings = field(default_factory=ReferenceSettings)
    """The policy that the new one is held near."""
    trust: TrustSettings = field(default_factory=TrustSettings)
    """How far an answer may be from the policy that learns from it."""
    judge: JudgeSettings = field(default_factory=JudgeSettings)
    """Who scores held-out prompts and never teaches."""
    ptx: PtxSettings = field(default_factory=PtxSettings)
    """Text that the policy shall not forget."""
    keep: KeepSettings = field(
        default_factory=lambda: KeepSettings(best="held_out/reward", best_is="highest")
    )
    """Which checkpoints stay."""

    def __post_init__(self) -> None:
        """Refuse what cannot run, before anything is loaded."""
        object.__setattr__(self, "data", self.prompts)
        # Without arguments super() has no class to look up in a dataclass with slots.
        super(PolicyConfig, self).__post_init__()
        self._refuse_two_judges_or_none()
        if self.rounds is not None and self.rounds < 1:
            raise UserError(f"rounds must be at least 1, not {self.rounds}")
        if self.rounds is not None and self.steps is not None:
            raise UserError("rounds and steps both say how long the run is: leave one of them out")
        if self.shard:
            raise UserError(
                "--shard is not supported here: answers are drawn with whole weights. Leave it out; several "
                "processes share the work all the same"
            )

    def _refuse_two_judges_or_none(self) -> None:
        """Either a reward scores, or an environment does."""
        if self.reward is None and self.environment is None:
            raise UserError(
                "nothing says what an answer is worth: give --reward (a folder, a rule, file.py:function) or "
                "--environment (file.py:function)"
            )
        if self.reward is not None and self.environment is not None:
            raise UserError(
                "--reward and --environment both say what an answer is worth: leave one of them out; a "
                "second opinion on held-out prompts is --judge.by"
            )
        if self.max_turns is not None and self.environment is None:
            raise UserError(
                "--max-turns is read with --environment only: leave it out, or name an environment"
            )
        if self.max_turns is not None and self.max_turns < 1:
            raise UserError(f"max_turns must be at least 1, not {self.max_turns}")
