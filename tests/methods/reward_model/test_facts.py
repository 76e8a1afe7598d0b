"""Facts of prompts (Fact-RLHF): a reward that reads them knows what no other can, and asks for them."""

import random
from pathlib import Path
from typing import Any

import pytest

from plaudit.data.formats.layout import ReadOptions
from plaudit.data.read import read_records
from plaudit.data.records import Record, Task, answers_of, record_to_dict
from plaudit.rewards.learned.scalar import LearnedReward
from plaudit.rewards.load import load_reward
from plaudit.tokens.encode import make_encoder
from tests.commands import commands
from tests.engine.toy import make_toy, write_rows

train, _ = commands("train", "reward", quick=("--device", "cpu"))


def rows(count: int) -> list[dict[str, Any]]:
    """Which of two answers is right only the facts say."""
    chance = random.Random(count)
    made = []
    for number in range(count):
        best, other = chance.sample(["red", "old"], 2)
        question = f"{count} {number} the mat?"
        chosen, rejected = ([{"role": "assistant", "content": word}] for word in (best, other))
        prompt = [{"role": "user", "content": question}]
        made.append({"prompt": prompt, "chosen": chosen, "rejected": rejected, "caption": best})
    return made


def task(record: Record) -> Task:
    return Task(prompt=record.prompt, answers=answers_of(record), ended=(True, True))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("facts")
    make_toy(folder)
    write_rows(folder / "rows.jsonl", rows(400))
    write_rows(folder / "test.jsonl", rows(40))
    return folder


@pytest.mark.parametrize(("flag", "least", "most"), [("--reward.facts", 0.95, 1), ("--seed=1", 0.2, 0.8)])
def test_with_them_a_reward_learns_what_it_cannot_without(runs, capsys, flag, least, most):
    out = runs / flag
    told = ("--held-out", runs / "test.jsonl", "--columns", "facts=caption", "--epochs", 6)
    how = ("--learning-rate", 0.01, "--batch-size", 20, flag)
    train(capsys, "--model", runs / "base", "--data", runs / "rows.jsonl", "--out", out, *told, *how)
    reward = load_reward(out, device="cpu")
    assert isinstance(reward, LearnedReward)
    options = ReadOptions(columns=("facts=caption",))
    records = [*read_records(runs / "test.jsonl", options=options).records]
    scores = reward.scores([task(record) for record in records])
    right = [best > other for best, other in scores if best is not None and other is not None]
    assert least <= sum(right) / len(records) <= most
    # What it learnt with stands in its folder: rows without facts have no score by it, and a reason.
    bare = read_records(runs / "test.jsonl", options=ReadOptions(leave_out=("caption",))).records[0]
    [result] = reward.score_tasks([task(bare)]).rows
    assert (result == (None, None)) == (flag == "--reward.facts")
    assert any("field facts" in reason for reason in reward.refused) == (flag == "--reward.facts")


def test_a_policy_is_never_shown_them_and_they_stay_with_written_rows(runs: Path) -> None:
    encoder = make_encoder(runs / "base")
    [told, *_] = read_records(runs / "test.jsonl", options=ReadOptions(columns=("facts=caption",))).records
    [bare, *_] = read_records(runs / "test.jsonl", options=ReadOptions(leave_out=("caption",))).records
    assert encoder.encode_prompt(told.prompt) == encoder.encode_prompt(bare.prompt)
    [again] = read_records([record_to_dict(told)]).records
    assert again.prompt == told.prompt != bare.prompt
