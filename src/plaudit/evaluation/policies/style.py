"""What a win rate would be at equal length, headers, lists and bold."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from plaudit.errors import UserError
from plaudit.evaluation.columns import numbered
from plaudit.evaluation.policies.dueled import Dueled, judged, verdicts
from plaudit.evaluation.policies.logistic import Controlled, at_equal
from plaudit.evaluation.resample import Resampling, estimate

_CODE = re.compile(r"^(?:```|~~~).*?(?:^(?:```|~~~)[^\S\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_MARKS = {
    "headers": re.compile(r"^ {0,3}#{1,6}\s+\S", re.MULTILINE),
    "lists": re.compile(r"^\s*(?:[-*•+]|\d{1,3}[.)])\s+\S", re.MULTILINE),
    "bold": re.compile(r"\*\*(?=\S)[^*\n]+?(?<=\S)\*\*|\b__(?=\S)[^_\n]+?(?<=\S)__\b"),
}


def outside_code(text: str) -> str:
    """The text without its fenced blocks, of which ``# comments`` and ``* products`` are no style.

    >>> outside_code("Run:\\n```\\n# not a header\\n```\\nDone.")
    'Run:\\n\\nDone.'
    """
    return _CODE.sub("", text)


def length_gap(mine: str, theirs: str) -> float:
    """(a − b)/(a + b) in characters, from −1 to 1; 0 where both are empty.

    >>> length_gap("mice", "")
    1.0
    """
    a, b = len(mine), len(theirs)
    return (a - b) / (a + b) if a + b else 0.0


def density(text: str, mark: str) -> float:
    """Headers, list items or bold pieces for each word, outside of code: count/(words + 1).

    >>> density("- one\\n- two\\nthe third", "lists")  # 2 of 6 words, and one
    0.2857142857142857
    """
    plain = outside_code(text)
    return len(_MARKS[mark].findall(plain)) / (len(plain.split()) + 1)


def density_gap(mine: str, theirs: str, mark: str) -> float:
    """(a − b)/(a + b + 1) of the densities.

    >>> round(density_gap("- one\\n- two\\nthe third", "none", "lists"), 3)
    0.222
    """
    a, b = density(mine, mark), density(theirs, mark)
    return (a - b) / (a + b + 1)


def _gap_of(mark: str) -> Callable[[str, str], float]:
    return lambda mine, theirs: density_gap(mine, theirs, mark)


FEATURES: Mapping[str, Callable[[str, str], float]] = {
    "length": length_gap,
    "headers": _gap_of("headers"),
    "lists": _gap_of("lists"),
    "bold": _gap_of("bold"),
}
"""By name: what two answers can differ in; mine more than theirs is positive."""


def features_of(duels: Sequence[Dueled], names: Sequence[str] = tuple(FEATURES)) -> Float[np.ndarray, "B F"]:
    """A column for each name, over its own root mean square; an unknown name is refused.

    Scaled and not centred: where one policy is always the longer one, a centred column would put that very
    difference into the intercept, which is to speak of equal style.
    """
    if unknown := [name for name in names if name not in FEATURES]:
        raise UserError(f"no feature of style is called {unknown[0]}; there is {', '.join(FEATURES)}")
    raw_BF = np.array(
        [[FEATURES[name](duel.mine, duel.theirs) for name in names] for duel in duels], dtype=float
    )
    spread_F = np.sqrt((raw_BF**2).mean(0))
    return raw_BF / np.where(spread_F > 0, spread_F, 1.0)


def style_controlled(
    duels: Sequence[Dueled], resampling: Resampling, *, features: Sequence[str] = tuple(FEATURES)
) -> Controlled:
    """σ(θ) of P(mine is preferred) = σ(θ + x·β), x the differences of style (Arena; Li et al. 2024).

    Prompts are drawn anew and never rows, a feature is chosen by its name, and all pairs are looked at
    whichever others were looked at before. A feature that never differs is left out; where none does, it
    is the raw win rate.

    >>> said = [(f"q{n}", n % 2) for n in range(20)]
    >>> even = [Dueled(prompt=q, mine="ab", theirs="cd", forward=v, backward=v) for q, v in said]
    >>> style_controlled(even, Resampling()).value.value
    0.5
    """
    told = judged(duels)
    if not told:
        return Controlled(value=None, reason="there is no verdict")
    x_BF, chance_B = features_of(told, features), verdicts(told)
    prompt_B = numbered([duel.prompt for duel in told])
    if not x_BF.any():
        return Controlled(value=estimate(chance_B, prompt_B, resampling))
    return at_equal(x_BF, chance_B, prompt_B, resampling)
