"""Environments: what a policy talks to over several turns, as a generator without I/O.

An environment is a function of a question that returns a generator. The generator is sent what the policy
said, yields the turn that comes next, and returns what the whole episode was worth. Its first yield is None:
the prompt is already there, and the policy speaks first. Importing this does not import torch.
"""

import inspect
import math
import operator
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from plaudit.data.records import Text, plain_text
from plaudit.errors import UserError
from plaudit.files.user_code import exit_refused


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodePrompt:
    prompt: Text
    reference_answer: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)
    origin: str = ""

    @property
    def truth(self) -> str | None:
        """``reference_answer``, as it was called before."""
        return self.reference_answer

    @property
    def facts(self) -> Mapping[str, object]:
        """``metadata``, as it was called before."""
        return self.metadata

    @property
    def where(self) -> str:
        """How errors name it: its origin, or its first words."""
        return self.origin or repr(plain_text(self.prompt)[:40])


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of an episode.

    Example: ``Turn(role="tool", text="7")``
    """

    role: str
    """Who speaks: tool or user; in the record of an episode the assistant too."""
    text: str
    """The text of the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTurn:
    text: str
    """The text of the turn; empty when there was no room for one."""
    ended: bool
    """Whether the turn came to an end by itself; False means that it was cut."""
    over: bool
    """Whether turns or tokens are used up: then the environment has to return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of an episode.

    Example: ``Outcome(score=0.5, parts={"file": 1.0, "goal": 0.0})``
    """

    score: int | float | None
    """What it is worth; None is no verdict, which is never 0."""
    parts: Mapping[str, int | float | None] = field(
        default_factory=dict[str, "int | float | None"], hash=False
    )
    """What is reported beside it, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedEpisode:
    outcome: Outcome
    turns: tuple[Turn, ...]


Episode = Generator[Turn | None, PolicyTurn, Outcome]
"""A running episode: yields None, then a turn for each turn that it is sent; returns the outcome."""
Environment = Callable[[EpisodePrompt], Episode]
"""A function that starts an episode for a prompt."""


class EpisodeDriver:
    """Drives one running episode; every fault of the environment is reported with the prompt.

    >>> talk = EpisodeDriver("calculator", calculator, EpisodePrompt(prompt="3 + 4?", reference_answer="7"))
    >>> talk.send(PolicyTurn(text="calc: 3+4", ended=True, over=False))
    Turn(role='tool', text='7')
    >>> talk.send(PolicyTurn(text="It is 7", ended=True, over=False)).score
    1.0
    """

    def __init__(self, name: str, environment: Environment, prompt: EpisodePrompt) -> None:
        """Begin; the environment waits for the policy's first turn."""
        self.where = f"{name}, prompt {prompt.where}"
        """What it is known by."""
        self._episode = self._start(environment, prompt)
        first = self._advance(None)
        if first is not None:
            raise self._error(f"its first yield is {first!r}; it is None, since the policy speaks first")

    def send(self, turn: PolicyTurn) -> Turn | Outcome:
        """Send the policy's turn; the environment's next turn, or the outcome."""
        answer = self._advance(turn)
        if isinstance(answer, Outcome):
            self._refuse_non_finite(answer)
            return answer
        if not (isinstance(answer, Turn) and answer.role in ("tool", "user") and answer.text.strip()):
            raise self._error(f"it yields {answer!r}; a turn is Turn(role='tool' or 'user', text='words')")
        if turn.over:
            raise self._error(
                "it goes on although the episode is over (turns or tokens are used up); "
                "where turn.over is True it has to return an Outcome"
            )
        return answer

    def _start(self, environment: Environment, prompt: EpisodePrompt) -> Episode:
        with exit_refused(self.where):
            try:
                episode = environment(prompt)
            # The environment is the user's: whatever it raises is told with the prompt it was raised at.
            except Exception as error:
                raise self._error(f"it raised {type(error).__name__}: {error}") from error
        if not inspect.isgenerator(episode):
            raise self._error(f"it gave {episode!r}; it has to be a generator, a function that yields")
        return episode

    def _advance(self, turn: PolicyTurn | None) -> object:
        with exit_refused(self.where):
            try:
                # A fresh generator takes no value: it runs to its first yield, which is None.
                return next(self._episode) if turn is None else self._episode.send(turn)
            except StopIteration as stop:
                if turn is None or not isinstance(stop.value, Outcome):
                    when = "before the policy spoke" if turn is None else f"with {stop.value!r}"
                    raise self._error(f"it ended {when}; it has to return an Outcome") from None
                return stop.value
            except Exception as error:
                raise self._error(f"it raised {type(error).__name__}: {error}") from error

    def _refuse_non_finite(self, outcome: Outcome) -> None:
        for name, value in (("score", outcome.score), *outcome.parts.items()):
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
                raise self._error(f"its {name} is {value!r}; it is a finite number, or None for no verdict")

    def _error(self, fault: str) -> UserError:
        return UserError(f"{self.where}: {fault}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """Something that can be seen to have happened in an episode.

    Example: ``Milestone(name="saved", kind="file", weight=2.0)``
    """

    name: str
    """The milestone's name."""
    kind: Literal["goal", "file", "ui"]
    """The task itself; a file that was made; a page that was reached or a form that was filled in."""
    weight: int | float
    """How much it counts beside the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestones:
    """Milestones with their weights: a goal weighs at least what a file does, a file what a click does.

    Example: ``Milestones(marks=(Milestone(name="saved", kind="file", weight=2.0), …))``

    >>> form = Milestone(name="form", kind="ui", weight=1.0)
    >>> paid = Milestones(marks=(form, Milestone(name="paid", kind="goal", weight=3.0)))
    >>> paid.score(["form", "form"]), paid.score(["form", "paid"])
    (0.25, 1.0)
    """

    marks: tuple[Milestone, ...]
    """All milestones that can be reached."""

    def __post_init__(self) -> None:
        """Refuse weights that pay for the way more than for the goal."""
        names = [mark.name for mark in self.marks]
        if not names or len({*names}) < len(names):
            raise UserError(f"milestones {names}: expected one or more, each with a name of its own")
        for mark in self.marks:
            if not (math.isfinite(mark.weight) and mark.weight > 0):
                raise UserError(f"milestone {mark.name}: weight {mark.weight}: expected a number above 0")
        for high, low in (("goal", "file"), ("file", "ui"), ("goal", "ui")):
            lowest = min((mark.weight for mark in self.marks if mark.kind == high), default=math.inf)
            highest = max((mark.weight for mark in self.marks if mark.kind == low), default=0.0)
            if highest > lowest:
                raise UserError(
                    f"a milestone of kind {low} weighs {highest:g} and one of kind {high} {lowest:g}; the "
                    "policy "
                    f"would be paid more for the way than for its end: let each {high} weigh as much at least"
                )

    def score(self, reached: Iterable[str]) -> float:
        """The share of all weights that was reached, each milestone once."""
        achieved = {*reached}
        unknown = achieved - {mark.name for mark in self.marks}
        if unknown:
            raise UserError(f"no milestone is called {', '.join(sorted(unknown))}")
        # fsum rounds once, so that all milestones are exactly 1 in whatever order they are reached.
        total = math.fsum(mark.weight for mark in self.marks)
        return math.fsum(mark.weight for mark in self.marks if mark.name in achieved) / total

    def outcome(self, reached: Iterable[str]) -> Outcome:
        """The score, and of each milestone whether it was reached."""
        achieved = {*reached}
        parts = {mark.name: float(mark.name in achieved) for mark in self.marks}
        return Outcome(score=self.score(achieved), parts=parts)


_CALL = re.compile(r"calc:\s*(-?\d{1,9})\s*([-+*])\s*(-?\d{1,9})")
_SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def calculator(prompt: EpisodePrompt) -> Episode:
    """An example: ``calc: 3+4`` is answered by a tool; the number that is said last should be the truth."""
    turn = yield None
    while (call := _CALL.search(turn.text)) and not turn.over:
        turn = yield Turn(role="tool", text=str(_SIGNS[call[2]](int(call[1]), int(call[3]))))
    numbers = re.findall(r"-?\d+", turn.text)
    return Outcome(score=float(numbers[-1:] == [prompt.truth]))
