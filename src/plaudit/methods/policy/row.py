"""A policy algorithm as a row of cells; the trainer fills in tensors and knows no algorithm by name.

advantage × ratio × surrogate × divergence (in the reward, in the loss, none) × reduction × critic. What the
cells are told comes at two moments: `Facts` of a whole batch of answers before the policy moves, and
`Moment`, a piece of it in the eyes of the policy that moves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor

from plaudit.losses.divergence import k3
from plaudit.losses.ratio import completion_log_ratio
from plaudit.losses.reduce import fixed_length, sequence_mean, token_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageInputs:
    """The inputs of advantage functions: all completions of a round, before the first update.

    Example: ``AdvantageInputs(score_N=…, kl_NT=…, beta=0.05, value_NT=…, rival_N=…, mean=0.2, mask_NT=…, …)``
    """

    score_N: Float[Tensor, " N"]
    """The shaped score of each completion."""
    kl_NT: Float[Tensor, "N T"]
    """log π − log π_ref of each token; 0 where the divergence is not in the reward."""
    kl_coefficient: int | float
    """The KL coefficient."""
    value_NT: Float[Tensor, "N T"]
    """V before each token; 0 without a critic."""
    rival_N: Float[Tensor, " N"]
    """The score of one more answer to the same prompt: the likeliest one, or a rival's; 0 without one."""
    mean_score: int | float
    """The mean score of earlier rounds."""
    mask_NT: Bool[Tensor, "N T"]
    """Which tokens are the policy's."""
    group_N: Int[Tensor, " N"]
    """Which prompt each answers, counted from 0."""
    finished_N: Bool[Tensor, " N"]
    """Which ended by themselves."""
    paid_NT: Float[Tensor, "N T"]
    """What of the score is paid before the last token, where a step ends there; 0 without steps."""
    end_NT: Bool[Tensor, "N T"]
    """Where steps end; without steps at each answer's last token alone."""

    @property
    def final_payment_N(self) -> Float[Tensor, " N"]:
        """What of the score is paid at the last token."""
        return self.score_N - completion_log_ratio(self.paid_NT, self.mask_NT)

    @property
    def kl_cost_N(self) -> Float[Tensor, " N"]:
        """What the distance of whole answers costs: β Σ_t KL_t."""
        return self.kl_coefficient * completion_log_ratio(self.kl_NT, self.mask_NT)

    @property
    def reward_N(self) -> Float[Tensor, " N"]:
        """The reward of whole answers: score − β Σ_t KL_t."""
        return self.score_N - self.kl_cost_N


@dataclass(frozen=True, slots=True, kw_only=True)
class SurrogateInputs:
    """The inputs of surrogate functions: one micro-batch under the current policy.

    Example: ``SurrogateInputs(logp_NT=…, shift_NT=…, ratio_NT=…, advantage_NT=…, apart_NT=…, off_NT=…, …)``
    """

    logp_NT: Float[Tensor, "N T"]
    """log π of each token, with its gradient."""
    log_ratio_NT: Float[Tensor, "N T"]
    """log π − log π_old, with its gradient."""
    ratio_NT: Float[Tensor, "N T"]
    """π / π_old of the token, or of its answer where the row has it so."""
    advantage_NT: Float[Tensor, "N T"]
    """The advantage, without gradient."""
    old_kl_NT: Float[Tensor, "N T"]
    """KL(π_old ‖ π) at each token, by e^ρ − 1 − ρ, with its gradient."""
    ref_log_ratio_NT: Float[Tensor, "N T"]
    """log π − log π_ref, with its gradient; log π − log π_old where there is no reference."""
    mask_NT: Bool[Tensor, "N T"]
    """Which tokens are the policy's."""
    kl_penalty: int | float
    """The coefficient of the penalty, where it is adapted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCounts:
    """Token and completion counts of the whole minibatch, over all micro-batches and ranks.

    Example: ``LossCounts(tokens=4096, completions=64, max_tokens=128)``
    """

    tokens: int
    """Tokens that are the policy's."""
    completions: int
    """Completions."""
    max_tokens: int
    """The most tokens that an answer may have."""


Advantage = Callable[[AdvantageInputs], Tensor]
"""From the inputs of a round to the advantage of each token, before whitening."""
Surrogate = Callable[[SurrogateInputs], Tensor]
"""From a micro-batch's inputs to the loss of each token."""
Ratio = Callable[[Tensor, Tensor], Tensor]
"""From per-token log-ratios and the mask to the log-ratios that the surrogate reads."""
KlEstimator = Callable[[Tensor], Tensor]
"""From log π − log π_ref of the sampled token to an estimate of the KL at it."""
Reduction = Literal["tokens", "answers", "fixed"]
"""Every token counts the same, every answer does, or every token whatever the batch's lengths are."""


def token_ratio(log_ratio_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """Each token's own log-ratio."""
    del mask_NT
    return log_ratio_NT


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """A policy algorithm: advantage, ratio, surrogate, divergence, reduction and what they need.

    Example: ``PolicyRow(advantage=lambda facts: spread(z_score(…), facts.mask_NT), surrogate=…)``
    """

    advantage: Advantage
    """The advantage function."""
    surrogate: Surrogate
    """The loss of each token."""
    ratio: Ratio = token_ratio
    """The importance ratio: of each token, or of the completion."""
    reduction: Reduction = "answers"
    """How token losses are reduced to one number."""
    divergence: Literal["reward", "loss", "none"] = "none"
    """Where the KL from the reference is applied."""
    estimator: KlEstimator = k3
    """How it is estimated at a token: in a reward k1 has the right gradient, in a loss k2 or k3."""
    beta: int | float = 0.0
    """The KL coefficient."""
    needs_critic: bool = False
    """Whether a critic is trained."""
    whitens_advantages: bool = False
    """Whether advantages are brought to mean 0 and deviation 1 over the tokens of the round."""
    entropy: int | float = 0.0
    """How much −H(π) counts in the loss."""
    needs_greedy_baseline: bool = False
    """Whether a greedy completion of each prompt is generated and scored as baseline."""
    needs_rival: bool = False
    """Whether a rival completion from the mixture of policy and reference is generated and scored."""
    uses_trpo_step: bool = False
    """Whether the step is TRPO's: along the natural gradient, as far as the KL allows."""
    has_adaptive_penalty: bool = False
    """Whether the surrogate has a penalty whose coefficient doubles and halves."""
    clip_low: int | float = 0.0
    """ε below 1, for the figures of clipped tokens."""
    clip_high: int | float = 0.0
    """ε above 1, likewise."""
    has_bandit_critic: bool = False
    """Whether the critic is taught the reward of the whole answer at each token."""
    needs_pairs: bool = False
    """Whether every prompt needs exactly two answers."""
    surrogate_uses_reference: bool = False
    """Whether the surrogate itself compares the policy with its reference."""
    needs_comparison: bool = False
    """Whether a group needs two completions or more to carry a signal."""

    @property
    def needs_reference(self) -> bool:
        """Whether a reference is needed."""
        return self.divergence != "none" or self.surrogate_uses_reference


def reduce_loss(
    reduction: Reduction, loss_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"], counts: LossCounts
) -> Float[Tensor, ""]:
    """One number from a loss at each token.

    >>> import torch
    >>> counts = LossCounts(tokens=4, completions=2, max_tokens=8)
    >>> reduce_loss("tokens", torch.ones(1, 2), torch.ones(1, 2).bool(), counts).item()
    0.5
    """
    if reduction == "tokens":
        return token_mean(loss_NT, mask_NT, tokens=counts.tokens)
    if reduction == "answers":
        return sequence_mean(loss_NT, mask_NT, completions=counts.completions)
    return fixed_length(loss_NT, mask_NT, completions=counts.completions, longest=counts.max_tokens)
