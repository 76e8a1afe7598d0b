"""Fine-tuning whose checkpoint is chosen by what a reward says of answers to held-out prompts."""

import json
from pathlib import Path
from typing import Any

import pytest

from plaudit.cli.main import main
from plaudit.errors import UserError
from plaudit.methods.config import AnswerJudgeSettings, SftConfig
from plaudit.methods.registry import run_method
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from tests.engine.toy import Toy, demonstrations, write_rows

GREEDY = SamplingSettings(temperature=0, max_tokens=12)
STEPS = {"steps": 6, "evaluate_every": 1, "save_every": 1, "learning_rate": 0.02}


@pytest.fixture
def judge(tmp_path: Path) -> str:
    """How many different words an answer has, and another reward that never has a verdict."""
    path = tmp_path / "mine.py"
    path.write_text(
        "def words(prompt, answer):\n    return len({*answer.split()})\n\n\n"
        "def nothing(prompt, answer):\n    return None\n",
        "utf-8",
    )
    return str(path)


def _figures(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


def _trained(toy: Toy, out: Path, by: str, **changes: Any) -> Path:
    settings = {"held_out": "0.2", **STEPS, **changes}
    judge = AnswerJudgeSettings(by=by, prompts=3, tokens=12)
    run_method(
        "sft",
        SftConfig(model=toy.model, data=toy.data, out=out, device="cpu", sinks=(), judge=judge, **settings),
    )
    return out / "model"


def test_the_checkpoint_with_the_best_answers_becomes_the_model(toy: Toy, tmp_path: Path, judge: str) -> None:
    held_out = [{**row, "prompt": f"And {row['prompt']}"} for row in demonstrations(5)]
    path = write_rows(tmp_path / "held-out.jsonl", held_out)
    model = _trained(toy, tmp_path / "run", f"{judge}:words", held_out=str(path))
    scores = [line["held_out/judge"] for line in _figures(tmp_path / "run")]
    losses = [line["held_out/loss"] for line in _figures(tmp_path / "run")]
    assert len(scores) == 6
    assert scores.index(max(scores)) != losses.index(min(losses)), "the loss would have chosen the same"
    # By hand: what the written model answers is worth the best score that was seen.
    answers = LocalSampler(model).generate_answers([row["prompt"] for row in held_out[:3]], GREEDY)
    counts = [len({*group[0].text.split()}) for group in answers]
    assert sum(counts) / len(counts) == pytest.approx(max(scores))
    assert {"held_out/length_mean", "held_out/frac_finished"} <= _figures(tmp_path / "run")[0].keys()


@pytest.mark.slow
def test_another_figure_may_choose(toy: Toy, tmp_path: Path, judge: str) -> None:
    words = ["--model", str(toy.model), "--data", str(toy.data), "--device", "cpu", "--steps", "2"]
    words += ["--out", str(tmp_path / "run"), "--held-out", "0.2", "--judge.by", f"{judge}:words"]
    best = ["--judge.tokens", "8", "--keep.best", "held_out/token_accuracy", "--keep.best-is", "highest"]
    assert main(["train", "sft", *words, *best]) == 0
    assert all("held_out/judge" in line for line in _figures(tmp_path / "run"))
    assert "best: held_out/token_accuracy" in (tmp_path / "run" / "config.yaml").read_text("utf-8")


def test_held_out_rows_of_a_share_are_asked_and_no_trained_one(toy: Toy, tmp_path: Path) -> None:
    seen = tmp_path / "seen.txt"
    (tmp_path / "mine.py").write_text(
        "def note(prompt, answer):\n"
        f"    with open({str(seen)!r}, 'a') as file:\n"
        "        file.write(prompt + chr(10))\n"
        "    return 1.0\n",
        "utf-8",
    )
    _trained(toy, tmp_path / "run", f"{tmp_path / 'mine.py'}:note", steps=1)
    asked = {*seen.read_text("utf-8").splitlines()}
    assert len(asked) == 3
    assert asked < {row["prompt"] for row in demonstrations(24)}


def test_what_cannot_choose_is_refused(toy: Toy, tmp_path: Path, judge: str) -> None:
    with pytest.raises(UserError, match="nothing: no answer to 3 held-out prompts got a verdict"):
        _trained(toy, tmp_path / "none", f"{judge}:nothing")
    with pytest.raises(UserError, match=r"judge\.by needs held-out rows"):
        _trained(toy, tmp_path / "all", f"{judge}:words", held_out="0")
    with pytest.raises(UserError, match="leave no room for a prompt"):
        _trained(toy, tmp_path / "long", f"{judge}:words", max_length=12)
