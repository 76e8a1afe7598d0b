"""Sentences about familiar things: each when its history is there, not otherwise, once in a run's life."""

import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from plaudit.engine.step_report import StepReport
from plaudit.methods.preference.algorithms import preference_algorithm
from plaudit.methods.preference.diagnostics import DOCS_PAGE, diagnostics
from tests.engine.test_exact_resume import when_steps_are_done
from tests.engine.toy import Toy
from tests.engine.toy_command import Command, finish
from tests.methods import histories
from tests.methods.histories import LONG, steadily
from tests.methods.preference.test_runs import command, make_opinions

FALLING = "the preferred answers are becoming less likely"
BY_HEART = "the rows are being learnt by heart"
RISING = "the held-out loss is rising"
FAR = "the policy has gone far from its reference"
STILL = "hardly anything has been learnt"


def history(steps: int | None = None, /, **series: Sequence[float]) -> list[StepReport]:
    length = max((len(values) for values in series.values()), default=LONG)
    usual: dict[str, Sequence[float]] = {"margin": [0.5] * length, "length_mean": [10.0] * length}
    return histories.history(steps, **{**usual, **series})


def said(reports: Sequence[StepReport], name: str = "dpo") -> Mapping[str, str]:
    return diagnostics(preference_algorithm(name), reports, learning_rate=1e-6)


SHOWN: dict[str, tuple[str, list[StepReport]]] = {
    "falling on held-out rows": (FALLING, history(held_logp_chosen=steadily(-20, -30))),
    "falling where none is held out": (FALLING, history(logp_chosen=steadily(-20, -30))),
    "by heart": (BY_HEART, history(accuracy=[1.0] * LONG, held_accuracy=[0.6] * LONG)),
    "rising": (RISING, history(held_loss=[0.6, 0.5, 0.6, 0.7, 0.8])),
    "risen": (RISING, history(held_loss=[0.6, 0.5, 0.6, 0.6])),
    "far": (FAR, history(held_kl=[0.0, 4.0, 12.0])),
    "far on trained rows": (FAR, history(kl=[0.0, 4.0, 12.0])),
    "still": (STILL, history(margin=[0.001] * LONG)),
    "still on held-out rows": (STILL, history(margin=[0.5] * LONG, held_margin=[0.001] * LONG)),
}
SILENT: dict[str, list[StepReport]] = {
    "nothing yet": [],
    "all well": history(
        held_logp_chosen=steadily(-20, -18),
        accuracy=[0.8] * LONG,
        held_accuracy=[0.75] * LONG,
        held_loss=steadily(0.69, 0.5),
        held_kl=steadily(0, 3),
        held_margin=steadily(0, 1),
    ),
    "a fall of nothing": history(held_logp_chosen=steadily(-20, -20.1)),
    "one look": history(held_logp_chosen=[-20.0]),
    "surer in training, but not by much": history(accuracy=[0.97] * LONG, held_accuracy=[0.9] * LONG),
    "not sure in training": history(accuracy=[0.8] * LONG, held_accuracy=[0.5] * LONG),
    "one bad look": history(held_loss=[0.6, 0.5, 0.6]),
    "two looks": history(held_loss=[0.5, 0.6]),
    "far for a moment": history(held_kl=[0.0, 12.0, 4.0]),
    "still at the start": history(1000, margin=[0.001] * LONG),
    "not numbers": history(held_loss=[float("nan")] * LONG, held_kl=[float("inf")] * LONG),
}


@pytest.mark.parametrize("what", SHOWN)
def test_what_happens_is_said_with_its_figures_and_its_page(what: str) -> None:
    begins, reports = SHOWN[what]
    found = said(reports)
    assert set(found) == {begins}
    assert any(letter.isdigit() for letter in found[begins])
    assert f"{DOCS_PAGE}#" in found[begins]


@pytest.mark.parametrize("what", SILENT)
def test_what_does_not_happen_is_not_said(what: str) -> None:
    assert said(SILENT[what]) == {}


def test_several_things_can_be_said_at_once() -> None:
    reports = history(held_logp_chosen=steadily(-20, -40), held_kl=steadily(0, 30), margin=[0.0] * LONG)
    assert set(said(reports)) == {FALLING, FAR, STILL}


def test_figures_of_held_out_rows_come_first() -> None:
    assert said(history(logp_chosen=steadily(-20, -60), held_logp_chosen=steadily(-20, -19))) == {}
    assert said(history(kl=[20.0] * LONG, held_kl=[1.0] * LONG)) == {}


@pytest.mark.parametrize("name", ["dpo", "kto"])
def test_the_way_out_is_one_that_the_algorithm_has(name: str) -> None:
    """Pairs have an NLL part, thumbs have weights."""
    (sentence,) = said(history(held_logp_chosen=steadily(-20, -30)), name).values()
    assert ("--nll-coef" in sentence) == (name == "dpo")
    assert ("--desirable-weight" in sentence) == (name == "kto")


def test_a_loss_that_falls_below_zero_does_not_rise() -> None:
    """As that of robust-dpo may: its best value is then the most negative one."""
    assert said(history(held_loss=[0.5, -0.8, -0.9, -1.0]), "robust-dpo") == {}
    assert set(said(history(held_loss=[0.5, -1.0, -0.5, -0.4]), "robust-dpo")) == {RISING}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Toy, dict[str, Path]]:
    return make_opinions(tmp_path_factory.mktemp("toy"), rows=40)


def notes(run: Path, begins: str) -> list[str]:
    found: list[str] = []
    for path in run.glob("*.jsonl"):
        for line in path.read_text("utf-8").splitlines():
            row: dict[str, Any] = json.loads(line)
            found += [str(value) for value in row.values() if str(value).startswith(begins)]
    return found


@pytest.mark.slow
def test_each_is_said_once_in_a_runs_life_though_it_is_killed_and_goes_on(files, tmp_path):
    toy, data = files
    own = ("--steps", 24, "--learning-rate", 0.03, "--evaluate-every", 1, "--sample.rows", 0)
    out, said_so = tmp_path / "run", list[str]()
    words = command("dpo", toy, data["certain"], out, *own)
    for steps in (8, 14):
        running = Command(words)
        running.until(when_steps_are_done(out, steps))
        running.send(signal.SIGINT)
        said_so.append(running.wait().err)
    said_so.append(finish(*words).err)
    assert sum(one.count(FAR) for one in said_so) == 1
    assert len(notes(out, FAR)) == 1
    finish(*command("dpo", toy, data["certain"], tmp_path / "whole", *own))
    assert [note[:200] for note in notes(tmp_path / "whole", FAR)] == [note[:200] for note in notes(out, FAR)]


@pytest.mark.slow
def test_a_run_that_hardly_moves_is_told_so_at_its_half(files, tmp_path):
    toy, data = files
    own = ("--learning-rate", 1e-9, "--sample.rows", 0, "--evaluate-every", 2)
    done = finish(*command("dpo", toy, data["certain"], tmp_path / "run", *own))
    before, _, after = done.err.partition(STILL)
    assert "step 2/10" in before
    assert "step 4/10" in before
    assert "step 8/10" in after
    assert "The learning rate of 1e-09 is too low" in after
