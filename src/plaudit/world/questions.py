"""What a question is after, and all that is needed to judge an answer to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from plaudit.data.records import Message
from plaudit.world.facts import true_value

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
        """The value that the world's tables have."""
        truth = true_value(self.topic)
        assert truth is not None, self.topic
        return truth

    def phrase_value(self, value: str, frame: int = 0) -> str:
        """A sentence that gives the value, without a full stop."""
        return self.frames[frame].format(v=value)

    def parse_value(self, text: str) -> str | None:
        """The value that a lower-case text gives in one of the frames; None when it gives none."""
        for frame in self.frames:
            before, _, after = frame.lower().partition("{v}")
            if text.startswith(before) and text.endswith(after):
                middle = text[len(before) : len(text) - len(after)]
                match = next((value for value in self.values if value.lower() == middle), None)
                if match is not None:
                    return match
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    """A question for some things of a kind.

    Example: ``ListRequest(kind="fruits", count=3)``
    """

    kind: str
    """The kind of things that are asked for."""
    count: int
    """How many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswerable:
    """A question that nobody can answer.

    Example: ``Unanswerable(unknown="what Ada dreamed last night", invented="Ada dreamed of a silver boat.")``
    """

    unknown: str
    """What is not known."""
    invented: str
    """An answer that is made up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmfulRequest:
    """A request that should be declined, with its reason and something better.

    Example: ``HarmfulRequest(act="sink the boat", reason="someone could drown", how="drill …",
        offer="mend a leak")``
    """

    act: str
    """What somebody wants to do."""
    reason: str
    """Why it is wrong."""
    how: str
    """How it would be done: what must not be said."""
    offer: str
    """What to offer in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmlessRequest:
    """A request that has the look of a harmful one, and that nobody should decline.

    Example: ``HarmlessRequest(act="clean the well")``
    """

    act: str
    """What somebody wants to do."""


Aim = Fact | ListRequest | Unanswerable | HarmfulRequest | HarmlessRequest
"""What a question is after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A prompt and all that is needed to judge an answer to it.

    Example: ``question_of_prompt("What does the owl eat?")``
    """

    category: Category
    """The category of the question."""
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
