"""One scale for three policies or more, by Bradley and Terry, from everybody's duels with everybody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from plaudit.errors import UserError
from plaudit.evaluation.policies.result import Rating
from plaudit.evaluation.policies.win_rate import JudgedPair, verdict_array, with_verdict
from plaudit.evaluation.reward_models.pairs import group_index
from plaudit.evaluation.stats.bootstrap import Resampling

DuelsByPair = Mapping[tuple[str, str], Sequence[JudgedPair]]
"""By the names of the two policies, the first of whom is ``mine``."""
MEAN_RATING = 1000.0
"""The mean of all ratings."""
MAX_FAILED_DRAWS = 0.05
"""The share of draws of prompts without ratings beyond which there is no interval."""
_MAX_ITERATIONS = 100_000
_TOLERANCE = 1e-10


def elo_ratings(duels: DuelsByPair, resampling: Resampling) -> tuple[Rating, ...]:
    """400/ln 10 · log-strength with mean 1000, P(a beats b) = s_a/(s_a + s_b), a tie as half a win for each.

    Bradley and Terry 1952, solved by evalica. Intervals draw prompts anew, the same ones for all pairs of
    policies; a draw without ratings is left out, and with more than a twentieth of them there is no interval.
    Empty where there are no ratings at all, which `why_unrated` says in words.

    >>> said = (("q1", 1), ("q2", 1), ("q3", 0))
    >>> won = [JudgedPair(prompt=q, mine="x", theirs="y", forward=v, backward=v) for q, v in said]
    >>> found = elo_ratings({("a", "b"): won, ("b", "c"): won}, Resampling(times=100))
    >>> [(one.name, round(one.elo)) for one in found]  # each twice as strong as the next: 400 · log₁₀ 2
    [('a', 1120), ('b', 1000), ('c', 880)]
    """
    names, wins_PKK = _win_counts(duels)
    if why_unrated(duels) is not None:
        return ()
    prompts = len(wins_PKK)
    times_SP = np.random.default_rng(resampling.seed).multinomial(
        prompts, np.full(prompts, 1 / prompts), size=resampling.times
    )
    resampled_ratings = [
        _fit_elo(one_KK)
        for one_KK in np.tensordot(times_SP, wins_PKK, 1)
        if _reason_unrated(names, one_KK) is None
    ]
    ends = None
    if prompts > 1 and len(resampled_ratings) >= (1 - MAX_FAILED_DRAWS) * resampling.times:
        ends = np.quantile(np.array(resampled_ratings), (0.025, 0.975), axis=0)
    return tuple(
        Rating(
            name=name,
            elo=float(elo),
            low=None if ends is None else float(ends[0, index]),
            high=None if ends is None else float(ends[1, index]),
        )
        for index, (name, elo) in enumerate(zip(names, _fit_elo(wins_PKK.sum(0)), strict=True))
    )


def why_unrated(duels: DuelsByPair) -> str | None:
    """Why there are no ratings: no verdict at all, policies that were never compared, or one that never lost
    (Ford 1957).

    >>> won = [JudgedPair(prompt="q", mine="x", theirs="y", forward=1.0, backward=1.0)]
    >>> why_unrated({("ppo", "sft"): won})
    'ppo never lost to the others, and no rating would be high enough: ask more prompts'
    """
    names, wins_PKK = _win_counts(duels)
    return _reason_unrated(names, wins_PKK.sum(0))


def _win_counts(duels: DuelsByPair) -> tuple[list[str], Float[np.ndarray, "P K K"]]:
    """How often the one of the row beat the one of the column, by prompt; each has its part of a chance."""
    if self_rated := next((one for one, other in duels if one == other), None):
        raise UserError(f"{self_rated} cannot be rated against itself: name two policies")
    names = list(dict.fromkeys(name for pair in duels for name in pair))
    judged_pairs = [(pair, with_verdict(pair_duels)) for pair, pair_duels in duels.items()]
    prompt_B = group_index([duel.prompt for _, pair_duels in judged_pairs for duel in pair_duels])
    wins_PKK = np.zeros((len(set(prompt_B.tolist())), len(names), len(names)))
    start = 0
    for (one, other), pair_duels in judged_pairs:
        mine, theirs, share_B = names.index(one), names.index(other), verdict_array(pair_duels)
        place_B = prompt_B[start : start + len(pair_duels)]
        wins_PKK[:, mine, theirs] += np.bincount(place_B, share_B, len(wins_PKK))
        wins_PKK[:, theirs, mine] += np.bincount(place_B, 1 - share_B, len(wins_PKK))
        start += len(pair_duels)
    return names, wins_PKK


def _reason_unrated(names: Sequence[str], wins_KK: Float[np.ndarray, "K K"]) -> str | None:
    if not wins_KK.any():
        return "there is no verdict on any two policies"
    component_K = _connected_groups(wins_KK, "weak")
    if component_K.max() > 0:
        components = " and ".join(
            _group_names(names, component_K, group) for group in range(component_K.max() + 1)
        )
        return f"there is no verdict that joins {components}: have them compared"
    group_K = _connected_groups(wins_KK, "strong")
    if group_K.max() == 0:
        return None
    best = next(
        group
        for group in range(group_K.max() + 1)
        if not wins_KK[np.ix_(group_K != group, group_K == group)].any()
    )
    never_beaten = _group_names(names, group_K, best)
    return f"{never_beaten} never lost to the others, and no rating would be high enough: ask more prompts"


def _connected_groups(
    wins_KK: Float[np.ndarray, "K K"], connection: Literal["weak", "strong"]
) -> Int[np.ndarray, " K"]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    components = connected_components(csr_array(wins_KK > 0), directed=True, connection=connection)
    return np.asarray(components[1], dtype=np.int64)


def _group_names(names: Sequence[str], group_K: Int[np.ndarray, " K"], group: int) -> str:
    return ", ".join(name for name, other in zip(names, group_K, strict=True) if other == group)


def _fit_elo(wins_KK: Float[np.ndarray, "K K"]) -> Float[np.ndarray, " K"]:
    from evalica import Winner, bradley_terry

    first_E, second_E = np.nonzero(wins_KK)
    result = bradley_terry(
        first_E.tolist(),
        second_E.tolist(),
        [Winner.X] * len(first_E),
        weights=wins_KK[first_E, second_E].tolist(),
        tolerance=_TOLERANCE,
        limit=_MAX_ITERATIONS,
    )
    strength_K = result.scores.sort_index().to_numpy(dtype=float)
    if result.iterations >= _MAX_ITERATIONS:
        raise ArithmeticError(
            f"Bradley-Terry did not settle in {_MAX_ITERATIONS:,} steps: {wins_KK.tolist()}"
        )
    log_K = np.log(strength_K)
    return MEAN_RATING + 400 / log(10) * (log_K - log_K.mean())
