"""Every iterative algorithm by name: what generates, what is selected, what trains on it; without torch.

``plaudit train --list`` and the commands are made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from plaudit.methods.iterative.selection import (
    Selector,
    at_or_above,
    best_of_n,
    best_versus_worst,
    pairs_above_gap,
    pairs_in_order,
    rejection_sampled,
)

SettingValue = int | float | str | tuple[float, ...]
"""What a setting of a row can be."""
ModelOrigin = Literal["newest", "start"]
"""The model of the round before, or the one that the command was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFacts:
    """One algorithm.

    Example: ``ITERATIVE_ALGORITHMS["rejection"].formula``
    """

    name: str
    """What the command calls it."""
    formula: str
    """What is selected, and what trains on it."""
    paper: str
    """Where it is from."""
    select: Selector
    """From the scores of one prompt's completions to the rows that are trained."""
    trainer: str
    """What trains on the rows: sft, or a row of the preference table."""
    defaults: Mapping[str, SettingValue]
    """Its settings with their values."""
    optional_settings: tuple[str, ...] = ()
    """Settings that it reads as well, which have no default."""
    generates_from: ModelOrigin = "newest"
    """Which model generates after the first round."""
    trains_from: ModelOrigin = "newest"
    """Which model each round trains."""
    min_answers: int = 2
    """The fewest completions of a prompt among which there is something to select."""
    has_kl_bound: bool = False
    """Whether log n − (n − 1) / n bounds the KL between what is selected and what was generated."""

    @property
    def pairs(self) -> bool:
        """Whether its rows are pairs; otherwise they are demonstrations."""
        return self.trainer != "sft"

    @property
    def cells(self) -> str:
        """What sets the row apart, in a few words."""
        rows = "pairs" if self.pairs else "answers"
        return (
            f"{rows} → {self.trainer}, drawn from the {self.generates_from}, trained from the "
            f"{self.trains_from}"
        )


def _by_name(*rows: LoopFacts) -> dict[str, LoopFacts]:
    return {row.name: row for row in rows}


ITERATIVE_ALGORITHMS: Mapping[str, LoopFacts] = _by_name(
    LoopFacts(
        name="best-of-n",
        formula="argmax r of n answers → SFT, at most log n − (n−1)/n nats away",
        paper="Stiennon et al. 2020, arXiv:2009.01325",
        select=lambda scores, _: best_of_n(scores),
        trainer="sft",
        generates_from="start",
        has_kl_bound=True,
        defaults={"rounds": 1, "answers": 16},
    ),
    LoopFacts(
        name="rejection",
        formula="argmax r of K answers → SFT, round after round",
        paper="Touvron et al. 2023 (Llama 2), arXiv:2307.09288",
        select=lambda scores, _: best_of_n(scores),
        trainer="sft",
        has_kl_bound=True,
        defaults={"rounds": 3, "answers": 8},
    ),
    LoopFacts(
        name="expert",
        formula="all answers with r ≥ threshold → SFT, round after round",
        paper="Anthony et al. 2017, arXiv:1705.08439",
        select=lambda scores, choice: at_or_above(scores, choice.threshold, choice.keep),
        trainer="sft",
        min_answers=1,
        defaults={"rounds": 3, "answers": 8, "threshold": (1.0,)},
        optional_settings=("top", "keep"),
    ),
    LoopFacts(
        name="rest",
        formula="one draw, then answers with r ≥ τ₁ ≤ τ₂ ≤ … → SFT",
        paper="Gulcehre et al. 2023, arXiv:2308.08998",
        select=lambda scores, choice: at_or_above(scores, choice.threshold, choice.keep),
        trainer="sft",
        min_answers=1,
        defaults={"rounds": 3, "improves": 3, "answers": 16, "top": (0.5, 0.25, 0.1)},
        optional_settings=("threshold", "keep"),
    ),
    LoopFacts(
        name="rest-em",
        formula="answers with full reward, a few for each prompt → SFT of the start model",
        paper="Singh et al. 2023, arXiv:2312.06585",
        select=lambda scores, choice: at_or_above(scores, choice.threshold, choice.keep),
        trainer="sft",
        trains_from="start",
        min_answers=1,
        defaults={"rounds": 3, "answers": 32, "threshold": (1.0,), "keep": 10},
        optional_settings=("top",),
    ),
    LoopFacts(
        name="rso",
        formula="accept y with exp((r − r_max)/β), so y ~ π_ref exp(r/β)/Z; two by two → preference row",
        paper="Liu et al. 2023, arXiv:2309.06657",
        select=lambda scores, choice: pairs_in_order(
            scores, rejection_sampled(scores, choice.beta, choice.uniforms)[: choice.keep]
        ),
        trainer="dpo",
        generates_from="start",
        defaults={"rounds": 1, "answers": 64, "keep": 8, "beta": 0.5, "reference": "start"},
        optional_settings=("teach",),
    ),
    LoopFacts(
        name="rs-dpo",
        formula="all pairs with r_w − r_l > gap → DPO",
        paper="Khaki et al. 2024, arXiv:2402.10038",
        select=lambda scores, choice: pairs_above_gap(scores, choice.gap),
        trainer="dpo",
        generates_from="start",
        defaults={"rounds": 1, "answers": 16, "gap": 1.0, "reference": "start"},
        optional_settings=("teach",),
    ),
    LoopFacts(
        name="slic-hf",
        formula="best against worst of n answers → hinge, with the best one's likelihood beside it",
        paper="Zhao et al. 2023, arXiv:2305.10425",
        select=lambda scores, _: best_versus_worst(scores),
        trainer="slic",
        generates_from="start",
        defaults={"rounds": 1, "answers": 8, "reference": "start"},
        optional_settings=("teach",),
    ),
    LoopFacts(
        name="iterated",
        formula="best against worst of n answers → preference row, round after round",
        paper="Xu et al. 2023, arXiv:2312.16682; Guo et al. 2024, arXiv:2402.04792",
        select=lambda scores, _: best_versus_worst(scores),
        trainer="dpo",
        defaults={"rounds": 3, "answers": 8, "reference": "start"},
        optional_settings=("teach",),
    ),
)
"""The table. r is the reward; answers without a verdict, cut ones and empty ones are never chosen."""
