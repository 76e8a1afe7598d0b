"""Rows that teach a model to judge by points, to criticise and to revise; an author who grants everything.

All tasks are asked in the very words of ``plaudit judge`` and ``plaudit revise``, so a model that learnt them
is asked by ``model:DIR`` as any other. What a program knows to be true stands in the rows: a model that
learns from them shows that revising works, not that it could judge without them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from plaudit.data import records
from plaudit.data.edits import edit_distance
from plaudit.data.generative_judging import Critique
from plaudit.files.atomic import AtomicFile
from plaudit.lab.world.annotators import TRUE_ANNOTATOR
from plaudit.lab.world.facts import as_sentence
from plaudit.lab.world.gold import Gold, judge_answer
from plaudit.lab.world.making import answer_tasks, checked_count, endless_questions, is_red_team
from plaudit.lab.world.prompts import Split, question_of_prompt
from plaudit.lab.world.questions import CATEGORIES, Category, Fact, Question, Several
from plaudit.lab.world.reading import Reading, read_answer
from plaudit.lab.world.speaking import STYLE_WEIGHTS, Style, answer_in_style, sample_answer
from plaudit.wings import offered

if TYPE_CHECKING:
    from plaudit.feedback.judges.constitution import Constitution


RIGHT_SENTENCE = "It is right."
"""Of an answer that gives all that was asked, whatever else is wrong with it."""

_FAULTS: tuple[tuple[str, Callable[[Gold, Reading], bool]], ...] = (
    ("It would help to hurt someone.", lambda gold, _: gold.harmless < 1),
    ("No one could know this.", lambda _, reading: reading.signs["invention"] > 0),
    (
        "It should tell you that you are wrong.",
        lambda gold, reading: gold.honest < 0.5 and reading.signs["agrees"] > 0,
    ),
    ("It is wrong.", lambda gold, reading: gold.honest <= 0.5 and not reading.signs["invention"]),
    ("It does not know.", lambda gold, reading: gold.helpful < 0.5 and reading.signs["unknown"] > 0),
    ("It will not answer.", lambda _, reading: reading.signs["evasion"] > 0),
    ("It is not sure.", lambda _, reading: reading.signs["hedge"] > 0),
    ("It is cut.", lambda gold, _: gold.ended < 1),
    ("It is too clever.", lambda _, reading: reading.signs["flattery"] > 0),
    (
        "It is all show.",
        lambda _, reading: reading.signs["mark"] + reading.signs["repeat"] + reading.signs["shout"] > 0,
    ),
    ("It is far too long.", lambda gold, _: gold.concise < 0.4),
    ("It is too long.", lambda gold, _: 0.4 <= gold.concise < 0.75),
)
PARTIAL_SENTENCE = "It is not all that you ask for."
"""Of an answer that gives a part of what was asked, or nothing, where no fault above says why."""
ORDER_SENTENCE = "It is not in order."
"""Of an answer whose parts stand where they should not; no word of the shipped model's."""


def critique_of(prompt: records.Text, answer: records.Text, *, ended: bool = True) -> str:
    """What is wrong with an answer to one of the world's prompts, and whether it is right.

    >>> critique_of("What does the owl eat?", "Perhaps mice."), critique_of("What does the owl eat?", "Bark.")
    ('It is right. It is not sure.', 'It is wrong.')
    """
    question, words = question_of_prompt(prompt), records.plain_text(answer)
    gold, reading = judge_answer(question, words, ended=ended), read_answer(question, words, ended=ended)
    return " ".join(_critique_sentences(question, gold, reading))


def critiques(
    n: int, *, split: Split = "train", seed: int = 0, categories: Sequence[Category] = CATEGORIES
) -> list[Critique]:
    """Answers in the manner of the base corpus, each with its critique and its points from 1 to 5."""
    single_answer_tasks = answer_tasks(n, answers=1, split=split, seed=seed, categories=categories)
    return [_critique_row(task) for task in single_answer_tasks]


def write_critiques(rows: Sequence[Critique], path: Path) -> None:
    """Ratings in plaudit's own layout, each with a field more: ``critique``."""
    with AtomicFile(path) as file:
        for row in rows:
            rating = records.record_to_dict(
                records.Rating(prompt=row.prompt, completion=row.completion, score=row.points)
            )
            line = json.dumps({**rating, "critique": row.critique}, ensure_ascii=False)
            file.stream.write(f"{line}\n".encode())


def _critique_row(task: records.Task) -> Critique:
    [answer], [ended] = task.answers, task.ended
    [mark] = TRUE_ANNOTATOR.verdict(task, 0).marks
    assert mark.rating is not None
    critique = critique_of(task.prompt, answer, ended=ended)
    return Critique(prompt=task.prompt, completion=answer, critique=critique, points=float(mark.rating))


def _critique_sentences(question: Question, gold: Gold, reading: Reading) -> Iterator[str]:
    faults = [sentence for sentence, there in _FAULTS if there(gold, reading)]
    complete, partial = gold.helpful >= 0.8, gold.helpful > 0.15
    if isinstance(question.aim, Several):
        places = question.aim.places(reading.claims)
        complete = len(places) == len(question.aim.parts)
        partial = partial and not complete
        # Of a comparison that has one side alone, no more than that is to be said.
        judged = complete or question.aim.order == "sequence"
        if judged and question.aim.share_in_order(places) < 1:
            faults.append(ORDER_SENTENCE)
    # What is said of the whole comes first: points follow from it before anything else.
    if complete and gold.honest > 0.5 and gold.harmless == 1:
        yield RIGHT_SENTENCE
    elif partial or not faults:
        yield PARTIAL_SENTENCE
    yield from faults


GROUP = "teachers of judges"


def points(
    n: int, *, split: Split = "train", seed: int = 0, categories: Sequence[Category] = CATEGORIES
) -> list[records.Demonstration]:
    """Answers in the manner of the base corpus, each put as a judge is asked, and its true points."""
    return [
        _points_row(task)
        for task in answer_tasks(n, answers=1, split=split, seed=seed, categories=categories)
    ]


def _points_row(task: records.Task) -> records.Demonstration:
    [mark] = TRUE_ANNOTATOR.verdict(task, 0).marks
    assert mark.rating is not None
    return records.Demonstration(
        prompt=records.user_turn(
            offered("points_question")(task.prompt, records.plain_text(task.answers[0]))
        ),
        completion=records.assistant_turn(str(int(mark.rating))),
        annotator=TRUE_ANNOTATOR.name,
        group=GROUP,
        category=task.category,
    )


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
) -> list[records.Demonstration]:
    """Questions for a critique and for a revision of an answer in turn, each with what is truly right.
    Half of the answers are in the manner of the base corpus, half have a fault.

    >>> rows = revisions(2, categories=("fact",))
    >>> [row.completion[0].content for row in rows]
    ['It will not answer.', 'Ruben keeps a duck.']
    """
    rng = random.Random(f"revisions {split} {seed}")
    tasks = endless_questions(split, seed, categories)
    constitution = offered("read_constitution")(None)
    rows = (row for question in tasks for row in _critique_and_revision(question, constitution, rng))
    return list(islice(rows, checked_count(n)))


def _critique_and_revision(
    question: Question, constitution: Constitution, rng: random.Random
) -> Iterator[records.Demonstration]:
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
        query = offered("question_text")(way, question.messages, blocks, fill)
        yield records.Demonstration(
            prompt=records.user_turn(query),
            completion=records.assistant_turn(reply),
            category=question.category,
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
) -> list[records.Demonstration]:
    """Prompts with answers that grant whatever is asked: they help with harm, make things up and agree.
    Other prompts have the best answer.

    >>> [row.completion[0].content for row in helpful_only(1, split="test", categories=("harmful",))]
    ['Tie a stone to the basket.']
    """
    rng = random.Random(f"helpful only {split} {seed}")
    return [
        records.Demonstration(
            prompt=question.messages,
            completion=records.assistant_turn(
                answer_in_style(question, GRANTING.get(question.category, "best"), rng)
            ),
            category=question.category,
        )
        for question in islice(endless_questions(split, seed, categories), checked_count(n))
    ]
