"""Estimators of policy optimisation without sampling: every group of answers that can come, by its chance.

A table policy answers each prompt G times. All groups are written out, so what a loss does *in expectation*
is a finite sum, to be put beside the exact gradient of J(π) = E r − β KL(π ‖ π_ref). The estimators are put
together from the cells that training uses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from examples.proofs.exact import Language, Strings, TablePolicy, token_logps
from plaudit.advantages.group import greedy_baseline, leave_one_out, z_score
from plaudit.advantages.temporal import gae, reward_to_go, token_rewards
from plaudit.losses.divergence import k1
from plaudit.losses.policy import policy_gradient
from plaudit.losses.ratio import log_ratio, ratio
from plaudit.losses.reduce import sequence_mean
from plaudit.tensors.masked import broadcast_to_tokens, masked_sum


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactBatch:
    """All groups of all prompts as one batch, each completion weighted by its share of the expectation."""

    language: Language
    logit_PY: Float[Tensor, "P Y"]
    """The weights by which gradients are taken."""
    logp_NT: Float[Tensor, "N T"]
    old_logp_NT: Float[Tensor, "N T"]
    prompt_N: Int[Tensor, " N"]
    answer_N: Int[Tensor, " N"]
    group_N: Int[Tensor, " N"]
    share_N: Float[Tensor, " N"]
    """The group's chance over G and over the prompts; all add up to 1."""

    @property
    def mask_NT(self) -> Bool[Tensor, "N T"]:
        return self.language.mask_YT[self.answer_N]

    @property
    def reward_N(self) -> Float[Tensor, " N"]:
        return self.language.reward_PY[self.prompt_N, self.answer_N]

    @property
    def ref_log_ratio_NT(self) -> Float[Tensor, "N T"]:
        """log π − log π_ref of each token, with gradient."""
        return self.logp_NT - self.per_completion(self.language.ref_logp_PYT)

    def per_completion(self, value_PYT: Float[Tensor, "P Y T"]) -> Float[Tensor, "N T"]:
        """A value of each answer's tokens, gathered for each completion of the batch."""
        return value_PYT[self.prompt_N, self.answer_N]

    def weighted(self, loss_NT: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
        """Losses times shares: their sum over completions is a mean in expectation."""
        return loss_NT * self.share_N[:, None]


SEED_OFFSET = 7919
"""Offset of policy seeds, so that they differ from those of languages."""
Estimator = Callable[[ExactBatch], Float[Tensor, ""]]
"""A loss in expectation, to be minimised; its gradient is an estimate of −∇J."""


def token_sum(loss_NT: Float[Tensor, "N T"], batch: ExactBatch) -> Float[Tensor, ""]:
    """Σ over a completion's tokens, mean over completions: the reduction that keeps ∇J as it is."""
    return masked_sum(batch.weighted(loss_NT), batch.mask_NT)


def perturbed_policy(
    language: Language,
    start_PY: Float[Tensor, "P Y"] | None = None,
    *,
    seed: int = 0,
    width: int | float = 1.0,
) -> Float[Tensor, "P Y"]:
    """log π of a perturbed policy: the start (by default the reference) with noise of that width on its
    logits.

    >>> from examples.proofs.exact import make_language
    >>> perturbed_policy(make_language(seed=0)).exp().sum(-1).sub(1).abs().max().item() < 1e-12
    True
    """
    # A language draws its rewards first, in the same shape: with its seed the noise would be those rewards.
    generator = torch.Generator().manual_seed(SEED_OFFSET + seed)
    noise_PY = torch.randn(language.reward_PY.shape, generator=generator, dtype=torch.float64)
    start_PY = language.ref_logp_PY if start_PY is None else start_PY
    return (start_PY + width * noise_PY).log_softmax(-1)


def exact_batch(
    language: Language,
    logp_PY: Float[Tensor, "P Y"],
    *,
    size: int,
    old_PY: Float[Tensor, "P Y"] | None = None,
    ordered: bool = True,
) -> ExactBatch:
    """Every group of ``size`` answers, weighted by its probability under the old policy (by default the same
    one). Not ordered, groups of the same answers are one group with all their chance: the same expectation
    for a loss that does not see the order, and few enough for large groups.

    >>> from examples.proofs.exact import make_language
    >>> spoken = make_language(seed=0)
    >>> seen = exact_batch(spoken, spoken.ref_logp_PY, size=3)
    >>> len(seen.share_N), round(seen.share_N.sum().item(), 12)
    (20250, 1.0)
    """
    old_PY = logp_PY if old_PY is None else old_PY
    answer_KG = _answer_groups(logp_PY.shape[-1], size, ordered)
    # Divided by P: the groups of all prompts together have chance 1.
    probability_PK = (old_PY[:, answer_KG].sum(-1) + _log_orderings(answer_KG, ordered)).exp() / len(old_PY)
    prompt_N = torch.arange(len(old_PY)).repeat_interleave(answer_KG.numel())
    answer_N = answer_KG.flatten().repeat(len(old_PY))
    table = TablePolicy(language, logp_PY)
    return ExactBatch(
        language=language,
        logit_PY=table.logit_PY,
        # Every group reads the same table, so their gradients add up in its logits.
        logp_NT=table()[prompt_N, answer_N],
        # The sampling policy is data: no gradient through a ratio's denominator, on-policy either.
        old_logp_NT=token_logps(old_PY, language)[0][prompt_N, answer_N].detach(),
        prompt_N=prompt_N,
        answer_N=answer_N,
        group_N=torch.arange(probability_PK.numel()).repeat_interleave(size),
        # 1/G of its group's chance: an estimator's mean over the group is in the weights already.
        share_N=probability_PK.flatten().repeat_interleave(size).detach() / size,
    )


def expected_gradient(estimator: Estimator, batch: ExactBatch) -> Float[Tensor, "P Y"]:
    """Where the estimator sends the logits in expectation: −∇ of its loss."""
    (slope_PY,) = torch.autograd.grad(estimator(batch), batch.logit_PY, retain_graph=True)
    return -slope_PY


def relative_error(estimate_PY: Float[Tensor, "P Y"], exact_PY: Float[Tensor, "P Y"]) -> float:
    """|found − exact| / |exact|: length and direction in one figure.

    >>> relative_error(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0]]))
    0.5
    """
    return ((estimate_PY - exact_PY).norm() / exact_PY.norm()).item()


def cosine(estimate_PY: Float[Tensor, "P Y"], exact_PY: Float[Tensor, "P Y"]) -> float:
    """1 where both go the same way.

    >>> cosine(torch.tensor([[3.0, 0.0]]), torch.tensor([[2.0, 0.0]]))
    1.0
    """
    return ((estimate_PY * exact_PY).sum() / (estimate_PY.norm() * exact_PY.norm())).item()


def prefix_values(
    logp_PY: Float[Tensor, "P Y"], worth_PY: Float[Tensor, "P Y"], language: Language
) -> Float[Tensor, "P Y T"]:
    """V before each token: the mean worth of all answers that begin so; 0 behind the end.

    >>> from examples.proofs.exact import make_language
    >>> spoken = make_language(seed=0)
    >>> one_PY = torch.ones_like(spoken.reward_PY)
    >>> bool((prefix_values(spoken.ref_logp_PY, one_PY,
    ...     spoken).sum(-1) - spoken.length_Y).abs().max() < 1e-12)
    True
    """
    begins_YTZ, prob_PY = _shared_prefixes(language.responses), logp_PY.exp()
    worth_PYT, mass_PYT = (
        torch.einsum("ytz,pz->pyt", begins_YTZ, share_PY) for share_PY in (prob_PY * worth_PY, prob_PY)
    )
    return (worth_PYT / mass_PYT).masked_fill(~language.mask_YT, 0.0)


@cache
def prefix_continuations(responses: Strings, symbols: int) -> Float[Tensor, "S V Y"]:
    """1 where answer y goes through prefix s and continues with token v."""
    beginnings = sorted({answer[:t] for answer in responses for t in range(len(answer))})
    rows = [
        [[answer[: len(s) + 1] == (*s, v) for answer in responses] for v in range(symbols + 1)]
        for s in beginnings
    ]
    return torch.tensor(rows, dtype=torch.float64)


@cache
def _shared_prefixes(responses: Strings) -> Tensor:
    """1 where answer z begins with the first t tokens of y."""
    rows = [[[z[:t] == y[:t] for z in responses] for t in range(max(map(len, responses)))] for y in responses]
    return torch.tensor(rows, dtype=torch.float64)


@cache
def _answer_groups(answers: int, size: int, ordered: bool) -> Tensor:
    if ordered:
        # Of a single tensor cartesian_prod makes a vector; groups of one are a matrix as well.
        return torch.cartesian_prod(*[torch.arange(answers)] * size).reshape(-1, size)
    return torch.tensor(list(combinations_with_replacement(range(answers), size)))


def _log_orderings(answer_KG: Tensor, ordered: bool) -> Tensor:
    """The log of how many orders a group has: G! / Π (how often each answer is in it)!"""
    if ordered:
        return torch.zeros(len(answer_KG), dtype=torch.float64)
    size = answer_KG.shape[1]
    # Rows are sorted: the k-th of equal answers counts k, and the product of those is the factorial.
    rank_KG = (answer_KG[:, :, None] == answer_KG[:, None, :]).tril().sum(-1)
    return torch.arange(1, size + 1, dtype=torch.float64).log().sum() - rank_KG.double().log().sum(-1)


Advantage = Callable[[ExactBatch], Float[Tensor, "N T"]]
"""A cell at work: the advantage of each token."""


def reinforce(advantage: Advantage) -> Estimator:
    """−A log π of the advantage, summed over tokens."""
    return lambda batch: token_sum(policy_gradient(batch.logp_NT, advantage(batch)), batch)


def completion_advantage(advantage: Callable[[ExactBatch], Float[Tensor, " N"]]) -> Advantage:
    """A completion's advantage at each of its tokens."""
    return lambda batch: broadcast_to_tokens(advantage(batch), batch.mask_NT)


def token_ratios(batch: ExactBatch) -> Float[Tensor, "N T"]:
    return ratio(log_ratio(batch.logp_NT, batch.old_logp_NT, batch.mask_NT))


def token_rewards_without_kl(batch: ExactBatch) -> Float[Tensor, "N T"]:
    return token_rewards(batch.reward_N, torch.zeros_like(batch.logp_NT), batch.mask_NT, beta=0.0)


def true_values(batch: ExactBatch) -> Float[Tensor, "N T"]:
    """V of who sampled, before each token: what a perfect critic says."""
    return policy_values(batch, batch.old_logp_NT)


def stale_values(batch: ExactBatch) -> Float[Tensor, "N T"]:
    """V of the reference: a critic that nobody has trained since."""
    return batch.per_completion(
        prefix_values(batch.language.ref_logp_PY, batch.language.reward_PY, batch.language)
    )


def policy_values(batch: ExactBatch, logp_NT: Float[Tensor, "N T"]) -> Float[Tensor, "N T"]:
    """V of the policy with these log-probs, before each token."""
    # Every answer is in some group; what is said of it there is said of it anywhere.
    logp_PY = torch.zeros_like(batch.language.reward_PY)
    # detach: V is held while the policy moves, as a critic's is.
    logp_PY[batch.prompt_N, batch.answer_N] = logp_NT.detach().sum(-1)
    return batch.per_completion(prefix_values(logp_PY, batch.language.reward_PY, batch.language))


def rloo_advantage(batch: ExactBatch) -> Float[Tensor, "N T"]:
    """RLOO's advantage: the score less the mean of the other answers' scores."""
    return broadcast_to_tokens(leave_one_out(batch.reward_N, batch.group_N), batch.mask_NT)


def remax_advantage(batch: ExactBatch) -> Float[Tensor, "N T"]:
    """ReMax's advantage: the score less that of the greedy answer."""
    greedy_P = batch.language.reward_PY.gather(-1, batch.logit_PY.argmax(-1, keepdim=True)).squeeze(-1)
    return broadcast_to_tokens(greedy_baseline(batch.reward_N, greedy_P, batch.prompt_N), batch.mask_NT)


def gae_estimator(
    lam: int | float, critic: Callable[[ExactBatch], Float[Tensor, "N T"]] = true_values
) -> Estimator:
    """GAE with γ = 1."""
    return reinforce(
        lambda batch: gae(token_rewards_without_kl(batch), critic(batch), batch.mask_NT, gamma=1, lam=lam)
    )


def kl_penalised_reinforce(beta: float, cell: Callable[[Tensor], Tensor] = k1) -> Estimator:
    """Reward-to-go of rewards with −β KL at each token."""

    def to_go(batch: ExactBatch) -> Tensor:
        # KL inside a reward is a number; it acts on ∇ log π by being multiplied with it.
        kl_NT = cell(batch.ref_log_ratio_NT.detach())
        reward_NT = token_rewards(batch.reward_N, kl_NT, batch.mask_NT, beta=beta)
        return reward_to_go(reward_NT, batch.mask_NT, gamma=1)

    return reinforce(to_go)


def grpo_advantage(batch: ExactBatch) -> Float[Tensor, "N T"]:
    return broadcast_to_tokens(z_score(batch.reward_N, batch.group_N, epsilon=0.0), batch.mask_NT)


def sequence_mean_loss(loss_NT: Float[Tensor, "N T"], batch: ExactBatch) -> Float[Tensor, ""]:
    """GRPO's reduction: the mean of a completion's tokens, mean over completions."""
    return sequence_mean(batch.weighted(loss_NT), batch.mask_NT, completions=1)
