"""Which pairs people are asked about: a score, a spread, and a share at random that measures.

Christiano et al. 2017 (arXiv:1706.03741) ask where the members of an ensemble disagree, Houlsby et al. 2011
(arXiv:1112.5745) where they do and each is sure (BALD), Shen et al. 2025 (arXiv:2502.04354) where a linear
head learns most (D-optimal), Dwaracherla et al. 2024 (arXiv:2402.00396) where two members would give other
answers, Muldrew et al. 2024 (arXiv:2402.08114) where the reward is most certain. numpy in, numpy out.
"""

import random
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from plaudit.errors import UserError

RANDOM, DEFAULT = "random", "d-optimal"
_RIDGE = 1.0
_SAME = 0.9
_SHINGLE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A answers to P prompts, and the B pairs of them that may be asked about."""

    prompt_A: Int[np.ndarray, " A"]
    scores_MA: Float[np.ndarray, "M A"]
    """By each of M members, whose differences are log-odds."""
    pairs_B2: Int[np.ndarray, "B 2"]
    states_AH: Float[np.ndarray, "A H"] | None = None
    """What a linear head reads of each answer."""
    labelled_CH: Float[np.ndarray, "C H"] | None = None
    """The same of pairs that are labelled already: first less second."""
    texts: Sequence[str] = ()
    """What a pair is known by, to leave out those that nearly repeat another."""

    @property
    def gaps_MB(self) -> Float[np.ndarray, "M B"]:
        """By each member, the log-odds that the first is better."""
        return self.scores_MA[:, self.pairs_B2[:, 0]] - self.scores_MA[:, self.pairs_B2[:, 1]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    place: int
    """Which pair of the pool."""
    method: str
    chance: float | None
    """With which chance it was drawn; None of what a score chose, which speaks for itself alone."""


class _Spread:
    """What the score may not do: ask nearly the same twice, or all about a few prompts."""

    def __init__(self, pool: Pool, per_prompt: int) -> None:
        self._pool, self._per_prompt = pool, per_prompt
        self._taken, self._shingles = Counter[int](), list[frozenset[str]]()

    def accepts(self, place: int) -> bool:
        """Whether the pair may be asked about beside those before it; then it is one of them."""
        prompt = int(self._pool.prompt_A[self._pool.pairs_B2[place, 0]])
        shingles = _shingles(self._pool.texts[place]) if self._pool.texts else frozenset[str]()
        if self._taken[prompt] >= self._per_prompt or any(_alike(shingles, each) for each in self._shingles):
            return False
        self._taken[prompt] += 1
        self._shingles.append(shingles)
        return True


def _shingles(text: str) -> frozenset[str]:
    plain = " ".join(text.split())
    return frozenset(plain[start : start + _SHINGLE] for start in range(max(len(plain) - _SHINGLE + 1, 1)))


def _alike(first: frozenset[str], other: frozenset[str]) -> bool:
    shared = len(first & other)
    return bool(first) and shared >= _SAME * (len(first) + len(other) - shared)


def choose(
    pool: Pool,
    most: int,
    method: str = DEFAULT,
    *,
    at_random: float = 0.2,
    per_prompt: int = 2,
    seed: int | str = 0,
) -> list[Choice]:
    """Pairs to ask about: a share drawn at random of all, each with its chance, and then the best by score.

    >>> pool = Pool(
    ...     prompt_A=np.arange(6) // 2,
    ...     scores_MA=np.array([[0, 0, 0, 3, 0, 1.0], [0, 0, 3, 0, 0, 1]]),
    ...     pairs_B2=np.arange(6).reshape(3, 2),
    ... )
    >>> [choice.place for choice in choose(pool, 1, "disagreement", at_random=0)]
    [1]
    """
    _refuse(pool, most, method, at_random)
    total = len(pool.pairs_B2)
    drawn = total if method == RANDOM else min(round(at_random * most), total)
    drawn = min(drawn, most)
    places = random.Random(f"{seed}/random").sample(range(total), drawn)
    choices = [Choice(place=place, method=RANDOM, chance=drawn / total) for place in places]
    if method == RANDOM:
        return choices
    spread, taken = _Spread(pool, per_prompt), {*places}
    order = METHODS[method](pool, np.random.default_rng([*f"{seed}/{method}".encode()]))
    place = next(order, None)
    while place is not None and len(choices) < most:
        is_chosen = place not in taken and spread.accepts(place)
        if is_chosen:
            choices.append(Choice(place=place, method=method, chance=None))
        try:
            place = order.send(is_chosen)
        except StopIteration:
            break
    return choices


def _refuse(pool: Pool, most: int, method: str, at_random: float) -> None:
    if method not in METHODS and method != RANDOM:
        raise UserError(f"choose {method}: expected one of {', '.join((RANDOM, *METHODS))}")
    if most < 1 or not 0 <= at_random <= 1:
        raise UserError(f"choose: at least 1 pair, and a random share from 0 to 1; not {most}, {at_random:g}")
    if method in ("disagreement", "bald", "thompson") and len(pool.scores_MA) < 2:
        raise UserError(
            f"choose {method} compares the members of an ensemble, and this reward is one: train it with "
            f"--ensemble.members 4, or choose {DEFAULT}"
        )
    if method == DEFAULT and pool.states_AH is None:
        raise UserError(f"choose {DEFAULT} needs a reward with a head on states; choose disagreement")
    if pool.labelled_CH is not None and pool.states_AH is not None:
        size, other = pool.states_AH.shape[1], pool.labelled_CH.shape[1]
        if size != other:
            raise UserError(
                f"choose: labelled pairs have {other} features, and these {size}: another model's"
            )


Order = Generator[int, bool, None]
"""Places, the best first; it is sent whether each was chosen."""


def _by_score(score_B: Float[np.ndarray, " B"], rng: np.random.Generator) -> Order:
    # Equal ones in an order of their own, as files have rows of one kind together.
    for place in np.lexsort((rng.permutation(len(score_B)), -score_B)):
        yield int(place)


def _disagreement(pool: Pool, rng: np.random.Generator) -> Order:
    """The variance over the members of the chance that the first is better."""
    return _by_score(_sigmoid(pool.gaps_MB).var(0), rng)


def _bald(pool: Pool, rng: np.random.Generator) -> Order:
    """What a label would tell of which member is right: H(mean p) − mean H(p)."""
    chance_MB = _sigmoid(pool.gaps_MB)
    return _by_score(_entropy(chance_MB.mean(0)) - _entropy(chance_MB).mean(0), rng)


def _certain(pool: Pool, rng: np.random.Generator) -> Order:
    """The largest gap in reward."""
    return _by_score(np.abs(pool.gaps_MB.mean(0)), rng)


def _thompson(pool: Pool, rng: np.random.Generator) -> Order:
    """Two members name their best answer to a prompt: asked where they differ."""
    place_of = {frozenset(pair): place for place, pair in enumerate(pool.pairs_B2.tolist())}
    answers = [np.flatnonzero(pool.prompt_A == prompt) for prompt in np.unique(pool.prompt_A)]
    for _ in range(len(pool.scores_MA) ** 2):
        for prompt in rng.permutation(len(answers)):
            first, other = rng.choice(len(pool.scores_MA), 2, replace=False)
            best = {int(answers[prompt][pool.scores_MA[m, answers[prompt]].argmax()]) for m in (first, other)}
            if len(best) == 2 and (place := place_of.get(frozenset(best))) is not None:
                yield place


def _d_optimal(pool: Pool, rng: np.random.Generator) -> Order:
    """The most of p(1 − p)·δᵀA⁻¹δ, A = λI + Σ p(1 − p)·δδᵀ of what is labelled and chosen, one at a time."""
    assert pool.states_AH is not None
    delta_BH = pool.states_AH[pool.pairs_B2[:, 0]] - pool.states_AH[pool.pairs_B2[:, 1]]
    chance_B = _sigmoid(pool.gaps_MB.mean(0))
    weight_B = chance_B * (1 - chance_B)
    labelled_CH = np.zeros((0, delta_BH.shape[1])) if pool.labelled_CH is None else pool.labelled_CH
    # A quarter is the most that p(1 − p) can be; what was labelled is not scored again.
    inverse_HH = np.linalg.inv(_RIDGE * np.eye(delta_BH.shape[1]) + labelled_CH.T @ labelled_CH / 4)
    spread_B = np.einsum("bh,hk,bk->b", delta_BH, inverse_HH, delta_BH)
    left_B = np.ones(len(delta_BH), dtype=bool)
    while left_B.any():
        place = int(np.where(left_B, weight_B * spread_B, -1.0).argmax())
        left_B[place] = False
        if (yield place):
            # Sherman and Morrison 1950: one more pair changes A by a matrix of rank one.
            weight, step_H = weight_B[place], inverse_HH @ delta_BH[place]
            shrink = weight / (1 + weight * spread_B[place])
            spread_B = spread_B - shrink * (delta_BH @ step_H) ** 2
            inverse_HH = inverse_HH - shrink * np.outer(step_H, step_H)


def _sigmoid(gap: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    return 0.5 * (1 + np.tanh(gap / 2))


def _entropy(chance: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    safe = np.clip(chance, 1e-12, 1 - 1e-12)
    return -(safe * np.log(safe) + (1 - safe) * np.log(1 - safe))


METHODS: Mapping[str, Callable[[Pool, np.random.Generator], Order]] = {
    DEFAULT: _d_optimal,
    "disagreement": _disagreement,
    "bald": _bald,
    "thompson": _thompson,
    "certain": _certain,
}
"""The scores, by name."""
