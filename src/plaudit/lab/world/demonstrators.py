"""Simulated people who write answers, each as well as they can, with habits that spoil a part of it.

Whoever demonstrates is no author of textbooks: people pad and hedge, flatter, decline what is harmless, help
with what is harmful, forget a part. What a model learns from their answers is then about as good as they are,
and whoever compares answers can teach it more than they could write (Ouyang et al. 2022, arXiv:2203.02155).
How good each of them is, is not hidden: the true worth of all that they write is known.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from plaudit.data.records import Demonstration, assistant_turn, plain_text
from plaudit.errors import UserError
from plaudit.lab.world import ANOTHER
from plaudit.lab.world.gold import judge_answer, utility
from plaudit.lab.world.questions import Question
from plaudit.lab.world.speaking import STYLE_WEIGHTS, STYLES, Style, answer_in_style


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstrator:
    name: str
    """A pseudonym; what they write is drawn by it."""
    group: str
    skill: float = 1.0
    habits: Mapping[Style, float] = field(default_factory=dict[Style, float])
    """How they write otherwise, by weight; of these only what people do with such a question at all."""

    def __post_init__(self) -> None:
        if not 0 <= self.skill <= 1:
            raise UserError(f"demonstrator {self.name}: skill {self.skill:g}: expected a share from 0 to 1")
        for style, weight in self.habits.items():
            if style not in STYLES:
                raise UserError(
                    f"demonstrator {self.name}: no style is called {style!r}; there are {', '.join(STYLES)}"
                )
            if not 0 < weight < math.inf:
                raise UserError(f"demonstrator {self.name}: {style} {weight}: expected a number above 0")

    def answer(self, question: Question, seed: int) -> str:
        """What they write to a question.

        >>> from plaudit.lab.world.prompts import question_of_prompt
        >>> ada = Demonstrator(name="ada", group="bakers", skill=0, habits={"agreeing": 1})
        >>> ada.answer(question_of_prompt("What does the owl eat?"), 1)
        'The owl eats mice.'
        """
        # Seeded by who writes what: an answer does not hang on those that were written before it.
        rng = random.Random(f"writes {self.name} {seed} {plain_text(question.messages)}")
        writes_best = rng.random() < self.skill
        fitting: dict[Style, float] = {
            style: weight
            for style, weight in self.habits.items()
            if style in STYLE_WEIGHTS[question.category]
        }
        if writes_best or not fitting:
            return question.best
        styles: list[Style] = list(fitting)
        (style,) = rng.choices(styles, weights=list(fitting.values()))
        return answer_in_style(question, style, rng)

    def demonstration(self, question: Question, seed: int) -> Demonstration:
        return Demonstration(
            prompt=question.messages,
            completion=assistant_turn(self.answer(question, seed)),
            annotator=self.name,
            group=self.group,
            category=question.category,
        )


AUTHORS = (Demonstrator(name="author", group="authors"),)

_EVERYDAY_HABITS: Sequence[Style] = (
    "padded", "hedged", "flattering", "rambling", "formatted", "short", "evasive", "not_knowing",
    "partial", "agreeing", "inventing", "complying", "curt",
)  # fmt: skip


def _crowd() -> tuple[Demonstrator, ...]:
    # A seed of its own: these are the same twelve people whatever seed the data have.
    rng = random.Random(f"the writers of the valley{ANOTHER}")
    return tuple(
        Demonstrator(
            name=f"writer-{n}",
            group="crowd",
            skill=rng.uniform(0.05, 0.25),
            habits={style: rng.uniform(0.5, 2.0) for style in rng.sample(_EVERYDAY_HABITS, 6)},
        )
        for n in range(1, 13)
    )


def _pool_of_a_kind(group: str, habits: Mapping[Style, float]) -> Callable[[], tuple[Demonstrator, ...]]:
    return lambda: tuple(
        Demonstrator(name=f"{group}-{n}", group=group, skill=0.2, habits=habits) for n in range(1, 7)
    )


DEMONSTRATORS: Mapping[str, Callable[[], tuple[Demonstrator, ...]]] = {
    "authors": lambda: AUTHORS,
    "crowd": _crowd,
    "hasty": _pool_of_a_kind("hasty", {"short": 1, "partial": 3, "curt": 3, "wrong": 1}),
    "cautious": _pool_of_a_kind("cautious", {"evasive": 3, "not_knowing": 2, "hedged": 2}),
}
"""Each pool of demonstrators by its name: those who write the best answers, twelve ordinary people, those who
leave things out, and those who would rather not say."""


def demonstrator_pool(name: str) -> tuple[Demonstrator, ...]:
    if name not in DEMONSTRATORS:
        raise UserError(f"no pool of demonstrators is called {name!r}; there are {', '.join(DEMONSTRATORS)}")
    return DEMONSTRATORS[name]()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenWorth:
    name: str
    people: int
    answers: int
    mean: float
    error: float
    """Half of the mean's 95 % interval."""
    best: float
    """The share of answers to which nothing can be added."""
    words: float


def written_worth(
    name: str, people: Sequence[Demonstrator], questions: Sequence[Question], *, seed: int = 0
) -> WrittenWorth:
    """How good the people of a pool are: each answers every question."""
    if not people or len(questions) < 2:
        raise UserError(f"{name}: what is written is measured on one person and two questions at least")
    answers = [(question, person.answer(question, seed)) for question in questions for person in people]
    worths = [judge_answer(question, answer).utility for question, answer in answers]
    # By question: all people answer the same ones, which differ in how much can go wrong.
    by_question = [fmean(worths[start : start + len(people)]) for start in range(0, len(worths), len(people))]
    return WrittenWorth(
        name=name,
        people=len(people),
        answers=len(answers),
        mean=fmean(worths),
        error=1.96 * stdev(by_question) / math.sqrt(len(by_question)),
        best=fmean(worth == 1 for worth in worths),
        words=fmean(len(answer.split()) for _, answer in answers),
    )


def worth_sentence(rows: Sequence[Demonstration]) -> str:
    """How good the answers in rows are, of which a model that copies them will be about as good.

    >>> from plaudit.lab.world.prompts import question_of_prompt
    >>> rows = [AUTHORS[0].demonstration(question_of_prompt("What does the owl eat?"), 0)]
    >>> worth_sentence(rows)
    'what they write is truly worth 1.00 on average (best: 1); 100% of it could not be better'
    """
    worths = [utility(plain_text(row.prompt), plain_text(row.completion)) for row in rows]
    perfect = fmean(worth == 1 for worth in worths)
    return (
        f"what they write is truly worth {fmean(worths):.2f} on average (best: 1); "
        f"{perfect:.0%} of it could not be better"
    )
