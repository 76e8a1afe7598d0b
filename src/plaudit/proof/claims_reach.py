"""Claims about losses of gaps: the policy that each of them reaches, in closed form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.proof.claim import Claim, Lab, at_rest, settled
from plaudit.proof.evidence import certain, everywhere, flipped, pairs, win_chance
from plaudit.proof.exact import levelled, optimum, preferences, tilted, total_variation
from plaudit.proof.language import conditional
from plaudit.proof.learn import Effort, minimise, task
from plaudit.proof.policies import Transformer, with_reference

CLOSE = 1e-5
"""How near a table comes to a closed form: L-BFGS stops at 1e-6 or below."""
NEAR = 1e-3
"""How near a transformer comes, which can be almost any distribution, but not with the same ease."""
MOVES = 3
"""How often the reference moves in what is claimed of moving references."""


def away(name: str, sentence: str, **settings: object) -> Claim:
    """The algorithm as it is rests elsewhere than at π*."""
    return Claim(name=name, sentence=sentence, measure=partial(from_optimum, name=name, **settings), low=0.01)


def from_optimum(lab: Lab, *, name: str, **settings: object) -> float:
    """Total variation between what the row comes to and π*."""
    return total_variation(at_rest(lab, name, **settings), optimum(lab.spoken, lab.beta))


def _on_reference(lab: Lab) -> float:
    found = pairs(lab.spoken, lab.spoken.ref_logp_PY.exp())
    return total_variation(settled(lab.row("dpo"), lab.spoken, found), optimum(lab.spoken, lab.beta))


def _by_transformer(lab: Lab, *, name: str) -> float:
    speaker = Transformer(lab.spoken)
    spoken = with_reference(lab.spoken, speaker)
    work = task(lab.row(name), pairs(spoken), spoken)
    logp_PY = minimise(work, speaker, Effort(rounds=1, steps=1000))
    wins_PY = win_chance(spoken, everywhere(spoken))
    gains = {"dpo": spoken.reward_PY, "ipo": wins_PY}
    return total_variation(logp_PY, tilted(spoken.ref_logp_PY, gains[name] / lab.beta))


def _ipo(lab: Lab, *, on_reference: bool) -> float:
    spoken = lab.spoken
    mu_PY = spoken.ref_logp_PY.exp() if on_reference else everywhere(spoken)
    closed_PY = tilted(spoken.ref_logp_PY, win_chance(spoken, mu_PY) / lab.beta)
    return total_variation(settled(lab.row("ipo"), spoken, pairs(spoken, mu_PY)), closed_PY)


def _ipo_certain(lab: Lab) -> float:
    spoken, sure_PYY = lab.spoken, certain(lab.spoken)
    closed_PY = tilted(spoken.ref_logp_PY, sure_PYY.mean(-1) / lab.beta)
    return total_variation(settled(lab.row("ipo"), spoken, pairs(spoken, None, sure_PYY)), closed_PY)


def _per_token(lab: Lab, *, name: str, **settings: object) -> float:
    """Losses of mean log-probs: (log π − log π_ref) / |y| = gain + c, where c makes the sum 1."""
    spoken = lab.spoken
    won = win_chance(spoken, everywhere(spoken)) if name == "ipo-mean" else spoken.reward_PY
    row = lab.row(name, **settings)
    base_PY = spoken.ref_logp_PY * row.referenced

    def family(c_P1: Tensor) -> Float[Tensor, "P Y"]:
        return base_PY + spoken.length_Y * (won / lab.beta + c_P1)

    closed_PY = levelled(family, len(won))
    return total_variation(settled(row, spoken), closed_PY)


def _of_link(lab: Lab, *, link: str) -> float:
    """The optimum of E r − β D_f: f'(π / π_ref) = r / β + c, so that each link has an inverse."""
    spoken = lab.spoken
    inverses = {
        "js": lambda s_PY: s_PY - (2 - s_PY.exp()).log(),
        "forward-kl": lambda s_PY: -(1 - s_PY).log(),
        "alpha": lambda s_PY: -(1 - 0.5 * s_PY).log() / 0.5,
    }

    def family(c_P1: Tensor) -> Float[Tensor, "P Y"]:
        return spoken.ref_logp_PY + inverses[link](spoken.reward_PY / lab.beta + c_P1)

    closed_PY = levelled(family, len(spoken.prompts))
    return total_variation(settled(lab.row("f-dpo", link=link), spoken), closed_PY)


def _noisy(lab: Lab, *, name: str) -> float:
    noisy = pairs(lab.spoken, None, flipped(preferences(lab.spoken), 0.1))
    return total_variation(settled(lab.row(name), lab.spoken, noisy), optimum(lab.spoken, lab.beta))


def _priced(lab: Lab) -> float:
    spoken = lab.spoken
    closed_PY = tilted(spoken.ref_logp_PY, spoken.reward_PY / lab.beta - 0.1 * spoken.length_Y)
    return total_variation(settled(lab.row("r-dpo", price=0.1), spoken), closed_PY)


def _unreferenced(lab: Lab) -> float:
    spoken = lab.spoken
    closed_PY = (spoken.reward_PY / lab.beta).log_softmax(-1)
    return total_variation(settled(lab.row("cpo", nll=0.0), spoken), closed_PY)


def _moving(lab: Lab, *, name: str, share: float) -> float:
    """Each move takes the reference a share of the way to the policy, which then goes as far again."""
    spoken, row = lab.spoken, lab.row(name)
    logp_PY = settled(row, spoken)
    for _ in range(MOVES):
        moved_PY = torch.lerp(spoken.ref_logp_PY, logp_PY, share).log_softmax(-1)
        spoken = replace(spoken, ref_logp_PYT=conditional(moved_PY, spoken)[0])
        logp_PY = settled(row, spoken)
    gain_PY = (1 + MOVES * share) * spoken.reward_PY / lab.beta
    return total_variation(logp_PY, tilted(lab.spoken.ref_logp_PY, gain_PY))


def _reaches(name: str, sentence: str, measure: Callable[[Lab], float], high: float = CLOSE) -> Claim:
    return Claim(name=name, sentence=sentence, measure=measure, high=high)


def _optimum(name: str, sentence: str, **settings: object) -> Claim:
    return _reaches(name, sentence, partial(from_optimum, name=name, **settings))


REACHED = (
    _optimum("dpo", "reaches π*, all answers drawn alike"),
    _reaches("dpo", "reaches π*, answers drawn from π_ref", _on_reference),
    _reaches("dpo", "a transformer reaches π*", partial(_by_transformer, name="dpo"), NEAR),
    _reaches("ipo", "reaches π_ref exp(E p(y ≻ z) / β), z drawn alike", partial(_ipo, on_reference=False)),
    _reaches("ipo", "the same, z drawn from π_ref", partial(_ipo, on_reference=True)),
    _reaches("ipo", "the same of preferences without doubt", _ipo_certain),
    _reaches("ipo", "a transformer reaches it", partial(_by_transformer, name="ipo"), NEAR),
    _reaches("ipo-mean", "reaches IPO's gaps as mean log-ratios", partial(_per_token, name="ipo-mean")),
    _reaches(
        "robust-dpo", "reaches π* from labels of which 0.1 is swapped", partial(_noisy, name="robust-dpo")
    ),
    Claim(
        name="robust-dpo",
        sentence="where DPO on the same labels stays away from π*",
        measure=partial(_noisy, name="dpo"),
        low=0.01,
    ),
    _reaches("f-dpo", "js: the optimum on Jensen and Shannon's leash", partial(_of_link, link="js")),
    _reaches("f-dpo", "forward-kl: the one on KL(π_ref ‖ π)", partial(_of_link, link="forward-kl")),
    _reaches("f-dpo", "alpha: the one of α = 0.5", partial(_of_link, link="alpha")),
    _reaches("r-dpo", "reaches the optimum of r − 0.1 β |y|", _priced),
    _reaches("dpo-norm", "reaches r / β + c as mean log-ratios", partial(_per_token, name="dpo-norm")),
    away("dpo-norm", "which is away from π*"),
    _reaches("simpo", "γ = 0: r / β + c as mean log π", partial(_per_token, name="simpo", margin=0.0)),
    away("simpo", "as it is, away from π*: no reference holds it"),
    _reaches("cpo", "no NLL: π* of a reference that says all alike", _unreferenced),
    away("cpo", "as it is, away from π*: no reference holds it"),
    _optimum("wpo", "reaches π*: weights do not change what a pair wants"),
    _optimum("ld-dpo", "share 1: reaches π*", tail=1.0),
    away("ld-dpo", "share 0.5: away from π*"),
    _optimum("dpop", "hold 0: reaches π*", hold=0.0),
    _optimum("mpo", "DPO alone in the mix, no NLL: reaches π*", mix=("dpo=1.0",), nll=0.0),
    away("mpo", "as it is, away from π*"),
    _optimum("tr-dpo", "before the reference moves: reaches π*"),
    _reaches("tr-dpo", "after 3 moves of 0.6: π* of β / 2.8", partial(_moving, name="tr-dpo", share=0.6)),
    _reaches("sdpo", "after 4 parts: π* of β / 4", partial(_moving, name="sdpo", share=1.0)),
)
"""Claims of a closed form, and beside them how far from π* it is where it is another one."""
