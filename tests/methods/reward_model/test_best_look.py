"""The best look's model is the result of a reward run, and overfitting is told of and not made up."""

import json
import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plaudit.engine.step_report import StepReport
from plaudit.methods.best_look import accuracy_gap, loss_rise
from plaudit.methods.config import RunConfig
from plaudit.methods.reward_model.config import RewardConfig
from tests.engine.test_exact_resume import during_a_save
from tests.engine.toy import Toy, make_toy, write_rows
from tests.engine.toy_command import Command, finish, outcome, plaudit
from tests.methods.reward_model.rows import answer, command, question

BY_HEART = ("--steps", 60, "--batch-size", 16, "--held-out", 0.4, "--evaluate-every", 6, "--save-every", 6)
"""Ten looks at rows whose labels were drawn: all that can be learnt of them is learnt by heart."""
EARLY = ("--keep.patience", 3, "--keep.use-best")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return drawn_labels(tmp_path_factory.mktemp("toy"), 80)


def drawn_labels(folder: Path, rows_of_it: int) -> Toy:
    chance = random.Random("coins")
    rows: list[dict[str, Any]] = [
        {
            "kind": "comparison",
            "prompt": question(chance, number),
            "chosen": answer(chance, chance.randint(0, 1)),
            "rejected": answer(chance, chance.randint(0, 1)),
        }
        for number in range(rows_of_it)
    ]
    return Toy(model=make_toy(folder).model, data=write_rows(folder / "coins.jsonl", rows))


def by_heart(toy: Toy, out: Path, *more: object) -> list[object]:
    return command(toy.model, toy.data, out, *BY_HEART, "--sample.rows", 0, *more)


@pytest.fixture(scope="module")
def overfit(toy: Toy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("overfit") / "run"
    assert finish(*by_heart(toy, out, *EARLY)).err.count("overfits: ") == 1
    return out


def summary_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text("utf-8"))


def looks_of(run: Path) -> dict[int, float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    return {line["step"]: line["held_out/loss"] for line in lines if "held_out/loss" in line}


def model_bytes(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_the_model_is_the_best_looks_and_patience_ends(toy: Toy, overfit: Path, tmp_path: Path) -> None:
    looks, summary = looks_of(overfit), summary_of(overfit)
    best = min(looks, key=looks.__getitem__)
    assert summary["selected"]["step"] == best
    assert summary["selected"]["values"]["held_out/loss"] == looks[best]
    assert summary["step"] == best + 3 * 6 < summary["steps"]
    # The same training again, with the end of it asked for at another place.
    last = tmp_path / "last"
    assert plaudit(*by_heart(toy, last, "--no-keep.use-best", "--keep.patience", 3)).code == 0
    assert looks_of(last) == looks
    assert model_bytes(last) != model_bytes(overfit)
    assert "selected" not in summary_of(last)
    assert any(note.endswith("the last model is kept") for note in summary_of(last)["notes"])


@pytest.mark.slow
def test_overfitting_is_told_in_the_result_and_on_the_page(overfit: Path) -> None:
    [note] = [note for note in summary_of(overfit)["notes"] if note.startswith("overfits: ")]
    step = summary_of(overfit)["selected"]["step"]
    assert f"held-out loss was best at step {step} of 60" in note
    assert note.endswith("; that model is kept")
    assert "of the rows that it learnt from" in note
    assert f"held-out loss was best at step {step} of 60" in (overfit / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_a_run_that_is_killed_on_its_way_to_an_early_end_leaves_the_same_model(toy, overfit, tmp_path):
    out = tmp_path / "run"
    killed = Command(by_heart(toy, out, *EARLY)).kill_when(during_a_save(out, after=1))
    assert killed.code == -signal.SIGKILL
    finish(*by_heart(toy, out, *EARLY))
    assert outcome(out) == outcome(overfit)
    assert summary_of(out)["selected"] == summary_of(overfit)["selected"]
    # What a run says at its end it says once, also where its result is written again.
    (out / "summary.json").unlink()
    assert plaudit(*by_heart(toy, out, *EARLY)).code == 0
    assert model_bytes(out) == model_bytes(overfit)
    assert sum(note.startswith("overfits: ") for note in summary_of(out)["notes"]) == 1


@pytest.mark.slow
def test_unasked_a_run_goes_to_its_end_and_keeps_a_look_that_was_better_beyond_noise(tmp_path: Path) -> None:
    toy = drawn_labels(tmp_path, 120)
    unasked, asked = tmp_path / "unasked", tmp_path / "asked"
    assert plaudit(*by_heart(toy, unasked)).code == 0
    assert plaudit(*by_heart(toy, asked, "--keep.use-best")).code == 0
    looks, summary = looks_of(unasked), summary_of(unasked)
    assert (summary["step"], summary["selected"]["step"]) == (60, min(looks, key=looks.__getitem__))
    assert model_bytes(unasked) == model_bytes(asked)
    assert not [note for note in summary["notes"] if "noise;" in note]


@pytest.mark.slow
def test_a_look_that_is_better_within_noise_is_told_of_and_the_last_model_kept(tmp_path: Path) -> None:
    """At the early end nothing is learnt by heart yet, and the best of the looks is so by chance."""
    toy = drawn_labels(tmp_path, 160)
    runs = {name: tmp_path / name for name in ("unasked", "last", "asked")}
    for name, more in (("unasked", ()), ("last", ("--no-keep.use-best",)), ("asked", ("--keep.use-best",))):
        assert plaudit(*by_heart(toy, runs[name], *EARLY[:2], *more)).code == 0
    looks = looks_of(runs["unasked"])
    best = min(looks, key=looks.__getitem__)
    assert summary_of(runs["unasked"])["step"] == best + 3 * 6
    assert "selected" not in summary_of(runs["unasked"])
    [note] = [note for note in summary_of(runs["unasked"])["notes"] if f"best at step {best} of 60" in note]
    assert "which may be noise" in note
    assert note.endswith("; the last model is kept")
    assert model_bytes(runs["unasked"]) == model_bytes(runs["last"])
    assert summary_of(runs["asked"])["selected"]["step"] == best
    assert model_bytes(runs["asked"]) != model_bytes(runs["last"])


@pytest.mark.slow
def test_without_held_out_rows_nothing_is_chosen_and_nothing_told(toy: Toy, tmp_path: Path) -> None:
    one_row = tmp_path / "one.jsonl"
    one_row.write_text(toy.data.read_text("utf-8").partition("\n")[0], "utf-8")
    for name, more in (("none", ("--held-out", 0)), ("too few", ("--data", one_row))):
        out = tmp_path / name
        finish(*by_heart(toy, out, "--steps", 7, *more))
        summary = summary_of(out)
        assert (summary["step"], "selected" in summary) == (7, False)
        assert not [note for note in summary["notes"] if "kept" in note or "overfits" in note]


@pytest.mark.slow
def test_each_member_of_an_ensemble_keeps_its_own_best(toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "two"
    finish(*by_heart(toy, out, "--ensemble.members", 2, "--steps", 48, "--keep.use-best"))
    for member in (out / "members" / "0", out / "members" / "1"):
        looks = looks_of(member)
        assert summary_of(member)["selected"]["step"] == min(looks, key=looks.__getitem__)


def test_only_reward_runs_keep_the_best_unasked() -> None:
    path = Path("anywhere")
    config = RewardConfig(model=path, data=path, out=path)
    assert config.settled_keep().use_best is True
    assert replace(config, held_out="0").settled_keep().use_best is False
    plain = RunConfig(model=path, data=path, out=path).settled_keep()
    assert (plain.use_best, plain.patience) == (False, 0)


def test_a_rise_is_noise_unless_its_prompts_agree() -> None:
    assert loss_rise([("a", 0.3), ("a", 0.5)]) is None
    rise = loss_rise([("a", 0.3), ("b", 0.1), ("c", 0.2)])
    # The same rows twice are no more evidence than once.
    twice = loss_rise([("a", 0.3), ("b", 0.1), ("c", 0.2)] * 2)
    for found in (rise, twice):
        assert found is not None
        # The deviation of 0.3, 0.1 and 0.2 is 0.1.
        assert (found.mean, found.error) == (pytest.approx(0.2), pytest.approx(0.1 / 3**0.5))
        assert not found.is_noise
    falling = loss_rise([("a", -0.3), ("b", -0.1)])
    assert falling is not None
    assert falling.is_noise


@pytest.mark.parametrize(
    ("trained", "held_out", "held_out_rows", "wide"),
    [
        (0.84, 0.58, 100, True),
        (0.84, 0.58, 8, False),
        (0.5, 0.0, 3, False),
        (0.66, 0.58, 10_000, False),
        (0.58, 0.84, 100, False),
    ],
)
def test_a_gap_between_training_and_held_out_rows_is_wide_beyond_ten_points_and_noise(
    trained: float, held_out: float, held_out_rows: int, wide: bool
) -> None:
    values = {"accuracy": trained + 0.1, "rows": 60, "held_out/accuracy": held_out}
    reports = [
        StepReport(step=1, steps=3, epoch=1, values={"accuracy": 0.5, "held_out/accuracy": 0.5}, timing={}),
        StepReport(step=2, steps=3, epoch=1, values={"accuracy": trained - 0.1, "rows": 60}, timing={}),
        StepReport(step=3, steps=3, epoch=1, values=values, timing={}),
    ]
    gap = accuracy_gap(reports, held_out_rows)
    assert gap is not None
    assert (gap.since, gap.trained_rows, gap.trained) == (1, 120, pytest.approx(trained))
    assert gap.is_wide is wide
