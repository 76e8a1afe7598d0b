"""Every loop by name: what is drawn, what is chosen of it, and what learns from that; without torch.

``plaudit train --list`` and the commands are made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from plaudit.training.choosing import (
    Chooser,
    accepted,
    at_least,
    best,
    best_against_worst,
    gaps_above,
    in_twos,
)

Value = int | float | str | tuple[float, ...]
"""What a setting of a row can be."""
Whose = Literal["newest", "start"]
"""The model of the round before, or the one that the command was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFacts:
    """One algorithm.

    Example: ``LOOPS["rejection"].formula``
    """

    name: str
    """What the command calls it."""
    formula: str
    """What is chosen, and what learns from it."""
    paper: str
    """Where it is from."""
    choose: Chooser
    """From the scores of one prompt's answers to rows."""
    teach: str
    """What learns from the rows: sft, or a row of the preference table."""
    defaults: Mapping[str, Value]
    """The settings with their values."""
    also: tuple[str, ...] = ()
    """Settings that it reads beside these; they have no value of their own."""
    draws: Whose = "newest"
    """Whose answers are drawn after the first round."""
    starts: Whose = "newest"
    """Which model each round trains."""
    least: int = 2
    """With fewer answers to a prompt there is nothing to choose."""
    bounded: bool = False
    """Whether log n − (n − 1) / n bounds how far what is chosen lies from what was drawn."""

    @property
    def pairs(self) -> bool:
        """Whether its rows are pairs, rather than answers to learn."""
        return self.teach != "sft"

    @property
    def cells(self) -> str:
        """What sets the row apart, in a few words."""
        rows = "pairs" if self.pairs else "answers"
        return f"{rows} → {self.teach}, drawn from the {self.draws}, trained from the {self.starts}"


def _facts(*rows: LoopFacts) -> dict[str, LoopFacts]:
    return {row.name: row for row in rows}


LOOPS: Mapping[str, LoopFacts] = _facts(
    LoopFacts(
        name="best-of-n",
        formula="argmax r of n answers → SFT, at most log n − (n−1)/n nats away",
        paper="Stiennon et al. 2020, arXiv:2009.01325",
        choose=lambda scores, _: best(scores),
        teach="sft",
        draws="start",
        bounded=True,
        defaults={"rounds": 1, "answers": 16},
    ),
    LoopFacts(
        name="rejection",
        formula="argmax r of K answers → SFT, round after round",
        paper="Touvron et al. 2023 (Llama 2), arXiv:2307.09288",
        choose=lambda scores, _: best(scores),
        teach="sft",
        bounded=True,
        defaults={"rounds": 3, "answers": 8},
    ),
    LoopFacts(
        name="expert",
        formula="all answers with r ≥ threshold → SFT, round after round",
        paper="Anthony et al. 2017, arXiv:1705.08439",
        choose=lambda scores, choice: at_least(scores, choice.threshold, choice.keep),
        teach="sft",
        least=1,
        defaults={"rounds": 3, "answers": 8, "threshold": (1.0,)},
        also=("top", "keep"),
    ),
    LoopFacts(
        name="rest",
        formula="one draw, then answers with r ≥ τ₁ ≤ τ₂ ≤ … → SFT",
        paper="Gulcehre et al. 2023, arXiv:2308.08998",
        choose=lambda scores, choice: at_least(scores, choice.threshold, choice.keep),
        teach="sft",
        least=1,
        defaults={"rounds": 3, "improves": 3, "answers": 16, "top": (0.5, 0.25, 0.1)},
        also=("threshold", "keep"),
    ),
    LoopFacts(
        name="rest-em",
        formula="answers with full reward, a few for each prompt → SFT of the start model",
        paper="Singh et al. 2023, arXiv:2312.06585",
        choose=lambda scores, choice: at_least(scores, choice.threshold, choice.keep),
        teach="sft",
        starts="start",
        least=1,
        defaults={"rounds": 3, "answers": 32, "threshold": (1.0,), "keep": 10},
        also=("top",),
    ),
    LoopFacts(
        name="rso",
        formula="accept y with exp((r − r_max)/β), so y ~ π_ref exp(r/β)/Z; two by two → preference row",
        paper="Liu et al. 2023, arXiv:2309.06657",
        choose=lambda scores, choice: in_twos(
            scores, accepted(scores, choice.beta, choice.chances)[: choice.keep]
        ),
        teach="dpo",
        draws="start",
        defaults={"rounds": 1, "answers": 64, "keep": 8, "beta": 0.5, "reference": "start"},
        also=("teach",),
    ),
    LoopFacts(
        name="rs-dpo",
        formula="all pairs with r_w − r_l > gap → DPO",
        paper="Khaki et al. 2024, arXiv:2402.10038",
        choose=lambda scores, choice: gaps_above(scores, choice.gap),
        teach="dpo",
        draws="start",
        defaults={"rounds": 1, "answers": 16, "gap": 1.0, "reference": "start"},
        also=("teach",),
    ),
    LoopFacts(
        name="slic-hf",
        formula="best against worst of n answers → hinge, with the best one's likelihood beside it",
        paper="Zhao et al. 2023, arXiv:2305.10425",
        choose=lambda scores, _: best_against_worst(scores),
        teach="slic",
        draws="start",
        defaults={"rounds": 1, "answers": 8, "reference": "start"},
        also=("teach",),
    ),
    LoopFacts(
        name="iterated",
        formula="best against worst of n answers → preference row, round after round",
        paper="Xu et al. 2023, arXiv:2312.16682; Guo et al. 2024, arXiv:2402.04792",
        choose=lambda scores, _: best_against_worst(scores),
        teach="dpo",
        defaults={"rounds": 3, "answers": 8, "reference": "start"},
        also=("teach",),
    ),
)
"""The table. r is the reward; answers without a verdict, cut ones and empty ones are never chosen."""
