"""Claims about rows of policy optimisation: which of them end at π*, and where GRPO's own row ends.

The rows are those of training, followed in expectation on answers of the policy itself. Where they should
end is worked out without their cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

from jaxtyping import Float
from torch import Tensor

from plaudit.proof.claim import Claim, Lab
from plaudit.proof.claims_ascent import Ascent, climb
from plaudit.proof.exact import optimum, total_variation
from plaudit.proof.group_rest import (
    groups_written_out,
    held_by_k2,
    rest,
    rest_of_two,
    rest_of_two_in_the_limit,
)
from plaudit.proof.policy_rows import in_expectation
from plaudit.recipes.policy_settings import PolicySettings

THREE = 3
"""Answers in a group where each prompt has fifteen: few enough to write all groups out."""
EIGHT = 8
"""Where each has two: as many as GRPO's row draws."""
SIZES = (2, 4, 8, 16, 32, 64)
"""Groups that are compared with ones without end."""
CLOSE = 1e-6
"""How near an ascent comes to where it should end."""


@lru_cache(maxsize=64)
def ended(lab: Lab, name: str, way: Ascent, *, two: bool = False, **settings: Any) -> Float[Tensor, "P Y"]:
    """log π where the row ends at the lab's β, of fifteen answers or of two; several claims ask for one."""
    row = lab.policies(name, PolicySettings(**{"beta": lab.beta, **settings}))
    return climb(in_expectation(row), replace(lab, spoken=lab.two) if two else lab, way)


def from_optimum(lab: Lab, *, name: str, way: Ascent, **settings: Any) -> float:
    """Total variation between where the row ends and π*."""
    return total_variation(ended(lab, name, way, **settings), optimum(lab.spoken, lab.beta))


def cautious(lab: Lab, size: int) -> Ascent:
    """Steps for k3: it pulls what has become rare by β π_ref / π = β − A, and |z| is at most (G − 1) / √G."""
    steepest = lab.beta + (size - 1) / math.sqrt(size)
    return Ascent(rate=1.5 * lab.beta / steepest, outer=250, size=size)


def _own_rest(lab: Lab) -> float:
    own_PY = rest(lab.spoken, groups_written_out(lab.spoken, THREE), beta=lab.beta)
    return total_variation(ended(lab, "grpo", cautious(lab, THREE)), own_PY)


def _away(lab: Lab) -> float:
    return from_optimum(lab, name="grpo", way=cautious(lab, THREE))


def _own_rest_of_two(lab: Lab) -> float:
    return total_variation(_grpo_of_two(lab), rest_of_two(lab.two, EIGHT, beta=lab.beta))


def _louder(lab: Lab, *, where: Callable[[Lab], Tensor]) -> float:
    """How far the place moves when rewards are ten times as large."""
    loud = replace(lab, two=replace(lab.two, reward_PY=10 * lab.two.reward_PY))
    return total_variation(where(loud), where(lab))


def _grpo_of_two(lab: Lab) -> Tensor:
    return ended(lab, "grpo", cautious(lab, EIGHT), two=True)


def _optimum_of_two(lab: Lab) -> Tensor:
    return optimum(lab.two, lab.beta)


def _larger_groups(lab: Lab) -> float:
    """The largest rise of the distance to groups without end, from 2 to 64."""
    limit_PY = rest_of_two_in_the_limit(lab.two, beta=lab.beta)
    apart = [total_variation(rest_of_two(lab.two, size, beta=lab.beta), limit_PY) for size in SIZES]
    return max(later - sooner for sooner, later in pairwise(apart))


def _mean_and_k2(lab: Lab, *, two: bool) -> Tensor:
    cells = {"advantage": "group-mean", "estimator": "k2", "reduction": "fixed"}
    return ended(lab, "grpo", Ascent(rate=0.45, outer=100, size=THREE), two=two, **cells)


def _softer(lab: Lab) -> float:
    """A group's mean has the answer itself in it: its push is (G − 1) / G of what it should be."""
    return lab.beta * THREE / (THREE - 1)


def _mean_and_k2_of_two(lab: Lab) -> float:
    return total_variation(_mean_and_k2(lab, two=True), optimum(lab.two, _softer(lab)))


def _mean_and_k2_at_prefixes(lab: Lab) -> float:
    groups_PY = groups_written_out(lab.spoken, THREE, scaled=False)
    own_PY = rest(lab.spoken, groups_PY, beta=lab.beta, held=held_by_k2, by_answer=False)
    return total_variation(_mean_and_k2(lab, two=False), own_PY)


def _mean_and_k2_away(lab: Lab) -> float:
    return total_variation(_mean_and_k2(lab, two=False), optimum(lab.spoken, _softer(lab)))


def _unleashed(lab: Lab) -> float:
    """Steps that add up to s tilt the reference by s (G − 1) / G of the reward: no more, and without end."""
    way = Ascent(rate=0.1, outer=20, size=THREE)
    return total_variation(
        ended(lab, "dr-grpo", way, beta=None), optimum(lab.spoken, _softer(lab) / (way.rate * way.outer))
    )


def _reaches(name: str, sentence: str, way: Ascent, **settings: Any) -> Claim:
    measure = partial(from_optimum, name=name, way=way, **settings)
    return Claim(name=name, sentence=sentence, measure=measure, high=CLOSE)


def _grpo(sentence: str, measure: Callable[[Lab], float], **bounds: float) -> Claim:
    return Claim(name="grpo", sentence=sentence, measure=measure, **bounds)


_steady = Ascent(rate=0.3, outer=60)
_pairs = replace(_steady, size=2)
_triples = Ascent(rate=0.45, outer=60, size=THREE)
_epochs = Ascent(rate=0.1, outer=50, inner=4)
_slower = Ascent(rate=0.5, outer=250, size=THREE, shrink=0.96)
OF_POLICIES = (
    _reaches("reinforce", "reaches π*", _steady),
    _reaches("a2c", "exact V: reaches π*", _steady),
    _reaches("ppo", "exact V, not whitened, 4 epochs: reaches π*", _epochs, whiten="no"),
    _reaches("rloo", "groups of 2: reaches π*", _pairs),
    _reaches("remax", "reaches π*", _steady),
    _reaches("p3o", "reaches π*", _pairs),
    _grpo("two answers, G = 8: β (π − π_ref) = √⅞ E √(x (1 − x)); reaches it", _own_rest_of_two, high=CLOSE),
    _grpo(
        "its rest does not see how large rewards are: ten times moves it",
        partial(_louder, where=_grpo_of_two),
        high=0.01,
    ),
    _grpo("where that moves π*", partial(_louder, where=_optimum_of_two), low=0.05),
    _grpo("larger groups: nearer to β (π − π_ref) = √(π (1 − π)); largest rise", _larger_groups, high=0.0),
    _grpo("more answers: β m π_ref / (β m + λ − Ā) at each prefix; reaches it", _own_rest, high=CLOSE),
    _grpo("there it is away from π*", _away, low=0.01),
    _reaches("grpo", "KL in the reward, ever shorter steps: reaches π*", _slower, divergence="reward"),
    _grpo("mean for z, k2, two answers: reaches π* of β G / (G − 1)", _mean_and_k2_of_two, high=CLOSE),
    _grpo(
        "more answers: π_ref exp((G − 1) Q / G β) at each prefix; reaches it",
        _mean_and_k2_at_prefixes,
        high=CLOSE,
    ),
    _grpo("Q knows no later KL: away from that π*", _mean_and_k2_away, low=0.001),
    _reaches("dr-grpo", "KL in the reward: reaches π*", _triples, divergence="reward"),
    Claim(
        name="dr-grpo",
        sentence="as it is, no KL: π* of β = G / (G − 1) s after steps of s in all; it goes on",
        measure=_unleashed,
        high=CLOSE,
    ),
)
"""Claims about where rows of policy optimisation end."""
