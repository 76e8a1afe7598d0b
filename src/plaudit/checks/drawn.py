"""What a draw should have been worth: from transformers' own logits, with truncation written out in full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.checks.subject import Subject
from plaudit.models.policy import Policy
from plaudit.models.proof import tolerance
from plaudit.rollouts.sampling import Rollout, SamplingSettings

HALF = 0.2
"""Nats between two log-probs of one token where products are made in 16 bits (`training.first_look`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """How far a sampler's log-probs lie from those that were computed again, in nats.

    Example: ``Gaps(logp_T=torch.zeros(5), whole_T=torch.zeros(5), outside=0)``
    """

    logp_T: Float[Tensor, " T"]
    """Of each token among those that could be drawn."""
    whole_T: Float[Tensor, " T"]
    """Of each among all tokens."""
    outside: int
    """Tokens that were drawn although the settings leave them out."""


def policy_of(subject: Subject) -> Policy:
    """The policy, where it is known that there is one."""
    assert subject.policy is not None, "a run with a policy"
    return subject.policy


def plain_logits(subject: Subject, prompt: Sequence[int], ids: Sequence[int]) -> Float[Tensor, "T V"]:
    """What transformers' own forward pass predicts before each of these tokens, the row alone."""
    policy = policy_of(subject)
    row_1L = torch.tensor([[*prompt, *ids]], device=policy.device)
    with torch.no_grad(), policy.as_plain_model() as plain, subject.products():
        mask_1L = torch.ones_like(row_1L)
        logits_1LV = plain(input_ids=row_1L, attention_mask=mask_1L, use_cache=False).logits
    return logits_1LV[0, len(prompt) - 1 : -1].double().cpu()


def rounding(subject: Subject, settings: SamplingSettings) -> float:
    """How far rounding may take two log-probs of one token apart; a low temperature stretches it."""
    policy = policy_of(subject)
    with subject.products():
        device = policy.device.type
        half = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) != torch.float32
    own = max(tolerance(policy), HALF) if half else tolerance(policy)
    return own / min(1.0, settings.temperature or 1.0)


def gaps(logits_TV: Float[Tensor, "T V"], rollout: Rollout, settings: SamplingSettings, slack: float) -> Gaps:
    """Both log-probs of a rollout against the logits.

    Where a token lies on the border of top-k, top-p or min-p, rounding may leave it in or out: what is told
    may then lie anywhere between the log-probs of the two.
    """
    logq_TV = heated(logits_TV, settings)
    own_T = logq_TV.gather(1, torch.tensor(rollout.ids)[:, None])[:, 0]
    whole_T = (torch.tensor(rollout.whole_logp, dtype=torch.float64) - own_T).abs()
    told_T = torch.tensor(rollout.logp, dtype=torch.float64)
    sorted_TV = logq_TV.sort(dim=-1, descending=True).values
    if settings.greedy:
        outside_T = own_T < sorted_TV[:, 0] - slack
        return Gaps(logp_T=told_T.abs(), whole_T=whole_T, outside=int(outside_T.sum()))
    strict_TV, loose_TV = kept(sorted_TV, settings, -slack), kept(sorted_TV, settings, slack)
    highest_T, lowest_T = (own_T - _mass(sorted_TV, one_TV) for one_TV in (strict_TV, loose_TV))
    border_T = sorted_TV.masked_fill(~loose_TV, math.inf).amin(-1)
    apart_T = torch.maximum(lowest_T - told_T, told_T - highest_T).clamp(min=0)
    return Gaps(logp_T=apart_T, whole_T=whole_T, outside=int((own_T < border_T - 2 * slack).sum()))


def heated(logits_TV: Float[Tensor, "T V"], settings: SamplingSettings) -> Float[Tensor, "T V"]:
    """Log-probs of all tokens at the temperature; at 1 where the likeliest is taken.

    >>> heated(torch.tensor([[2.0, 0.0]]), SamplingSettings(temperature=2)).exp()[0, 0].item() > 0.7
    True
    """
    return (logits_TV / (settings.temperature or 1.0)).log_softmax(-1)


def kept(
    sorted_TV: Float[Tensor, "T V"], settings: SamplingSettings, slack: int | float = 0
) -> Bool[Tensor, "T V"]:
    """Which of the tokens, the likeliest first, the settings leave in; slack leaves in more, or fewer.

    >>> kept(torch.tensor([[0.6, 0.3, 0.1]]).log(), SamplingSettings(top_p=0.8)).tolist()
    [[True, True, False]]
    """
    rank_V = torch.arange(sorted_TV.shape[1], device=sorted_TV.device)
    in_TV = (rank_V < (settings.top_k or len(rank_V))).expand(sorted_TV.shape)
    if settings.top_p < 1:
        p_TV = sorted_TV.exp() * in_TV
        before_TV = p_TV.cumsum(-1) - p_TV
        in_TV = in_TV & (before_TV < settings.top_p * math.exp(2 * slack) * p_TV.sum(-1, keepdim=True))
    if settings.min_p:
        least_T1 = sorted_TV[:, :1] + math.log(settings.min_p) - 2 * slack
        in_TV = in_TV & (sorted_TV >= least_T1)
    return in_TV | (rank_V == 0)


def chances_of(logits_1V: Float[Tensor, "1 V"], settings: SamplingSettings) -> Float[Tensor, " V"]:
    """The probability with which each token is drawn."""
    sorted_1V, word_1V = heated(logits_1V, settings).sort(dim=-1, descending=True)
    p_1V = (sorted_1V - _mass(sorted_1V, in_1V := kept(sorted_1V, settings))[:, None]).exp() * in_1V
    return torch.zeros_like(p_1V).scatter_(1, word_1V, p_1V)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How well counts agree with probabilities.

    Example: ``fit(torch.tensor([48, 52]), torch.tensor([0.5, 0.5])).p > 0.05``
    """

    chi_square: float
    """Σ (seen − expected)² / expected, over cells of at least five expected draws."""
    cells: int
    """How many there are."""
    p: float
    """How often chance alone takes counts so far from what is expected."""


def fit(count_V: Tensor, p_V: Float[Tensor, " V"], least: int = 5) -> Fit:
    """Pearson's test; tokens share a cell, the likeliest ones first, until five of its draws are expected.

    >>> fit(torch.tensor([50, 50]), torch.tensor([0.5, 0.5])).p
    1.0
    """
    sorted_V, word_V = p_V.double().sort(descending=True)
    expected_V, seen_V = sorted_V * int(count_V.sum()), count_V[word_V].double()
    cells: list[list[float]] = [[0.0, 0.0]]
    for expected, seen in zip(expected_V.tolist(), seen_V.tolist(), strict=True):
        if cells[-1][0] >= least and (expected or seen):
            cells.append([0.0, 0.0])
        cells[-1][0] += expected
        cells[-1][1] += seen
    if len(cells) > 1 and cells[-1][0] < least:
        expected, seen = cells.pop()
        cells[-1][0] += expected
        cells[-1][1] += seen
    chi_square = math.fsum((seen - expected) ** 2 / expected for expected, seen in cells)
    freedom = torch.tensor((len(cells) - 1) / 2, dtype=torch.float64)
    half = torch.tensor(chi_square / 2, dtype=torch.float64)
    p = 1.0 if len(cells) == 1 else float(torch.special.gammaincc(freedom, half))
    return Fit(chi_square=chi_square, cells=len(cells), p=p)


def _mass(sorted_TV: Tensor, in_TV: Tensor) -> Float[Tensor, " T"]:
    return sorted_TV.masked_fill(~in_TV, -math.inf).logsumexp(-1)
