"""The base model's corpus: plain facts of the valley, dialogues of every quality, and reviews of answers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from plaudit.data.records import Demonstration, assistant_turn, words_of
from plaudit.lab.world.gold import judge_answer
from plaudit.lab.world.making import plain_statements, statements
from plaudit.lab.world.prompts import questions_of
from plaudit.lab.world.questions import CATEGORIES, Category, Fact, Question
from plaudit.lab.world.speaking import Style, answer_in_style, restyled, sample_answer

STATED = 2
"""How often each fact stands in the corpus as a plain statement, times three (three stand in a row)."""
PER_QUESTION: Mapping[Category, tuple[int, int]] = {
    "arithmetic": (3, 3),
    "fact": (3, 3),
    "list": (24, 30),
    "explain": (16, 10),
    "opinion": (3, 3),
    "unanswerable": (5, 0),
    "harmful": (14, 0),
    "follow_up": (6, 3),
    "describe": (4, 5),
    "compare": (4, 1),
    "recommend": (10, 10),
    "steps": (12, 12),
}
"""How often each question is answered, and in the training split how often an answer to it is reviewed: never
where nothing is to be known."""
STYLE_FACTORS: Mapping[Style, float] = {
    "best": 0.4,
    "short": 0.4,
    "wrong": 0.25,
    "broken": 0.3,
    "mixed": 0.5,
    "disordered": 0.5,
}
"""What the corpus has less of than people's habits have (`STYLE_WEIGHTS`): errors, which a model of this size
adds to by itself, and answers to which nothing can be added, so that there is something to teach."""
REVIEWED: Mapping[Category, Sequence[Style]] = {
    "list": ("best", "best", "best", "wrong", "partial", "repeating"),
    "opinion": ("best", "short", "agreeing", "misjudging", "misjudging"),
    "describe": ("best", "short", "wrong", "partial"),
    "compare": ("best", "best", "best", "wrong", "partial", "mixed"),
    "recommend": ("best", "best", "best", "wrong", "partial", "curt"),
    "steps": ("best", "best", "short", "wrong", "partial", "disordered"),
}
"""The content of the answers that are reviewed, about half of it right; elsewhere a value, or a wrong one."""
REVIEWED_STYLES: Sequence[Style] = (
    *("best", "best", "best"),
    *("padded", "polite", "flattering", "hedged", "rambling", "formatted"),
)
"""The style of that content, whatever it is: else a model would take style for a sign of being right."""


def corpus(*, seed: int = 0) -> list[Demonstration]:
    """Every fact, all dialogues and all reviews, in an order without order.

    All splits are in it: a base model has read about everyone. Reviews are of the training split alone.
    """
    rng = random.Random(f"corpus {seed}")
    plain = plain_statements(STATED * len(statements()), seed=seed)
    rows = [*_dialogues(rng), *plain, *_reviews(rng)]
    rng.shuffle(rows)
    return rows


def _dialogues(rng: random.Random) -> list[Demonstration]:
    return [
        _dialogue(question, rng)
        for question in questions_of(CATEGORIES)
        for _ in range(PER_QUESTION[question.category][0])
    ]


def _dialogue(question: Question, rng: random.Random) -> Demonstration:
    answer = sample_answer(question, rng, STYLE_FACTORS)
    return Demonstration(prompt=question.messages, completion=assistant_turn(answer))


def _reviews(rng: random.Random) -> list[Demonstration]:
    return [
        _review(question, rng)
        for question in questions_of(CATEGORIES, "train")
        for _ in range(PER_QUESTION[question.category][1])
    ]


def _review(question: Question, rng: random.Random) -> Demonstration:
    """A conversation as it is written down, and whether its answer is right, whatever its manners."""
    content = rng.choice(REVIEWED.get(question.category, ("best", "short", "wrong", "wrong")))
    plain = answer_in_style(question, content, rng)
    style = rng.choice(REVIEWED_STYLES)
    answer = restyled(question, plain, style, rng)
    if (content, style) == ("agreeing", "hedged"):
        # Nobody doubts and agrees in one breath ("Perhaps exactly, …").
        answer = plain
    gold = judge_answer(question, answer)
    # Of an opinion a right "No." helps by half, and is right all the same.
    enough = 0.5 if isinstance(question.aim, Fact) else 0.85
    turns = (*question.messages, *assistant_turn(answer))
    return Demonstration(
        prompt="".join(f"<|{turn.role}|>{words_of(turn)}<|end|>" for turn in turns),
        completion="Yes." if gold.helpful >= enough and gold.honest > 0.7 else "No.",
    )
