"""Several reward models of the same rows: different members, one reward, and nothing is trained twice."""

import json
import statistics
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from plaudit.data.judging import Task
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.rewards.load import load_reward
from tests.engine.test_exact_resume import during_a_save
from tests.engine.toy import Toy
from tests.engine.toy_command import Command, finish, outcome, plaudit, refused
from tests.methods.reward_model.rows import command, make_files

pytestmark = pytest.mark.slow

SHORT = ("--steps", 4, "--sample.rows", 0)
THREE = (*SHORT, "--ensemble.members", 3)
FINISHED = "this run is finished; nothing was done"
TASKS = [
    Task(prompt="1 the cat?", answers=(" two dogs.", " a red mat."), ended=(True, True)),
    Task(prompt="2 on a mat?", answers=(" old dogs run far.",), ended=(True,)),
]


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    toy, files = make_files(tmp_path_factory.mktemp("toy"), rows=24)
    return Toy(model=toy.model, data=files["comparisons"])


@pytest.fixture(scope="module")
def choir(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("choir") / "run"
    assert finish(*command(toy.model, toy.data, out, *THREE)).out == f"The model is in {out}\n"
    return out


def members(out: Path) -> list[Path]:
    return sorted((out / "members").iterdir())


def weights(run: Path) -> torch.Tensor:
    tensors = load_file(run / "model" / "model.safetensors")
    return torch.cat([tensors[name].flatten() for name in sorted(tensors)])


def figures(run: Path) -> list[object]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def scores(folder: Path) -> list[float]:
    rows = load_reward(folder, device="cpu").scores(TASKS)
    return [score for row in rows for score in row if score is not None]


def test_members_differ_and_what_they_say_together_is_a_reward(choir: Path) -> None:
    runs = members(choir)
    assert [run.name for run in runs] == ["0", "1", "2"]
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert float((weights(runs[one]) - weights(runs[other])).abs().max()) > 1e-3
    said = [scores(run) for run in runs]
    assert len({tuple(numbers) for numbers in said}) == 3
    wanted = [statistics.fmean(numbers) for numbers in zip(*said, strict=True)]
    assert scores(choir) == pytest.approx(wanted, abs=1e-6)
    assert len(scores(choir)) == 3
    assert not (choir / "model").exists()


def test_the_folder_can_be_moved_with_its_members(choir: Path, tmp_path: Path) -> None:
    before = scores(choir)
    moved = choir.rename(tmp_path / "moved")
    try:
        assert scores(moved) == before
    finally:
        moved.rename(choir)


def test_finished_members_are_not_trained_again(toy: Toy, choir: Path) -> None:
    before = [outcome(run) for run in members(choir)]
    done = plaudit(*command(toy.model, toy.data, choir, *THREE))
    assert done.code == 0
    assert done.err.count(FINISHED) == 3
    assert [outcome(run) for run in members(choir)] == before


@pytest.mark.slow
def test_members_that_were_killed_go_on_where_they_were(toy: Toy, choir: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command_ = command(toy.model, toy.data, out, *THREE)
    Command(command_).kill_when(during_a_save(out / "members" / "1", after=1))
    assert not (out / "combined.json").exists()
    assert finish(*command_).err.count(FINISHED) == 1
    assert [outcome(run) for run in members(out)] == [outcome(run) for run in members(choir)]
    assert scores(out) == scores(choir)


@pytest.mark.parametrize(
    ("more", "together"),
    [
        (("--ensemble.combine", "min"), min),
        (
            ("--ensemble.combine", "cautious", "--ensemble.caution", 2, "--no-ensemble.bootstrap"),
            lambda said: statistics.fmean(said) - 2 * statistics.pstdev(said),
        ),
    ],
    ids=["min", "cautious, without drawing rows"],
)
def test_they_are_combined_as_the_setting_says(toy, tmp_path, more, together):
    out = tmp_path / "run"
    finish(*command(toy.model, toy.data, out, *SHORT, "--ensemble.members", 2, *more))
    said = [scores(run) for run in members(out)]
    assert said[0] != said[1]
    assert scores(out) == pytest.approx([together(pair) for pair in zip(*said, strict=True)], abs=1e-5)


def test_one_member_can_be_trained_alone_and_is_the_same(toy: Toy, choir: Path, tmp_path: Path) -> None:
    out = tmp_path / "third"
    done = finish(*command(toy.model, toy.data, out, *THREE, "--ensemble.member", 2))
    assert outcome(out) == outcome(members(choir)[2])
    assert done.out == f"The model is in {out / 'model'}\n"


def test_members_draw_rows_of_their_own(choir: Path, toy: Toy, tmp_path: Path) -> None:
    """With one head for all, so that only the rows can make them differ."""
    out = tmp_path / "run"
    finish(*command(toy.model, toy.data, out, *THREE, "--reward.head-std", 0))
    losses = [figures(run) for run in members(out)]
    assert [loss[0] for loss in losses] != [figures(run)[0] for run in members(choir)]
    assert len({tuple(map(str, loss)) for loss in losses}) == 3


@pytest.mark.slow
def test_all_members_go_on_from_one_first_stage(toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "run"
    more = ("--pretraining.data", toy.data, "--ensemble.members", 2)
    finish(*command(toy.model, toy.data, out, *SHORT, *more))
    assert (out / "pretraining" / "model").is_dir()
    assert float((weights(members(out)[0]) - weights(members(out)[1])).abs().max()) > 1e-4
    assert plaudit(*command(toy.model, toy.data, out, *SHORT, *more)).err.count(FINISHED) == 3


def test_members_that_would_be_equal_are_refused_before_anything_is_trained(toy, choir, tmp_path):
    out, two = tmp_path / "run", (*SHORT, "--ensemble.members", 2, "--no-ensemble.bootstrap")
    for model, more in ((toy.model, ("--pretraining.data", toy.data)), (members(choir)[0] / "model", ())):
        assert "leave out --no-ensemble.bootstrap" in refused(*command(model, toy.data, out, *two, *more))
        assert not out.exists()


def test_the_config_that_is_left_behind_names_its_member(choir: Path) -> None:
    for number, run in enumerate(members(choir)):
        text = (run / "config.yaml").read_text()
        assert f"member: {number}\n" in text
        assert {setting.name for setting in fields(RewardConfig)} == {
            line.split(":")[0] for line in text.splitlines() if line[0] not in " -"
        }
