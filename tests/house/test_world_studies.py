"""The studies of docs/reward-models.md run from rows to tables, here with a hundredth of their rows."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import (
    ai_labels,
    attacks,
    constitutional,
    lab,
    policy_lab,
    policy_rewards,
    preference_lab,
    studies,
    world_policies,
    world_preferences,
    world_rewards,
)
from plaudit.data.judging import BothWays
from plaudit.feedback.asking import ModelJudgeSettings
from plaudit.feedback.judges.modes import HowToAsk
from plaudit.lab.world.making import answer_tasks
from plaudit.lab.world.minds import Mind
from plaudit.rewards.comparing import judge_named


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FEW": 40, "SEEDS": 1, "TESTED": 60}.items():
        monkeypatch.setattr(world_rewards, name, value)
    monkeypatch.setattr(lab, "SHOWN", 40)


def made(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("model/model.safetensors")}


@pytest.mark.slow
def test_studies_print_their_tables_and_go_on_where_they_were(small, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["world_rewards", "--out", str(tmp_path), "--only", "flips", "ensembles"]
    )
    studies.run_studies(world_rewards.__doc__, world_rewards.STUDIES)
    first = capsys.readouterr().out
    flips = (tmp_path / "flips.md").read_text("utf-8").splitlines()
    assert flips[0] == "| labels | what the loss believes | accuracy | log-loss | Brier | mean margin |"
    assert [row.split(" | ")[0] for row in flips[2:]] == ["| 0% swapped"] * 3 + ["| 10% swapped"] * 3
    quarters = (tmp_path / "ensembles.md").read_text("utf-8").splitlines()[2:]
    assert [row.split()[1] for row in quarters] == ["least", "second", "third", "most", "all"]
    weights = made(tmp_path)
    assert len(weights) == 11, "the starting model, six kinds of labels and losses, four members"
    studies.run_studies(world_rewards.__doc__, world_rewards.STUDIES)
    assert capsys.readouterr().out == first
    assert made(tmp_path) == weights


@pytest.mark.slow
def test_studies_of_preferences_print_their_tables(tmp_path, monkeypatch, capsys):
    for module, name, value in (
        (preference_lab, "ROWS", 40),
        (preference_lab, "PROMPTS", 16),
        (preference_lab, "SHOWN", 40),
        (world_preferences, "SHOWN", 40),
    ):
        monkeypatch.setattr(module, name, value)
    words = ["world_preferences", "--out", str(tmp_path), "--only", "references", "precomputing"]
    words += ["--seeds", "2"]
    monkeypatch.setattr(sys, "argv", words)
    studies.run_studies(world_preferences.__doc__, world_preferences.STUDIES)
    references = (tmp_path / "references.md").read_text("utf-8").splitlines()
    assert [row.split(" | ")[0].split("(")[-1] for row in references[2:]] == ["dpo)", "tr-dpo)", "sdpo)"]
    precomputing = (tmp_path / "precomputing.md").read_text("utf-8").splitlines()
    assert [row.split(" | ")[0] for row in precomputing[2:]] == [
        "| beside the policy",
        "| computed before",
        "| found on disk",
    ]
    assert "± " in capsys.readouterr().out


@pytest.mark.slow
def test_studies_of_policies_print_their_tables(tmp_path, monkeypatch, capsys):
    for module, name, value in (
        (preference_lab, "PROMPTS", 16),
        (policy_lab, "PROMPTS", 16),
        (preference_lab, "ROWS", 40),
        (policy_lab, "ROUNDS", 1),
        (policy_lab, "ANSWERS", 16),
        (policy_lab, "SHOWN", 40),
        (policy_rewards, "SHOWN", 40),
        (policy_rewards, "ROWS", 40),
        (world_policies, "SHOWN", 40),
        (world_policies, "WAYS", {name: replace(way, rounds=1) for name, way in world_policies.WAYS.items()}),
    ):
        monkeypatch.setattr(module, name, value)
    words = ["world_policies", "--out", str(tmp_path), "--only", "policies", "policy-betas"]
    words += ["--seeds", "1"]
    monkeypatch.setattr(sys, "argv", words)
    studies.run_studies(world_policies.__doc__, world_policies.STUDIES)
    policies = (tmp_path / "policies.md").read_text("utf-8").splitlines()[2:]
    assert [row.split(" | ")[0] for row in policies] == [
        "| (the start)",
        *(f"| {w}" for w in world_policies.WAYS),
    ]
    betas = (tmp_path / "policy-betas.md").read_text("utf-8").splitlines()[2:]
    assert [row.split(" | ")[0] for row in betas] == ["| 0.001", "| 0.02", "| 0.5"]
    ppo = [row for row in policies if row.startswith("| PPO ")]
    assert ppo[0].split(" | ")[1] == betas[2].split(" | ")[1], "the same run in both tables"
    assert "PPO by the coefficient" in capsys.readouterr().out


@pytest.mark.slow
def test_the_study_of_constitutional_ai_prints_its_tables_and_goes_on(tmp_path, monkeypatch, capsys):
    for name, value in {"TAUGHT": 64, "SHOWN": 40, "DRAFTS": 1, "PAIRS": 40, "TESTED": 16}.items():
        monkeypatch.setattr(constitutional, name, value)
    monkeypatch.setattr(
        constitutional,
        "TEACHINGS",
        {"usual": constitutional.Teaching(), "half": constitutional.Teaching(halved=True)},
    )
    monkeypatch.setattr(sys, "argv", ["constitutional", "--out", str(tmp_path), "--seeds", "1"])
    studies.run_studies(constitutional.__doc__, constitutional.STUDIES)
    first = capsys.readouterr().out
    rows = {
        name: [line.split(" | ")[0] for line in (tmp_path / f"{name}.md").read_text("utf-8").splitlines()[2:]]
        for name in constitutional.STUDIES
    }
    assert rows == {
        "rounds": ["| as they were", "| after a round", "| after two"],
        "stages": ["| helpful-only", "| SFT on revisions", "| then DPO on a judge's labels"],
        "clair": ["| revised (CLAIR)", "| judged"],
        "failures": ["| usual", "| half"],
    }
    weights = made(tmp_path)
    assert len(weights) == 7, "two that revise, the helpful-only start, SFT, DPO, and APO-zero twice"
    studies.run_studies(constitutional.__doc__, constitutional.STUDIES)
    assert capsys.readouterr().out == first
    assert made(tmp_path) == weights


def test_a_mind_of_the_studies_says_what_it_says_as_any_model(tmp_path: Path) -> None:
    mind = "Mind(name='mine', accuracy=0.7, place=0.3, seed=2)"
    file = tmp_path / "mine.py"
    file.write_text(f"from plaudit.lab.world.minds import Mind\nmine = {mind}\n", encoding="utf-8")
    settings = ModelJudgeSettings(ask=HowToAsk(how="letter"), cache=tmp_path / "replies", soft=True)
    tasks = answer_tasks(20, answers=2, split="train", seed=1)
    model = judge_named(f"call:{file}:mine", settings).verdicts(tasks, 0)
    quick = BothWays(judge=ai_labels.LetterMind(mind=Mind(name="mine", accuracy=0.7, place=0.3, seed=2)))
    assert [verdict and verdict.orders for verdict in quick.verdicts(tasks, 0)] == [
        verdict and verdict.orders for verdict in model
    ]


@pytest.mark.slow
def test_studies_of_judges_labels_print_their_tables(tmp_path, monkeypatch, capsys):
    small = {"SIZES": {150: (8, 100)}, "MINDS": 2, "SEEDS": 2, "LABELS": 40, "TESTED": 60, "PROMPTS": 8}
    for name, value in {**small, "SHOWN": 40, "CHOICES": 2}.items():
        monkeypatch.setattr(ai_labels, name, value)
    monkeypatch.setattr(sys, "argv", ["ai_labels", "--out", str(tmp_path)])
    studies.run_studies(ai_labels.__doc__, ai_labels.STUDIES)
    coverage = (tmp_path / "coverage.md").read_text("utf-8").splitlines()[2:]
    assert len(coverage) == 3, "calibrated, too sure, liking length"
    held = [float(cell.strip(" |%")) for row in coverage for cell in row.split(" | ")[1:] if "%" in cell]
    assert min(held) >= 50
    places = (tmp_path / "places.md").read_text("utf-8").splitlines()[2:]
    assert [row.split(" | ")[0] for row in places] == ["| 0", "| 0.25", "| 0.5"]
    assert "± 0.0%" in places[0].split(" | ")[6], "fair in both orders: exactly one half is shown first"
    rows = (tmp_path / "rlaif.md").read_text("utf-8").splitlines()[2:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows][:3] == [*ai_labels.LABELLED]
    assert "less" in rows[-1]
    assert "as often right" in capsys.readouterr().out


@pytest.mark.slow
def test_the_study_of_attacks_shows_that_a_wall_resists_and_refuses_everything(tmp_path, monkeypatch, capsys):
    for name, value in {
        "SHOWN": 60,
        "REVISED": 12,
        "PAIRS": 12,
        "FEWER": {"n": 3, "without_twins": True},
    }.items():
        monkeypatch.setattr(attacks, name, value)
    monkeypatch.setattr(sys, "argv", ["attacks", "--out", str(tmp_path), "--seeds", "1"])
    studies.run_studies(attacks.__doc__, attacks.STUDIES)
    assert "Attacks that work" in capsys.readouterr().out
    rows = (tmp_path / "policies.md").read_text("utf-8").splitlines()[2:]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == [*attacks.POLICIES]
    assert rows[-1].split(" | ")[1].startswith("0.0%")
    assert float(rows[-1].split(" | ")[-1].split("%")[0]) > 80, "so few rows teach it nearly"
    assert len((tmp_path / "mirrored.md").read_text("utf-8").splitlines()) == 2 + len(attacks.POLICIES)
    assert len((tmp_path / "ways.md").read_text("utf-8").splitlines()) == 2 + 4
