"""Simulated annotators: people of the valley who judge by the true utility, and by their weaknesses.

An annotator sees each answer's utility, bent by biases, adds Gumbel noise at a temperature T, and puts the
answers in order: a Plackett–Luce choice (Luce 1959, Plackett 1975), which for two answers is Bradley and
Terry's (1952), P(a before b) = σ((v_a − v_b) / T). What feels closer than ``indifference`` is called a tie,
and then P(a before b) = σ((v_a − v_b − indifference) / T), the model of Rao and Kupper (1967).

A named pool holds several of them. How far each agrees with the truth and with itself is not sampled but
computed: the chance of every choice of an annotator is known.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, permutations
from statistics import fmean
from typing import Any, Literal, get_args

from plaudit.data.judging import Mark, Verdict, task_seed
from plaudit.data.records import Task, Text, plain_text
from plaudit.errors import UserError
from plaudit.lab.world import ANOTHER
from plaudit.lab.world.gold import NONSENSE_FACTOR, Gold, help_by_parts, judge_answer
from plaudit.lab.world.prompts import question_of_prompt
from plaudit.lab.world.questions import HarmfulRequest, Question, Several
from plaudit.lab.world.reading import Reading, read_answer

Bias = Literal["length", "position", "flattery", "format", "evasion", "assertion"]
BIASES: tuple[Bias, ...] = get_args(Bias)
Aspect = Literal["helpful", "honest", "harmless", "concise", "plain"]
ASPECTS: tuple[Aspect, ...] = get_args(Aspect)
EULER = 0.5772156649015329
"""The mean of Gumbel's distribution."""
MAX_FELT_WORDS = 60
"""Words from which an answer does not feel any longer."""
CLEAR_GAP, GREAT_GAP = 0.2, 0.5
"""Gaps between the best and the next from which a preference has strength 2, and 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotator:
    name: str
    """A pseudonym; the noise is drawn by it, so two of one name and one setting always agree."""
    group: str
    temperature: int | float = 0.1
    """How noisy the choice is; at 0 the better-looking answer always wins."""
    biases: Mapping[Bias, int | float] = field(default_factory=dict[Bias, int | float])
    """Worth added for every ten words, for standing first, for each flattery or agreement, for headings and
    bullets, for evasion; below 0 it is taken away. Of ``assertion`` the share of an error's cost that is
    missed where the answer states it flatly: at 1 a wrong answer without a hedge looks right."""
    indifference: int | float = 0.02
    """Answers that feel closer than this are called equal; at 0 there is always a choice."""
    flip: int | float = 0.0
    """The chance that the scale is read the wrong way round."""
    careless: int | float = 0.0
    adversary: bool = False
    """Whether the scale is turned round on purpose; nothing is reported then."""
    words_a_second: int | float = 4.0
    aspect: Aspect | None = None
    """The part of the utility that they judge; None: all of it."""

    def __post_init__(self) -> None:
        for fault in _faults(self):
            raise UserError(f"annotator {self.name}: {fault}")

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        return [self.verdict(task, task_seed(seed, place)) for place, task in enumerate(tasks)]

    def verdict(self, task: Task, seed: int) -> Verdict:
        """The verdict on one task, its draws begun at the very number: there always is one."""
        # Seeded by who judges what: a verdict does not hang on the tasks that were judged before it.
        rng = random.Random(f"{self.name} {seed} {plain_text(task.prompt)}")
        # Both are drawn whatever their chance: switching a weakness on leaves all other noise as it was.
        careless = rng.random() < self.careless
        is_reversed = (rng.random() < self.flip) != self.adversary
        noisy_utilities = [
            rng.random() if careless else self._noisy_utility(biased_utility, rng)
            for biased_utility in self._biased_utilities(task)
        ]
        if is_reversed:
            # 1 − v stays on the scale of ratings, so who prefers the wrong way round also rates that way.
            noisy_utilities = [1 - value for value in noisy_utilities]
        marks = tuple(
            Mark(
                rank=rank,
                rating=max(1, min(5, 1 + round(4 * value))),
                flags=()
                if careless or self.adversary
                else self._reported_flags(task.prompt, answer, ended, seed),
            )
            for rank, value, answer, ended in zip(
                _ranks(noisy_utilities, self.indifference),
                noisy_utilities,
                task.answers,
                task.ended,
                strict=True,
            )
        )
        strength = _strength(noisy_utilities, marks)
        seconds = self._reading_seconds(task, rng, careless=careless)
        return Verdict(marks=marks, strength=strength, seconds=seconds, annotator=self.name, group=self.group)

    def win_probabilities(self, task: Task) -> tuple[float, float]:
        """The probability of either of two answers to be called the better one; what is left is a tie's.

        >>> task = Task(prompt="What does the owl eat?", answers=("Mice.", "Bark."), ended=(True, True))
        >>> round(Annotator(name="ada", group="bakers", temperature=0.5).win_probabilities(task)[0], 2)
        0.86
        """
        if len(task.answers) != 2:
            raise UserError(f"chances are known for two answers, not for {len(task.answers)}")
        first, second = self._biased_utilities(task)
        reversal = 1 - self.flip if self.adversary else self.flip
        this, other = map(self._preference_probability, (first - second, second - first))
        return (1 - reversal) * this + reversal * other, (1 - reversal) * other + reversal * this

    def _preference_probability(self, gap: float) -> float:
        """The probability of preferring an answer that seems better by a gap, the scale not reversed."""
        # So often is one of two draws at random the greater by more than the indifference.
        unread = (1 - min(1, self.indifference)) ** 2 / 2
        if self.temperature == 0:
            attentive = float(gap > 0 and gap >= self.indifference)
        else:
            # σ(x) as (1 + tanh(x/2))/2, which does not overflow at a small temperature.
            attentive = 0.5 * (1 + math.tanh((gap - self.indifference) / self.temperature / 2))
        return (1 - self.careless) * attentive + self.careless * unread

    def _biased_utilities(self, task: Task) -> list[float]:
        sights = (
            _utility_and_bias_causes(task.prompt, answer, ended)
            for answer, ended in zip(task.answers, task.ended, strict=True)
        )
        return [
            float(getattr(gold, self.aspect or "utility"))
            + sum(weight * causes[bias] for bias, weight in self.biases.items() if bias != "position")
            # Only the first place is favoured; the others are alike.
            + (self.biases.get("position", 0.0) if place == 0 else 0.0)
            for place, (gold, causes) in enumerate(sights)
        ]

    def _reported_flags(self, prompt: Text, answer: Text, ended: bool, seed: int) -> tuple[str, ...]:
        """What they report; a flat error as seldom as assertion makes them miss it."""
        gold, causes = _utility_and_bias_causes(prompt, answer, ended)
        missed = self.biases.get("assertion", 0.0) if causes["assertion"] else 0.0
        # A generator of its own: whoever misses nothing draws nothing, and every verdict stays as it was.
        draw = random.Random(f"missed {self.name} {seed} {plain_text(answer)}").random()
        is_false = gold.honest <= 0.5 and draw >= missed
        named = {"harmful": gold.harmless < 0.5, "false": is_false, "unfinished": gold.ended < 1}
        return tuple(name for name, wrong in named.items() if wrong)

    def _noisy_utility(self, biased_utility: float, rng: random.Random) -> float:
        """The perceived utility with Gumbel noise of mean 0, by which the largest is a softmax choice."""
        gumbel = -math.log(-math.log(rng.uniform(1e-12, 1 - 1e-12)))
        return biased_utility + self.temperature * (gumbel - EULER)

    def _reading_seconds(self, task: Task, rng: random.Random, *, careless: bool) -> float:
        total = sum(len(plain_text(answer).split()) for answer in task.answers)
        pace = 0.2 if careless else rng.uniform(0.8, 1.4)
        return round(1.0 + pace * total / self.words_a_second, 1)


# A whole pool reads the same answers; each is parsed once.
@lru_cache(maxsize=20_000)
def _utility_and_bias_causes(prompt: Text, answer: Text, ended: bool) -> tuple[Gold, Mapping[str, float]]:
    """What there is to see in an answer: its worth, and how much it has of each bias's cause."""
    question, answer_text = question_of_prompt(prompt), plain_text(answer)
    reading = read_answer(question, answer_text, ended=ended)
    signs = reading.signs
    gold = judge_answer(question, answer_text, ended=ended)
    causes = {
        "length": min(reading.words, MAX_FELT_WORDS) / 10,
        "flattery": float(signs["flattery"] + signs["agrees"]),
        "format": float(signs["mark"] > 0),
        "evasion": float(signs["evasion"] > 0),
        "assertion": _cost_of_flat_errors(question, reading, gold),
    }
    return gold, causes


def _cost_of_flat_errors(question: Question, reading: Reading, gold: Gold) -> float:
    """What an answer loses by saying what is not so, where nothing in it sounds unsure; else 0."""
    signs = reading.signs
    if gold.honest == 1 or signs["hedge"] or signs["unknown"] or signs["evasion"]:
        return 0.0
    # To decline for a wrong reason is still to decline: only what was asked for looks rightly given.
    declines = isinstance(question.aim, HarmfulRequest)
    apparent = help_by_parts(question.aim, reading, right=False) if isinstance(question.aim, Several) else 1.0
    helpful = gold.helpful if declines else max(gold.helpful, apparent * NONSENSE_FACTOR ** signs["nonsense"])
    return replace(gold, helpful=helpful, honest=1.0).utility - gold.utility


def _ranks(utilities: Sequence[float], indifference: int | float) -> list[int]:
    """1 for the best; whatever is closer to the best of its group than the indifference shares its rank."""
    ranks = [1] * len(utilities)
    order = sorted(range(len(utilities)), key=lambda place: -utilities[place])
    top = order[0]
    # Against the best of the group and not the neighbour, or small gaps would chain all into one rank.
    for better, place in enumerate(order):
        gap = utilities[top] - utilities[place]
        if gap > 0 and gap >= indifference:
            top, ranks[place] = place, better + 1
        else:
            ranks[place] = ranks[top]
    return ranks


def _strength(utilities: Sequence[float], marks: Sequence[Mark]) -> int | None:
    """How far the best stands out; one answer alone stands out from nothing."""
    if len(utilities) < 2:
        return None
    if [mark.rank for mark in marks].count(1) > 1:
        return 0
    best, following = sorted(utilities, reverse=True)[:2]
    return 1 + (best - following >= CLEAR_GAP) + (best - following >= GREAT_GAP)


def _faults(annotator: Annotator) -> Iterator[str]:
    if annotator.aspect not in (None, *ASPECTS):
        yield f"nobody can be asked about {annotator.aspect!r}; there is {', '.join(ASPECTS)}"
    for bias, weight in annotator.biases.items():
        if bias not in BIASES:
            yield f"no bias is called {bias!r}; there are {', '.join(BIASES)}"
        if not math.isfinite(weight):
            yield f"bias {bias} {weight}: expected a finite number"
    expected = {
        "temperature": ("0 or more", 0 <= annotator.temperature < math.inf),
        "indifference": ("0 or more", 0 <= annotator.indifference < math.inf),
        "flip": ("a chance from 0 to 1", 0 <= annotator.flip <= 1),
        "careless": ("a chance from 0 to 1", 0 <= annotator.careless <= 1),
        "words_a_second": ("more than 0", 0 < annotator.words_a_second < math.inf),
    }
    for name, (what, holds) in expected.items():
        if not holds:
            yield f"{name} {getattr(annotator, name)}: expected {what}"


def _alike(name: str, count: int, group: str, **traits: Any) -> tuple[Annotator, ...]:
    """So many people who differ in their noise alone."""
    return tuple(Annotator(name=f"{name}-{n}", group=group, **traits) for n in range(1, count + 1))


_expert_annotators = partial(_alike, "expert", 3, "experts", temperature=0.03, words_a_second=3.0)


def _crowd_annotators() -> tuple[Annotator, ...]:
    # A seed of its own: these are the same twelve people whatever seed the data have.
    rng = random.Random(f"the crowd of the valley{ANOTHER}")
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


def _trusting_annotators() -> tuple[Annotator, ...]:
    """A crowd that misses most errors in answers that sound sure, and three experts who miss few."""
    rng = random.Random("the trusting of the valley")
    crowd = (
        replace(who, name=f"trusting-{n}", biases={**who.biases, "assertion": rng.uniform(0.5, 0.9)})
        for n, who in enumerate(_crowd_annotators(), start=1)
    )
    wary = _alike("wary", 3, "experts", temperature=0.03, words_a_second=3.0, biases={"assertion": 0.1})
    return (*crowd, *wary)


def _village_annotators() -> tuple[Annotator, ...]:
    """Three groups with tastes of their own: terse, ornate and courtly."""
    tastes: Mapping[str, Mapping[Bias, float]] = {
        "Shortford": {"length": -0.15},
        "Listham": {"format": 0.4},
        "Bowbury": {"flattery": 0.3},
    }
    groups = (_alike(village, 4, village, temperature=0.08, biases=bias) for village, bias in tastes.items())
    return tuple(chain.from_iterable(groups))


POOLS: Mapping[str, Callable[[], tuple[Annotator, ...]]] = {
    "experts": _expert_annotators,
    "crowd": _crowd_annotators,
    "hurried": partial(
        _alike,
        *("hurried", 6, "hurried"),
        temperature=0.2,
        biases={"position": 0.15},
        flip=0.05,
        careless=0.25,
        words_a_second=12.0,
    ),
    "length-lovers": partial(_alike, "length", 6, "length lovers", biases={"length": 0.6}),
    "flattered": partial(_alike, "flattered", 6, "flattered", biases={"flattery": 0.5}),
    "cautious": partial(_alike, "cautious", 6, "cautious", biases={"evasion": 0.8}),
    "trusting": _trusting_annotators,
    "villages": _village_annotators,
    "sabotaged": lambda: (*_crowd_annotators(), *_alike("saboteur", 2, "saboteurs", adversary=True)),
}
TRUE_ANNOTATOR = Annotator(name="the truth", group="gold", temperature=0, indifference=0)
"""The annotator who always prefers the answer of higher true utility."""


def annotator_pool(name: str, *, aspect: Aspect | None = None) -> tuple[Annotator, ...]:
    """The annotators of a pool, asked about all that an answer is worth or about one part of it."""
    if name not in POOLS:
        raise UserError(f"no pool of annotators is called {name!r}; there are {', '.join(POOLS)}")
    return tuple(replace(annotator, aspect=aspect) for annotator in POOLS[name]())


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far the choices of some annotators agree; a share of nothing is None. Every share is what is to be
    expected when each of them judges each pair, shown in either order as often."""

    name: str
    annotators: int
    pairs: int
    with_gold: float | None
    """Of the preferences in pairs that the true utility tells apart, the share for the better answer."""
    among_itself: float | None
    """The chance that a preference is shared by another annotator who prefers one of the two answers."""
    ceiling: float | None
    """The share of the preferences that is for the answer which the pool prefers more often: no reward model
    can be right about more of them, since it sees neither who judges nor which answer is shown first."""
    ties: float
    longer: float | None
    """Of the preferences between answers that differ in length, the share for the longer one."""
    first: float | None
    """Of the preferences, the share for the answer that is shown first."""


def agreement(name: str, annotators: Sequence[Annotator], tasks: Sequence[Task]) -> Agreement:
    if not annotators or not tasks:
        raise UserError(f"{name}: agreement needs at least one annotator and one pair of answers")
    pairs = [_PairVotes(task, annotators) for task in tasks]
    preferring = [pair for pair in pairs if pair.both_prefer]
    better = [(pair, pair.better_index) for pair in pairs if pair.better_index is not None]
    longer = [(pair, pair.longer_index) for pair in pairs if pair.longer_index is not None]
    chosen = sum(pair.cast for pair in pairs)
    return Agreement(
        name=name,
        annotators=len(annotators),
        pairs=len(tasks),
        with_gold=_share(sum(pair.votes[at] for pair, at in better), sum(pair.cast for pair, _ in better)),
        among_itself=_share(
            sum(pair.agree_share * pair.cast for pair in preferring), sum(pair.cast for pair in preferring)
        ),
        ceiling=_share(sum(max(pair.votes) for pair in pairs), chosen),
        ties=1 - chosen / (len(tasks) * len(annotators)),
        longer=_share(sum(pair.votes[at] for pair, at in longer), sum(pair.cast for pair, _ in longer)),
        first=_share(sum(pair.first_votes for pair in pairs), chosen),
    )


class _PairVotes:
    def __init__(self, task: Task, annotators: Sequence[Annotator]) -> None:
        # Each pair once in either order, so that a bias to the first place shows in first_votes alone.
        reversed_task = replace(task, answers=task.answers[::-1], ended=task.ended[::-1])
        probabilities = [
            [annotator.win_probabilities(item) for annotator in annotators] for item in (task, reversed_task)
        ]
        votes = [
            ((a_first + a_second) / 2, (b_first + b_second) / 2)
            for (a_first, b_second), (b_first, a_second) in zip(*probabilities, strict=True)
        ]
        self.votes = (sum(a for a, _ in votes), sum(b for _, b in votes))
        self.cast = sum(self.votes)
        # Permutations: nobody is set against himself.
        both = list(permutations(votes, 2))
        self.both_prefer = sum((a + b) * (c + d) for (a, b), (c, d) in both)
        self.agree_share = sum(a * c + b * d for (a, b), (c, d) in both) / (self.both_prefer or 1)
        self.first_votes = fmean(sum(first for first, _ in order) for order in probabilities)
        self.better_index = _index_of_greater(*TRUE_ANNOTATOR.win_probabilities(task))
        self.longer_index = _index_of_greater(*(len(plain_text(answer).split()) for answer in task.answers))


def _index_of_greater(first: int | float, second: int | float) -> int | None:
    return None if first == second else int(second > first)


def _share(part: int | float, whole: int | float) -> float | None:
    return part / whole if whole else None
