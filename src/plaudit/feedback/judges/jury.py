"""Several judges as one: a jury averages what its members say, a spread lets one of them speak for each task.

A jury averages log-odds (panels of small judges: Verga et al. 2024, arXiv:2404.18796), weighted by
log(a / (1 − a)) where a member's accuracy a on people's labels is known, equally without. Three members of
one family err together and are no more than one: a judge's card says how far.

A spread mimics a pool of people, who differ and err: each task goes to one member, and a share of verdicts is
turned round (AlpacaFarm, Dubois et al. 2023, arXiv:2305.14387).
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from plaudit.data.judging import (
    PASSING,
    Judge,
    NoVerdict,
    Orders,
    Verdict,
    first_probability,
    outcomes,
    probable_verdict,
    verdicts_only,
)
from plaudit.data.records import Task, plain_text
from plaudit.errors import UserError
from plaudit.feedback.judges.rubric import read_entry, read_yaml, refuse_unknown
from plaudit.feedback.judges.words import JURY

NO_MAJORITY = "no verdict of most of the jury"
"""The reason where members with half of the weight or more say nothing."""
FLIPS = 0.25
"""The share of verdicts that a spread turns round, where its file does not say."""
MOST_SURE = 0.99
"""What a verdict is taken to be sure of at most: a certain one would outvote all others together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    judge: str
    accuracy: float | None = None
    """How often it agrees with people, where that was measured."""

    def __post_init__(self) -> None:
        if not isinstance(self.judge, str) or not self.judge.strip():
            raise UserError(f"judge is {self.judge!r}: expected the word of one")
        value = self.accuracy
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and 0.5 < value < 1):
            raise UserError(f"accuracy is {value!r}: expected a share between 0.5 and 1")

    @property
    def weight(self) -> float:
        """Its log-odds to be right; 1 where its accuracy is not known."""
        return 1.0 if self.accuracy is None else math.log(self.accuracy / (1 - self.accuracy))


@dataclass(frozen=True, slots=True, kw_only=True)
class JuryFile:
    members: tuple[Member, ...]
    flips: float = FLIPS
    """Of a spread: the share of verdicts that is turned round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jury:
    name: str
    judges: tuple[Judge, ...]
    """The members, each of which asks in both orders by itself."""
    weights: tuple[float, ...]
    asks_both_orders: ClassVar[bool] = True

    @property
    def version(self) -> str:
        """What its judgements hang on: its members' names and versions, and their weights."""
        return _version(self.judges, self.weights)

    @property
    def notes(self) -> tuple[str, ...]:
        return _notes(self.judges)

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """σ of the weighted mean of the members' log-odds; None where most of the jury says nothing."""
        return verdicts_only(self.outcomes(tasks, seed))

    def outcomes(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | NoVerdict]:
        return [self._joined(row) for row in zip(*self.member_outcomes(tasks, seed), strict=True)]

    def member_outcomes(self, tasks: Sequence[Task], seed: int | str) -> list[list[Verdict | NoVerdict]]:
        return [outcomes(judge, tasks, seed) for judge in self.judges]

    def _joined(self, row: Sequence[Verdict | NoVerdict]) -> Verdict | NoVerdict:
        voices = [
            (weight, outcome)
            for weight, outcome in zip(self.weights, row, strict=True)
            if isinstance(outcome, Verdict)
        ]
        if sum(weight for weight, _ in voices) <= sum(self.weights) / 2:
            silent = [outcome.reason for outcome in row if isinstance(outcome, NoVerdict)]
            # Where a member was not to be reached, the jury may say something when it is asked again.
            return NoVerdict(reason=next((why for why in silent if why in PASSING), NO_MAJORITY))
        parts = ", ".join(f"{outcome.annotator} {first_probability(outcome):.2f}" for _, outcome in voices)
        return replace(pooled_verdict(voices, annotator=self.name), rationale=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Judges of whom one speaks for each task, and who err on purpose."""

    name: str
    judges: tuple[Judge, ...]
    flips: float = FLIPS
    """The share of verdicts that is turned round."""
    asks_both_orders: ClassVar[bool] = True

    @property
    def version(self) -> str:
        """What its judgements hang on: its members with their versions, and the share turned round."""
        return _version(self.judges, (self.flips,))

    @property
    def notes(self) -> tuple[str, ...]:
        return (f"{self.flips:.0%} of its verdicts are turned round on purpose", *_notes(self.judges))

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """What the member says that a hash of seed and task chooses."""
        return verdicts_only(self.outcomes(tasks, seed))

    def turn(self, task: Task, seed: int | str) -> int:
        """The place of the member that speaks for a task."""
        return int(_draw(seed, "who", task) * len(self.judges))

    def outcomes(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | NoVerdict]:
        turns = [self.turn(task, seed) for task in tasks]
        found: list[Verdict | NoVerdict] = [NoVerdict(reason="")] * len(tasks)
        for place, judge in enumerate(self.judges):
            own = [n for n, turn in enumerate(turns) if turn == place]
            for n, outcome in zip(own, outcomes(judge, [tasks[n] for n in own], seed), strict=True):
                is_flipped = _draw(seed, "flip", tasks[n]) < self.flips
                found[n] = _flipped(outcome) if is_flipped and isinstance(outcome, Verdict) else outcome
        return found


def read_jury(path: Path) -> JuryFile:
    """The judges of a file: a list of words or of judge and accuracy, or ``{members: …, flips: …}``."""
    value, flips = read_yaml(path, str(path), "a list of judges"), FLIPS
    if isinstance(value, dict):
        refuse_unknown(str(path), value, ("members", "flips"))
        flips, value = value.get("flips", FLIPS), value.get("members")
    if isinstance(flips, bool) or not isinstance(flips, int | float) or not 0 <= flips <= 1:
        raise UserError(f"{path}: flips is {flips!r}: expected a share from 0 to 1")
    if not isinstance(value, list) or len(value) < 2:
        raise UserError(f"{path}: expected a list of two judges or more, each a word or judge and accuracy")
    members = tuple(_member(f"{path}, member {number}", row) for number, row in enumerate(value, 1))
    return JuryFile(members=members, flips=float(flips))


def assemble(word: str, path: Path, resolve: Callable[[str], Judge]) -> Jury | Spread:
    """The jury or spread of a file; ``resolve`` makes a judge of each member's word."""
    content = read_jury(path)
    judges = tuple(resolve(member.judge) for member in content.members)
    if word.startswith(JURY):
        return Jury(name=path.stem, judges=judges, weights=tuple(member.weight for member in content.members))
    return Spread(name=path.stem, judges=judges, flips=content.flips)


def _member(where: str, row: object) -> Member:
    if isinstance(row, str):
        return Member(judge=row)
    return read_entry(Member, where, row, "a judge's word, or judge and accuracy")


def _flipped(verdict: Verdict) -> Verdict:
    orders = verdict.orders
    if orders is not None and orders.forward is not None and orders.backward is not None:
        orders = Orders(forward=1 - orders.forward, backward=1 - orders.backward)
    found = probable_verdict(1 - first_probability(verdict), annotator=verdict.annotator, orders=orders)
    return replace(found, rationale=verdict.rationale, principles=verdict.principles)


def _draw(seed: int | str, what: str, task: Task) -> float:
    # Alike in either order of the answers, whose turn it is must not hang on it.
    words = [str(seed), what, plain_text(task.prompt), *sorted(map(plain_text, task.answers))]
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:7]) / 2**56


def _version(judges: Sequence[Judge], numbers: Sequence[float]) -> str:
    parts = [f"{judge.name}@{getattr(judge, 'version', '')}" for judge in judges]
    text = "\n".join([*parts, *(f"{number:.6g}" for number in numbers)])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _notes(judges: Sequence[Judge]) -> tuple[str, ...]:
    return tuple(note for judge in judges for note in getattr(judge, "notes", ()))


def pooled_verdict(voices: Sequence[tuple[float, Verdict]], *, annotator: str) -> Verdict:
    """σ of the weighted mean of the log-odds, of the chance and of either order.

    >>> voices = [(1.0, probable_verdict(share, annotator="a")) for share in (0.9, 0.5)]
    >>> first_probability(pooled_verdict(voices, annotator="both"))
    0.75
    """
    share = mean_of_odds([(weight, first_probability(verdict)) for weight, verdict in voices])
    found = probable_verdict(share, annotator=annotator, orders=_pooled_orders(voices))
    principles = (name for _, verdict in voices for name in verdict.principles)
    return replace(found, principles=tuple(dict.fromkeys(principles)))


def _pooled_orders(voices: Sequence[tuple[float, Verdict]]) -> Orders | None:
    both = [(weight, verdict.orders) for weight, verdict in voices]
    sides = [
        [(weight, side) for weight, orders in both if orders and (side := getattr(orders, name)) is not None]
        for name in ("forward", "backward")
    ]
    if not all(len(side) == len(voices) for side in sides):
        return None
    return Orders(forward=mean_of_odds(sides[0]), backward=mean_of_odds(sides[1]))


def mean_of_odds(voices: Sequence[tuple[float, float]]) -> float:
    """σ of the mean of the log-odds of chances, each with its weight before it.

    >>> round(mean_of_odds([(1.0, 0.9), (1.0, 0.5)]), 6)
    0.75
    """
    total = sum(weight for weight, _ in voices)
    mean = sum(weight * _log_odds(share) for weight, share in voices) / total
    return 0.5 * (1 + math.tanh(mean / 2))


def _log_odds(share: float) -> float:
    bounded = min(max(share, 1 - MOST_SURE), MOST_SURE)
    return math.log(bounded / (1 - bounded))
