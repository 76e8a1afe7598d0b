"""Named pools of annotators, and how far each agrees with the truth and with itself.

How far is not sampled but computed: the chance of every choice of an annotator is known.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from statistics import fmean

from plaudit.data.judging import Task
from plaudit.data.records import plain_text
from plaudit.errors import UserError
from plaudit.world.annotators import Annotator, Aspect, Bias


def _expert_annotators() -> tuple[Annotator, ...]:
    return tuple(
        Annotator(name=f"expert-{n}", group="experts", temperature=0.03, words_a_second=3.0)
        for n in range(1, 4)
    )


def _crowd_annotators() -> tuple[Annotator, ...]:
    """Twelve ordinary people: each with some noise and some weakness of their own."""
    rng = random.Random("the crowd of the valley")
    return tuple(
        Annotator(
            name=f"crowd-{n}",
            group="crowd",
            temperature=rng.uniform(0.08, 0.2),
            biases={
                "length": rng.uniform(-0.02, 0.06),
                "flattery": rng.uniform(0.0, 0.1),
                "format": rng.uniform(-0.05, 0.1),
                "position": rng.uniform(0.0, 0.05),
            },
            flip=0.02,
            careless=0.03,
        )
        for n in range(1, 13)
    )


def _hurried_annotators() -> tuple[Annotator, ...]:
    return tuple(
        Annotator(
            name=f"hurried-{n}",
            group="hurried",
            temperature=0.2,
            biases={"position": 0.15},
            flip=0.05,
            careless=0.25,
            words_a_second=12.0,
        )
        for n in range(1, 7)
    )


def _length_loving_annotators() -> tuple[Annotator, ...]:
    return tuple(
        Annotator(name=f"length-{n}", group="length lovers", temperature=0.1, biases={"length": 0.6})
        for n in range(1, 7)
    )


def _flattered_annotators() -> tuple[Annotator, ...]:
    return tuple(
        Annotator(name=f"flattered-{n}", group="flattered", temperature=0.1, biases={"flattery": 0.5})
        for n in range(1, 7)
    )


def _cautious_annotators() -> tuple[Annotator, ...]:
    return tuple(
        Annotator(name=f"cautious-{n}", group="cautious", temperature=0.1, biases={"evasion": 0.8})
        for n in range(1, 7)
    )


def _village_annotators() -> tuple[Annotator, ...]:
    """Three groups with tastes of their own: terse, ornate and courtly."""
    tastes: Mapping[str, Mapping[Bias, float]] = {
        "Shortford": {"length": -0.15},
        "Listham": {"format": 0.4},
        "Bowbury": {"flattery": 0.3},
    }
    return tuple(
        Annotator(name=f"{village}-{n}", group=village, temperature=0.08, biases=biases)
        for village, biases in tastes.items()
        for n in range(1, 5)
    )


def _sabotaged_annotators() -> tuple[Annotator, ...]:
    return (
        *_crowd_annotators(),
        *(
            Annotator(name=f"saboteur-{n}", group="saboteurs", temperature=0.1, adversary=True)
            for n in (1, 2)
        ),
    )


POOLS: Mapping[str, Callable[[], tuple[Annotator, ...]]] = {
    "experts": _expert_annotators,
    "crowd": _crowd_annotators,
    "hurried": _hurried_annotators,
    "length-lovers": _length_loving_annotators,
    "flattered": _flattered_annotators,
    "cautious": _cautious_annotators,
    "villages": _village_annotators,
    "sabotaged": _sabotaged_annotators,
}
"""Each pool by its name."""
TRUE_ANNOTATOR = Annotator(name="the truth", group="gold", temperature=0, indifference=0)
"""The annotator who always prefers the answer of higher true utility."""


def annotator_pool(name: str, *, aspect: Aspect | None = None) -> tuple[Annotator, ...]:
    """The annotators of a pool, asked about all that an answer is worth or about one part of it.

    >>> [annotator.name for annotator in annotator_pool("experts")]
    ['expert-1', 'expert-2', 'expert-3']
    """
    if name not in POOLS:
        raise UserError(f"no pool of annotators is called {name!r}; there are {', '.join(POOLS)}")
    return tuple(replace(one, aspect=aspect) for one in POOLS[name]())


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far the choices of some annotators agree; a share of nothing is None.

    Every share is what is to be expected when each of them judges each pair, shown in either order as often.

    Example: ``Agreement(name="crowd", annotators=12, pairs=400, with_gold=0.87, among_itself=0.78, …)``
    """

    name: str
    """Of the pool, or of the one annotator."""
    annotators: int
    """How many judge."""
    pairs: int
    """How many pairs of answers are judged."""
    with_gold: float | None
    """Of the preferences in pairs that the true utility tells apart, the share for the better answer."""
    among_itself: float | None
    """The chance that a preference is shared by another annotator who prefers one of the two answers."""
    ceiling: float | None
    """The share of the preferences that is for the answer which the pool prefers more often: no reward model
    can be right about more of them, since it sees neither who judges nor which answer is shown first."""
    ties: float
    """The share of verdicts that prefer nothing."""
    longer: float | None
    """Of the preferences between answers that differ in length, the share for the longer one."""
    first: float | None
    """Of the preferences, the share for the answer that is shown first."""


def agreement(name: str, annotators: Sequence[Annotator], tasks: Sequence[Task]) -> Agreement:
    """How far annotators agree on pairs of answers."""
    if not annotators or not tasks:
        raise UserError(f"{name}: agreement needs at least one annotator and one pair of answers")
    pairs = [_PairVotes(task, annotators) for task in tasks]
    preferring_pairs = [pair for pair in pairs if pair.both_prefer]
    ordered_pairs = [pair for pair in pairs if pair.better_index is not None]
    uneven = [pair for pair in pairs if pair.longer_index is not None]
    chosen = sum(sum(pair.votes) for pair in pairs)
    return Agreement(
        name=name,
        annotators=len(annotators),
        pairs=len(tasks),
        with_gold=_share(
            sum(p.votes[p.better_index or 0] for p in ordered_pairs), sum(sum(p.votes) for p in ordered_pairs)
        ),
        among_itself=_share(
            sum(p.agree_share * sum(p.votes) for p in preferring_pairs),
            sum(sum(p.votes) for p in preferring_pairs),
        ),
        ceiling=_share(sum(max(pair.votes) for pair in pairs), chosen),
        ties=1 - chosen / (len(tasks) * len(annotators)),
        longer=_share(sum(p.votes[p.longer_index or 0] for p in uneven), sum(sum(p.votes) for p in uneven)),
        first=_share(sum(pair.first_votes for pair in pairs), chosen),
    )


class _PairVotes:
    """Two answers, and the votes that each expects from some annotators."""

    def __init__(self, task: Task, annotators: Sequence[Annotator]) -> None:
        reversed_task = replace(task, answers=task.answers[::-1], ended=task.ended[::-1])
        probabilities = [
            [annotator.win_probabilities(one) for annotator in annotators] for one in (task, reversed_task)
        ]
        votes = [
            ((a_first + a_second) / 2, (b_first + b_second) / 2)
            for (a_first, b_second), (b_first, a_second) in zip(*probabilities, strict=True)
        ]
        self.votes = (sum(a for a, _ in votes), sum(b for _, b in votes))
        """For either answer."""
        both = list(permutations(votes, 2))
        self.both_prefer = sum((a + b) * (c + d) for (a, b), (c, d) in both)
        """How often two different annotators both prefer something."""
        self.agree_share = sum(a * c + b * d for (a, b), (c, d) in both) / (self.both_prefer or 1)
        """How often it is the same."""
        self.first_votes = fmean(sum(first for first, _ in order) for order in probabilities)
        """Votes for the answer that is shown first."""
        self.better_index = _index_of_greater(*TRUE_ANNOTATOR.win_probabilities(task))
        """The place of the answer of the higher utility."""
        self.longer_index = _index_of_greater(*(len(plain_text(answer).split()) for answer in task.answers))
        """The place of the answer of more words."""


def _index_of_greater(first: int | float, second: int | float) -> int | None:
    """The index of the greater of two numbers; None where they are equal."""
    return None if first == second else int(second > first)


def _share(part: int | float, whole: int | float) -> float | None:
    return part / whole if whole else None
