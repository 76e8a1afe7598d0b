"""Tasks in the words of the zoo's tokenizer, and what transformers alone says of them."""

import random
from collections.abc import Sequence
from pathlib import Path

from plaudit.data.judging import Task
from plaudit.data.records import Message, assistant_turn, user_turn
from plaudit.models.reward_model import RewardModel
from plaudit.rewards.base import TaskScores
from plaudit.rewards.learned.scalar import LearnedReward
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import make_encoder
from tests.models.reward_zoo import fresh, plain_values, saved, start


def said(count: int, seed: int) -> str:
    chance = random.Random(seed)
    return " ".join(f"w{chance.randint(10, 58)}" for _ in range(count))


def task(*lengths: int, asked: int = 4, seed: int = 0) -> Task:
    answers = tuple(answer(length, seed * 100 + a) for a, length in enumerate(lengths))
    return Task(prompt=user_turn(said(asked, seed)), answers=answers, ended=(True,) * len(answers))


def answer(length: int, seed: int) -> tuple[Message, ...]:
    return assistant_turn(said(length, 1000 + seed))


def tasks(count: int = 12) -> list[Task]:
    chance = random.Random(1)
    return [
        task(
            *(chance.randint(1, 30) for _ in range(chance.randint(1, 4))),
            asked=chance.randint(1, 12),
            seed=seed,
        )
        for seed in range(count)
    ]


def scorer(
    where: Path, name: str = "llama", *, tokens_at_once: int = 8192
) -> tuple[LearnedReward, RewardModel]:
    folder = start(where, name)
    model = fresh(folder)
    return LearnedReward("fresh", model, make_encoder(folder), tokens_at_once=tokens_at_once), model


def scorer_folder(where: Path, name: str = "llama", *, seed: int = 0) -> Path:
    from plaudit.models.reward_model import FreshHead

    where.mkdir(parents=True, exist_ok=True)
    begun = start(where, name)
    return saved(where, begun, fresh(begun, FreshHead(seed=seed)))[0]


def by_transformers(folder: Path, model: RewardModel, asked: Sequence[Task]) -> list[TaskScores]:
    """The head at each answer's last token, one conversation at a time."""
    encoder = make_encoder(folder)
    values = [plain_values(model, batch_of([encoder.encode(one.prompt, list(one.answers))])) for one in asked]
    return [tuple(float(value_T[-1]) for value_T in one) for one in values]


def apart(rows: Sequence[TaskScores], others: Sequence[TaskScores]) -> float:
    """The largest difference between scores, all of which must be there."""
    assert [len(row) for row in rows] == [len(row) for row in others]
    pairs = [pair for row, other in zip(rows, others, strict=True) for pair in zip(row, other, strict=True)]
    assert pairs
    return max(abs(known(one) - known(other)) for one, other in pairs)


def known(score: float | None) -> float:
    assert score is not None
    return score
