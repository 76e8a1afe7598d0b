"""Every iterative algorithm by name: what generates, what is selected, what trains on it; without torch.

Selection is by pure functions of the scores of one prompt's completions. A pick is the places of the
completions of one row: ``(3,)`` is a completion to learn, ``(3, 0)`` the better and the worse of a pair. A
completion whose score is None has no verdict; it is never picked, and never counts as 0.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations
from statistics import median
from typing import Literal

from plaudit.errors import UserError
from plaudit.rewards.base import TaskScores

Selection = tuple[tuple[int, ...], ...]
"""Of each row that is made, the places of its answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionSettings:
    threshold: int | float = -math.inf
    """The least score of an answer to learn."""
    keep: int | None = None
    """At most so many answers of a prompt; None for all."""
    beta: int | float = 1.0
    """β of rejection sampling, the price of distance from the policy; small values accept only the best."""
    gap: int | float = 0.0
    """Pairs are further apart than this."""
    uniforms: tuple[float, ...] = ()
    """For each completion a number from the uniform distribution on [0, 1)."""


Selector = Callable[[TaskScores, SelectionSettings], Selection]
"""From the scores of one prompt's answers to rows."""


def best_of_n(scores: TaskScores) -> Selection:
    """The answer with the highest score; of several the first that was drawn.
    Stiennon et al. 2020, arXiv:2009.01325; Touvron et al. 2023, arXiv:2307.09288."""
    scored = _with_verdict(scores)
    return () if not scored else ((max(scored, key=lambda index: (scored[index], -index)),),)


def at_or_above(scores: TaskScores, threshold: int | float, keep: int | None = None) -> Selection:
    """The answers at or above a threshold, in the order in which they were drawn; at most ``keep``.
    Anthony et al. 2017, arXiv:1705.08439; Gulcehre et al. 2023, arXiv:2308.08998."""
    return tuple((index,) for index, score in _with_verdict(scores).items() if score >= threshold)[:keep]


def best_versus_worst(scores: TaskScores) -> Selection:
    """The highest score against the lowest; no pair where all are equal. Of several the first drawn.

    >>> best_versus_worst((0.2, None, 0.9, 0.1)), best_versus_worst((0.5, 0.5))
    (((2, 3),), ())
    """
    scored = _with_verdict(scores)
    if len({*scored.values()}) < 2:
        return ()
    return ((best_of_n(scores)[0][0], min(scored, key=lambda index: (scored[index], index))),)


def pairs_above_gap(scores: TaskScores, gap: int | float) -> Selection:
    """All pairs whose scores are further apart than ``gap`` (Khaki et al. 2024, arXiv:2402.10038).

    >>> pairs_above_gap((0.0, 1.0, None, 3.0), 1.5)
    ((3, 0), (3, 1))
    """
    scored = _with_verdict(scores)
    return tuple((a, b) for a, b in permutations(scored, 2) if scored[a] - scored[b] > gap)


def half_median_gap(rows: Sequence[TaskScores]) -> float:
    """Half the median of all gaps between scores to one prompt that differ: it suits any reward's unit.

    >>> half_median_gap([(0.0, 1.0, 1.0), (0.0, None, 3.0)])
    0.5
    """
    pairs = (pair for row in rows for pair in combinations(_with_verdict(row).values(), 2))
    gaps = [abs(a - b) for a, b in pairs if a != b]
    return median(gaps) / 2 if gaps else 0.0


def rejection_sampled(
    scores: TaskScores, beta: int | float, uniforms: Sequence[float], ceiling: int | float | None = None
) -> tuple[int, ...]:
    """Statistical rejection sampling: an answer stays with probability exp((r − ceiling) / β).
    Liu et al. 2023, arXiv:2309.06657. If the answers were drawn from π_ref, those that stay are drawn from
    the optimal policy, π_ref exp(r / β) / Z. Without a ``ceiling`` it is the highest score seen, so the best
    answer always stays, and the law holds the better, the more answers there are."""
    if not (math.isfinite(beta) and beta > 0):
        raise UserError(f"beta must be a number above 0, not {beta:g}")
    scored = _with_verdict(scores)
    top = max(scored.values(), default=0.0) if ceiling is None else ceiling
    if any(score > top for score in scored.values()):
        raise UserError(f"a score is above the ceiling {top:g}; accepting it would need a chance above 1")
    # u is below 1, so an answer at the ceiling, with chance 1, always stays.
    return tuple(index for index, score in scored.items() if uniforms[index] < math.exp((score - top) / beta))


def pairs_in_order(scores: TaskScores, indices: Sequence[int]) -> Selection:
    """Completions paired in the given order, the better first; equal scores and a left-over one give none."""
    scored = _with_verdict(scores)
    # pairwise overlaps; every second pair leaves each answer in one pair alone.
    pairs = [(a, b) for n, (a, b) in enumerate(pairwise(indices)) if n % 2 == 0]
    return tuple(
        (a, b) if scored[a] > scored[b] else (b, a)
        for a, b in pairs
        if a in scored and b in scored and scored[a] != scored[b]
    )


def top_share_threshold(rows: Sequence[TaskScores], share: int | float) -> float:
    """The score that this share of all answers reaches, the best ones; infinite where there is no score."""
    descending_scores = sorted((score for row in rows for score in row if score is not None), reverse=True)
    # A share such as 0.1 of 30 is a little above 3 in binary.
    if descending_scores:
        return descending_scores[max(1, math.ceil(share * len(descending_scores) - 1e-9)) - 1]
    return math.inf


def best_of_n_kl(n: int) -> float:
    """log n − (n − 1) / n: nats between the best of n answers and one of them.
    Stiennon et al. 2020, arXiv:2009.01325. Exact where no two scores are equal, else an upper bound (Beirami
    et al. 2024, arXiv:2401.01879)."""
    if n < 1:
        raise UserError(f"the best of {n} answers: expected 1 or more")
    return math.log(n) - (n - 1) / n


def _with_verdict(scores: TaskScores) -> dict[int, float]:
    return {index: score for index, score in enumerate(scores) if score is not None}


SettingValue = int | float | str | tuple[float, ...]
ModelOrigin = Literal["newest", "start"]
"""The model of the round before, or the one that the command was given."""
ScoredBy = Literal["reward", "itself", "demonstrations"]
"""What scores answers: the reward of the command; the model that gave them, by points; or nothing but that
each is worth less than the demonstration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopAlgorithm:
    """One algorithm. Example: ``ITERATIVE_ALGORITHMS["rejection"].formula``."""

    name: str
    formula: str
    paper: str
    select: Selector
    """From the scores of one prompt's completions to the rows that are trained."""
    trainer: str
    """What trains on the rows: sft, or a row of the preference table."""
    defaults: Mapping[str, SettingValue]
    optional_settings: tuple[str, ...] = ()
    """Settings that it reads as well, which have no default."""
    generates_from: ModelOrigin = "newest"
    """Which model generates after the first round."""
    trains_from: ModelOrigin = "newest"
    scored_by: ScoredBy = "reward"
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
        judge = {"reward": "", "itself": ", scored by itself", "demonstrations": ", without a reward"}
        return (
            f"{rows} → {self.trainer}, drawn from the {self.generates_from}, trained from the "
            f"{self.trains_from}{judge[self.scored_by]}"
        )


def _by_name(*rows: LoopAlgorithm) -> dict[str, LoopAlgorithm]:
    return {row.name: row for row in rows}


ITERATIVE_ALGORITHMS: Mapping[str, LoopAlgorithm] = _by_name(
    LoopAlgorithm(
        name="best-of-n",
        formula="argmax r of n answers → SFT, at most log n − (n−1)/n nats away",
        paper="Stiennon et al. 2020, arXiv:2009.01325",
        select=lambda scores, _: best_of_n(scores),
        trainer="sft",
        generates_from="start",
        has_kl_bound=True,
        defaults={"rounds": 1, "answers": 16},
    ),
    LoopAlgorithm(
        name="rejection",
        formula="argmax r of K answers → SFT, round after round",
        paper="Touvron et al. 2023 (Llama 2), arXiv:2307.09288",
        select=lambda scores, _: best_of_n(scores),
        trainer="sft",
        has_kl_bound=True,
        defaults={"rounds": 3, "answers": 8},
    ),
    LoopAlgorithm(
        name="expert",
        formula="all answers with r ≥ threshold → SFT, round after round",
        paper="Anthony et al. 2017, arXiv:1705.08439",
        select=lambda scores, choice: at_or_above(scores, choice.threshold, choice.keep),
        trainer="sft",
        min_answers=1,
        defaults={"rounds": 3, "answers": 8, "threshold": (1.0,)},
        optional_settings=("top", "keep"),
    ),
    LoopAlgorithm(
        name="rest",
        formula="one draw, then answers with r ≥ τ₁ ≤ τ₂ ≤ … → SFT",
        paper="Gulcehre et al. 2023, arXiv:2308.08998",
        select=lambda scores, choice: at_or_above(scores, choice.threshold, choice.keep),
        trainer="sft",
        min_answers=1,
        defaults={"rounds": 3, "improves": 3, "answers": 16, "top": (0.5, 0.25, 0.1)},
        optional_settings=("threshold", "keep"),
    ),
    LoopAlgorithm(
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
    LoopAlgorithm(
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
    LoopAlgorithm(
        name="rs-dpo",
        formula="all pairs with r_w − r_l > gap → DPO",
        paper="Khaki et al. 2024, arXiv:2402.10038",
        select=lambda scores, choice: pairs_above_gap(scores, choice.gap),
        trainer="dpo",
        generates_from="start",
        defaults={"rounds": 1, "answers": 16, "reference": "start"},
        optional_settings=("teach", "gap"),
    ),
    LoopAlgorithm(
        name="slic-hf",
        formula="best against worst of n answers → hinge, with the best one's likelihood beside it",
        paper="Zhao et al. 2023, arXiv:2305.10425",
        select=lambda scores, _: best_versus_worst(scores),
        trainer="slic",
        generates_from="start",
        defaults={"rounds": 1, "answers": 8, "reference": "start"},
        optional_settings=("teach",),
    ),
    LoopAlgorithm(
        name="iterated",
        formula="best against worst of n answers → preference row, round after round",
        paper="Xu et al. 2023, arXiv:2312.16682; Guo et al. 2024, arXiv:2402.04792",
        select=lambda scores, _: best_versus_worst(scores),
        trainer="dpo",
        defaults={"rounds": 3, "answers": 8, "reference": "start"},
        optional_settings=("teach",),
    ),
    LoopAlgorithm(
        name="self-rewarding",
        formula="best against worst of K answers by the newest model's own points → DPO, round after round",
        paper="Yuan et al. 2024, arXiv:2401.10020",
        select=lambda scores, _: best_versus_worst(scores),
        trainer="dpo",
        scored_by="itself",
        defaults={"rounds": 3, "answers": 4, "reference": "newest"},
        optional_settings=("teach", "people"),
    ),
    LoopAlgorithm(
        name="spin",
        formula="the demonstration against the newest model's own answer → DPO held near that model",
        paper="Chen et al. 2024, arXiv:2401.01335",
        # The demonstration stands first with 1 and the model's own answers have 0: it beats each of them.
        select=lambda scores, _: pairs_above_gap(scores, 0.0),
        trainer="dpo",
        scored_by="demonstrations",
        min_answers=1,
        defaults={"rounds": 3, "answers": 1, "reference": "newest"},
        optional_settings=("teach",),
    ),
)
"""The table. r is the reward; answers without a verdict, cut ones and empty ones are never chosen."""
