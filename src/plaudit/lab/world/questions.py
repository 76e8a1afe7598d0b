"""What a question is after, and all that is needed to judge an answer to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from plaudit.data.records import Message, Prompt, Task, assistant_turn, user_turn
from plaudit.lab.world.facts import FactClaim, true_value

ShortCategory = Literal[
    "fact", "arithmetic", "list", "explain", "opinion", "unanswerable", "harmful", "follow_up"
]
LongerCategory = Literal["describe", "compare", "recommend", "steps"]
Category = Literal[ShortCategory, LongerCategory]
SHORT_CATEGORIES: tuple[Category, ...] = get_args(ShortCategory)
LONGER_CATEGORIES: tuple[Category, ...] = get_args(LongerCategory)
CATEGORIES: tuple[Category, ...] = (*SHORT_CATEGORIES, *LONGER_CATEGORIES)
"""Every kind of question: what is asked unless categories are named."""
Categories = Sequence[Category]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    topic: str
    frames: tuple[str, ...]
    """Ways to give a value ``{v}``: the fullest first, the value alone last."""
    values: tuple[str, ...]
    belief: str | None = None

    @property
    def truth(self) -> str:
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
    kind: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswerable:
    unknown: str
    invented: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmfulRequest:
    """A request that should be declined, with its reason and something better."""

    act: str
    reason: str
    how: str
    offer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmlessRequest:
    """A request that has the look of a harmful one, and that nobody should decline."""

    act: str


PartOrder = Literal["any", "sequence", "pairs"]
"""How the parts of an answer have to stand: as one likes; each behind the one before it; each two together,
and the same side first each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Several:
    """A question for several things, each of which is a claim."""

    parts: tuple[FactClaim, ...]
    order: PartOrder = "any"
    matter: str = ""
    """What instructions are meant for: "about bread", "to clean the well"; nothing where facts are wanted."""
    subjects: tuple[str, ...] = ()
    secret: Unanswerable | None = None

    def places(self, claims: Sequence[FactClaim], *, right: bool = True) -> list[int]:
        """Which of the parts some claims give, in their order; a part with two values is not rightly given.

        >>> owl = Several(parts=(FactClaim(topic="food of the owl", value="mice"),))
        >>> claims = [FactClaim(topic="food of the owl", value=value) for value in ("mice", "bark")]
        >>> owl.places(claims[:1]), owl.places(claims), owl.places(claims, right=False)
        ([0], [], [0])
        """
        values: dict[str, set[str]] = {}
        for claim in claims:
            values.setdefault(claim.topic, set()).add(claim.value)
        place_by_topic = {part.topic: place for place, part in enumerate(self.parts)}
        return [
            place_by_topic[topic]
            for topic, given in values.items()
            if topic in place_by_topic and (not right or given == {self.parts[place_by_topic[topic]].value})
        ]

    def share_in_order(self, places: Sequence[int]) -> float:
        """Of neighbours, or of pairs begun, how many stand as they should; 1 where order is free.

        >>> Several(parts=(), order="sequence").share_in_order([0, 2, 1])
        0.5
        """
        where = {place: position for position, place in enumerate(places)}
        if self.order == "pairs":
            gaps = [where[n + 1] - where[n] for n in where if n % 2 == 0 and n + 1 in where]
            pairs = {place // 2 for place in where}
            return max(gaps.count(1), gaps.count(-1)) / len(pairs) if pairs else 1.0
        # Neighbours among those that are given: to leave out what stands wrong must not mend the order.
        gaps = [where[later] - where[first] for first, later in pairwise(sorted(where))]
        return sum(gap > 0 for gap in gaps) / len(gaps) if gaps and self.order == "sequence" else 1.0


Aim = Fact | ListRequest | Unanswerable | HarmfulRequest | HarmlessRequest | Several


def secret_of(aim: Aim) -> Unanswerable | None:
    """What nobody can know of all that is asked; None where everything is known."""
    return aim if isinstance(aim, Unanswerable) else aim.secret if isinstance(aim, Several) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A prompt and all that is needed to judge an answer to it."""

    category: Category
    messages: tuple[Message, ...]
    """The conversation so far; its last turn is the user's."""
    entity: str
    """What it is about: the split goes by it."""
    aim: Aim
    best: str

    @property
    def answer(self) -> str | None:
        """The value that a program can check, where there is one."""
        return self.aim.truth if isinstance(self.aim, Fact) else None

    def prompt_row(self, **metadata: str) -> Prompt:
        return Prompt(
            prompt=self.messages, answer=self.answer, metadata={"category": self.category, **metadata}
        )

    def task(self, answers: Sequence[str]) -> Task:
        """What is to be judged: answers that all ended by themselves."""
        return Task(
            prompt=self.messages,
            answers=tuple(map(assistant_turn, answers)),
            ended=(True,) * len(answers),
            category=self.category,
        )


def short_question(category: Category, text: str, entity: str, aim: Aim, best: str) -> Question:
    """A question of a single turn."""
    return Question(category=category, messages=user_turn(text), entity=entity, aim=aim, best=best)
