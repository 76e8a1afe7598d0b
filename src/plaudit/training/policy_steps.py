"""What the answers of a round are paid on the way, among their tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.advantages.temporal import step_rewards
from plaudit.rewards.step_pay import Paid
from plaudit.tensors.masked import last_places
from plaudit.training.collect import Collected


def on_the_way(
    collected: Collected, mask_NT: Bool[Tensor, "N T"], dtype: torch.dtype
) -> tuple[Float[Tensor, "N T"], Bool[Tensor, "N T"]]:
    """What steps before the last one are paid at their last tokens, and where all steps end.

    An answer that is not paid step by step is a single one.
    """
    last_NT = last_places(mask_NT)
    every = [paid for group in (*collected.groups, *collected.again) for paid in group.paid_for]
    end_NT, score_NS = last_NT.clone(), torch.zeros(mask_NT.shape, dtype=dtype)
    for n, own in enumerate(every):
        for place, (end, amount) in enumerate(_at_tokens(own).items()):
            end_NT[n, end], score_NS[n, place] = True, amount
    return step_rewards(score_NS, end_NT).masked_fill(last_NT, 0.0), end_NT


def _at_tokens(paid: Paid | None) -> Mapping[int, float]:
    """What is paid at each token at which a step ends, in the order of the tokens."""
    found: defaultdict[int, float] = defaultdict(float)
    for end, amount in () if paid is None else zip(paid.ends, paid.paid, strict=True):
        found[end] += amount
    return found


def step_figures(collected: Collected) -> dict[str, float]:
    """How many steps the new answers have, and what was said of them; nothing where steps are not scored."""
    every = [paid.scores for group in collected.groups for paid in group.paid_for if paid is not None]
    if not every:
        return {}
    return {
        "steps_mean": fmean(map(len, every)),
        "step_score": fmean(score for scores in every for score in scores),
        "step_lowest": fmean(map(min, every)),
    }
