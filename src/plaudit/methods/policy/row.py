"""An algorithm of policy optimisation as a record of cells; the trainer knows records, not names.

    advantage × ratio × surrogate × trust × divergence (in reward | in loss | none) × reduction × data

Cells are pure functions and say themselves what they need (``@needs("critic")``). What they are told comes at
two moments: ``AdvantageInputs`` of a whole round before the policy moves, and ``SurrogateInputs``, a
micro-batch of it under the policy that moves. A surrogate of one's own:

    def mine(inputs: SurrogateInputs) -> Tensor:
        return -inputs.ratio_NT.clamp(max=1.2) * inputs.advantage_NT

    algorithm = replace(grpo(), surrogate=mine)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor

from plaudit.advantages.group import win_probability_advantage
from plaudit.losses.ratio import completion_log_ratio
from plaudit.methods.algorithm import cell_settings
from plaudit.methods.policy import cells
from plaudit.tensors.needs import needs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageInputs:
    """The inputs of advantage functions: all completions of a round, before the first update."""

    score_N: Float[Tensor, " N"]
    kl_NT: Float[Tensor, "N T"]
    """log π − log π_ref of each token; 0 where the divergence is not in the reward."""
    kl_coefficient: int | float
    value_NT: Float[Tensor, "N T"]
    """V before each token; 0 without a critic."""
    rival_N: Float[Tensor, " N"]
    """The score of one more answer to the same prompt: the likeliest one, or a rival's; 0 without one."""
    scores_are_probabilities: bool = False
    """Whether a judge of pairs gave them: each is P(y ≻ y′) against the rival, and not a reward."""
    mean_score: Float[Tensor, " N"] | int | float
    """The mean score of earlier rounds; in the first one, for each answer, that of the others."""
    mask_NT: Bool[Tensor, "N T"]
    group_N: Int[Tensor, " N"]
    """Which prompt each answers, counted from 0."""
    finished_N: Bool[Tensor, " N"]
    paid_NT: Float[Tensor, "N T"]
    """What of the score is paid before the last token, where a step ends there; 0 without steps."""
    end_NT: Bool[Tensor, "N T"]
    """Where steps end; without steps at each answer's last token alone."""

    @property
    def final_payment_N(self) -> Float[Tensor, " N"]:
        """What of the score is paid at the last token."""
        # Whatever shaping did to the score lands at the last token, so that payments always add up to it.
        return self.score_N - completion_log_ratio(self.paid_NT, self.mask_NT)

    @property
    def win_probability_N(self) -> Float[Tensor, " N"]:
        """P(y ≻ y′) against the rival; of rewards σ(r − r′), by Bradley and Terry."""
        if self.scores_are_probabilities:
            return self.score_N
        return 0.5 + win_probability_advantage(self.score_N, self.rival_N)

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
    """The inputs of surrogate functions: one micro-batch under the current policy."""

    logp_NT: Float[Tensor, "N T"]
    log_ratio_NT: Float[Tensor, "N T"]
    ratio_NT: Float[Tensor, "N T"]
    """π / π_old of the token, or of its answer where the algorithm has it so."""
    advantage_NT: Float[Tensor, "N T"]
    old_kl_NT: Float[Tensor, "N T"]
    """KL(π_old ‖ π) at each token, by e^ρ − 1 − ρ, with its gradient."""
    ref_log_ratio_NT: Float[Tensor, "N T"]
    """log π − log π_ref, with its gradient; log π − log π_old where there is no reference."""
    mask_NT: Bool[Tensor, "N T"]
    kl_penalty: int | float
    whole_old_kl_NT: Float[Tensor, "N T"] | None = None
    """KL(π_old ‖ π) of the whole distributions, without gradient, for surrogates that need it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCounts:
    """Token and completion counts of the whole minibatch, over all micro-batches and ranks."""

    tokens: int
    completions: int
    max_tokens: int


Advantage = Callable[[AdvantageInputs], Tensor]
"""From the inputs of a round to the advantage of each token, before whitening."""
Surrogate = Callable[[SurrogateInputs], Tensor]
"""From a micro-batch's inputs to the loss of each token."""
Ratio = Callable[[Tensor, Tensor], Tensor]
"""From per-token log-ratios and the mask to the log-ratios that the surrogate reads."""
KlEstimator = Callable[[Tensor], Tensor]
"""From log π − log π_ref of the sampled token to an estimate of the KL at it."""
Reduction = Callable[[Tensor, Tensor, LossCounts], Tensor]
"""From token losses, the mask and the counts of the whole minibatch to one number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAlgorithm:
    """A policy algorithm: its cells, how a round is used, and how its completions are drawn.

    Example: ``PolicyAlgorithm(advantage=group_z, surrogate=partial(clip, clip_low=0.2, clip_high=0.2))``
    """

    advantage: Advantage
    """The advantage function."""
    surrogate: Surrogate
    """The loss of each token."""
    ratio: Ratio = cells.token_ratio
    """The importance ratio: of each token, or of the completion."""
    reward_kl: KlEstimator | None = None
    """The KL from the reference in the reward, estimated at a token; k1 has the right gradient there."""
    loss_kl: KlEstimator | None = None
    """The KL from the reference in the loss, estimated at a token; k2 or k3."""
    kl_coef: int | float = 0.0
    """The KL coefficient."""
    kl_coef_target: int | float | None = None
    """The KL of an answer in the reward that the coefficient is made to follow; None: it stays."""
    kl_coef_horizon: int | float = 10_000.0
    """Answers in which it goes all the way to its target."""
    reduction: Reduction = cells.answer_mean
    """How token losses are reduced to one number."""
    entropy_coef: int | float = 0.0
    """How much −H(π) counts in the loss."""
    whiten_advantages: bool | None = None
    """Whether advantages get mean 0 and deviation 1 over the round; None: as the advantage has it."""
    vf_coef: int | float = 0.1
    """How much the critic's loss counts beside the policy's, where a cell needs a critic."""
    value_lr_scale: int | float = 1.0
    """The critic's learning rate, as a multiple of the policy's."""
    ptx_coef: int | float = 0.0
    """How much −log π a token of the text of ``ptx.data`` counts; 0: 1 where there is such text."""
    max_kl: int | float = 0.0
    """TRPO's δ: above 0 an update is a natural-gradient step as far as this KL(π_old ‖ π) a token."""
    penalty_coef: int | float = 1.0
    """The first coefficient of an adaptive penalty, where the surrogate has one."""
    penalty_coef_target: int | float = 0.01
    """The KL(π_old ‖ π) a token towards which it is doubled and halved."""
    update_epochs: int = 1
    """How often the answers of a round are gone through."""
    minibatches: int = 1
    """Updates of one such epoch."""
    target_kl: int | float | None = None
    """KL(π_old ‖ π) a token beyond which the rest of a round is left out; None: never."""
    tis_cap: int | float = 0.0
    """The largest weight of a token for what the sampler drew otherwise than the policy; 0 weighs nothing."""
    off_policy_mask: int | float = 0.0
    """Nats a token by which a bad answer may have become rarer in its round, at most; 0 keeps all."""
    group_size: int = 8
    """Answers to each prompt."""
    dynamic_sampling: bool = False
    """Whether prompts whose answers all have one score are replaced by others."""
    mixture_coef: int | float = 0.0
    """The reference's share in the mixture that pairs, or the answers of rivals, are drawn from."""
    overlong_filtering: bool = False
    """Whether answers that were cut are left out of the loss."""
    overlong_buffer: int | float = 0.0
    """The last share of the longest length, in which an answer is punished up to −1."""
    missing_eos_penalty: int | float | None = None
    """The score of an answer that was cut, in place of its own."""
    name: str = "own"
    """What the command calls it."""
    formula: str = "an algorithm of your own"
    """What sets it apart, in a line."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The settings that it was made with."""

    @property
    def needs(self) -> frozenset[str]:
        """What its cells need: critic, reference, group, pairs, rival, old_distribution …"""
        needed = needs_of(self.advantage, self.surrogate, self.ratio, self.reduction)
        # On the very tokens that were learnt a KL comes out several times as large as over the distribution.
        if self.target_kl or self.max_kl or "adaptive_penalty" in needed:
            needed |= {"old_distribution"}
        return needed | {"reference"} if self.divergence != "none" else needed

    @property
    def divergence(self) -> Literal["reward", "loss", "none"]:
        """Where the KL from the reference counts."""
        if self.reward_kl is not None:
            return "reward"
        return "none" if self.loss_kl is None else "loss"

    @property
    def whitens_advantages(self) -> bool:
        """Whether advantages are brought to mean 0 and deviation 1 over the tokens of the round."""
        return "whitening" in self.needs if self.whiten_advantages is None else self.whiten_advantages

    @property
    def clip_range(self) -> tuple[float, float] | None:
        """ε below and above 1 where the surrogate clips the ratio of tokens; None where it does not."""
        # clip_high tells clips of single tokens from p3o's, whose clip_low bounds whole completions.
        settings = cell_settings(self.surrogate)
        return (settings["clip_low"], settings["clip_high"]) if "clip_high" in settings else None

    @property
    def updates_per_round(self) -> int:
        """Updates from the answers of one round."""
        return self.update_epochs * self.minibatches


@dataclass(frozen=True, slots=True, kw_only=True)
class KlControl:
    """The schedule of the KL coefficient, and the KL at which a round ends early."""

    schedule: Literal["fixed", "proportional", "doubling"] = "fixed"
    """Fixed, proportional to the KL (Ziegler et al. 2019), or doubling and halving (PPO)."""
    start_coefficient: int | float = 0.0
    target_kl: int | float = 0.0
    horizon: int | float = 10_000
    """Completions over which the proportional controller makes up the whole error."""
    stop_at: int | float = 0.0
    """KL(π_old ‖ π) a token beyond which the rest of a round is left out; 0 never."""

    @classmethod
    def of(cls, algorithm: PolicyAlgorithm) -> "KlControl":
        """The control that an algorithm has."""
        stop_at = algorithm.target_kl or 0.0
        if "adaptive_penalty" in algorithm.needs:
            return cls(
                schedule="doubling",
                start_coefficient=algorithm.penalty_coef,
                target_kl=algorithm.penalty_coef_target,
                stop_at=stop_at,
            )
        return cls(
            schedule="fixed" if algorithm.kl_coef_target is None else "proportional",
            start_coefficient=algorithm.kl_coef,
            target_kl=algorithm.kl_coef_target or 0.0,
            horizon=algorithm.kl_coef_horizon,
            stop_at=stop_at,
        )
