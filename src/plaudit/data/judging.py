"""One way to ask for a judgement and one way to give it, for people, programs and models alike.

A `Task` shows answers to one prompt, a `Judge` gives its `Verdict`, and the verdict becomes the rows that
training reads: `to_comparison`, `to_ranking`, `to_ratings`. Whoever judges, the rows are made in this one
place.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

from plaudit.data.records import Comparison, Ranking, Rating, Task
from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    rank: int
    """Its place among the answers: one more than there are better ones, so equal answers share a rank."""
    rating: int | None = None
    """From 1 (bad) to 5 (good); None where points were not asked for."""
    flags: tuple[str, ...] = ()
    """What it was reported for: harmful, false …"""


UNREACHABLE = "not to be reached"
"""The reason where a judge's server did not answer."""
REJECTED = "not taken by the server"
"""The reason where it rejected the request."""
LOGPROBS_REFUSED = "log-probs"
"""The reason where it does not take a request for log-probs."""
PASSING = (UNREACHABLE, REJECTED, LOGPROBS_REFUSED)
"""Reasons that may be gone when the same is asked again."""
NO_VERDICT = "no verdict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a judge says of two answers, asked once in each order."""

    forward: float | None
    """The chance that the first is better, given with the first shown first; None for no verdict."""
    backward: float | None
    """The chance that the first is better, given with the first shown second."""

    @property
    def mean(self) -> float | None:
        """The mean of both; ½ where they contradict each other, None where either is missing.

        >>> [Orders(forward=1.0, backward=p).mean for p in (0.5, 0.0, None)]
        [0.75, 0.5, None]
        """
        forward, backward = self.forward, self.backward
        if forward is None or backward is None:
            return None
        return 0.5 if (forward - 0.5) * (backward - 0.5) < 0 else (forward + backward) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one judge says of a task.

    Example: ``Verdict(marks=(Mark(rank=1), Mark(rank=2)), strength=3, seconds=6.5, annotator="expert-1")``
    """

    marks: tuple[Mark, ...]
    """The mark of each answer, in the order in which the answers were shown."""
    annotator: str
    """Who judged, as a pseudonym; of a model, its name and version."""
    group: str | None = None
    """The group that the judge belongs to."""
    strength: int | None = None
    """How far the best is above the next: 0 is a tie, 1 slightly, 2 clearly, 3 by much; None: not asked."""
    probability: float | None = None
    """Of two answers, the chance that the first is better, where the judge gives one (RLAIF's soft label)."""
    seconds: float | None = None
    """How long it took, where that was measured."""
    orders: Orders | None = None
    """What was said in either order, where both were asked."""
    rationale: str | None = None
    """The judge's own words, where it gave any."""
    principles: tuple[str, ...] = ()
    """The principles of a constitution by which it judged."""

    def __post_init__(self) -> None:
        for error in _verdict_errors(self):
            raise UserError(f"the verdict of {self.annotator}: {error}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoVerdict:
    reason: str
    """Refused, unreadable, unreachable, rejected, or no verdict; counted apart, and never a tie."""
    orders: Orders | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    judge: str
    version: str
    """How it was asked: the way and the wording."""
    sampling: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def actor(self) -> str:
        """What the log and the rows call it."""
        return f"{self.judge}@{self.version}" if self.version else self.judge


@runtime_checkable
class Judge(Protocol):
    """Whoever can say which answers are better: a person, a program, a reward, a model on a server."""

    @property
    def name(self) -> str:
        """What notes, tables and rows call it."""
        ...

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """A verdict on each task, or None where there is none: it was skipped, a reply cannot be read.

        A missing verdict is never a tie. A program gives the same one to the same task, place and seed; what
        it draws for a task begins at `task_seed`.
        """
        ...


@runtime_checkable
class ExplainingJudge(Judge, Protocol):
    def outcomes(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | NoVerdict]:
        """As ``verdicts``, with a reason in place of None."""
        ...


def task_seed(seed: int | str, place: int) -> int:
    """Where a judge's draws for a task begin: a verdict does not hang on what was asked before it.
    A number is counted on from, so that one task alone begins at the number itself; words are drawn from.

    >>> task_seed(7, 0), task_seed(7, 2)
    (7, 9)
    """
    if isinstance(seed, int):
        return seed + place
    return random.Random(f"{seed}/pair/{place + 1}").getrandbits(32)


def outcomes(judge: Judge, tasks: Sequence[Task], seed: int | str) -> list[Verdict | NoVerdict]:
    if isinstance(judge, ExplainingJudge):
        return judge.outcomes(tasks, seed)
    return [NoVerdict(reason=NO_VERDICT) if v is None else v for v in judge.verdicts(tasks, seed)]


def verdicts_only(found: Sequence[Verdict | NoVerdict]) -> list[Verdict | None]:
    return [None if isinstance(outcome, NoVerdict) else outcome for outcome in found]


PairOutcome = Literal["first", "second", "tie"]


def pair_verdict(better: PairOutcome, *, annotator: str, group: str | None = None) -> Verdict:
    """A verdict on two answers.

    >>> [mark.rank for mark in pair_verdict("second", annotator="ada").marks]
    [2, 1]
    """
    ranks = {"first": (1, 2), "second": (2, 1), "tie": (1, 1)}[better]
    marks = tuple(Mark(rank=rank) for rank in ranks)
    return Verdict(marks=marks, annotator=annotator, group=group)


def probable_verdict(p_first: float, *, annotator: str, orders: Orders | None = None) -> Verdict:
    """The verdict of a judge that gives the chance that the first answer is better.

    >>> [mark.rank for mark in probable_verdict(0.25, annotator="reward").marks]
    [2, 1]
    """
    better: PairOutcome = "tie" if p_first == 0.5 else "first" if p_first > 0.5 else "second"
    return replace(pair_verdict(better, annotator=annotator), probability=p_first, orders=orders)


def first_probability(verdict: Verdict) -> float:
    """The chance that the first of two answers is better: the verdict's own, or 1, ½ and 0 by its ranks.

    >>> first_probability(pair_verdict("second", annotator="ada"))
    0.0
    """
    if verdict.probability is not None:
        return verdict.probability
    first, second = (mark.rank for mark in verdict.marks)
    return 0.5 + 0.5 * ((first < second) - (first > second))


def known_probability(first: str, second: str) -> float | None:
    """The chance that the first of two answers is better where nobody has to be asked, else None.

    >>> [known_probability(*both) for both in (("Hi", " Hi"), ("Hi", ""), (" ", "Hi"), ("Hi", "Ho"))]
    [0.5, 1.0, 0.0, None]
    """
    first, second = first.strip(), second.strip()
    if first and second and first != second:
        return None
    # An answer that says nothing is worse than any that says something, and the same words twice tie.
    return 0.5 + 0.5 * (bool(first) - bool(second))


def swapped(task: Task) -> Task:
    return replace(task, answers=task.answers[::-1], ended=task.ended[::-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class BothWays:
    """A judge that is shown each pair in both orders, so that the place of an answer sways nothing.
    The mean of both orders: Wang et al. 2023, arXiv:2305.17926."""

    judge: Judge
    asks_both_orders: ClassVar[bool] = True
    """What both orders say is worth a figure."""

    @property
    def name(self) -> str:
        return self.judge.name

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """The mean of both orders; a tie where they contradict each other, None where either is missing."""
        return verdicts_only(self.outcomes(tasks, seed))

    def outcomes(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | NoVerdict]:
        # The same seed in both orders: what then differs is the order, and not the judge's luck.
        forward = outcomes(self.judge, tasks, seed)
        backward = outcomes(self.judge, [swapped(task) for task in tasks], seed)
        return [self._joined(*both) for both in zip(forward, backward, strict=True)]

    def _joined(self, forward: Verdict | NoVerdict, backward: Verdict | NoVerdict) -> Verdict | NoVerdict:
        first, second = (
            None if isinstance(o, NoVerdict) else first_probability(o) for o in (forward, backward)
        )
        # Backward, the other answer stood first: turned round, both chances speak of the same one.
        orders = Orders(forward=first, backward=None if second is None else 1 - second)
        reason = next((o.reason for o in (forward, backward) if isinstance(o, NoVerdict)), None)
        return verdict_of_orders(orders, reason, annotator=self.name)


def verdict_of_orders(orders: Orders, reason: str | None, *, annotator: str) -> Verdict | NoVerdict:
    """The verdict that both orders make together, or why they make none."""
    if orders.mean is None:
        assert reason is not None, "a missing order has a reason"
        return NoVerdict(reason=reason, orders=orders)
    return probable_verdict(orders.mean, annotator=annotator, orders=orders)


def to_comparison(task: Task, verdict: Verdict) -> Comparison:
    """The row of a verdict on two answers.
    A tie prefers nothing: it has strength 0 and probability 0.5, and ``chosen`` is the answer shown first."""
    first, second = _checked_marks(task, verdict, exactly=2)
    better = 1 if second.rank < first.rank else 0
    tied = first.rank == second.rank
    strength, probability = (0, 0.5) if tied else (verdict.strength, verdict.probability)
    flags = (first.flags, second.flags) if not better else (second.flags, first.flags)
    return Comparison(
        prompt=task.prompt,
        chosen=task.answers[better],
        rejected=task.answers[1 - better],
        strength=None if strength is None else float(strength),
        # A verdict's probability is of the answer shown first, a row's is of the chosen one.
        probability=1 - probability if better and probability is not None else probability,
        flags=flags if any(flags) else (),
        **_shared(task, verdict),
    )


def to_ranking(task: Task, verdict: Verdict) -> Ranking:
    """The row of a verdict on several answers, in the order in which they were shown; ties share a rank."""
    marks = _checked_marks(task, verdict)
    if len(marks) < 2:
        raise UserError("one answer alone cannot be ranked; rate it")
    return Ranking(
        prompt=task.prompt,
        completions=task.answers,
        ranks=tuple(float(mark.rank) for mark in marks),
        **_shared(task, verdict),
    )


def _shared(task: Task, verdict: Verdict) -> dict[str, Any]:
    who = {"annotator": verdict.annotator, "group": verdict.group, "category": task.category}
    return who | {"reason": verdict.rationale, "seconds": verdict.seconds}


def to_ratings(task: Task, verdict: Verdict) -> tuple[Rating, ...]:
    return tuple(
        Rating(
            prompt=task.prompt,
            completion=answer,
            score=float(mark.rating),
            places=(place,) if len(task.answers) > 1 else (),
            flags=(mark.flags,) if mark.flags else (),
            **_shared(task, verdict),
        )
        for place, (answer, mark) in enumerate(zip(task.answers, _checked_marks(task, verdict), strict=True))
        if mark.rating is not None
    )


def to_thumbs(task: Task, verdict: Verdict, *, up_from: int = 4) -> tuple[Rating, ...]:
    """A thumb for each answer that was given points: up where they are at least ``up_from``.

    >>> task = Task(prompt="Name a fruit.", answers=("Pear.",), ended=(True,))
    >>> [row.score for row in to_thumbs(task, Verdict(marks=(Mark(rank=1, rating=3),), annotator="ada"))]
    [0.0]
    """
    return tuple(
        replace(row, score=float(row.score >= up_from), thumb=True) for row in to_ratings(task, verdict)
    )


def _checked_marks(task: Task, verdict: Verdict, exactly: int | None = None) -> tuple[Mark, ...]:
    expected_count = exactly or len(task.answers)
    if not len(task.answers) == len(verdict.marks) == expected_count:
        raise UserError(
            f"the verdict of {verdict.annotator} is on {len(verdict.marks)} answers, the task has "
            f"{len(task.answers)}, and {expected_count} are expected"
        )
    return verdict.marks


def _verdict_errors(verdict: Verdict) -> Iterator[str]:
    ranks = [mark.rank for mark in verdict.marks]
    if not ranks:
        yield "no answer was judged"
    if any(rank != 1 + sum(other < rank for other in ranks) for rank in ranks):
        yield f"ranks {ranks}: a rank is one more than there are better answers, as in 1, 2, 2, 4"
    if any(mark.rating is not None and not 1 <= mark.rating <= 5 for mark in verdict.marks):
        yield f"ratings {[mark.rating for mark in verdict.marks]}: expected points from 1 to 5"
    if verdict.seconds is not None and not verdict.seconds >= 0:
        yield f"{verdict.seconds} seconds: expected 0 or more"
    yield from _contradictions(verdict, ranks)


def _contradictions(verdict: Verdict, ranks: list[int]) -> Iterator[str]:
    strength, probability = verdict.strength, verdict.probability
    if strength is not None and (strength not in range(4) or (strength == 0) != (ranks.count(1) > 1)):
        yield f"strength {strength} at ranks {ranks}: expected 0 where the best are tied, else 1, 2 or 3"
    if probability is None:
        return
    if len(ranks) != 2 or not 0 <= probability <= 1:
        yield f"probability {probability} of {len(ranks)} answers: expected one from 0 to 1, of two answers"
    # Both signs at once, so that ½ goes with a tie and with nothing else.
    elif (probability > 0.5, probability < 0.5) != (ranks[0] < ranks[1], ranks[0] > ranks[1]):
        yield f"probability {probability} of the first at ranks {ranks}: they contradict each other"
