"""Claims about losses that judge an answer by itself: Δ against a point, not against another answer's Δ.

Such a loss wants a Δ of each answer. Probabilities add up to 1, so it can have them all only by luck; where
it cannot, it rests where ∂loss/∂Δ is proportional to π. q is how often an answer wins against μ, c how often
it is called good.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor

from plaudit.proof.claim import Claim, Lab, at_rest, settled
from plaudit.proof.claims_reach import away
from plaudit.proof.evidence import everywhere, pairs, win_chance
from plaudit.proof.exact import kl, levelled, tilted, total_variation


def unrest(push_PY: Float[Tensor, "P Y"], logp_PY: Float[Tensor, "P Y"]) -> float:
    """How far ∂loss/∂Δ, worked out by hand, is from being proportional to π: 0 at rest."""
    prob_PY = logp_PY.exp()
    return (push_PY - prob_PY * push_PY.sum(-1, keepdim=True)).abs().max().item()


def _nca(lab: Lab) -> float:
    """At β = 1 and μ = π_ref the wanted Δ = log 2q adds up by itself, since the mean of q is ½."""
    spoken, mu_PY = lab.spoken, lab.spoken.ref_logp_PY.exp()
    closed_PY = spoken.ref_logp_PY + (2 * win_chance(spoken, mu_PY)).log()
    return total_variation(settled(lab.row("nca", beta=1.0), spoken, pairs(spoken, mu_PY)), closed_PY)


def _nca_rest(lab: Lab) -> float:
    logp_PY, won_PY, reward_PY = _rest(lab, "nca")
    return unrest((won_PY + 0.5) * reward_PY.sigmoid() - won_PY, logp_PY)


def _sppo_rest(lab: Lab) -> float:
    logp_PY, won_PY, reward_PY = _rest(lab, "sppo")
    return unrest(reward_PY - (won_PY - 0.5), logp_PY)


def _sppo_step(lab: Lab) -> float:
    """What self-play asks for after one round: answers drawn from π_ref, the winners' weight multiplied."""
    spoken, mu_PY = lab.spoken, lab.spoken.ref_logp_PY.exp()
    step_PY = tilted(spoken.ref_logp_PY, win_chance(spoken, mu_PY) / lab.beta)
    return total_variation(settled(lab.row("sppo"), spoken, pairs(spoken, mu_PY)), step_PY)


def _valued_rest(lab: Lab, *, name: str) -> float:
    """Of (1 − σ(βΔ)) where an answer is good, σ(βΔ) where it is bad."""
    logp_PY, won_PY, reward_PY = _rest(lab, name)
    good_PY = won_PY if name == "apo-zero" else lab.spoken.reward_PY.sigmoid()
    return unrest((1 - 2 * good_PY) * reward_PY.sigmoid() * (-reward_PY).sigmoid(), logp_PY)


def _kept(lab: Lab, *, name: str) -> float:
    """The most that is left on answers that are more often bad than good."""
    logp_PY, won_PY, _ = _rest(lab, name)
    good_PY = won_PY if name == "apo-zero" else lab.spoken.reward_PY.sigmoid()
    return (logp_PY.exp() * (good_PY < 0.5)).sum(-1).max().item()


def _rest(lab: Lab, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """log π where the row rests, how often each answer wins, and βΔ."""
    spoken = lab.spoken
    logp_PY = at_rest(lab, name)
    reward_PY = lab.beta * (logp_PY - spoken.ref_logp_PY)
    return logp_PY, win_chance(spoken, everywhere(spoken)), reward_PY


def _sole(lab: Lab) -> float:
    return at_rest(lab, "apo-down").exp().max(-1).values.min().item()


def _classified(lab: Lab, *, name: str) -> float:
    """With one prompt and the δ that lets the wanted βΔ = δ + log-odds add up to 1, all are had."""
    spoken = lab.alone
    odds_PY = spoken.reward_PY if name == "bco" else win_chance(spoken, everywhere(spoken)).logit()

    def family(c_P1: Tensor) -> Float[Tensor, "P Y"]:
        return spoken.ref_logp_PY + (c_P1 + odds_PY) / lab.beta

    closed_PY = levelled(family, 1)
    threshold = lab.beta * (closed_PY - spoken.ref_logp_PY) - odds_PY
    logp_PY = settled(lab.row(name), spoken, baseline=threshold[0, 0].item())
    return total_variation(logp_PY, closed_PY)


def _held_up(lab: Lab) -> float:
    return kl(at_rest(lab, "dpop"), lab.spoken.ref_logp_PY).max().item()


def _at_most(name: str, sentence: str, measure: Callable[[Lab], float], high: float) -> Claim:
    return Claim(name=name, sentence=sentence, measure=measure, high=high)


ABSOLUTE = (
    _at_most("nca", "β = 1, answers from π_ref: reaches 2 q π_ref", _nca, 1e-5),
    _at_most("nca", "else rests where (q + ½) σ(βΔ) − q is λ π; the rest of it", _nca_rest, 1e-6),
    away("nca", "there it is away from π*"),
    _at_most("sppo", "rests where βΔ − (q − ½) is λ π; the rest of it", _sppo_rest, 1e-6),
    _at_most("sppo", "answers from π_ref: near π_ref exp(q / β) / Z", _sppo_step, 0.1),
    away("sppo", "one step of self-play is not π*"),
    _at_most(
        "apo-zero", "drops what loses more than it wins; share kept", partial(_kept, name="apo-zero"), 1e-4
    ),
    _at_most(
        "apo-zero",
        "rests where (1 − 2q) σ′(βΔ) is λ π; the rest",
        partial(_valued_rest, name="apo-zero"),
        1e-6,
    ),
    away("apo-zero", "so it is away from π*"),
    Claim(
        name="apo-down",
        sentence="lowers all but one answer; the least π of it",
        measure=_sole,
        low=0.99,
    ),
    away("apo-down", "so it is away from π*"),
    _at_most("kto", "drops what is more often bad than good; share kept", partial(_kept, name="kto"), 1e-4),
    _at_most("kto", "rests where (1 − 2c) σ′(βΔ) is λ π; the rest", partial(_valued_rest, name="kto"), 1e-6),
    away("kto", "so it is away from π*"),
    _at_most(
        "apo-zero-unpaired",
        "drops what is more often bad than good",
        partial(_kept, name="apo-zero-unpaired"),
        1e-4,
    ),
    away("apo-zero-unpaired", "so it is away from π*"),
    _at_most("bco", "one prompt, δ that fits: reaches π*", partial(_classified, name="bco"), 1e-5),
    away("bco", "δ as a running mean: away from π*"),
    _at_most(
        "bco-pair",
        "one prompt, δ that fits: reaches π_ref odds(q)^(1/β)",
        partial(_classified, name="bco-pair"),
        1e-5,
    ),
    away("bco-pair", "δ as a running mean: away from π*"),
    _at_most("dpop", "hold 50: every answer wins at times, so none may fall; KL from π_ref", _held_up, 0.1),
    away("dpop", "so it is away from π*"),
)
"""Claims about answers judged by themselves, and about a preferred one that may not fall."""
