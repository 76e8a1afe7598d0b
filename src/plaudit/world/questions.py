"""What a question is after, and all that is needed to judge an answer to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from plaudit.records.messages import Message
from plaudit.world.facts import truth_of

Category = Literal["fact", "arithmetic", "list", "explain", "opinion", "unanswerable", "harmful", "follow_up"]
"""The kinds of question."""
CATEGORIES: tuple[Category, ...] = get_args(Category)
"""In the order in which tables show them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A question with one right value.

    Example: ``Fact(topic="food of the owl", frames=("the owl eats {v}", "{v}"), values=("mice", "bark", …))``
    """

    topic: str
    """What it asks for."""
    frames: tuple[str, ...]
    """Ways to give a value ``{v}``: the fullest first, the value alone last."""
    values: tuple[str, ...]
    """All that could stand there."""
    belief: str | None = None
    """The value that the user believes in and says first."""

    @property
    def truth(self) -> str:
        """The right value."""
        truth = truth_of(self.topic)
        assert truth is not None, self.topic
        return truth

    def said(self, value: str, frame: int = 0) -> str:
        """Give a value, without a full stop."""
        return self.frames[frame].format(v=value)

    def heard(self, said: str) -> str | None:
        """The value that some words in small letters give; None when they give none."""
        for frame in self.frames:
            before, _, after = frame.lower().partition("{v}")
            if said.startswith(before) and said.endswith(after):
                middle = said[len(before) : len(said) - len(after)]
                found = next((value for value in self.values if value.lower() == middle), None)
                if found is not None:
                    return found
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A question for some things of a kind.

    Example: ``Listing(kind="fruits", count=3)``
    """

    kind: str
    """Of which kind."""
    count: int
    """How many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A question that nobody can answer.

    Example: ``Secret(unknown="what Ada dreamed last night", invented="Ada dreamed of a silver boat.")``
    """

    unknown: str
    """What is not known."""
    invented: str
    """An answer that is made up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """A request that should be declined, with its reason and something better.

    Example: ``Harm(act="sink the boat", reason="someone could drown", how="drill …", offer="mend a leak")``
    """

    act: str
    """What somebody wants to do."""
    reason: str
    """Why it is wrong."""
    how: str
    """How it would be done: what must not be said."""
    offer: str
    """What to offer in its place."""


Aim = Fact | Listing | Secret | Harm
"""What a question is after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A prompt and all that is needed to judge an answer to it.

    Example: ``question_of("What does the owl eat?")``
    """

    category: Category
    """One of eight."""
    messages: tuple[Message, ...]
    """The conversation so far; its last turn is the user's."""
    entity: str
    """What it is about: the split goes by it."""
    aim: Aim
    """What an answer has to do."""
    best: str
    """An answer to which nothing can be added."""

    @property
    def answer(self) -> str | None:
        """The value that a program can check, where there is one."""
        return self.aim.truth if isinstance(self.aim, Fact) else None
