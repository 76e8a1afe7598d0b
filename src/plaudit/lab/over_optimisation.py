"""One reward of few comparisons, pressed ever harder by several optimisers."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import numpy as np

from plaudit.evaluation.policies.over_optimisation import OverOptimisation, over_optimisation
from plaudit.evaluation.policies.result import PolicyEvaluation
from plaudit.evaluation.resample import Resampling
from plaudit.evaluation.result import Estimate
from plaudit.lab.exercise import Claim, Exercise, Picture, Seen, Table
from plaudit.lab.left import evaluated, policy
from plaudit.lab.measured import (
    Figure,
    above_zero,
    apart,
    by_prompt,
    mean_of,
    more,
    plain,
    reward,
    with_ends,
    worth,
)
from plaudit.lab.pictures import along
from plaudit.page.marks import Span
from plaudit.page.words import Number, figure
from plaudit.pipeline.folder import Folder

START, TRUTH = "sft", "truth"
"""Before, and what was pressed by the truth itself."""
PRESSED: Mapping[str, tuple[str, ...]] = {
    "PPO": ("ppo-1", "ppo-2", "ppo-3"),
    "GRPO": ("grpo-1", "grpo-2", "grpo-3"),
    "DPO": ("dpo-1", "dpo-2", "dpo-3"),
}
"""Of each optimiser its policies: a little, more, and hard."""
BLIND = ("DPO",)
"""Those that learn from the comparisons themselves and never see the reward."""
_FEWEST = 3
_BOUND = "The distance of best of n is an upper bound."
_TOO_NEAR = "too few distances for a curve"


def look(folder: Folder) -> Seen:
    """Reward and worth along the distance, and where the worth turned."""
    found = evaluated(folder, "evaluation")
    return Seen(
        claims=(*_rises(found), *_falls(found), *_chosen(found), _true(found)),
        table=_table(found),
        pictures=(
            Picture(
                title="What the reward promises",
                says="How much of the reward each has, by how far it went for it.",
                drawn=along("Learnt reward", "what is optimised", _lines(found, reward)),
            ),
            Picture(
                title="What is kept of it",
                says="The true worth of the same answers: where does it turn?",
                drawn=along("True worth", "by the world, never shown", _lines(found, worth)),
            ),
        ),
    )


def _rises(found: PolicyEvaluation) -> list[Claim]:
    return [
        more(
            f"{name}: pressed hard it gets more of the reward than at the start.",
            found,
            (steps[-1], START),
            reward,
            "of the reward",
        )
        for name, steps in PRESSED.items()
        if name not in BLIND
    ]


def _falls(found: PolicyEvaluation) -> list[Claim]:
    return [
        more(
            f"{name}: pressed hard its answers are worth less than pressed a little.",
            found,
            (steps[0], steps[-1]),
            worth,
            "of true worth",
        )
        for name, steps in PRESSED.items()
    ]


def _chosen(found: PolicyEvaluation) -> list[Claim]:
    """The best of n by the curve d(α − β·d), α how fast its gain rises at first, β how fast it bends."""
    curve = found.over_optimisation
    if curve is None:
        return []
    rises, bends = above_zero(curve.alpha), above_zero(curve.beta)
    return [
        Claim(
            says="Best of n: of few answers the reward chooses well.",
            holds=rises,
            saw=f"α, how fast worth rises at first, is {with_ends(curve.alpha)}",
        ),
        Claim(
            says="Best of n: of many it chooses by its own mistakes.",
            holds=bends,
            saw=f"β, how fast the rise bends down, is {with_ends(curve.beta)}",
        ),
    ]


def _true(found: PolicyEvaluation) -> Claim:
    says = "A reward without faults keeps its promise: by the truth itself GRPO's answers are worth more."
    return more(says, found, (TRUTH, PRESSED["GRPO"][-1]), worth, "of true worth")


def _lines(found: PolicyEvaluation, what: Figure) -> dict[str, list[tuple[Number, Span]]]:
    """Each optimiser from the start on, and the best of n answers."""
    lines = {
        name: [(_root(found, step), _span(mean_of(found, step, what))) for step in (START, *steps)]
        for name, steps in PRESSED.items()
    }
    best = [] if found.best_of is None else found.best_of.points
    drawn = [(sqrt(at.kl), _span(at.truth) if what is worth else Span(value=at.proxy)) for at in best]
    return lines | ({"best of n": drawn} if drawn else {})


def _root(found: PolicyEvaluation, name: str) -> float:
    kl = policy(found, name).kl
    return 0.0 if kl is None else sqrt(max(kl.value, 0.0))


def _span(one: Estimate | None) -> Span:
    return Span(value=float("nan")) if one is None else Span(value=one.value, low=one.low, high=one.high)


def _table(found: PolicyEvaluation) -> Table:
    rows = tuple(
        (
            name,
            figure(_root(found, name)),
            plain(policy(found, name).reward),
            plain(policy(found, name).gold),
            "" if name == START else with_ends(apart(found, (name, START), worth)),
        )
        for name in (START, *(step for steps in PRESSED.values() for step in steps), TRUTH)
    )
    curves = _curves(found)
    told = [f"{name}: {curve.sentence if curve else _TOO_NEAR}." for name, curve in curves.items()]
    note = " ".join((*told, *_compared(curves)))
    return Table(head=("policy", "√KL", "reward", "true worth", "gained"), rows=rows, note=note)


def _curves(found: PolicyEvaluation) -> dict[str, OverOptimisation | None]:
    """The gain along √KL by the curves of Gao et al. (2023, arXiv:2210.10760)."""
    curves = {name: _curve(found, (START, *steps)) for name, steps in PRESSED.items()}
    best = found.over_optimisation
    return curves | ({} if best is None else {"Best of n": best})


def _curve(found: PolicyEvaluation, names: tuple[str, ...]) -> OverOptimisation | None:
    kl_S = np.array([_root(found, name) ** 2 for name in names])
    if len(np.unique(kl_S[kl_S > 0])) < _FEWEST:
        return None
    said = [by_prompt(found, name, worth) for name in names]
    asked = [prompt for prompt in said[0] if all(prompt in one for one in said)]
    gain_PS = np.array([[one[prompt] - said[0][prompt] for one in said] for prompt in asked])
    return over_optimisation(kl_S, gain_PS, "policy", Resampling())


def _compared(curves: Mapping[str, OverOptimisation | None]) -> list[str]:
    """Who has spent its distance best, as far as all of them went."""
    known = {name: curve for name, curve in curves.items() if curve is not None}
    furthest = min((curve.furthest for curve in known.values()), default=0.0)
    gains = {name: gain for name, curve in known.items() if (gain := curve.at(furthest)) is not None}
    ranked = sorted(gains, key=lambda name: -gains[name])
    said = ", ".join(f"{name} {gains[name]:+.3f}" for name in ranked)
    return [f"At √KL {figure(furthest)}, which all came to, the curves say: {said}. {_BOUND}"] if said else []


EXERCISE = Exercise(
    name="over-optimisation",
    title="How long does a reward that is pressed keep its promise?",
    why=(
        "A learnt reward is right where its comparisons were, and wrong elsewhere. The further a policy is "
        "driven, the more of its gain is a mistake: the true worth rises along √KL and falls again "
        "(Gao et al. 2023, arXiv:2210.10760), for best-of-n, for PPO, and for direct methods that never "
        "see a reward (Rafailov et al. 2024, arXiv:2406.02900). A reward without faults has no such peak."
    ),
    minutes=2,
    look=look,
    further=(
        "plaudit lab over-optimisation --set crowd.n=2000: a better reward can be pressed further",
        "plaudit lab over-optimisation --set lovers.annotators=crowd: does it last longer without them",
    ),
)
"""Over-optimisation across optimisers."""
