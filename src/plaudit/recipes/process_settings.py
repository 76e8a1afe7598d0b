"""How the steps of an answer are paid in policy optimisation; importing this does not import torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from plaudit.errors import UserError
from plaudit.rewards.step_pay import ADDING, Pay


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """How the steps of an answer, its lines that hold a word, are paid: each at its last token.

    Example: ``ProcessSettings(pay="min")``
    """

    pay: Literal["no"] | Pay = "no"
    """What a step is paid: its score, its log-odds, or its change of the min, product or last of them."""
    by: str | None = None
    """Who scores the steps, where --reward scores the outcome, which is paid at the end; none: --reward."""
    weight: float = 1.0
    """How much the steps count beside the outcome."""
    baseline: float = 0.0
    """What is taken off the score of each step, so that a step that says nothing is paid nothing."""

    def __post_init__(self) -> None:
        """Refuse what nothing reads."""
        if self.pay == "no" and (self.by is not None or self.weight != 1 or self.baseline):
            raise UserError(
                "process.by, .weight and .baseline are read where steps are paid only: add --process.pay "
                "(score, odds, min, product or last), or leave them out"
            )
        if not math.isfinite(self.weight) or self.weight <= 0:
            raise UserError(f"process.weight must be a number above 0, not {self.weight:g}")
        if self.weight != 1 and self.by is None:
            raise UserError(
                "process.weight weighs steps against the outcome, and there is none beside them: name who "
                "scores the steps by --process.by, or leave it out"
            )
        if not math.isfinite(self.baseline):
            raise UserError(f"process.baseline must be a number, not {self.baseline:g}")
        if self.baseline and self.pay not in ADDING:
            raise UserError(
                f"process.baseline is taken off scores that are paid themselves, and {self.pay} pays "
                "changes: leave it out, or use --process.pay score"
            )

    @property
    def adds_up(self) -> bool:
        """Whether an answer of more steps is paid more often."""
        return self.pay in ADDING
