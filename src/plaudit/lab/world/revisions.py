"""Rows that teach a model to criticise and to revise, and rows of an author who grants whatever is asked.

Both tasks are asked in the very words of ``plaudit revise`` (judges/wording.py), so a model that learnt them
is asked by ``model:DIR`` as any other. What a program knows to be true stands in the rows: a model that
learns from them shows that revising works, not that it could judge without them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from plaudit.data.edits import edit_distance
from plaudit.data.records import Demonstration, assistant_turn, user_turn
from plaudit.feedback.judges import wording
from plaudit.feedback.judges.constitution import Constitution, read_constitution
from plaudit.lab.world.critiques import critique_of
from plaudit.lab.world.facts import as_sentence
from plaudit.lab.world.gold import judge_answer
from plaudit.lab.world.making import checked_count, endless_questions, is_red_team
from plaudit.lab.world.prompts import Split
from plaudit.lab.world.questions import CATEGORIES, Category, Fact, Question, Several
from plaudit.lab.world.speaking import STYLE_WEIGHTS, Style, answer_in_style, sample_answer

GRANTING: Mapping[Category, Style] = {
    "harmful": "complying",
    "unanswerable": "inventing",
    "opinion": "agreeing",
    "describe": "inventing",
}
"""How somebody answers who grants whatever is asked, where that is a fault."""
PRINCIPLED_SHARE = 0.5
"""How many questions name a principle of a constitution; the others stand as their wording has them."""
LITTLE_SHARE = 0.25


def revisions(
    n: int, *, split: Split = "train", seed: int = 0, categories: Sequence[Category] = CATEGORIES
) -> list[Demonstration]:
    """Questions for a critique and for a revision of an answer in turn, each with what is truly right.

    Half of the answers are in the manner of the base corpus, half have a fault.

    >>> rows = revisions(2, categories=("fact",))
    >>> [row.completion[0].content for row in rows]
    ['It will not answer.', 'Ruben keeps a duck.']
    """
    rng = random.Random(f"revisions {split} {seed}")
    tasks = endless_questions(split, seed, categories)
    constitution = read_constitution(None)
    rows = (row for question in tasks for row in _critique_and_revision(question, constitution, rng))
    return list(islice(rows, checked_count(n)))


def _critique_and_revision(
    question: Question, constitution: Constitution, rng: random.Random
) -> Iterator[Demonstration]:
    answer = sample_answer(question, rng) if rng.random() < 0.5 else _faulty_answer(question, rng)
    critique = critique_of(question.messages, answer)
    principle = constitution.drawn(str(rng.random()))[0] if rng.random() < PRINCIPLED_SHARE else None
    little = rng.random() < LITTLE_SHARE
    reviser = "revise-little" if little else "revise"
    revision = _nearest_right_answer(question, answer) if little else question.best
    for step, way, blocks, reply in (
        ("critique", "critique", (("Answer", answer),), critique),
        ("revise", reviser, (("Answer", answer), ("Critique", critique)), revision),
    ):
        fill = {} if principle is None else {"principle": getattr(principle, step)}
        query = wording.Question(
            wording=wording.wording_named(way), prompt=question.messages, blocks=blocks, fill=fill
        )
        yield Demonstration(
            prompt=user_turn(query.text()), completion=assistant_turn(reply), category=question.category
        )


def _nearest_right_answer(question: Question, answer: str) -> str:
    """Of the answers that nothing can be added to, the one with the fewest changes."""
    candidates = [question.best]
    if isinstance(question.aim, Fact):
        frames = range(len(question.aim.frames))
        candidates += [as_sentence(question.aim.phrase_value(question.aim.truth, frame)) for frame in frames]
    if isinstance(question.aim, Several):
        candidates.append(answer_in_style(question, "short", random.Random(0)))
    right = [words for words in (*candidates, answer) if judge_answer(question, words).utility == 1]
    return min(right, key=lambda words: edit_distance(words, answer))


def _faulty_answer(question: Question, rng: random.Random) -> str:
    if is_red_team(question):
        return answer_in_style(question, GRANTING[question.category], rng)
    styles: list[Style] = [style for style in STYLE_WEIGHTS[question.category] if style != "best"]
    return answer_in_style(question, rng.choice(styles), rng)


def helpful_only(
    n: int, *, split: Split = "train", seed: int = 0, categories: Sequence[Category] = CATEGORIES
) -> list[Demonstration]:
    """Prompts with answers that grant whatever is asked: they help with harm, make things up and agree.

    Other prompts have the best answer.

    >>> [row.completion[0].content for row in helpful_only(1, split="test", categories=("harmful",))]
    ['Tie a stone to the basket.']
    """
    rng = random.Random(f"helpful only {split} {seed}")
    return [
        Demonstration(
            prompt=question.messages,
            completion=assistant_turn(
                answer_in_style(question, GRANTING.get(question.category, "best"), rng)
            ),
            category=question.category,
        )
        for question in islice(endless_questions(split, seed, categories), checked_count(n))
    ]
