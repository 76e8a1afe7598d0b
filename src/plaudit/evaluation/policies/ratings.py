"""One scale for three policies or more, by Bradley and Terry, from everybody's duels with everybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from plaudit.errors import UserError
from plaudit.evaluation.columns import numbered
from plaudit.evaluation.policies.dueled import Dueled, judged, verdicts
from plaudit.evaluation.policies.result import Rating
from plaudit.evaluation.resample import Resampling

Duels = Mapping[tuple[str, str], Sequence[Dueled]]
"""By the names of the two policies, the first of whom is ``mine``."""
MIDDLE = 1000.0
"""The mean of all ratings."""
LOST = 0.05
"""The share of draws of prompts without ratings beyond which there is no interval."""
_STEPS = 100_000
_NEAR = 1e-10


def ratings(duels: Duels, resampling: Resampling) -> tuple[Rating, ...]:
    """400/ln 10 · log-strength with mean 1000, P(a beats b) = s_a/(s_a + s_b), a tie as half a win for each.

    Bradley and Terry 1952, solved by evalica. Intervals draw prompts anew, the same ones for all pairs of
    policies; a draw without ratings is left out, and with more than a twentieth of them there is no interval.
    Empty where there are no ratings at all, which `why_unrated` says in words.

    >>> said = (("q1", 1), ("q2", 1), ("q3", 0))
    >>> won = [Dueled(prompt=q, mine="x", theirs="y", forward=v, backward=v) for q, v in said]
    >>> found = ratings({("a", "b"): won, ("b", "c"): won}, Resampling(times=100))
    >>> [(one.name, round(one.elo)) for one in found]  # each twice as strong as the next: 400 · log₁₀ 2
    [('a', 1120), ('b', 1000), ('c', 880)]
    """
    names, wins_PKK = _table(duels)
    if why_unrated(duels) is not None:
        return ()
    prompts = len(wins_PKK)
    times_SP = np.random.default_rng(resampling.seed).multinomial(
        prompts, np.full(prompts, 1 / prompts), size=resampling.times
    )
    drawn = [_elo(one_KK) for one_KK in np.tensordot(times_SP, wins_PKK, 1) if _why(names, one_KK) is None]
    ends = None
    if prompts > 1 and len(drawn) >= (1 - LOST) * resampling.times:
        ends = np.quantile(np.array(drawn), (0.025, 0.975), axis=0)
    return tuple(
        Rating(
            name=name,
            elo=float(elo),
            low=None if ends is None else float(ends[0, place]),
            high=None if ends is None else float(ends[1, place]),
        )
        for place, (name, elo) in enumerate(zip(names, _elo(wins_PKK.sum(0)), strict=True))
    )


def why_unrated(duels: Duels) -> str | None:
    """Why there are no ratings: nobody met, some never met the others, or never lost to them (Ford 1957).

    >>> won = [Dueled(prompt="q", mine="x", theirs="y", forward=1.0, backward=1.0)]
    >>> why_unrated({("ppo", "sft"): won})
    'ppo never lost to the others, and no rating would be high enough: ask more prompts'
    """
    names, wins_PKK = _table(duels)
    return _why(names, wins_PKK.sum(0))


def _table(duels: Duels) -> tuple[list[str], Float[np.ndarray, "P K K"]]:
    """How often the one of the row beat the one of the column, by prompt; each has its part of a chance."""
    if twice := next((one for one, other in duels if one == other), None):
        raise UserError(f"{twice} cannot be rated against itself: name two policies")
    names = list(dict.fromkeys(name for pair in duels for name in pair))
    told = [(pair, judged(some)) for pair, some in duels.items()]
    prompt_B = numbered([duel.prompt for _, some in told for duel in some])
    wins_PKK = np.zeros((len(set(prompt_B.tolist())), len(names), len(names)))
    start = 0
    for (one, other), some in told:
        mine, theirs, share_B = names.index(one), names.index(other), verdicts(some)
        place_B = prompt_B[start : start + len(some)]
        wins_PKK[:, mine, theirs] += np.bincount(place_B, share_B, len(wins_PKK))
        wins_PKK[:, theirs, mine] += np.bincount(place_B, 1 - share_B, len(wins_PKK))
        start += len(some)
    return names, wins_PKK


def _why(names: Sequence[str], wins_KK: Float[np.ndarray, "K K"]) -> str | None:
    if not wins_KK.any():
        return "there is no verdict on any two policies"
    together_K = _groups(wins_KK, "weak")
    if together_K.max() > 0:
        apart = " and ".join(_members(names, together_K, group) for group in range(together_K.max() + 1))
        return f"there is no verdict that joins {apart}: have them compared"
    group_K = _groups(wins_KK, "strong")
    if group_K.max() == 0:
        return None
    best = next(
        group
        for group in range(group_K.max() + 1)
        if not wins_KK[np.ix_(group_K != group, group_K == group)].any()
    )
    never = _members(names, group_K, best)
    return f"{never} never lost to the others, and no rating would be high enough: ask more prompts"


def _groups(
    wins_KK: Float[np.ndarray, "K K"], connection: Literal["weak", "strong"]
) -> Int[np.ndarray, " K"]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    found = connected_components(csr_array(wins_KK > 0), directed=True, connection=connection)
    return np.asarray(found[1], dtype=np.int64)


def _members(names: Sequence[str], group_K: Int[np.ndarray, " K"], group: int) -> str:
    return ", ".join(name for name, other in zip(names, group_K, strict=True) if other == group)


def _elo(wins_KK: Float[np.ndarray, "K K"]) -> Float[np.ndarray, " K"]:
    from evalica import Winner, bradley_terry

    first_E, second_E = np.nonzero(wins_KK)
    found = bradley_terry(
        first_E.tolist(),
        second_E.tolist(),
        [Winner.X] * len(first_E),
        weights=wins_KK[first_E, second_E].tolist(),
        tolerance=_NEAR,
        limit=_STEPS,
    )
    strength_K = found.scores.sort_index().to_numpy(dtype=float)
    if found.iterations >= _STEPS:
        raise ArithmeticError(f"Bradley-Terry did not settle in {_STEPS:,} steps: {wins_KK.tolist()}")
    log_K = np.log(strength_K)
    return MIDDLE + 400 / log(10) * (log_K - log_K.mean())
