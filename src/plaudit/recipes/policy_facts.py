"""What is known of an algorithm of policy optimisation, and the names of its cells; without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Value = int | float | str | bool
"""What a setting of a row can be."""
Expected = Literal[
    "gae",
    "monte-carlo",
    "one-step",
    "bandit",
    "group-z",
    "group-mean",
    "leave-one-out",
    "greedy",
    "preference",
    "running",
    "whitened",
]
"""What a token is measured against."""
Loss = Literal[
    "log-prob",
    "unclipped",
    "clip",
    "dual-clip",
    "rollback",
    "kl-trigger",
    "kl-penalty",
    "cispo",
    "p3o",
    "p3o-joint",
    "dpo",
    "ipo",
]
"""What a token loses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """One algorithm.

    Example: ``POLICIES["grpo"].formula``
    """

    name: str
    """What the command calls it."""
    formula: str
    """What sets it apart, in a line."""
    paper: str
    """Where it is from, and whose defaults these are."""
    advantage: Expected
    """What a token is measured against."""
    surrogate: Loss
    """What a token loses."""
    divergence: Literal["reward", "loss", "none"]
    """Where the distance from the reference counts."""
    reduction: Literal["tokens", "answers", "fixed"]
    """How tokens become one number."""
    defaults: Mapping[str, Value] = field(default_factory=dict[str, Value])
    """The settings that are its own, with their values."""

    @property
    def cells(self) -> str:
        """The row, in a few words."""
        where = {"reward": "KL in reward", "loss": "KL in loss", "none": "no KL"}[self.divergence]
        where = "log-ratios to the reference" if self.surrogate in CONTRASTS else where
        ratio = self.defaults.get("ratio", "token")
        own = "" if ratio == "token" else f" of the {ratio}"
        critic = ", critic" if self.advantage in WITH_CRITIC else ""
        return f"{self.advantage} · {self.surrogate}{own} · {where} · mean over {self.reduction}{critic}"


WITH_CRITIC = frozenset({"gae", "monte-carlo", "one-step", "bandit"})
"""What needs a critic."""
IN_TIME = frozenset({"gae", "monte-carlo", "one-step", "whitened"})
"""What is paid token by token."""
CONTRASTS = frozenset({"dpo", "ipo"})
"""What compares policy and reference by itself."""
IN_PAIRS = frozenset({"p3o", "p3o-joint", *CONTRASTS})
"""What needs two answers to each prompt."""
IN_GROUPS = frozenset({"group-z", "group-mean", "leave-one-out"})
"""What compares the answers to one prompt."""
