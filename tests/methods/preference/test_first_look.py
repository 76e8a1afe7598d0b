"""What a run says of its reference before the first step, and of what it comes to learn later, once each."""

import json
import math
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from plaudit.cli.main import main
from plaudit.engine.checkpoint import save
from plaudit.engine.step import ObjectiveResult
from plaudit.engine.step_report import StepReport
from plaudit.methods import reference
from plaudit.methods.preference import run as recipe
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS, preference_algorithm
from plaudit.methods.preference.diagnostics import DOCS_PAGE, diagnostics
from plaudit.methods.preference.objective import PreferenceMicrobatch
from plaudit.models.policy import Policy
from tests.engine.test_exact_resume import when_steps_are_done
from tests.engine.toy import RARE, Toy, make_model, make_toy, write_rows
from tests.engine.toy_command import Command, finish
from tests.methods import histories
from tests.methods.histories import LONG, steadily
from tests.methods.preference.test_runs import QUICK, command, kind_of, lines, make_opinions
from tests.methods.reward_model.rows import judged

SHORT = ("--steps", 1, "--sample.rows", 0)
REST = {
    "sppo": 2 * 500.0**2,
    "ipo": 25.0,
    "hinge": 1.0,
    "nca": 2 * math.log(2),
    "apo-zero": 1.0,
    "dpop": math.log(2),
}
"""What losses are where nothing has moved."""


class Looker:
    """A toy, and what runs on it say."""

    def __init__(self, folder: Path, said: Callable[[], str]) -> None:
        self.toy, self.files = make_opinions(folder, rows=24)
        self.folder, self._said = folder, said
        self.cache = folder / "kept"

    def run(self, out: str, *more: object, name: str = "dpo", toy: Toy | None = None) -> tuple[int, str]:
        self._said()
        data = self.files[kind_of(name)]
        words = command(name, toy or self.toy, data, self.folder / out, *SHORT, *more)
        return main([*map(str, words)]), self._said()

    def refused(self, out: str, *more: object, name: str = "dpo", toy: Toy | None = None) -> str:
        code, said = self.run(out, *more, name=name, toy=toy)
        assert code == 2, said
        assert not [*(self.folder / out / "checkpoints").glob("step-*")]
        return said

    def kept(self) -> Path:
        (entry,) = self.cache.iterdir()
        return entry


@pytest.fixture
def looker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Looker:
    return Looker(tmp_path, lambda: capsys.readouterr().err)


def put(entry: Path, logp_M: torch.Tensor) -> None:
    """Other values in an entry, as whole as if they had been written there."""
    values, facts = entry / reference.LOGP_FILE, entry / reference.FACTS_FILE
    save_file({"logp": logp_M}, values)
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "sha256": save.sha256_of(values)}))


def logp(entry: Path) -> torch.Tensor:
    return load_file(entry / reference.LOGP_FILE)["logp"]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["dpo", "kto", "aot"])
def test_log_probs_of_another_model_are_found_out(looker: Looker, name: str) -> None:
    looker.run("first", name=name)
    own = looker.kept()
    other = Toy(model=looker.folder / "other", data=looker.toy.data)
    make_model(other.model, seed=1)
    looker.run("second", name=name, toy=other)
    (stale,) = (entry for entry in looker.cache.iterdir() if entry != own)
    put(own, logp(stale))
    said = looker.refused("third", name=name)
    assert "before the first step policy and reference should be one model, but log-probs differ" in said
    assert "the reference is not the model that the run starts from. Delete the kept log-probs" in said
    assert re.search(r"differ by up to 0?\.?\d+.* \((certain|thumbs)\.jsonl:\d+\)", said)


def test_one_token_that_is_wrong_is_enough_and_its_row_is_named(looker: Looker) -> None:
    looker.run("first")
    entry = looker.kept()
    wrong = logp(entry)
    wrong += 0.5
    put(entry, wrong)
    assert re.search(r"log-probs differ by up to 0\.5 \(certain\.jsonl:\d+\)", looker.refused("second"))


def test_log_probs_of_other_masks_are_found_out(looker: Looker) -> None:
    looker.run("first")
    entry = looker.kept()
    holes = logp(entry)
    holes[::3] = 0
    put(entry, holes)
    said = looker.refused("second")
    assert "the reference has log-probs for other tokens than those that are trained" in said
    assert "its masks are of other rows" in said
    assert "the reference is not the model" not in said


@pytest.mark.parametrize("more", [(), ("--reference.kind", "live"), ("--reference.kind", "average")])
def test_a_model_with_chance_in_it_is_found_out(looker, monkeypatch, more):
    """Loading sets dropout to 0, so here it is put in afterwards."""
    prepare = recipe.prepare_policy

    def noisy(*arguments: Any, **more: Any) -> tuple[Policy, list[str]]:
        policy, notes = prepare(*arguments, **more)
        embedding = policy.base.get_input_embeddings()
        embedding.register_forward_hook(lambda _, __, out: torch.nn.functional.dropout(out, 0.5))
        return policy, notes

    monkeypatch.setattr(recipe, "prepare_policy", noisy)
    said = looker.refused("run", *more)
    assert "the model itself gives other numbers for the same rows each time (dropout" in said
    assert "the reference is not the model" not in said


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in PREFERENCE_ALGORITHMS],
)
def test_weights_that_are_no_numbers_are_found_out(tmp_path, capsys, name):
    toy = make_toy(tmp_path / "toy", rare="nan")
    kind = "thumbs" if kind_of(name) == "thumbs" else "comparisons"
    sure = [row for row in judged(kind, 12) if "probability" not in row]
    rows = [{**row, "prompt": f"a {RARE} {row['prompt']}"} for row in sure]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    assert main([*map(str, command(name, toy, data, tmp_path / "run", *SHORT))]) == 2
    said = capsys.readouterr().err
    assert "other rows is nan: the model's log-probs are not numbers" in said
    assert "Look at its weights, or use --dtype float32" in said


def test_a_loss_that_is_not_what_its_row_says_is_found_out(looker, monkeypatch):
    usual = recipe.pair_objective

    def doubled(*arguments: Any, **settings: Any) -> Callable[[PreferenceMicrobatch], ObjectiveResult]:
        objective = usual(*arguments, **settings)

        def twice(piece: PreferenceMicrobatch) -> ObjectiveResult:
            terms = objective(piece)
            return ObjectiveResult(
                loss=2 * terms.loss, loss_N=terms.loss_N, origin_N=terms.origin_N, metrics=terms.metrics
            )

        return twice

    monkeypatch.setattr(recipe, "pair_objective", doubled)
    said = looker.refused("run")
    assert "the loss is 1.3863 and should be 0.6931, though policy and reference agree" in said


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", REST)
def test_where_all_is_well_the_first_loss_is_said(looker: Looker, name: str) -> None:
    code, said = looker.run("run", name=name)
    assert code == 0
    assert "before the first step policy and reference agree (to " in said
    assert f"the loss is {REST[name]:.4f}" in said
    assert lines(looker.folder / "run")[0]["loss"] == pytest.approx(REST[name], abs=1e-4)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", ["live", "average"])
@pytest.mark.parametrize("numbers", ["float32", "bfloat16", pytest.param("float64", marks=pytest.mark.slow)])
def test_no_honest_run_is_stopped(looker: Looker, kind: str, numbers: str) -> None:
    """In whatever numbers, and however a batch is divided."""
    own = ("--dtype", numbers, "--memory.tokens-at-once", 60)
    for out, more in (("beside", ("--reference.kind", kind)), ("kept", ())):
        code, said = looker.run(out, *own, *more)
        assert code == 0, said


@pytest.mark.slow
def test_it_looks_again_when_a_run_goes_on_and_finds_the_model_that_it_started_from(looker: Looker) -> None:
    """Though the policy has long moved away by then."""
    often = ("--steps", 6, "--save-every", 2, "--learning-rate", 0.05)
    code, whole = looker.run("whole", *often)
    assert code == 0
    code, _ = looker.run("again", *often)
    for name in ("summary.json", "report.html"):
        (looker.folder / "again" / name).unlink(missing_ok=True)
    code, said = looker.run("again", *often)
    assert code == 0, said
    for words in (whole, said):
        assert "before the first step policy and reference agree" in words
    assert lines(looker.folder / "again") == lines(looker.folder / "whole")


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
