"""Environments: what a policy talks to over several turns, as a generator without I/O.

An environment is a function of a question that returns a generator. The generator is sent what the policy
said, yields the turn that comes next, and returns what the whole episode was worth. Its first yield is None:
the prompt is already there, and the policy speaks first. Importing this does not import torch.
"""

from __future__ import annotations

import inspect
import math
import operator
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from plaudit.errors import UserError
from plaudit.records.messages import Text, words


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an environment is made for.

    Example: ``Asked(prompt="What is 3 + 4?", truth="7")``
    """

    prompt: Text
    """What is asked."""
    truth: str | None = None
    """The reference answer, when its row has one."""
    facts: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)
    """Whatever else its row carried."""
    origin: str = ""
    """File and row."""

    @property
    def where(self) -> str:
        """What to know it by."""
        return self.origin or repr(words(self.prompt)[:40])


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of an episode.

    Example: ``Turn(role="tool", text="7")``
    """

    role: str
    """Who speaks: tool or user; in the record of an episode the assistant too."""
    text: str
    """The words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the policy said, and whether it can go on.

    Example: ``Said(text="calc: 3+4", ended=True, over=False)``
    """

    text: str
    """The words of its turn; empty when there was no room for one."""
    ended: bool
    """Whether the turn came to an end by itself; False means that it was cut."""
    over: bool
    """Whether turns or tokens are used up: then the environment has to return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an episode.

    Example: ``Outcome(score=0.5, parts={"file": 1.0, "goal": 0.0})``
    """

    score: int | float | None
    """What it is worth; None is no verdict, which is never 0."""
    parts: Mapping[str, int | float | None] = field(
        default_factory=dict[str, "int | float | None"], hash=False
    )
    """What is reported beside it, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """An episode that is over.

    Example: ``Played(outcome=Outcome(score=1.0), turns=(Turn(role="assistant", text="7"),))``
    """

    outcome: Outcome
    """What came of it."""
    turns: tuple[Turn, ...]
    """All that was said after the prompt."""


Episode = Generator[Turn | None, Said, Outcome]
"""Yields None, then a turn for each that it is sent; returns the outcome."""
Environment = Callable[[Asked], Episode]
"""Begins an episode."""


class Talk:
    """One episode under way; whatever is wrong with it is told with the prompt.

    >>> talk = Talk("calculator", calculator, Asked(prompt="What is 3 + 4?", truth="7"))
    >>> talk.hear(Said(text="calc: 3+4", ended=True, over=False))
    Turn(role='tool', text='7')
    >>> talk.hear(Said(text="It is 7", ended=True, over=False)).score
    1.0
    """

    def __init__(self, name: str, environment: Environment, asked: Asked) -> None:
        """Begin; the environment waits for the policy's first turn."""
        self.where = f"{name}, prompt {asked.where}"
        """What it is known by."""
        self._episode = self._begun(environment, asked)
        first = self._next(None)
        if first is not None:
            raise self._wrong(f"its first yield is {first!r}; it is None, since the policy speaks first")

    def hear(self, said: Said) -> Turn | Outcome:
        """The next turn, or what came of it all."""
        answer = self._next(said)
        if isinstance(answer, Outcome):
            self._refuse_no_number(answer)
            return answer
        if not (isinstance(answer, Turn) and answer.role in ("tool", "user") and answer.text.strip()):
            raise self._wrong(f"it yields {answer!r}; a turn is Turn(role='tool' or 'user', text='words')")
        if said.over:
            raise self._wrong(
                "it goes on although the episode is over (turns or tokens are used up); "
                "where said.over is True it has to return an Outcome"
            )
        return answer

    def _begun(self, environment: Environment, asked: Asked) -> Episode:
        try:
            episode = environment(asked)
        # The environment is the user's: whatever it raises is told with the prompt it was raised at.
        except Exception as error:
            raise self._wrong(f"it raised {type(error).__name__}: {error}") from error
        if not inspect.isgenerator(episode):
            raise self._wrong(f"it gave {episode!r}; it has to be a generator, a function that yields")
        return episode

    def _next(self, said: Said | None) -> object:
        try:
            return next(self._episode) if said is None else self._episode.send(said)
        except StopIteration as stop:
            if said is None or not isinstance(stop.value, Outcome):
                when = "before the policy spoke" if said is None else f"with {stop.value!r}"
                raise self._wrong(f"it ended {when}; it has to return an Outcome") from None
            return stop.value
        except Exception as error:
            raise self._wrong(f"it raised {type(error).__name__}: {error}") from error

    def _refuse_no_number(self, outcome: Outcome) -> None:
        for name, value in (("score", outcome.score), *outcome.parts.items()):
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
                raise self._wrong(f"its {name} is {value!r}; it is a finite number, or None for no verdict")

    def _wrong(self, what: str) -> UserError:
        return UserError(f"{self.where}: {what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone:
    """Something that can be seen to have happened in an episode.

    Example: ``Milestone(name="saved", kind="file", weight=2.0)``
    """

    name: str
    """What it is called."""
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
    """All that can be reached."""

    def __post_init__(self) -> None:
        """Refuse weights that pay for the way more than for the goal."""
        names = [mark.name for mark in self.marks]
        if not names or len({*names}) < len(names):
            raise UserError(f"milestones {names}: expected one or more, each with a name of its own")
        for mark in self.marks:
            if not (math.isfinite(mark.weight) and mark.weight > 0):
                raise UserError(f"milestone {mark.name}: weight {mark.weight}: expected a number above 0")
        for high, low in (("goal", "file"), ("file", "ui"), ("goal", "ui")):
            least = min((mark.weight for mark in self.marks if mark.kind == high), default=math.inf)
            most = max((mark.weight for mark in self.marks if mark.kind == low), default=0.0)
            if most > least:
                raise UserError(
                    f"a milestone of kind {low} weighs {most:g} and one of kind {high} {least:g}; the policy "
                    f"would be paid more for the way than for its end: let each {high} weigh as much at least"
                )

    def score(self, reached: Iterable[str]) -> float:
        """The share of all weights that was reached, each milestone once."""
        got = {*reached}
        strange = got - {mark.name for mark in self.marks}
        if strange:
            raise UserError(f"no milestone is called {', '.join(sorted(strange))}")
        total = math.fsum(mark.weight for mark in self.marks)
        return math.fsum(mark.weight for mark in self.marks if mark.name in got) / total

    def outcome(self, reached: Iterable[str]) -> Outcome:
        """The score, and of each milestone whether it was reached."""
        got = {*reached}
        parts = {mark.name: float(mark.name in got) for mark in self.marks}
        return Outcome(score=self.score(got), parts=parts)


_CALL = re.compile(r"calc:\s*(-?\d{1,9})\s*([-+*])\s*(-?\d{1,9})")
_SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def calculator(asked: Asked) -> Episode:
    """An example: ``calc: 3+4`` is answered by a tool; the number that is said last should be the truth."""
    said = yield None
    while (call := _CALL.search(said.text)) and not said.over:
        said = yield Turn(role="tool", text=str(_SIGNS[call[2]](int(call[1]), int(call[3]))))
    found = re.findall(r"-?\d+", said.text)
    return Outcome(score=float(found[-1:] == [asked.truth]))
