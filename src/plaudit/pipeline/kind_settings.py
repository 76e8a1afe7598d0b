"""What the stages can be told that train nothing; importing this does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSettings:
    """A file of any layout, checked, as rows of plaudit's own.

    Example: ``RowsSettings(data=Path("pairs.csv"), threshold=0.0)``
    """

    data: Path
    """The file: JSONL, JSON, CSV, Parquet or a datasets folder."""
    format: str | None = None
    """Its layout; none: told from the rows, and said."""
    threshold: float = 0.01
    """Above this share of bad rows the stage fails; the bad ones lie in quarantine.jsonl."""
    split: str | None = None
    """Which split of a datasets folder."""
    ties: Literal["soft", "drop"] = "soft"
    """What becomes of ties."""
    preferred: bool = False
    """Keep the preferred answers alone, as demonstrations."""
    n: int | None = None
    """At most so many records, drawn by chance; none: all of them."""
    seed: int = 0
    """Of that chance."""

    def __post_init__(self) -> None:
        """Refuse to keep nothing."""
        if self.n is not None and self.n < 1:
            raise UserError(f"n must be at least 1, not {self.n}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineSettings:
    """One reward made of others, or of policies.

    Example: ``CombineSettings(how="weighted", members=("$reward", "$implicit"), weights=(0.2, 1.0))``
    """

    how: Literal["mean", "min", "cautious", "weighted", "implicit"] = "mean"
    """What the members say together; implicit: β (log π − log π_ref) of a policy and its reference,
    or β log π of a policy alone."""
    members: tuple[str, ...] = ()
    """Rewards."""
    weights: tuple[float, ...] = ()
    """weighted: one for each member."""
    k: float | None = None
    """cautious: how many deviations are taken off; none: 1."""
    normalise: Path | None = None
    """Rows on whose answers each reward is brought to mean 0 and deviation 1 first; none: as they are."""
    policy: Path | None = None
    """implicit: the policy that was trained."""
    reference: Path | None = None
    """implicit: what it began as; none: likelihood alone is the reward."""
    beta: float | None = None
    """implicit: that of its training; none: 0.1."""

    def __post_init__(self) -> None:
        """Refuse halves of a combination."""
        implicit = self.how == "implicit"
        if implicit and self.policy is None:
            raise UserError("how implicit needs a policy")
        if implicit == bool(self.members):
            raise UserError(f"how {self.how} is made of {'policies' if implicit else 'members'}")
        unread = ("members", "weights", "k", "normalise") if implicit else ("policy", "reference", "beta")
        for name in (*unread, *(() if self.how == "weighted" else ("weights",))):
            if getattr(self, name) not in (None, ()):
                raise UserError(f"{name} says nothing to how {self.how}; leave it out")
        if self.how == "weighted" and len(self.weights) != len(self.members):
            raise UserError(f"{len(self.members)} members want as many weights, not {len(self.weights)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateSettings:
    """Policies judged on prompts that none of them was trained on.

    Example: ``EvaluateSettings(policies=("$sft", "$dpo"), against=("$sft",), judge=("gold",))``
    """

    policies: tuple[str, ...]
    """The models, in the order of the tables."""
    against: tuple[str, ...] = ()
    """Those that all others are compared with; the first is the reference of KL. None: the first policy."""
    judge: tuple[str, ...] = ("gold",)
    """Who compares: gold (the world's truth), a reward, module:function, openai:http://host/v1#model."""
    reward: Path | None = None
    """A learnt reward whose scores are shown beside."""
    prompts: Path | None = None
    """Rows with prompts; none: the world's, of a split."""
    choices: Path | None = None
    """Questions with a closed set of answers, {"prompt", "choices", "right"}; none: of the world its
    facts and sums, of other prompts nothing."""
    gold: str | None = None
    """Who knows the true worth: world, a rule, module:function; none: the world of its own prompts."""
    split: Literal["train", "validation", "test"] = "test"
    """Whose prompts, where they are the world's."""
    n: int = 200
    """How many prompts; fewer where there are fewer."""
    answers: int = 1
    """Answers to each of them, of each policy."""
    seeds: int = 1
    """How often all is drawn, each time by another chance."""
    temperature: float = 1.0
    """Scores are divided by it when answers are drawn; 0 takes the likeliest."""
    max_tokens: int = 64
    """An answer that has not ended after so many tokens is cut."""
    best_of: int | None = None
    """Answers of the reference from which the reward takes the best; none: those that are drawn anyway."""
    bootstrap: int = 1000
    """How often prompts are drawn anew for an interval."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto takes a GPU when there is one."""
    seed: int = 0
    """Of all chance."""

    def __post_init__(self) -> None:
        """Refuse what cannot be compared."""
        for name in ("n", "answers", "seeds", "max_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.bootstrap < 2:
            raise UserError(f"bootstrap {self.bootstrap}: 2 or more, 1000 for a steady interval")
        if len(set(self.policies)) < len(self.policies) or not self.policies:
            raise UserError("policies: name each model once, and at least one")
        for other in self.against:
            if other not in self.policies:
                raise UserError(f"against {other}: it is none of the policies {', '.join(self.policies)}")
        if self.true_worth is None and "gold" in self.judge:
            raise UserError(
                "judge gold: nobody knows the true worth of answers to these prompts; say gold: world, a "
                "rule or module:function, or name another judge"
            )

    @property
    def true_worth(self) -> str | None:
        """Who knows it."""
        return self.gold or (None if self.prompts is not None else "world")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRewardSettings:
    """Reward models judged on comparisons that none of them was trained on.

    Example: ``JudgeRewardSettings(models=("$reward",), data=Path("$held-out"))``
    """

    models: tuple[str, ...]
    """Rewards."""
    data: Path
    """Comparisons or rankings."""
    world: bool = False
    """Whether the prompts are the world's: then the true utility is looked at too."""
    best_of: int | None = None
    """Of the world: answers to choose from; none: 16."""
    n: int | None = None
    """At most so many records, drawn by chance."""
    threshold: float = 0.01
    """The share of bad rows that may be."""
    bootstrap: int = 1000
    """How often prompts are drawn anew for an interval."""
    device: str = "auto"
    """cpu, cuda, cuda:1 …; auto takes a GPU when there is one."""
    seed: int = 0
    """Of all chance."""

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.best_of is not None and not self.world:
            raise UserError("best_of needs the true utility of answers: it goes with world")
        if self.bootstrap < 2:
            raise UserError(f"bootstrap {self.bootstrap}: 2 or more, 1000 for a steady interval")
        if not self.models:
            raise UserError("models: name at least one reward")
