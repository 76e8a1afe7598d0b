"""Ways to break a reward: functions of a user's own, wrappers that mix scores up, reward models misread."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from plaudit.data.judging import Task
from plaudit.data.records import plain_text
from plaudit.models.reward_model import RewardModel, new_reward_model, save_reward_model
from plaudit.preflight.check import PreflightSubject
from plaudit.rewards.base import Reward, TaskScores
from plaudit.tokens.batch import TokenBatch
from plaudit.tokens.encode import make_encoder
from tests.engine.toy import TEMPLATE

OWN = """\
import random

CALLS = []

def not_a_number(answer):
    return float("nan")

def raises(answer):
    return len(answer[0][999])

def raises_of_nothing(answer):
    return ord(str(answer)[0])

def nothing(answer):
    return None

def by_chance(answer):
    return random.random()

def counting(answer):
    CALLS.append(answer)
    return len(CALLS)

def always(answer):
    return 0.5

def by_prompt(answer, prompt):
    return len(str(prompt))

def letters(answer):
    return len(str(answer)) / 100
"""
MOODY = frozenset({"reward-deterministic", "reward-order", "reward-batching"})
"""Who sees a reward that says something else each time."""
FUNCTIONS: dict[str, tuple[frozenset[str], str]] = {
    "not_a_number": (frozenset({"reward-finite"}), "it gave nan"),
    "raises": (frozenset({"reward-finite"}), "it raised"),
    "raises_of_nothing": (frozenset({"reward-finite"}), "it raised"),
    "nothing": (frozenset({"reward-finite"}), "no verdict on any of 13 answers"),
    "by_chance": (MOODY, "asked twice it is"),
    "counting": (MOODY, "asked twice it is"),
    "always": (frozenset({"reward-variance"}), "12 scores from 0.5 to 0.5; the answers to 0 of 4 prompts"),
    "by_prompt": (frozenset({"reward-variance"}), "the answers to 0 of 4 prompts differ in score, 12"),
}
"""Each function, the checks that must fail, and what one of them says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    reward: Reward
    mix: Callable[[Sequence[Task], tuple[TaskScores, ...]], tuple[TaskScores, ...]]
    """What becomes of its scores."""

    @property
    def name(self) -> str:
        return self.reward.name

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """Of the answers, but not to each its own."""
        return self.mix(tasks, self.reward.scores(tasks))


def _by_place(tasks: Sequence[Task], rows: tuple[TaskScores, ...]) -> tuple[TaskScores, ...]:
    return tuple(tuple((score or 0.0) + (not place) for place, score in enumerate(row)) for row in rows)


def _less_the_mean(tasks: Sequence[Task], rows: tuple[TaskScores, ...]) -> tuple[TaskScores, ...]:
    known = [score for row in rows for score in row if score is not None]
    middle = sum(known) / len(known)
    return tuple(tuple(None if score is None else score - middle for score in row) for row in rows)


def _by_length(tasks: Sequence[Task], rows: tuple[TaskScores, ...]) -> tuple[TaskScores, ...]:
    """Scores in the order of the answers' lengths, never put back."""
    return tuple(
        tuple(
            score
            for _, score in sorted(
                zip(task.answers, row, strict=True), key=lambda one: len(plain_text(one[0]))
            )
        )
        for task, row in zip(tasks, rows, strict=True)
    )


def _one_short(tasks: Sequence[Task], rows: tuple[TaskScores, ...]) -> tuple[TaskScores, ...]:
    return tuple(row[:-1] for row in rows)


MIXES: dict[str, tuple[Callable[..., Any], frozenset[str], str]] = {
    "by its place": (
        _by_place,
        frozenset({"reward-order", "reward-batching"}),
        "in the opposite order it is",
    ),
    "less the mean": (_less_the_mean, frozenset({"reward-batching"}), "asked about it alone it is"),
    "sorted": (_by_length, frozenset({"reward-order", "reward-batching"}), "asked about it alone it is"),
    "one short": (_one_short, frozenset({"reward-finite"}), "3 scores for 4 answers"),
}
"""Each mix, the checks that must fail, and what one of them says."""


def reads_the_end(model: RewardModel, batch: TokenBatch) -> torch.Tensor:
    """At the last column of a batch, padding or not: the token that the longest answer ends with."""
    return model(batch, lambda inputs: inputs.own_NT[:, -1])


def reads_one_early(model: RewardModel, batch: TokenBatch) -> torch.Tensor:
    """One token before the end."""
    return model(
        batch, lambda inputs: inputs.own_NT.gather(1, (batch.length_N[:, None] - 2).clamp(min=0))[:, 0]
    )


def misread(
    subject: PreflightSubject, reader: Callable[[RewardModel, TokenBatch], torch.Tensor]
) -> PreflightSubject:
    scorer = subject.scorer
    assert scorer is not None
    other = RewardModel(scorer.model, layout=scorer.layout)
    other.rewards = partial(reader, other)
    return replace(subject, scorer=other)


def pads_with_the_end(subject: PreflightSubject) -> PreflightSubject:
    """Its padding token is the end of a turn."""
    assert subject.scorer is not None
    subject.scorer.base.config.get_text_config().pad_token_id = subject.encoder.stop_ids[0]
    return subject


def scorer_folder(base: Path, folder: Path, template: str | None = TEMPLATE) -> Path:
    """A reward model around a base's layers, saved, with a chat template or without one."""
    encoder = make_encoder(base)
    model = new_reward_model(base, encoder=encoder, dtype=torch.float32, device=torch.device("cpu"))
    save_reward_model(model, folder, template_of=base, encoder=encoder)
    path = folder / "chat_template.jinja"
    path.unlink()
    if template is not None:
        path.write_text(template)
    return folder


LOSES_WORDS = TEMPLATE.replace(
    "m['content']", "m['content'] | replace('cat' if m.role == 'user' else '\0', '')"
)
"""Writes every turn, and leaves a word of questions out."""
SHOUTS = TEMPLATE.replace("<|im_start|>", "### ").replace("m['content']", "m['content'] | trim")
"""Another way to write turns, which loses nothing."""


def write_functions(folder: Path) -> Path:
    path = folder / "mine.py"
    path.write_text(OWN)
    return path


def rename_control(folder: Path, old: str, new: str) -> None:
    """Give a control token another name in a tokenizer's files."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        path = folder / name
        path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
    json.loads((folder / "tokenizer.json").read_text("utf-8"))
