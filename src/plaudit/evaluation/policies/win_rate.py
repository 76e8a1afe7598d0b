"""How often one policy is preferred to another, at equal length or style too; one scale for several.

A judge compares two answers to one prompt twice, each shown first once. Intervals and the test know whose
prompt is whose. Style is length, headers, lists and bold.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from plaudit.data.judging import NO_VERDICT, Orders
from plaudit.errors import UserError
from plaudit.evaluation.policies.result import CategoryFigure, Contest, Rating
from plaudit.evaluation.reward_models.pairs import group_index
from plaudit.evaluation.shares import sign_flip_test
from plaudit.evaluation.stats import (
    ControlledWinRate,
    Estimate,
    Resampling,
    bootstrap_mean,
    interval_levels,
    prompt_draws,
    win_rate_at_equal_features,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPair:
    """A pair with a judge's verdicts in both orders; the same twice where the judge sees no order."""

    prompt: str
    """What was asked: pairs of one prompt are resampled together."""
    category: str | None = None
    mine: str
    theirs: str
    forward: int | float | None
    """The probability that mine is the better one, judged with mine shown first; None for no verdict."""
    backward: int | float | None
    """The same, judged with mine shown second."""
    joined: float | None = None
    """What the judge itself makes of both orders, where that is not their mean: a jury joins its members."""
    reason: str | None = None

    def __post_init__(self) -> None:
        for probability in (self.forward, self.backward, self.joined):
            if probability is not None and not 0 <= probability <= 1:
                raise ValueError(f"{self.prompt[:40]!r}: {probability} is no chance from 0 to 1")

    @property
    def verdict(self) -> float | None:
        """What the judge makes of both orders, else their mean, ½ where they contradict each other; None
        where either is missing.

        >>> JudgedPair(prompt="q", mine="a", theirs="b", forward=1.0, backward=0.5).verdict
        0.75
        >>> JudgedPair(prompt="q", mine="a", theirs="b", forward=0.9, backward=0.3).verdict
        0.5
        """
        mean = Orders(forward=self.forward, backward=self.backward).mean
        return mean if mean is None or self.joined is None else self.joined

    @property
    def swapped(self) -> "JudgedPair":
        return JudgedPair(
            prompt=self.prompt,
            category=self.category,
            mine=self.theirs,
            theirs=self.mine,
            # The orders change places as well: the answer shown first forward is now theirs.
            forward=None if self.backward is None else 1 - self.backward,
            backward=None if self.forward is None else 1 - self.forward,
            joined=None if self.joined is None else 1 - self.joined,
            reason=self.reason,
        )


def with_verdict(duels: Sequence[JudgedPair]) -> list[JudgedPair]:
    return [duel for duel in duels if duel.verdict is not None]


def missing_verdicts(duels: Sequence[JudgedPair]) -> dict[str, int]:
    return dict(Counter(duel.reason or NO_VERDICT for duel in duels if duel.verdict is None))


def verdict_array(duels: Sequence[JudgedPair]) -> Float[np.ndarray, " B"]:
    return np.array([duel.verdict for duel in duels], dtype=float)


def length_controlled_win_rate(duels: Sequence[JudgedPair], resampling: Resampling) -> ControlledWinRate:
    """σ(θ) of P(mine is preferred) = σ(θ + φ·tanh(Δ/s)), Δ mine less theirs in characters, s its deviation.
    The minimal form of AlpacaEval 2 (Dubois et al. 2024, arXiv:2404.04475), without its terms for the
    difficulty of its own 805 prompts. Both policies are treated alike: seen from the other side it is 1 −
    σ(θ). Where all pairs are of equal length there is nothing to control, and it is the raw win rate."""

    def scaled_lengths(with_verdicts: Sequence[JudgedPair]) -> Float[np.ndarray, "B 1"]:
        longer_B = np.array([len(duel.mine) - len(duel.theirs) for duel in with_verdicts], dtype=float)
        # A difference that is the same throughout is refused further down; any yardstick does until then.
        return np.tanh(longer_B / (longer_B.std() or 1.0))[:, None]

    return _controlled_win_rate(duels, resampling, scaled_lengths)


def _controlled_win_rate(
    duels: Sequence[JudgedPair],
    resampling: Resampling,
    features_of: Callable[[Sequence[JudgedPair]], Float[np.ndarray, "B F"]],
) -> ControlledWinRate:
    with_verdicts = with_verdict(duels)
    if not with_verdicts:
        return ControlledWinRate(value=None, reason="there is no verdict")
    x_BF, verdict_B = features_of(with_verdicts), verdict_array(with_verdicts)
    prompt_B = group_index([duel.prompt for duel in with_verdicts])
    if not x_BF.any():
        return ControlledWinRate(value=bootstrap_mean(verdict_B, prompt_B, resampling))
    return win_rate_at_equal_features(x_BF, verdict_B, prompt_B, resampling)


_CODE_BLOCK = re.compile(r"^(?:```|~~~).*?(?:^(?:```|~~~)[^\S\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_STYLE_PATTERNS = {
    "headers": re.compile(r"^ {0,3}#{1,6}\s+\S", re.MULTILINE),
    "lists": re.compile(r"^\s*(?:[-*•+]|\d{1,3}[.)])\s+\S", re.MULTILINE),
    "bold": re.compile(r"\*\*(?=\S)[^*\n]+?(?<=\S)\*\*|\b__(?=\S)[^_\n]+?(?<=\S)__\b"),
}


def without_code_blocks(text: str) -> str:
    """The text without its fenced blocks, of which ``# comments`` and ``* products`` are no style.

    >>> without_code_blocks("Run:\\n```\\n# not a header\\n```\\nDone.")
    'Run:\\n\\nDone.'
    """
    return _CODE_BLOCK.sub("", text)


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
    plain = without_code_blocks(text)
    return len(_STYLE_PATTERNS[mark].findall(plain)) / (len(plain.split()) + 1)


def density_gap(mine: str, theirs: str, mark: str) -> float:
    """(a − b)/(a + b + 1) of the densities.

    >>> round(density_gap("- one\\n- two\\nthe third", "none", "lists"), 3)
    0.222
    """
    a, b = density(mine, mark), density(theirs, mark)
    return (a - b) / (a + b + 1)


STYLE_FEATURES: Mapping[str, Callable[[str, str], float]] = {
    "length": length_gap,
    **{mark: partial(density_gap, mark=mark) for mark in _STYLE_PATTERNS},
}
"""How two answers can differ in style, by name; mine more than theirs is positive."""


def style_differences(
    duels: Sequence[JudgedPair], names: Sequence[str] = tuple(STYLE_FEATURES)
) -> Float[np.ndarray, "B F"]:
    """A column for each name, over its own root mean square; an unknown name is refused.
    Scaled and not centred: where one policy is always the longer one, a centred column would put that very
    difference into the intercept, which is to speak of equal style."""
    if unknown := [name for name in names if name not in STYLE_FEATURES]:
        raise UserError(f"no feature of style is called {unknown[0]}; there is {', '.join(STYLE_FEATURES)}")
    raw_BF = np.array(
        [[STYLE_FEATURES[name](duel.mine, duel.theirs) for name in names] for duel in duels], dtype=float
    )
    spread_F = np.sqrt((raw_BF**2).mean(0))
    # A style that never differs stays a column of zeros, instead of nan, and the fit leaves it out.
    return raw_BF / np.where(spread_F > 0, spread_F, 1.0)


def style_controlled_win_rate(
    duels: Sequence[JudgedPair], resampling: Resampling, *, features: Sequence[str] = tuple(STYLE_FEATURES)
) -> ControlledWinRate:
    """σ(θ) of P(mine is preferred) = σ(θ + x·β), x the differences of style (Arena; Li et al. 2024).
    Prompts are drawn anew and never rows, a feature is chosen by its name, and all pairs are looked at
    whichever others were looked at before. A feature that never differs is left out; where none does, it is
    the raw win rate."""
    return _controlled_win_rate(duels, resampling, partial(style_differences, names=features))


def contest_result(
    names: tuple[str, str, str], duels: Sequence[JudgedPair], resampling: Resampling, *, sees_order: bool
) -> Contest:
    """All figures of one policy against another, of these names, by a judge of the third.
    ``sees_order`` is False where answers are scored singly."""
    policy, against, judge = names
    if not sees_order and any(duel.forward != duel.backward for duel in duels):
        raise ValueError(f"{judge} sees no order, and yet gave two numbers for one pair")
    with_verdicts = with_verdict(duels)
    share_B = verdict_array(with_verdicts)
    decided_duels = [duel for duel, share in zip(with_verdicts, share_B, strict=True) if share != 0.5]
    at_length = length_controlled_win_rate(with_verdicts, resampling)
    at_style = style_controlled_win_rate(with_verdicts, resampling)
    controlled = (("length-controlled", at_length), ("style-controlled", at_style))
    decided = _mean_over_prompts(decided_duels, lambda duel: float(_require_verdict(duel) > 0.5), resampling)
    return Contest(
        policy=policy,
        against=against,
        judge=judge,
        won=int((share_B > 0.5).sum()),
        tied=int((share_B == 0.5).sum()),
        lost=int((share_B < 0.5).sum()),
        unjudged=len(duels) - len(with_verdicts),
        reasons=missing_verdicts(duels),
        raw=_mean_over_prompts(with_verdicts, _require_verdict, resampling),
        decided=decided,
        length_controlled=at_length.value,
        style_controlled=at_style.value,
        consistency=_mean_over_prompts(with_verdicts, orders_agree, resampling) if sees_order else None,
        first=_mean(first_shown_readings(with_verdicts), resampling) if sees_order else None,
        p_value=paired_p_value(with_verdicts),
        by_category=_win_rate_by_category(with_verdicts, resampling),
        notes=tuple(
            f"{'no ' if result.value is None else ''}{name} win rate: {result.reason}"
            for name, result in controlled
            if result.reason is not None
        ),
    )


def paired_p_value(duels: Sequence[JudgedPair]) -> float | None:
    """Of the paired test that neither is better: `sign_flip_test` of verdict − ½; None without a verdict."""
    with_verdicts = with_verdict(duels)
    if not with_verdicts:
        return None
    prompt_B = group_index([duel.prompt for duel in with_verdicts])
    return sign_flip_test(verdict_array(with_verdicts) - 0.5, prompt_B)


def _mean_over_prompts(
    duels: Sequence[JudgedPair], value_of: Callable[[JudgedPair], float], resampling: Resampling
) -> Estimate | None:
    return _mean([(duel.prompt, value_of(duel)) for duel in duels], resampling)


def _mean(rows: Sequence[tuple[str, float]], resampling: Resampling) -> Estimate | None:
    if not rows:
        return None
    prompts, values = zip(*rows, strict=True)
    return bootstrap_mean(np.array(values, dtype=float), group_index(prompts), resampling)


def _require_verdict(duel: JudgedPair) -> float:
    assert duel.verdict is not None, duel.prompt
    return duel.verdict


def orders_agree(duel: JudgedPair) -> float:
    """1 where both orders say the same, a tie among it, else 0.

    >>> orders_agree(JudgedPair(prompt="q", mine="a", theirs="b", forward=0.9, backward=0.3))
    0.0
    """
    assert duel.forward is not None, duel.prompt
    assert duel.backward is not None, duel.prompt
    return float(np.sign(duel.forward - 0.5) == np.sign(duel.backward - 0.5))


def first_shown_readings(duels: Sequence[JudgedPair]) -> list[tuple[str, float]]:
    """Of both readings of every pair that prefer an answer: the prompt, and 1 for the one shown first, or 0.

    >>> first_shown_readings([JudgedPair(prompt="q", mine="a", theirs="b", forward=0.9, backward=0.3)])
    [('q', 1.0), ('q', 1.0)]
    """
    return [
        (duel.prompt, float(p_first > 0.5))
        for duel in duels
        if duel.forward is not None and duel.backward is not None
        # The chance of whoever is shown first: mine forward, theirs backward.
        for p_first in (duel.forward, 1 - duel.backward)
        if p_first != 0.5
    ]


def _win_rate_by_category(duels: Sequence[JudgedPair], resampling: Resampling) -> tuple[CategoryFigure, ...]:
    parts: dict[str, list[JudgedPair]] = {}
    for duel in duels:
        if duel.category is not None:
            parts.setdefault(duel.category, []).append(duel)
    win_rates = (
        (name, _mean_over_prompts(part, _require_verdict, resampling)) for name, part in sorted(parts.items())
    )
    return tuple(CategoryFigure(name=name, value=value) for name, value in win_rates if value is not None)


DuelsByPair = Mapping[tuple[str, str], Sequence[JudgedPair]]
"""By the names of the two policies, the first of whom is ``mine``."""
CorrectedVerdicts = tuple[Float[np.ndarray, " B"], Float[np.ndarray, " B"]]
"""What counts in place of each verdict, and what would if a card were off by its standard error."""
CorrectedByPair = Mapping[tuple[str, str], CorrectedVerdicts]
MEAN_RATING = 1000.0
MAX_FAILED_DRAWS = 0.05
"""The share of draws of prompts without ratings beyond which there is no interval."""
_MAX_STEPS = 200
_MAX_STEP = 3.0
_TOLERANCE = 1e-10


def elo_ratings(
    duels: DuelsByPair, resampling: Resampling, corrected: CorrectedByPair | None = None
) -> tuple[Rating, ...]:
    """400/ln 10 · log-strength with mean 1000, P(a beats b) = s_a/(s_a + s_b), a tie as half a win for each.
    Bradley and Terry 1952. Intervals draw prompts anew, the same ones for all pairs of policies; a draw
    without ratings is left out, and with more than a twentieth of them there is no interval. Empty where
    there are no ratings at all, which `why_unrated` says in words. Of corrected verdicts a draw has another
    error of the card too, the same for all pairs."""
    names, wins_PKK = _win_counts(duels, corrected)
    if why_unrated(duels, corrected) is not None:
        return ()
    prompts, errors = len(wins_PKK), np.random.default_rng([resampling.seed, 1])
    off_PKK = _win_counts(duels, corrected, 1)[1] - wins_PKK
    resampled_ratings = [
        _fit_elo(drawn_KK)
        for times_SP in prompt_draws(prompts, resampling)
        # [S, P] counts with [P, K, K] wins: one matrix of wins for each draw.
        for off_KK, one_KK in zip(
            *(np.tensordot(times_SP, each, 1) for each in (off_PKK, wins_PKK)), strict=True
        )
        # A draw may miss the one upset that keeps a rating finite.
        if _reason_unrated(names, drawn_KK := (one_KK + errors.standard_normal() * off_KK).clip(0)) is None
    ]
    ends: Sequence[tuple[float | None, float | None]] = [(None, None)] * len(names)
    if prompts > 1 and len(resampled_ratings) >= (1 - MAX_FAILED_DRAWS) * resampling.times:
        ends = np.quantile(np.array(resampled_ratings), interval_levels(prompts), axis=0).T.tolist()
    rows = zip(names, _fit_elo(wins_PKK.sum(0).clip(0)).tolist(), ends, strict=True)
    return tuple(Rating(name=name, elo=elo, low=low, high=high) for name, elo, (low, high) in rows)


def why_unrated(duels: DuelsByPair, corrected: CorrectedByPair | None = None) -> str | None:
    """Why there are no ratings: no verdict at all, policies that were never compared, or one that never lost
    (Ford 1957)."""
    names, wins_PKK = _win_counts(duels, corrected)
    return _reason_unrated(names, wins_PKK.sum(0).clip(0))


def _win_counts(
    duels: DuelsByPair, corrected: CorrectedByPair | None, which: int = 0
) -> tuple[list[str], Float[np.ndarray, "P K K"]]:
    """How often the one of the row beat the one of the column, by prompt; each has its part of a chance."""
    if self_rated := next((first for first, other in duels if first == other), None):
        raise UserError(f"{self_rated} cannot be rated against itself: name two policies")
    names = list(dict.fromkeys(name for pair in duels for name in pair))
    judged_pairs = [(pair, with_verdict(pair_duels)) for pair, pair_duels in duels.items()]
    # Numbered over all pairs of policies at once: a prompt is one row whoever competes on it.
    prompt_B = group_index([duel.prompt for _, pair_duels in judged_pairs for duel in pair_duels])
    wins_PKK = np.zeros((len(set(prompt_B.tolist())), len(names), len(names)))
    start = 0
    for (item, other), pair_duels in judged_pairs:
        mine, theirs = names.index(item), names.index(other)
        share_B = verdict_array(pair_duels) if corrected is None else corrected[item, other][which]
        place_B = prompt_B[start : start + len(pair_duels)]
        wins_PKK[:, mine, theirs] += np.bincount(place_B, share_B, len(wins_PKK))
        wins_PKK[:, theirs, mine] += np.bincount(place_B, 1 - share_B, len(wins_PKK))
        start += len(pair_duels)
    return names, wins_PKK


def _reason_unrated(names: Sequence[str], wins_KK: Float[np.ndarray, "K K"]) -> str | None:
    if not wins_KK.any():
        return "there is no verdict on any two policies"
    # Weak: compared at all, if by others between. Strong: by wins both ways, which a finite maximum needs.
    component_K = _connected_groups(wins_KK, "weak")
    if component_K.max() > 0:
        components = " and ".join(
            _group_names(names, component_K, group) for group in range(component_K.max() + 1)
        )
        return f"there is no verdict that joins {components}: have them compared"
    group_K = _connected_groups(wins_KK, "strong")
    if group_K.max() == 0:
        return None
    # The component that nobody outside of it has ever beaten.
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
    # Newton's steps on the log-strengths: no more than a few, since the log-likelihood is concave.
    matches_KK = wins_KK + wins_KK.T
    log_K = np.zeros(len(wins_KK))
    for _ in range(_MAX_STEPS):
        p_KK = np.exp(-np.logaddexp(0, log_K[None, :] - log_K[:, None]))
        slope_K = wins_KK.sum(axis=1) - (matches_KK * p_KK).sum(axis=1)
        weight_KK = matches_KK * p_KK * p_KK.T
        # pinv: strengths are known up to a common factor only, which it leaves as it is.
        bend_KK = np.linalg.pinv(np.diag(weight_KK.sum(axis=1)) - weight_KK, hermitian=True)
        step_K = np.clip(bend_KK @ slope_K, -_MAX_STEP, _MAX_STEP)
        log_K = log_K + step_K
        if np.abs(step_K).max() < _TOLERANCE:
            break
    else:
        raise ArithmeticError(f"Bradley-Terry did not settle in {_MAX_STEPS} steps: {wins_KK.tolist()}")
    return MEAN_RATING + 400 / log(10) * (log_K - log_K.mean())
