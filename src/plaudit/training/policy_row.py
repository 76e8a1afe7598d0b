"""A policy algorithm as a row of cells; the trainer fills in tokens and knows no algorithm by name.

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
from plaudit.losses.ratio import of_completion
from plaudit.losses.reduce import fixed_length, sequence_mean, token_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of all answers of a round before the policy moves.

    Example: ``Facts(score_N=…, kl_NT=…, beta=0.05, value_NT=…, rival_N=…, mean=0.2, mask_NT=…, …)``
    """

    score_N: Float[Tensor, " N"]
    """What the reward said, shaped."""
    kl_NT: Float[Tensor, "N T"]
    """log π − log π_ref of each token; 0 where the divergence is not in the reward."""
    beta: int | float
    """Its coefficient now."""
    value_NT: Float[Tensor, "N T"]
    """V before each token; 0 without a critic."""
    rival_N: Float[Tensor, " N"]
    """The score of one more answer to the same prompt: the likeliest one, or a rival's; 0 without one."""
    mean: int | float
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
    def rest_N(self) -> Float[Tensor, " N"]:
        """What of the score is paid at the last token."""
        return self.score_N - of_completion(self.paid_NT, self.mask_NT)

    @property
    def cost_N(self) -> Float[Tensor, " N"]:
        """What the distance of whole answers costs: β Σ_t KL_t."""
        return self.beta * of_completion(self.kl_NT, self.mask_NT)

    @property
    def reward_N(self) -> Float[Tensor, " N"]:
        """The reward of whole answers: score − β Σ_t KL_t."""
        return self.score_N - self.cost_N


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A piece of the batch in the eyes of the policy that moves.

    Example: ``Moment(logp_NT=…, shift_NT=…, ratio_NT=…, advantage_NT=…, apart_NT=…, off_NT=…, …)``
    """

    logp_NT: Float[Tensor, "N T"]
    """log π of each token, with its gradient."""
    shift_NT: Float[Tensor, "N T"]
    """log π − log π_old, with its gradient."""
    ratio_NT: Float[Tensor, "N T"]
    """π / π_old of the token, or of its answer where the row has it so."""
    advantage_NT: Float[Tensor, "N T"]
    """How much better than expected; without gradient."""
    apart_NT: Float[Tensor, "N T"]
    """KL(π_old ‖ π) at each token, by e^ρ − 1 − ρ, with its gradient."""
    off_NT: Float[Tensor, "N T"]
    """log π − log π_ref, with its gradient; log π − log π_old where there is no reference."""
    mask_NT: Bool[Tensor, "N T"]
    """Which tokens are the policy's."""
    beta: int | float
    """The coefficient of the penalty, where it is adapted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How much there is in the whole minibatch, over all pieces and ranks.

    Example: ``Counts(tokens=4096, completions=64, longest=128)``
    """

    tokens: int
    """Tokens that are the policy's."""
    completions: int
    """Answers."""
    longest: int
    """The most tokens that an answer may have."""


Advantage = Callable[[Facts], Tensor]
"""From what is known of all answers to the advantage of each token, before whitening."""
Surrogate = Callable[[Moment], Tensor]
"""From a piece to what each token loses."""
Ratio = Callable[[Tensor, Tensor], Tensor]
"""From the log-ratio of each token, and the mask, to that which the surrogate sees."""
Estimator = Callable[[Tensor], Tensor]
"""From log π − log π_ref of the token that was said to the divergence at it."""
Reduction = Literal["tokens", "answers", "fixed"]
"""Every token counts the same, every answer does, or every token whatever the batch's lengths are."""


def by_token(log_ratio_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """Each token's own log-ratio."""
    del mask_NT
    return log_ratio_NT


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """An algorithm.

    Example: ``PolicyRow(advantage=lambda facts: spread(z_score(…), facts.mask_NT), surrogate=…)``
    """

    advantage: Advantage
    """How much better than expected each token was."""
    surrogate: Surrogate
    """What is minimised at each token."""
    ratio: Ratio = by_token
    """Whose ratio: of each token, or of the answer."""
    reduction: Reduction = "answers"
    """How tokens become one number."""
    divergence: Literal["reward", "loss", "none"] = "none"
    """Where the distance from the reference counts."""
    estimator: Estimator = k3
    """How it is estimated at a token: in a reward k1 has the right gradient, in a loss k2 or k3."""
    beta: int | float = 0.0
    """How much it counts."""
    critic: bool = False
    """Whether a second model says what is to be expected."""
    whiten: bool = False
    """Whether advantages are brought to mean 0 and deviation 1 over the tokens of the round."""
    entropy: int | float = 0.0
    """How much −H(π) counts in the loss."""
    greedy: bool = False
    """Whether the likeliest answer to each prompt is drawn and scored too."""
    duels: bool = False
    """Whether a rival's answer to each prompt is, drawn from the mixture of policy and reference."""
    natural: bool = False
    """Whether the step is TRPO's: along the natural gradient, as far as the KL allows."""
    adaptive: bool = False
    """Whether the surrogate has a penalty whose coefficient doubles and halves."""
    clip_low: int | float = 0.0
    """ε below 1, for the figures of clipped tokens."""
    clip_high: int | float = 0.0
    """ε above 1, likewise."""
    bandit: bool = False
    """Whether the critic is taught the reward of the whole answer at each token."""
    pairs: bool = False
    """Whether every prompt needs exactly two answers."""
    contrasts: bool = False
    """Whether the surrogate itself compares the policy with its reference."""
    compares: bool = False
    """Whether an answer that is alone would teach nothing."""

    @property
    def referenced(self) -> bool:
        """Whether a reference is asked."""
        return self.divergence != "none" or self.contrasts


def reduced(
    how: Reduction, loss_NT: Float[Tensor, "N T"], mask_NT: Bool[Tensor, "N T"], counts: Counts
) -> Float[Tensor, ""]:
    """One number from a loss at each token.

    >>> import torch
    >>> counts = Counts(tokens=4, completions=2, longest=8)
    >>> reduced("tokens", torch.ones(1, 2), torch.ones(1, 2).bool(), counts).item()
    0.5
    """
    if how == "tokens":
        return token_mean(loss_NT, mask_NT, tokens=counts.tokens)
    if how == "answers":
        return sequence_mean(loss_NT, mask_NT, completions=counts.completions)
    return fixed_length(loss_NT, mask_NT, completions=counts.completions, longest=counts.longest)
