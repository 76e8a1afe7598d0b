"""Which pairs people are asked about: a score, a spread, and a share at random that measures.

Christiano et al. 2017 (arXiv:1706.03741) ask where the members of an ensemble disagree, Houlsby et al. 2011
(arXiv:1112.5745) where they do and each is sure (BALD), Shen et al. 2025 (arXiv:2502.04354) where a linear
head learns most (D-optimal), Dwaracherla et al. 2024 (arXiv:2402.00396) where two members would give other
answers, Muldrew et al. 2024 (arXiv:2402.08114) where the reward is most certain. `choose` is numpy alone.
"""

import random
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from plaudit.data.records import RANDOM, Task, plain_text
from plaudit.errors import UserError
from plaudit.rewards.base import Reward, checked_scores, leaf_rewards, traits_of

DEFAULT = "d-optimal"
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


@runtime_checkable
class HasStates(Protocol):
    """A reward with a linear head."""

    def states(self, tasks: Sequence[Task]) -> Sequence[Sequence[Float[np.ndarray, " H"] | None]]:
        """What the head reads of each answer; None where there is no verdict."""
        ...


def pool_of(
    tasks: Sequence[Task], reward: Reward | None, method: str = DEFAULT, labelled: Sequence[Task] = ()
) -> tuple[Pool, list[int]]:
    """Tasks of two answers each as a pool, and which task each pair of it is.

    A task of which a member of the reward has no verdict is left out. States are the first member's.
    """
    members = () if reward is None else traits_of(reward).members or (reward,)
    scores = [checked_scores(member, tasks) for member in members] or np.zeros((1, len(tasks), 2))
    score_MB2 = np.array(scores, dtype=float).reshape(-1, len(tasks), 2)
    used = np.flatnonzero(~np.isnan(score_MB2).any((0, 2))).tolist()
    if not used:
        raise UserError(f"choose {method}: of {len(tasks)} pairs the reward has a verdict on none")
    answers = [(tasks[place].prompt, answer) for place in used for answer in tasks[place].answers]
    # An answer that stands in several pairs is one.
    number_of = {answer: number for number, answer in enumerate(dict.fromkeys(answers))}
    pairs_B2 = np.array([number_of[answer] for answer in answers]).reshape(-1, 2)
    _, first_A = np.unique(pairs_B2, return_index=True)
    prompts = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompt for prompt, _ in answers))}
    states_AH = labelled_CH = None
    head = None if reward is None else next(leaf_rewards(reward))
    if method == DEFAULT and isinstance(head, HasStates):
        rows = head.states([tasks[place] for place in used])
        states_AH = np.array([state for row in rows for state in row])[first_A]
        pairs = [row for row in head.states(labelled) if not any(state is None for state in row)]
        labelled_C2H = np.array(pairs).reshape(-1, 2, states_AH.shape[1])
        labelled_CH = labelled_C2H[:, 0] - labelled_C2H[:, 1]
    return Pool(
        prompt_A=np.array([prompts[prompt] for prompt, _ in number_of]),
        scores_MA=score_MB2[:, used].reshape(len(score_MB2), -1)[:, first_A],
        pairs_B2=pairs_B2,
        states_AH=states_AH,
        labelled_CH=labelled_CH,
        texts=["\n".join(map(plain_text, (tasks[place].prompt, *tasks[place].answers))) for place in used],
    ), used


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    place: int
    method: str
    propensity: float | None
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
    choices = [Choice(place=place, method=RANDOM, propensity=drawn / total) for place in places]
    if method == RANDOM:
        return choices
    spread, taken = _Spread(pool, per_prompt), {*places}
    order = METHODS[method](pool, np.random.default_rng([*f"{seed}/{method}".encode()]))
    place = next(order, None)
    while place is not None and len(choices) < most:
        is_chosen = place not in taken and spread.accepts(place)
        if is_chosen:
            choices.append(Choice(place=place, method=method, propensity=None))
        try:
            place = order.send(is_chosen)
        except StopIteration:
            break
    return choices


def refuse_method(method: str, members: int | None = None) -> None:
    """Complain about a score that there is not, or that needs more members than are known of."""
    if method not in METHODS and method != RANDOM:
        raise UserError(f"choose {method}: expected one of {', '.join((RANDOM, *METHODS))}")
    if method in ("disagreement", "bald", "thompson") and members == 1:
        raise UserError(
            f"choose {method} compares the members of an ensemble, and this reward is one: train it with "
            f"--ensemble.members 4, or choose {DEFAULT}"
        )


def _refuse(pool: Pool, most: int, method: str, at_random: float) -> None:
    refuse_method(method, len(pool.scores_MA))
    if most < 1 or not 0 <= at_random <= 1:
        raise UserError(f"choose: at least 1 pair, and a random share from 0 to 1; not {most}, {at_random:g}")
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
    probability_MB = _sigmoid(pool.gaps_MB)
    return _by_score(_entropy(probability_MB.mean(0)) - _entropy(probability_MB).mean(0), rng)


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
    probability_B = _sigmoid(pool.gaps_MB.mean(0))
    weight_B = probability_B * (1 - probability_B)
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


def _entropy(probability: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    safe = np.clip(probability, 1e-12, 1 - 1e-12)
    return -(safe * np.log(safe) + (1 - safe) * np.log(1 - safe))


METHODS: Mapping[str, Callable[[Pool, np.random.Generator], Order]] = {
    DEFAULT: _d_optimal,
    "disagreement": _disagreement,
    "bald": _bald,
    "thompson": _thompson,
    "certain": _certain,
}
