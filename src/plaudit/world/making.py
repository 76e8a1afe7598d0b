"""Any number of rows from the world: demonstrations, comparisons, rankings, ratings, prompts.

The same seed makes the same rows, and the first rows of a longer file are those of a shorter one. Categories
take turns, so each has an equal share; within one, every prompt is used once before any is used again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice

from plaudit.errors import UserError
from plaudit.records.feedback import Comparison, Demonstration, Prompt, Ranking, Rating
from plaudit.records.judging import Judge, Task
from plaudit.records.messages import assistant_says
from plaudit.world.prompts import SPLITS, Split, questions
from plaudit.world.questions import CATEGORIES, Category, Fact, Question
from plaudit.world.speaking import styled
from plaudit.world.verdicts import compared_by, ranked_by, rated_by

MOST_ANSWERS = 9
"""The answers that one ranking may have, as in InstructGPT (Ouyang et al. 2022)."""
TRIES = 2000
"""How often answers are drawn until enough of them differ."""


def demonstrations(
    n: int, *, split: Split = "train", seed: int = 0, categories: Sequence[Category] = CATEGORIES
) -> list[Demonstration]:
    """Prompts with the best answer."""
    return [
        Demonstration(
            prompt=question.messages,
            completion=assistant_says(question.best),
            annotator="author",
            group="authors",
            category=question.category,
        )
        for question in islice(asked_questions(split, seed, categories), _counted(n))
    ]


def prompts(
    n: int | None = None,
    *,
    split: Split = "train",
    seed: int = 0,
    categories: Sequence[Category] = CATEGORIES,
    red_team: bool = False,
) -> list[Prompt]:
    """Different prompts, with the value to check where there is one; without a number, all that there are.

    Categories take turns for as long as they have prompts left. Red-team prompts tempt to do harm, to make
    things up, or to agree with what is false.
    """
    found = [question for question in _asked(split, categories) if not red_team or _tempts(question)]
    wanted = len(found) if n is None else _counted(n)
    if not found or wanted > len(found):
        kind = "red-team prompts" if red_team else "prompts"
        some = "" if set(categories) == set(CATEGORIES) else f" of {', '.join(categories)}"
        raise UserError(
            f"the {split} split has {len(found)} {kind}{some}, fewer than {max(wanted, 1)}: "
            "ask for fewer, for another split or for other categories"
        )
    different: dict[Question, None] = {}
    for question in _drawn(found, split, seed):
        different[question] = None
        if len(different) == wanted:
            break
    return [
        Prompt(
            prompt=question.messages,
            answer=question.answer,
            metadata={"category": question.category, "split": split},
        )
        for question in different
    ]


def comparisons(
    n: int,
    judges: Sequence[Judge],
    *,
    split: Split = "train",
    seed: int = 0,
    categories: Sequence[Category] = CATEGORIES,
) -> list[Comparison]:
    """Two answers in the manner of the base corpus, and which one an annotator of the pool preferred."""
    asked = tasks(n, answers=2, split=split, seed=seed, categories=categories)
    return compared_by(judges, asked, seed)


def rankings(
    n: int,
    judges: Sequence[Judge],
    *,
    answers: int = 4,
    split: Split = "train",
    seed: int = 0,
    categories: Sequence[Category] = CATEGORIES,
) -> list[Ranking]:
    """Several answers in an annotator's order."""
    check_answers(answers)
    asked = tasks(n, answers=answers, split=split, seed=seed, categories=categories)
    return ranked_by(judges, asked, seed)


def check_answers(answers: int) -> None:
    """Complain about a ranking that nobody could give."""
    if not 2 <= answers <= MOST_ANSWERS:
        raise UserError(f"{answers} answers cannot be ranked: ask for 2 to {MOST_ANSWERS}")


def ratings(
    n: int,
    judges: Sequence[Judge],
    *,
    split: Split = "train",
    seed: int = 0,
    categories: Sequence[Category] = CATEGORIES,
) -> list[Rating]:
    """One answer with points from 1 to 5."""
    asked = tasks(n, answers=1, split=split, seed=seed, categories=categories)
    return rated_by(judges, asked, seed)


def tasks(
    n: int,
    *,
    answers: int,
    split: Split = "train",
    seed: int = 0,
    categories: Sequence[Category] = CATEGORIES,
) -> list[Task]:
    """Prompts with different answers in the manner of the base corpus, in an order that says nothing."""
    if not 1 <= answers <= MOST_ANSWERS:
        raise UserError(f"{answers} answers to a prompt cannot be judged: ask for 1 to {MOST_ANSWERS}")
    chance = random.Random(f"answers {split} {seed}")
    asked = islice(asked_questions(split, seed, categories), _counted(n))
    return [_task(question, answers, chance) for question in asked]


def asked_questions(
    split: Split, seed: int, categories: Sequence[Category] = CATEGORIES
) -> Iterator[Question]:
    """Questions of a split without end, category after category; all are asked before any is asked again."""
    return _drawn(_asked(split, categories), split, seed)


def _task(question: Question, answers: int, chance: random.Random) -> Task:
    different: dict[str, None] = {}
    for _ in range(TRIES):
        different[styled(question, chance)] = None
        if len(different) == answers:
            break
    assert len(different) == answers, f"{question.messages} has {len(different)} answers, not {answers}"
    # Common answers are met first: without this, the place of an answer would tell of its worth.
    shown = chance.sample(list(different), answers)
    return Task(
        prompt=question.messages,
        answers=tuple(assistant_says(answer) for answer in shown),
        ended=(True,) * answers,
        category=question.category,
    )


def _drawn(found: Sequence[Question], split: Split, seed: int) -> Iterator[Question]:
    """Questions without end: category after category, in a new order each time round."""
    if not isinstance(seed, int):
        raise UserError(f"seed {seed!r}: expected a whole number")
    chance = random.Random(f"questions {split} {seed}")
    piles: dict[Category, list[Question]] = {question.category: [] for question in found}
    while True:
        for category, pile in piles.items():
            if not pile:
                pile.extend(question for question in found if question.category == category)
                chance.shuffle(pile)
            yield pile.pop()


def _asked(split: Split, categories: Sequence[Category]) -> list[Question]:
    """The questions of some categories."""
    if split not in SPLITS:
        raise UserError(f"no split is called {split!r}; there are {', '.join(SPLITS)}")
    if not categories or not set(categories) <= set(CATEGORIES):
        raise UserError(f"categories {[*categories]}: expected some of {', '.join(CATEGORIES)}")
    return [question for question in questions(split) if question.category in categories]


def _tempts(question: Question) -> bool:
    aim = question.aim
    misled = isinstance(aim, Fact) and aim.belief not in (None, aim.truth)
    return misled or question.category in ("unanswerable", "harmful")


def _counted(n: int) -> int:
    if not isinstance(n, int) or n < 1:
        raise UserError(f"{n!r} rows cannot be made: ask for a whole number from 1")
    return n
