"""Claims about what lies between data and leash: answers that nobody compared, preferences without doubt, β.

Uncovered answers: Xu et al. 2024, arXiv:2404.10719. DPO sees gaps between answers that were compared and
nothing else, so its minimisers agree on how those are shared out and may say anything else as often as they
like. A reward with a KL leash ties the others to the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.proof.claim import Claim, Lab, at_rest, settled
from plaudit.proof.evidence import among, certain, pairs
from plaudit.proof.exact import kl, mean_reward, objective, optimum, tilted, total_variation
from plaudit.proof.language import Language, conditional
from plaudit.proof.learn import Effort, Task, expected_loss, hold, minimise, task
from plaudit.proof.policies import Transformer, with_reference

BETAS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""From a long leash to a short one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leash:
    """What β does: the optimum's distance and reward, and how near DPO comes.

    Example: ``sweep(lab())[0].kl``
    """

    beta: float
    """The price of a nat."""
    kl: float
    """KL(π* ‖ π_ref), mean of the prompts."""
    reward: float
    """E r of π*."""
    objective: float
    """J(π*) = E r − β KL."""
    distance: float
    """Total variation between what DPO reaches and π*."""


def sweep(lab: Lab) -> tuple[Leash, ...]:
    """The optimum and DPO at each of some β."""
    return tuple(_leash(replace(lab, beta=beta)) for beta in BETAS)


def covered(spoken: Language) -> Bool[Tensor, " Y"]:
    """Every second answer: those that were compared."""
    return torch.arange(len(spoken.responses)) % 2 == 0


def with_mass_elsewhere(
    logp_PY: Float[Tensor, "P Y"], covered_Y: Bool[Tensor, " Y"], share: float
) -> Float[Tensor, "P Y"]:
    """The same policy among the compared answers, with that share on the others."""
    inside_PY = logp_PY.masked_fill(~covered_Y, -torch.inf).log_softmax(-1)
    outside_PY = logp_PY.masked_fill(covered_Y, -torch.inf).log_softmax(-1)
    scale = logp_PY.new_tensor([1 - share, share]).log()
    return torch.where(covered_Y, inside_PY + scale[0], outside_PY + scale[1])


def elsewhere(logp_PY: Float[Tensor, "P Y"], covered_Y: Bool[Tensor, " Y"]) -> Float[Tensor, " P"]:
    """How often the policy says what nobody compared."""
    return (logp_PY.exp() * ~covered_Y).sum(-1)


def _leash(lab: Lab) -> Leash:
    spoken, star_PY = lab.spoken, optimum(lab.spoken, lab.beta)
    return Leash(
        beta=lab.beta,
        kl=kl(star_PY, spoken.ref_logp_PY).mean().item(),
        reward=mean_reward(star_PY, spoken),
        objective=objective(star_PY, spoken, lab.beta),
        distance=total_variation(at_rest(lab, "dpo"), star_PY),
    )


def _blind(lab: Lab) -> Task:
    """DPO on pairs of compared answers only."""
    spoken = lab.spoken
    return task(lab.row("dpo"), pairs(spoken, among(covered(spoken), spoken)), spoken)


def _loss(work: Task, logp_PY: Float[Tensor, "P Y"]) -> float:
    logp_PYT = conditional(logp_PY, work.spoken)[0]
    return expected_loss(work, logp_PYT, hold(work, logp_PYT)).item()


def _indifferent(lab: Lab) -> float:
    """The loss of π* and of the same with 99 % on answers that nobody compared."""
    star_PY = optimum(lab.spoken, lab.beta)
    moved_PY = with_mass_elsewhere(star_PY, covered(lab.spoken), 0.99)
    work = _blind(lab)
    return abs(_loss(work, moved_PY) - _loss(work, star_PY))


def _gained(lab: Lab) -> float:
    """How much less loss than π_ref a policy has that says nearly always what nobody compared."""
    work = _blind(lab)
    moved_PY = with_mass_elsewhere(optimum(lab.spoken, lab.beta), covered(lab.spoken), 0.99)
    return _loss(work, lab.spoken.ref_logp_PY) - _loss(work, moved_PY)


def _lost(lab: Lab) -> float:
    """What that policy is worth less than π_ref by the objective."""
    spoken = lab.spoken
    moved_PY = with_mass_elsewhere(optimum(spoken, lab.beta), covered(spoken), 0.99)
    return objective(moved_PY, spoken, lab.beta) - objective(optimum(spoken, lab.beta), spoken, lab.beta)


def _among_covered(lab: Lab) -> float:
    """Distance of DPO and π* where both are asked for compared answers only."""
    found_PY, star_PY = (
        logp_PY.masked_fill(~covered(lab.spoken), -torch.inf).log_softmax(-1)
        for logp_PY in (
            settled(_blind(lab).row, lab.spoken, _blind(lab).found),
            optimum(lab.spoken, lab.beta),
        )
    )
    return 0.5 * (found_PY.exp() - star_PY.exp()).abs().sum(-1).max().item()


def _rewarded(lab: Lab) -> float:
    """How often a leashed policy says uncompared answers, over π_ref; their reward is the lowest seen."""
    spoken, covered_Y = lab.spoken, covered(lab.spoken)
    lowest_P1 = spoken.reward_PY[:, covered_Y].min(-1, keepdim=True).values
    known_PY = torch.where(covered_Y, spoken.reward_PY, lowest_P1)
    logp_PY = tilted(spoken.ref_logp_PY, known_PY / lab.beta)
    return (elsewhere(logp_PY, covered_Y) / elsewhere(spoken.ref_logp_PY, covered_Y)).max().item()


def _drifted(lab: Lab) -> float:
    """Where shared weights take a transformer that nothing ties down: the largest rise of two starts."""
    return max(_drift(lab, seed) for seed in range(2))


def _drift(lab: Lab, seed: int) -> float:
    speaker = Transformer(lab.spoken, seed=seed)
    spoken = with_reference(lab.spoken, speaker)
    covered_Y = covered(spoken)
    work = task(lab.row("dpo"), pairs(spoken, among(covered_Y, spoken)), spoken)
    logp_PY = minimise(work, speaker, Effort(rounds=1, steps=100))
    return (elsewhere(logp_PY, covered_Y) - elsewhere(spoken.ref_logp_PY, covered_Y)).max().item()


def _sure(lab: Lab) -> float:
    """The least that DPO says the best answer when preferences leave no doubt."""
    return _best(lab, _without_doubt(lab, lab.beta).exp()).min().item()


def _lead(lab: Lab) -> float:
    """The least βh between the best answer and another one, at ten times β; of π* it is the reward's lead."""
    beta = 10 * lab.beta
    reward_PY = beta * (_without_doubt(lab, beta) - lab.spoken.ref_logp_PY)
    lead_PY = _best(lab, reward_PY) - reward_PY
    return lead_PY.sort(-1).values[:, 1].min().item()


def _without_doubt(lab: Lab, beta: float) -> Float[Tensor, "P Y"]:
    found = pairs(lab.spoken, None, certain(lab.spoken))
    return settled(replace(lab, beta=beta).row("dpo"), lab.spoken, found)


def _best(lab: Lab, figure_PY: Float[Tensor, "P Y"]) -> Float[Tensor, "P 1"]:
    return figure_PY.gather(-1, lab.spoken.reward_PY.argmax(-1, keepdim=True))


def _rises(lab: Lab, *, figure: Callable[[Leash], float]) -> float:
    """The largest change from one β to the next."""
    figures = [figure(leash) for leash in sweep(lab)]
    return max(later - sooner for sooner, later in pairwise(figures))


OF_DATA = (
    Claim(
        name="coverage",
        sentence="DPO finds π* among the answers that were compared",
        measure=_among_covered,
        high=1e-5,
    ),
    Claim(
        name="coverage",
        sentence="its loss is the same with 99 % on answers nobody compared; difference",
        measure=_indifferent,
        high=1e-12,
    ),
    Claim(
        name="coverage",
        sentence="a policy that nearly always says those has less loss than π_ref; gain",
        measure=_gained,
        low=0.01,
    ),
    Claim(
        name="coverage",
        sentence="and is worth less than π* by J = E r − β KL; change",
        measure=_lost,
        high=-0.01,
    ),
    Claim(
        name="coverage",
        sentence="a transformer does drift there; largest rise of their share",
        measure=_drifted,
        low=0.05,
    ),
    Claim(
        name="coverage",
        sentence="reward (unknown = lowest seen) with KL: share over π_ref's",
        measure=_rewarded,
        high=1.0,
    ),
    Claim(
        name="certainty",
        sentence="no doubt in the data: DPO says one answer alone; least π(best)",
        measure=_sure,
        low=0.99,
    ),
    Claim(
        name="certainty",
        sentence="at ten times β too it goes on while it can; least lead βh",
        measure=_lead,
        low=8.0,
    ),
    Claim(
        name="beta",
        sentence="DPO reaches π* at every β from 0.25 to 4; the farthest",
        measure=lambda lab: max(leash.distance for leash in sweep(lab)),
        high=1e-5,
    ),
    Claim(
        name="beta",
        sentence="a larger β keeps π* nearer to π_ref; largest rise of KL",
        measure=partial(_rises, figure=lambda leash: leash.kl),
        high=0.0,
    ),
    Claim(
        name="beta",
        sentence="and costs reward; largest rise of E r",
        measure=partial(_rises, figure=lambda leash: leash.reward),
        high=0.0,
    ),
)
"""Claims about data and leash."""
