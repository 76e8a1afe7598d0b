"""Rewards of the world's own base model, on the world's own answers."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from plaudit.data.generative_judging import GenerativeRewardSettings
from plaudit.data.judging import Task
from plaudit.data.records import answers_of
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.annotators import annotator_pool
from plaudit.lab.world.making import rankings
from plaudit.models.reward_model import new_reward_model, save_reward_model
from plaudit.rewards.combine.manifest import ImplicitManifest, save_manifest
from plaudit.rewards.llm.generative import LANGUAGE_JUDGE_FILE, LanguageJudgeSpec
from plaudit.rewards.load import GenerativeReward, check_reward, load_reward
from plaudit.tokens.encode import make_encoder
from tests.models.reward_zoo import CPU
from tests.rewards.scorers import apart


@pytest.fixture(scope="module")
def asked() -> list[Task]:
    rows = rankings(10, annotator_pool("crowd"), answers=4, split="test", seed=0)
    return [Task(prompt=row.prompt, answers=answers_of(row), ended=(True,) * 4) for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base, out = base_model_folder(), tmp_path_factory.mktemp("world") / "reward"
    encoder = make_encoder(base)
    model = new_reward_model(base, encoder=encoder, dtype=torch.float32, device=CPU)
    save_reward_model(model, out, template_of=base, encoder=encoder)
    return out


def test_a_score_is_the_answers_own(folder: Path, asked: list[Task]) -> None:
    reward = load_reward(folder, device="cpu")
    together = reward.scores(asked)
    alone = [
        tuple(
            reward.scores([Task(prompt=task.prompt, answers=(answer,), ended=(True,))])[0][0]
            for answer in task.answers
        )
        for task in asked
    ]
    assert apart(together, alone) <= 1e-5
    assert len({score for row in together for score in row}) > 30


def test_a_judge_in_words_is_a_reward_by_its_folder(tmp_path: Path, asked: list[Task]) -> None:
    shutil.copytree(base_model_folder(), tmp_path / "judge/model")
    facts = LanguageJudgeSpec(settings=GenerativeRewardSettings(good="Yes", bad="No")).to_json()
    (tmp_path / "judge/model" / LANGUAGE_JUDGE_FILE).write_text(json.dumps(facts))
    check_reward(tmp_path / "judge")
    reward = load_reward(tmp_path / "judge", device="cpu")
    assert isinstance(reward, GenerativeReward)
    assert reward.name == "judge"
    assert len({score for row in reward.scores(asked) for score in row} - {None}) > 30


def test_the_base_model_is_no_likelier_than_itself(tmp_path: Path, asked: list[Task]) -> None:
    manifest = ImplicitManifest(policy=base_model_folder(), reference=base_model_folder(), beta=0.1)
    save_manifest(tmp_path / "none", manifest)
    rows = load_reward(tmp_path / "none", device="cpu").scores(asked)
    assert {score for row in rows for score in row} == {0.0}
