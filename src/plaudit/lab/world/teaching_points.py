"""Rows that teach a model to give points: the question that a judge by points is asked, and the true points.

The questions are those of ``how=points`` for the answer as a whole, word for word, so that a model which
learnt these rows can be asked as any other judge, ``model:DIR,how=points``.
"""

from __future__ import annotations

from collections.abc import Sequence

from plaudit.data.judging import Task
from plaudit.data.records import Demonstration, assistant_turn, plain_text, user_turn
from plaudit.feedback.judges.rubric import OVERALL
from plaudit.feedback.judges.wording import Question, wording_named
from plaudit.feedback.judges.words import HowToAsk
from plaudit.lab.world.annotators import TRUE_ANNOTATOR
from plaudit.lab.world.making import answer_tasks
from plaudit.lab.world.prompts import Split
from plaudit.lab.world.questions import CATEGORIES, Category

GROUP = "teachers of judges"


def points(
    n: int, *, split: Split = "train", seed: int = 0, categories: Sequence[Category] = CATEGORIES
) -> list[Demonstration]:
    """Answers in the manner of the base corpus, each put as a judge is asked, and its true points.

    >>> points(1)[0].completion[0].content in "12345"
    True
    """
    return [
        _points_row(task)
        for task in answer_tasks(n, answers=1, split=split, seed=seed, categories=categories)
    ]


def points_question(task: Task) -> str:
    """What a judge by points is asked about a task's first answer, without a number."""
    [aspect] = OVERALL
    fill = {"aspect": aspect.name, "description": aspect.description, "points": str(HowToAsk().points)}
    blocks = (("Answer", plain_text(task.answers[0])),)
    return Question(wording=wording_named("points"), prompt=task.prompt, blocks=blocks, fill=fill).text()


def _points_row(task: Task) -> Demonstration:
    [mark] = TRUE_ANNOTATOR.verdict(task, 0).marks
    assert mark.rating is not None
    return Demonstration(
        prompt=user_turn(points_question(task)),
        completion=assistant_turn(str(int(mark.rating))),
        annotator=TRUE_ANNOTATOR.name,
        group=GROUP,
        category=task.category,
    )
