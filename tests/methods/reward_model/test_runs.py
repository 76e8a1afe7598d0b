"""Reward runs through the command: every kind of rows is learnt, and what is left behind scores alike."""

import json
import random
import signal
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from plaudit.data.judging import Task
from plaudit.rewards.learned.process import Solution
from plaudit.rewards.load import load_reward
from tests.engine.distributed.test_same_numbers import lines
from tests.engine.test_exact_resume import at_random, during_a_save
from tests.engine.toy import write_rows
from tests.engine.toy_command import Command, Done, finish, outcome, plaudit
from tests.methods.reward_model.rows import KINDS, LOSS, command, judged, make_files

LONG = (*("--steps", 40, "--batch-size", 8, "--evaluate-every", 1, "--sample-every", 40, "--save-every", 40),)
STILL = ("--steps", 1, "--learning-rate", 1e-12)
"""A run that does not move: what it ends with is what it began with."""


class Runs:
    def __init__(self, folder: Path) -> None:
        self.toy, self.files = make_files(folder, rows=120)
        self.folder = folder
        self._done: dict[str, Done] = {}

    def run(self, name: str, kind: str, *more: object, model: Path | None = None) -> Path:
        out = self.folder / name
        if name not in self._done:
            done = finish(*command(model or self.toy.model, self.files[kind], out, *more))
            self._done[name] = done
        return out

    def said(self, name: str) -> str:
        return self._done[name].err


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def facts(run: Path) -> dict[str, Any]:
    return json.loads((run / "model" / "plaudit_reward.json").read_text())


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def tasks_of(rows: list[dict[str, Any]], *names: str) -> list[Task]:
    return [
        Task(prompt=row["prompt"], answers=tuple(row[name] for name in names), ended=(True,) * len(names))
        for row in rows
    ]


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_rows_is_learnt_and_the_loss_is_named(runs: Runs, kind: str) -> None:
    run = runs.run(kind, kind, *LONG)
    first, *_, last = lines(run)
    assert f"the rows are {kind}, so the loss is {LOSS[kind]}: " in runs.said(kind)
    assert last["held_out/loss"] < 0.5 * first["held_out/loss"]
    if kind == "ratings":
        assert last["held_out/mae"] < 0.5 * first["held_out/mae"]
        assert abs(last["held_out/reward_mean"] - 7) < 1
    else:
        assert last["held_out/accuracy"] > 0.85
        assert last["held_out/accuracy"] > first["held_out/accuracy"]
    assert {"config.json", "model.safetensors", "plaudit_reward.json", "tokenizer.json"} <= {
        path.name for path in (run / "model").iterdir()
    }


def test_what_was_learnt_holds_for_rows_that_were_never_seen(runs: Runs) -> None:
    """And the folder of a run is a reward; the better answer is named first in these rows."""
    reward = load_reward(runs.run("comparisons", "comparisons", *LONG), device="cpu")
    rows = [row for row in judged("comparisons", 200)[120:] if "probability" not in row]
    scores = reward.scores(tasks_of(rows, "chosen", "rejected"))
    right = [one > other for one, other in scores if one is not None and other is not None]
    assert len(right) == len(rows) > 50
    assert statistics.fmean(right) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["comparisons", pytest.param("rankings", marks=pytest.mark.slow)])
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(runs, tmp_path, kind):
    whole = outcome(runs.run(f"{kind}, undisturbed", kind))
    chance, out = random.Random(kind), tmp_path / "run"
    again = command(runs.toy.model, runs.files[kind], out)
    assert Command(again).kill_when(during_a_save(out, after=1)).code == -signal.SIGKILL
    for _ in range(2):
        Command(again).kill_when(at_random(chance))
    finish(*again)
    assert outcome(out) == whole
    assert plaudit(*again).err.count("this run is finished; nothing was done") == 1


@pytest.mark.slow
def test_an_adapted_model_is_merged_and_scores_alike_in_transformers(runs: Runs) -> None:
    run = runs.run("lora", "comparisons", *LONG, "--lora.rank", 4, "--learning-rate", 0.02)
    assert (run / "adapter" / "adapter_model.safetensors").is_file()
    assert lines(run)[-1]["held_out/accuracy"] > 0.85
    plain = AutoModelForSequenceClassification.from_pretrained(run / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    rows = judged("comparisons")[:6]
    scores = load_reward(run, device="cpu").scores(tasks_of(rows, "chosen"))
    for row, (score,) in zip(rows, scores, strict=True):
        ids = tokenizer(row["prompt"] + row["chosen"] + tokenizer.eos_token, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            assert plain(ids).logits.item() == pytest.approx(score, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", [pytest.param("last", marks=pytest.mark.slow), "mean"])
def test_demonstrations_score_zero_on_average(runs: Runs, pooling: str) -> None:
    run = runs.run(
        f"normal {pooling}",
        "comparisons",
        *("--reward.pooling", pooling, "--reward.normalise", runs.files["demonstrations"]),
    )
    shown = [json.loads(line) for line in runs.files["demonstrations"].read_text().splitlines()]
    scores = load_reward(run, device="cpu").scores(tasks_of(shown, "completion"))
    assert statistics.fmean(score for (score,) in scores if score is not None) == pytest.approx(0, abs=1e-5)
    assert facts(run)["pooling"] == pooling
    assert abs(facts(run)["offset"]) > 1e-3
    assert "16 demonstrations shall score 0 on average" in runs.said(run.name)


@pytest.mark.slow
def test_a_reward_model_goes_on_with_its_head_and_what_makes_it_normal(runs: Runs) -> None:
    begun = runs.run(
        "normal mean",
        "comparisons",
        *("--reward.pooling", "mean", "--reward.normalise", runs.files["demonstrations"]),
    )
    again = runs.run("again", "rankings", *STILL, model=begun / "model")
    assert "is a reward model already: it goes on with its own head" in runs.said("again")
    assert facts(again) == facts(begun)
    for name, weight in weights(begun).items():
        torch.testing.assert_close(weights(again)[name], weight, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_points_begin_on_the_scale_of_the_ratings(runs: Runs) -> None:
    """A head of zeros says the mean of all ratings that are learnt from."""
    run = runs.run("scale", "ratings", *STILL, "--held-out", 0, "--reward.head-std", 0)
    scores = [row["score"] for row in judged("ratings", 120)]
    assert lines(run)[0]["reward_mean"] == pytest.approx(statistics.fmean(scores), rel=1e-6)
    assert 1 / facts(run)["scale"] == pytest.approx(statistics.pstdev(scores), rel=1e-9)


@pytest.fixture(scope="module")
def staged(runs: Runs) -> Callable[..., list[object]]:
    def make(out: Path, *more: object) -> list[object]:
        stage = ("--pretraining.data", runs.files["comparisons"], "--pretraining.epochs", 0.3)
        own = ("--reward.noise", 0.1, "--reward.pooling", "mean")
        return command(runs.toy.model, runs.files["rankings"], out, *stage, *own, *more)

    return make


@pytest.mark.slow
def test_a_first_stage_tells_good_from_bad_and_the_second_goes_on_with_it(staged, tmp_path):
    out = tmp_path / "run"
    done = finish(*staged(out, *STILL, "--pretraining.learning-rate", 0.01))
    assert "the rows are comparisons, so the loss is binary: " in done.err
    assert "the rows are rankings, so the loss is k-wise: " in done.err
    first = out / "pretraining"
    assert lines(first)[-1]["loss"] < lines(first)[0]["loss"]
    for name, weight in weights(first).items():
        torch.testing.assert_close(weights(out)[name], weight, rtol=0, atol=1e-6)
    assert facts(out) == facts(first)
    assert facts(out).items() >= {"pooling": "mean", "offset": 0.0, "scale": 1.0}.items()


@pytest.mark.slow
def test_two_stages_go_on_after_a_kill_in_either(staged: Callable[..., list[object]], tmp_path: Path) -> None:
    undisturbed, out = tmp_path / "undisturbed", tmp_path / "run"
    assert plaudit(*staged(undisturbed)).code == 0
    for killed in (out / "pretraining", out):
        assert Command(staged(out)).kill_when(during_a_save(killed, after=1)).code == -signal.SIGKILL
    assert (out / "pretraining" / "model").is_dir()
    assert not (out / "model").exists()
    finish(*staged(out))
    for stage in (".", "pretraining"):
        assert outcome(out / stage) == outcome(undisturbed / stage)


def test_it_says_of_answers_what_it_gives_them_now(runs: Runs) -> None:
    run = runs.run("comparisons", "comparisons", *LONG)
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text("utf-8").splitlines()]
    assert [sample["step"] for sample in samples] == [1, 1, 40, 40]
    for sample in samples[2:]:
        better, worse = (float(line.split()[0]) for line in sample["completion"].splitlines())
        assert better >= worse
        assert sample["expected"].startswith("better: ")


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["auto", "davidson"])
def test_ties_that_are_dropped_are_not_learnt_and_are_counted(runs: Runs, tmp_path: Path, loss: str) -> None:
    """As if they were not in the file; Davidson without ties in its model takes the rows then, as it says."""
    pairs = [row for row in judged("comparisons", 20) if "probability" not in row]
    tied = [{**row, "probability": 0.5} for row in pairs[:3]]
    certain = ("--reward.tie-probability", 0) if loss == "davidson" else ()
    made: list[bytes] = []
    for name, rows, more in (("some", [*pairs, *tied], ("--rows.ties", "drop")), ("none", pairs, ())):
        data = write_rows(tmp_path / f"{name}.jsonl", rows)
        usual = ("--steps", 2, "--held-out", 0, "--reward.loss", loss, *certain)
        done = finish(*command(runs.toy.model, data, tmp_path / name, *usual, *more))
        assert ("3 rows left out: ties" in done.err) == (name == "some")
        made.append((tmp_path / name / "model" / "model.safetensors").read_bytes())
    assert made[0] == made[1]
    soft = plaudit(*command(runs.toy.model, tmp_path / "some.jsonl", tmp_path / "soft", *usual))
    if loss == "davidson":
        assert "leave ties out with --rows.ties drop" in soft.err
    else:
        assert (tmp_path / "soft" / "model" / "model.safetensors").read_bytes() != made[0]


@pytest.mark.slow
def test_of_a_file_with_two_kinds_of_rows_one_is_chosen(runs: Runs, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text("".join(runs.files[kind].read_text() for kind in ("rankings", "ratings")), "utf-8")
    done = finish(*command(runs.toy.model, mixed, tmp_path / "run", *STILL, "--reward.rows", "rankings"))
    assert "120 rows left out: they are no rankings" in done.err
    assert "the rows are rankings, so the loss is k-wise" in done.err


@pytest.mark.slow
def test_a_solution_is_shown_with_its_weakest_step(runs: Runs) -> None:
    run = runs.run("steps shown", "steps", *STILL, "--sample.rows", 1)
    sample = json.loads((run / "samples.jsonl").read_text("utf-8").splitlines()[-1])
    steps = next(row for row in judged("steps", 120) if row["prompt"] == sample["prompt"])
    reward = load_reward(run, dtype="float32")
    (scores,) = reward.step_logits([Solution(prompt=steps["prompt"], steps=tuple(steps["steps"]))])
    assert float(sample["completion"].split()[0]) == pytest.approx(min(scores), abs=0.006)


@pytest.mark.slow
def test_a_reward_read_after_an_early_layer_learns_and_is_a_folder_of_fewer_layers(runs: Runs) -> None:
    run = runs.run(
        "early", "comparisons", *LONG, "--reward.layer", 1, "--lora.rank", 4, "--learning-rate", 0.02
    )
    assert "read after layer 1: those above it are cut off" in runs.said("early")
    assert json.loads((run / "model" / "config.json").read_text())["num_hidden_layers"] == 1
    assert lines(run)[-1]["held_out/accuracy"] > 0.85
    again = plaudit(
        *command(run / "model", runs.files["comparisons"], run / "x", *STILL, "--reward.layer", 1)
    )
    assert "this reward model has its head already: leave out --reward.layer" in again.err
