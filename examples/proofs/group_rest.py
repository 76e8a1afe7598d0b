"""Fixed points of advantages within a group, computed without the cells that training uses.

On answers of the policy itself an answer is pushed by Ā(y), its mean advantage over all groups that it can be
in. A KL in the loss holds the next token at its prefix. Where both are even, π is told by an equation that
has π on both sides; it is solved by putting its answer in again. For answers of one token and k3 it is
π = β π_ref / (β − Ā): Vojnovic and Yun 2025, arXiv:2502.18548.
"""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from examples.proofs.estimators import prefix_continuations
from examples.proofs.exact import Language, normalised_member

STD_EPSILON = 1e-4
TokenSolution = Callable[
    [Float[Tensor, "M V"], Float[Tensor, "M V"], Float[Tensor, "M V"]], Float[Tensor, "M V"]
]
"""From the push, the leash β m and π_ref of each next token to its log π; rising in the push."""


def k3_solution(
    push_MV: Float[Tensor, "M V"], leash_MV: Float[Tensor, "M V"], ref_MV: Float[Tensor, "M V"]
) -> Float[Tensor, "M V"]:
    """π = β m π_ref / (β m − push): k3 as a loss has the gradient of KL(π_ref ‖ π)."""
    return (leash_MV * ref_MV / (leash_MV - push_MV)).log()


def k2_solution(
    push_MV: Float[Tensor, "M V"], leash_MV: Float[Tensor, "M V"], ref_MV: Float[Tensor, "M V"]
) -> Float[Tensor, "M V"]:
    """π = π_ref exp(push / β m): k2 as a loss has the gradient of KL(π ‖ π_ref)."""
    return ref_MV.log() + push_MV / leash_MV


def group_advantages(
    language: Language,
    size: int,
    *,
    epsilon: int | float = STD_EPSILON,
    correction: int = 1,
    scaled: bool = True,
) -> Float[Tensor, "P Y *others"]:
    """The advantage of the first answer of every possible group: one axis for each answer of the group."""
    answers = len(language.responses)
    reward_PKG = language.reward_PY[:, torch.cartesian_prod(*[torch.arange(answers)] * size).view(-1, size)]
    centred_PKG = reward_PKG - reward_PKG.mean(-1, keepdim=True)
    deviation_PK = (centred_PKG.square().sum(-1) / (size - correction)).sqrt() + epsilon
    return (centred_PKG[..., 0] / (deviation_PK if scaled else 1.0)).view(-1, *[answers] * size)


def mean_advantage(
    groups_PY: Float[Tensor, "P Y *others"], prob_PY: Float[Tensor, "P Y"]
) -> Float[Tensor, "P Y"]:
    """Ā(y): the others of the group come as the policy says them."""
    while groups_PY.dim() > 2:
        # The last axis is one other member of the group, averaged away as the policy says it.
        groups_PY = torch.einsum("p...y,py->p...", groups_PY, prob_PY)
    return groups_PY


def fixed_point(
    language: Language,
    groups_PY: Float[Tensor, "P Y *others"],
    *,
    beta: float,
    solution: TokenSolution = k3_solution,
    by_answer: bool = True,
) -> Float[Tensor, "P Y"]:
    """log π at which advantage and KL penalty balance at every prefix.
    With w = 1 / |y| (``by_answer``) or 1, Ā w and w are averaged over the answers through a next token; the
    constant of each prefix makes its probabilities add up to 1."""
    onward_SVY = prefix_continuations(language.responses, language.symbols)
    weight_Y = language.length_Y.to(torch.float64) ** (-1 if by_answer else 0)
    ref_MV = _per_next_token(onward_SVY, language.ref_logp_PY.exp())
    # π_ref(v | s): the mass through s and v over the mass through s.
    ref_MV = ref_MV / ref_MV.sum(-1, keepdim=True)
    logp_PY, step_MV = language.ref_logp_PY, ref_MV.log()
    for _ in range(1000):
        prob_PY = logp_PY.exp()
        advantage_PY = mean_advantage(groups_PY, prob_PY)
        reach_MV = _per_next_token(onward_SVY, prob_PY)
        push_MV = _per_next_token(onward_SVY, prob_PY * weight_Y * advantage_PY) / reach_MV
        leash_MV = beta * _per_next_token(onward_SVY, prob_PY * weight_Y) / reach_MV
        # Bisection ends a hair below a sum of 1; renormalised, that does not add up over the rounds.
        new_MV = normalised_member(
            partial(_solution_at, solution, push_MV, leash_MV, ref_MV), len(ref_MV)
        ).log_softmax(-1)
        if (new_MV - step_MV).abs().max() < 1e-12:
            break
        # Half of the way: Ā falls where π rises, and a whole step would go to and fro.
        step_MV = ((step_MV + new_MV) / 2).log_softmax(-1)
        # log π(y) is the sum over the steps that y takes; prefixes are shared by all answers through them.
        logp_PY = torch.einsum("svy,psv->py", onward_SVY, step_MV.view(len(logp_PY), *onward_SVY.shape[:2]))
    return logp_PY


def two_answer_fixed_point(language: Language, size: int, *, beta: float) -> Float[Tensor, "P Y"]:
    """The fixed point of GRPO with two answers of one token: β (q − p) = E_x push, with x ~ binomial(q) / G.
    q is π of the better answer, p its π_ref. x of a group are the better ones, and together they are pushed
    by x (1 − x) d / (d √(x (1 − x) G / (G − 1)) + ε), d the gap of rewards: but for ε no matter of d."""
    better_P = language.reward_PY.argmax(-1)
    gap_P1 = (language.reward_PY[:, :1] - language.reward_PY[:, 1:]).abs()
    share_K = torch.arange(size + 1, dtype=torch.float64) / size
    even_K = share_K * (1 - share_K)
    push_PK = even_K * gap_P1 / (gap_P1 * (even_K * size / (size - 1)).sqrt() + STD_EPSILON)

    def excess(prob_P: Tensor) -> Tensor:
        common = torch.distributions.Binomial(size, prob_P[:, None])
        return (common.log_prob(torch.arange(size + 1, dtype=torch.float64)).exp() * push_PK).sum(-1)

    return _bisected_policy(language, beta, better_P, excess)


def two_answer_fixed_point_in_the_limit(language: Language, *, beta: float) -> Float[Tensor, "P Y"]:
    """The same of groups without end and no ε: β (q − p) = √(q (1 − q))."""
    better_P = language.reward_PY.argmax(-1)
    return _bisected_policy(language, beta, better_P, lambda prob_P: (prob_P * (1 - prob_P)).sqrt())


def _solution_at(
    solution: TokenSolution, push_MV: Tensor, leash_MV: Tensor, ref_MV: Tensor, c_M1: Tensor
) -> Tensor:
    return solution(push_MV + c_M1, leash_MV, ref_MV)


def _bisected_policy(
    language: Language, beta: float, better_P: Tensor, push: Callable[[Tensor], Tensor]
) -> Tensor:
    """β (q − p) less the push is below 0 at q = p, above at 1, and convex: there is one q."""
    ref_P = language.ref_logp_PY.exp().gather(-1, better_P[:, None])[:, 0]
    low_P, high_P = ref_P, torch.ones_like(ref_P)
    for _ in range(100):
        middle_P = (low_P + high_P) / 2
        below_P = beta * (middle_P - ref_P) < push(middle_P)
        low_P, high_P = torch.where(below_P, middle_P, low_P), torch.where(below_P, high_P, middle_P)
    prob_PY = torch.stack([1 - low_P, low_P], dim=-1)
    return torch.where(better_P[:, None] == 1, prob_PY, prob_PY.flip(-1)).log()


def _per_next_token(onward_SVY: Tensor, value_PY: Tensor) -> Tensor:
    """Sums over the answers through each next token, prompts and prefixes in one line."""
    return torch.einsum("svy,py->psv", onward_SVY, value_PY).flatten(0, 1)
