"""Claims in the language of two answers: the gap that a loss wants of a pair, since there it can have it.

With more answers such gaps contradict one another (no policy has all of them), so the same losses rest
somewhere between; how far from π* that is, is claimed beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.proof.claim import Claim, Lab, at_rest, settled
from plaudit.proof.claims_reach import away
from plaudit.proof.evidence import pairs
from plaudit.proof.exact import kl, levelled, optimum, preferences, tilted, total_variation
from plaudit.proof.language import Language, two_answers
from plaudit.proof.learn import Effort, expected_loss, hold, task
from plaudit.proof.policies import Table

Wanted = Callable[[Float[Tensor, " P"]], Float[Tensor, " P"]]
"""From p, the chance that the first answer is preferred, to βh between the two."""
SMOOTHING = 0.1
"""Of cdpo."""
MARGIN = 1.0
"""Of simpo."""
TARGET = 1e-3
"""Of exo."""
SORTING = Effort(rounds=100, steps=20)
"""For losses that sort: who stands beside whom is found anew every few steps."""


def smoothed(p_P: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
    """cDPO: the log-odds of labels of which a share is swapped."""
    return ((1 - SMOOTHING) * p_P + SMOOTHING * (1 - p_P)).logit()


def sign(p_P: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
    """Hinge: a margin of 1 for the likelier winner, however likely."""
    return (p_P - 0.5).sign()


def mode(p_P: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
    """EXO: (2p − 1) times the log-odds of 1 − ε."""
    return (2 * p_P - 1) * math.log((1 - TARGET) / TARGET)


def with_margin(p_P: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
    """SimPO: the root t = e^(βh) of (1 − p) g t² − (2p − 1) t − p g = 0, g = e^−γ."""
    shrunk, lead_P = math.exp(-MARGIN), 2 * p_P - 1
    root_P = (lead_P.square() + 4 * p_P * (1 - p_P) * shrunk**2).sqrt()
    return ((lead_P + root_P) / (2 * (1 - p_P) * shrunk)).log()


def beyond_the_bump(p_P: Float[Tensor, " P"]) -> Float[Tensor, " P"]:
    """DiscoPOP: t = e^−|βh| with p t² + p t = 1 − p, of the likelier winner's p; τ is taken for 0."""
    likelier_P = torch.maximum(p_P, 1 - p_P)
    root_P = (likelier_P.square() + 4 * likelier_P * (1 - likelier_P)).sqrt()
    return -sign(p_P) * ((root_P - likelier_P) / (2 * likelier_P)).log()


def _wants(lab: Lab, *, name: str, wanted: Wanted, settings: dict[str, float]) -> float:
    row, spoken = lab.row(name, **settings), lab.two
    gap_P = wanted(preferences(spoken)[:, 0, 1]) / lab.beta
    base_PY = spoken.ref_logp_PY * row.referenced
    closed_PY = tilted(base_PY, torch.stack([gap_P, -gap_P], -1) / 2)
    # DiscoPOP has two valleys; the others go to the same place from everywhere.
    return total_variation(settled(row, spoken, start_PY=optimum(spoken, lab.beta)), closed_PY)


def _farther(lab: Lab, *, name: str) -> float:
    """How many nats farther from π_ref than π* is."""
    ref_PY = lab.spoken.ref_logp_PY
    own_P, star_P = kl(at_rest(lab, name), ref_PY), kl(optimum(lab.spoken, lab.beta), ref_PY)
    return (own_P - star_P).mean().item()


def _first_step(lab: Lab) -> float:
    """The cosine between DiscoPOP's first step from π_ref and the way that E r rises."""
    spoken, table = lab.two, Table(lab.two)
    work = task(lab.row("discopop"), pairs(spoken), spoken)
    logp_PYT = table()
    loss = expected_loss(work, logp_PYT, hold(work, logp_PYT))
    mean = (logp_PYT.sum(-1).exp() * spoken.reward_PY).sum()
    (down_PY,), (up_PY,) = (
        torch.autograd.grad(one, table.weights(), retain_graph=True) for one in (loss, mean)
    )
    return torch.nn.functional.cosine_similarity(-down_PY.flatten(), up_PY.flatten(), dim=0).item()


def _well_ranked() -> Language:
    """One prompt whose better answer is clearly better, and the reference prefers it too."""
    seeds = (two_answers(seed=seed, prompts=1) for seed in range(100))
    return next(
        one
        for one in seeds
        if one.reward_PY.diff().abs() > 0.5 and one.reward_PY.diff() * one.ref_logp_PY.diff() > 0.1
    )


def _aot(lab: Lab) -> float:
    """Where the reference ranks well, sorted gaps are the pairs' own."""
    spoken = _well_ranked()
    return total_variation(settled(lab.row("aot"), spoken, effort=SORTING), optimum(spoken, lab.beta))


def _aot_collapse(lab: Lab) -> float:
    spoken = _well_ranked()
    logp_PY = settled(lab.row("aot-unpaired"), spoken, effort=SORTING)
    return logp_PY[0, spoken.reward_PY[0].argmax()].exp().item()


def _odds(lab: Lab) -> float:
    """ORPO's second term alone: odds of the mean token's probability, π = σ(r + c)^|y|."""
    spoken = lab.spoken

    def family(c_P1: Tensor) -> Float[Tensor, "P Y"]:
        return spoken.length_Y * torch.nn.functional.logsigmoid(spoken.reward_PY + c_P1)

    closed_PY = levelled(family, len(spoken.prompts))
    return total_variation(settled(lab.row("orpo", nll=0.0), spoken), closed_PY)


def _imitation(lab: Lab) -> float:
    """ORPO's first term alone: mean log-probs of what was preferred, π ∝ μ q / |y|."""
    spoken = lab.spoken
    closed_PY = (preferences(spoken).mean(-1) / spoken.length_Y).log().log_softmax(-1)
    return total_variation(settled(lab.row("orpo", odds=1e-9), spoken), closed_PY)


def _two(name: str, sentence: str, wanted: Wanted, high: float = 1e-5, **settings: float) -> Claim:
    measure = partial(_wants, name=name, wanted=wanted, settings=settings)
    return Claim(name=name, sentence=f"two answers: {sentence}", measure=measure, high=high)


WANTED = (
    _two("cdpo", "βh = log-odds of the labels with swaps", smoothed, smoothing=SMOOTHING),
    away("cdpo", "more answers: away from π*"),
    Claim(
        name="cdpo",
        sentence="flatter than π*; KL over π*'s",
        measure=partial(_farther, name="cdpo"),
        high=-0.01,
    ),
    _two("hinge", "βh = ±1, however sure people are", sign, 1e-4),
    away("hinge", "more answers: away from π*"),
    _two("slic", "without its NLL βh = ±1, h of log π", sign, 1e-4, nll=0.0),
    away("slic", "more answers, with its NLL: away from π*"),
    _two("exo", "βh = (2p − 1) log((1 − ε) / ε)", mode, smoothing=TARGET),
    away("exo", "more answers: away from π*"),
    Claim(
        name="exo", sentence="sharper than π*; KL over π*'s", measure=partial(_farther, name="exo"), low=0.01
    ),
    _two("simpo", "βh solves its equation with γ", with_margin, margin=MARGIN),
    _two("discopop", "from beyond its bump to e^−βh = t, p t² + p t = 1 − p", beyond_the_bump, 1e-3),
    Claim(
        name="discopop",
        sentence="two answers: its first step from π_ref lowers E r; cosine",
        measure=_first_step,
        high=-0.5,
    ),
    Claim(
        name="aot",
        sentence="two answers that π_ref ranks well: reaches π* (by counts)",
        measure=_aot,
        high=1e-3,
    ),
    away("aot", "more answers: sorted gaps are not the pairs' own; away from π*"),
    Claim(
        name="aot-unpaired",
        sentence="two answers: nothing holds it; π(better)",
        measure=_aot_collapse,
        low=0.9,
    ),
    Claim(name="orpo", sentence="its odds alone, any λ: reaches π = σ(r + c)^|y|", measure=_odds, high=1e-5),
    Claim(
        name="orpo", sentence="its NLL alone: imitates, π ∝ E p(y ≻ z) / |y|", measure=_imitation, high=1e-4
    ),
    away("orpo", "as it is, away from π*"),
)
"""Claims about what a loss wants of one pair, and of losses whose terms are clear one by one."""
