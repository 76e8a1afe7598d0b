"""How often one policy is preferred to another, with intervals and a test that know whose prompt is whose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from plaudit.evaluation.columns import numbered
from plaudit.evaluation.policies.controlled import length_controlled
from plaudit.evaluation.policies.dueled import NO_REASON, Dueled, judged, verdicts
from plaudit.evaluation.policies.flips import flip_test
from plaudit.evaluation.policies.logistic import Controlled
from plaudit.evaluation.policies.result import Contest, Part
from plaudit.evaluation.policies.style import style_controlled
from plaudit.evaluation.resample import Resampling, estimate
from plaudit.evaluation.result import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Who competes before whom.

    Example: ``Names(policy="ppo", against="sft", judge="gold")``
    """

    policy: str
    """Whose wins are counted."""
    against: str
    """The other one."""
    judge: str
    """Who compared them."""


def contest(names: Names, duels: Sequence[Dueled], resampling: Resampling, *, order_seen: bool) -> Contest:
    """All that is said of the two; ``order_seen`` is False for a judge that scores answers one by one."""
    if not order_seen and any(duel.forward != duel.backward for duel in duels):
        raise ValueError(f"{names.judge} sees no order, and yet gave two numbers for one pair")
    told = judged(duels)
    share_B = verdicts(told)
    decided = [duel for duel, share in zip(told, share_B, strict=True) if share != 0.5]
    at_length, at_style = length_controlled(told, resampling), style_controlled(told, resampling)
    return Contest(
        policy=names.policy,
        against=names.against,
        judge=names.judge,
        won=int((share_B > 0.5).sum()),
        tied=int((share_B == 0.5).sum()),
        lost=int((share_B < 0.5).sum()),
        unjudged=len(duels) - len(told),
        reasons=dict(Counter(duel.reason or NO_REASON for duel in duels if duel.verdict is None)),
        raw=_mean(told, _verdict, resampling),
        decided=_mean(decided, lambda duel: float(_verdict(duel) > 0.5), resampling),
        length_controlled=at_length.value,
        style_controlled=at_style.value,
        consistency=_mean(told, _same, resampling) if order_seen else None,
        first=_first(told, resampling) if order_seen else None,
        p_value=p_value(told),
        by_category=_by_category(told, resampling),
        notes=_notes(at_length, at_style),
    )


def p_value(duels: Sequence[Dueled]) -> float | None:
    """Of the paired test that neither is better: `flip_test` of verdict − ½; None without a verdict.

    >>> won = [Dueled(prompt=f"q{n}", mine="a", theirs="b", forward=1, backward=1) for n in range(4)]
    >>> p_value(won)
    0.125
    """
    told = judged(duels)
    return flip_test(verdicts(told) - 0.5, numbered([duel.prompt for duel in told])) if told else None


def _mean(
    duels: Sequence[Dueled], what: Callable[[Dueled], float], resampling: Resampling
) -> Estimate | None:
    if not duels:
        return None
    what_B = np.array([what(duel) for duel in duels], dtype=float)
    return estimate(what_B, numbered([duel.prompt for duel in duels]), resampling)


def _verdict(duel: Dueled) -> float:
    assert duel.verdict is not None, duel.prompt
    return duel.verdict


def _same(duel: Dueled) -> float:
    assert duel.forward is not None, duel.prompt
    assert duel.backward is not None, duel.prompt
    return float(np.sign(duel.forward - 0.5) == np.sign(duel.backward - 0.5))


def _first(duels: Sequence[Dueled], resampling: Resampling) -> Estimate | None:
    """Of both readings of every pair that prefer an answer, those that prefer the one that is shown first."""
    said = [
        (duel.prompt, float(chance > 0.5))
        for duel in duels
        if duel.forward is not None and duel.backward is not None
        for chance in (duel.forward, 1 - duel.backward)
        if chance != 0.5
    ]
    if not said:
        return None
    prompts, firsts = zip(*said, strict=True)
    return estimate(np.array(firsts, dtype=float), numbered(prompts), resampling)


def _by_category(duels: Sequence[Dueled], resampling: Resampling) -> tuple[Part, ...]:
    parts: dict[str, list[Dueled]] = {}
    for duel in duels:
        if duel.category is not None:
            parts.setdefault(duel.category, []).append(duel)
    found = ((name, _mean(part, _verdict, resampling)) for name, part in sorted(parts.items()))
    return tuple(Part(name=name, value=value) for name, value in found if value is not None)


def _notes(at_length: Controlled, at_style: Controlled) -> tuple[str, ...]:
    said = (("length-controlled", at_length), ("style-controlled", at_style))
    return tuple(
        f"{'no ' if one.value is None else ''}{name} win rate: {one.reason}"
        for name, one in said
        if one.reason is not None
    )
