"""Preference runs through the command: every algorithm of the table learns, and leaves a policy behind."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS, preference_algorithm
from tests.engine.distributed.test_same_numbers import lines
from tests.engine.toy import Toy, make_toy, write_rows
from tests.engine.toy_command import Done, finish
from tests.methods.reward_model.rows import judged, make_files

LONG = ("--steps", 30, "--batch-size", 8, "--learning-rate", 0.01, "--held-out", 0.2)
SELDOM = ("--evaluate-every", 10, "--sample-every", 30, "--save-every", 30, "--sample.rows", 1)
STILL = ("--steps", 1, "--learning-rate", 1e-12)
QUICK = ("dpo", "ipo", "aot", "orpo", "tr-dpo", "kto")
"""Of each kind one: the others are slow, all together."""
BY_LOSS = ("apo-down", "discopop", "slic")
"""Of these the loss is no measure of the order at the start: both sides fall, or there is a hill at 0."""


def command(name: str, toy: Toy, data: Path, out: Path, *more: object) -> list[object]:
    keeps = (
        "reference" in preference_algorithm(name).needs
        and name != "tr-dpo"
        and not {"live", "average"} & {*more}
    )
    kind = () if "--reference.kind" in more else ("--reference.kind", "precomputed")
    own = (*kind, "--reference.cache", toy.model.parent / "kept") if keeps else ()
    return [
        *("train", name, "--model", toy.model, "--data", data, "--out", out),
        *("--steps", 10, "--batch-size", 4, "--learning-rate", 0.01, "--held-out", 0.1),
        *("--evaluate-every", 3, "--sample-every", 4, "--save-every", 2),
        # Texts of no turns, as they stand: what is measured here was measured on them.
        *("--sample.rows", 2, "--sample.tokens", 4, "--device", "cpu", "--text", "raw"),
        *own,
        *more,
    ]


def make_opinions(folder: Path, rows: int = 60) -> tuple[Toy, dict[str, Path]]:
    toy, files = make_files(folder, rows)
    sure = [row for row in judged("comparisons", rows) if "probability" not in row]
    return toy, {**files, "certain": write_rows(folder / "certain.jsonl", sure)}


def kind_of(name: str) -> str:
    return "thumbs" if PREFERENCE_ALGORITHMS[name].data == "thumbs" else "certain"


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


class Runs:
    def __init__(self, folder: Path) -> None:
        self.toy, self.files = make_opinions(folder, rows=120)
        self.folder = folder
        self._done: dict[str, Done] = {}

    def run(self, label: str, name: str, *more: object, kind: str | None = None) -> Path:
        out = self.folder / label
        if label not in self._done:
            done = finish(*command(name, self.toy, self.files[kind or kind_of(name)], out, *more))
            self._done[label] = done
        return out

    def said(self, label: str) -> str:
        return self._done[label].err


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def figures(run: Path, name: str) -> list[float]:
    return [line[name] for line in lines(run) if name in line]


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in PREFERENCE_ALGORITHMS],
)
def test_every_algorithm_learns(runs: Runs, name: str) -> None:
    run = runs.run(name, name, *LONG, *SELDOM)
    assert f"note: {name}: {PREFERENCE_ALGORITHMS[name].formula}" in runs.said(name)
    loss = figures(run, "held_out/loss")
    assert loss[-1] < loss[0]
    if PREFERENCE_ALGORITHMS[name].data == "thumbs":
        assert figures(run, "held_out/reward_chosen")[-1] > figures(run, "held_out/reward_rejected")[-1] + 0.1
        assert "held_out/margin" not in lines(run)[-1]
    elif name not in BY_LOSS:
        margin = figures(run, "held_out/margin")
        assert margin[-1] > margin[0]
        assert figures(run, "held_out/accuracy")[-1] >= 0.5
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in (run / "model").iterdir()
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pl-dpo", "rrhf"])
def test_whole_rankings_are_learnt_in_their_order(runs: Runs, name: str) -> None:
    run = runs.run(f"{name} ranked", name, *LONG, *SELDOM, kind="rankings")
    assert "rankings: each is learnt whole, and counts as much as one comparison" in runs.said(
        f"{name} ranked"
    )
    loss, right = figures(run, "held_out/loss"), figures(run, "held_out/accuracy")
    assert loss[-1] < loss[0]
    assert right[-1] > 0.7


def test_dpo_begins_at_ln_2_with_no_distance_and_no_margin(runs: Runs) -> None:
    first, *_ = lines(runs.run("dpo", "dpo", *LONG, *SELDOM))
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert first["kl"] == pytest.approx(0, abs=1e-6)
    assert first["margin"] == pytest.approx(0, abs=1e-5)
    assert "the loss is 0.6931" in runs.said("dpo")
    assert "before the first step policy and reference agree" in runs.said("dpo")


def test_dpo_tells_unseen_answers_apart(runs: Runs) -> None:
    run = runs.run("dpo", "dpo", *LONG, *SELDOM)
    assert figures(run, "held_out/accuracy")[-1] > 0.85
    last = lines(run)[-1]
    assert last["margin"] == pytest.approx(last["reward_chosen"] - last["reward_rejected"], abs=1e-5)
    assert figures(run, "held_out/kl")[-1] > figures(run, "held_out/kl")[0] > 0


@pytest.mark.parametrize(("name", "more"), [("dpo", {"margin", "kl"}), ("orpo", {"margin"}), ("kto", {"kl"})])
def test_held_out_figures_are_those_that_mean_something(runs: Runs, name: str, more: set[str]) -> None:
    said = lines(runs.run(name, name, *LONG, *SELDOM))[-1]
    sides = {f"{what}_{side}" for what in ("reward", "logp") for side in ("chosen", "rejected")}
    wanted = {"loss", "accuracy"} | sides | more
    assert {key.removeprefix("held_out/") for key in said if key.startswith("held_out/")} == wanted


@pytest.mark.parametrize("name", ["orpo", pytest.param("simpo", marks=pytest.mark.slow)])
def test_without_a_reference_nobody_speaks_of_one(runs: Runs, name: str) -> None:
    """Neither in figures nor in words."""
    run = runs.run(name, name, *LONG, *SELDOM)
    assert "reference" not in runs.said(name).replace("docs/preference.md", "")
    assert not any("kl" in line for line in lines(run))


@pytest.mark.slow
def test_what_is_left_behind_is_the_policy_for_transformers(runs: Runs) -> None:
    """Its log-probs of a held-out row give the figures that the run reported last."""
    run = runs.run("one", "dpo", *STILL, "--steps", 4, "--learning-rate", 0.01, "--held-out", 0.01)
    tokenizer = AutoTokenizer.from_pretrained(run / "model")
    sample = json.loads((run / "samples.jsonl").read_text("utf-8").splitlines()[-1])
    row = next(row for row in judged("comparisons", 120) if row["prompt"] == sample["prompt"])
    prompt = tokenizer(row["prompt"])["input_ids"]

    def logp(folder: Path, answer: str) -> float:
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        ids = [*tokenizer(answer)["input_ids"], tokenizer.eos_token_id]
        with torch.no_grad():
            logp_TV = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        return sum(logp_TV[place, token].item() for place, token in enumerate(ids))

    said = lines(run)[-1]
    for side in ("chosen", "rejected"):
        new, old = (logp(folder, row[side]) for folder in (run / "model", runs.toy.model))
        assert said[f"held_out/logp_{side}"] == pytest.approx(new, rel=1e-5)
        assert said[f"held_out/reward_{side}"] == pytest.approx(0.1 * (new - old), abs=1e-4)


def test_it_says_what_it_answers_now(runs: Runs) -> None:
    run = runs.run("dpo", "dpo", *LONG, *SELDOM)
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text("utf-8").splitlines()]
    assert [sample["step"] for sample in samples] == [1, 30]
    assert samples[0]["prompt"] == samples[1]["prompt"]
    assert samples[0]["prompt"] in {row["prompt"] for row in judged("comparisons", 120)}
    assert "dogs" in samples[1]["completion"]
    assert samples[0]["completion"] != samples[1]["completion"]


@pytest.mark.slow
def test_rankings_are_learnt_and_how_they_count_is_said(runs: Runs) -> None:
    run = runs.run("rankings", "dpo", *LONG, *SELDOM, kind="rankings")
    assert "120 rankings: all pairs of a ranking together count as much as one" in runs.said("rankings")
    assert figures(run, "held_out/accuracy")[-1] > figures(run, "held_out/accuracy")[0] - 0.05
    assert figures(run, "held_out/margin")[-1] > figures(run, "held_out/margin")[0]
    assert lines(run)[0]["loss"] == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.slow
def test_of_comparisons_kto_makes_good_and_bad_answers_and_says_so(runs: Runs) -> None:
    run = runs.run("kto of pairs", "kto", *LONG, *SELDOM, kind="comparisons")
    assert "120 comparisons: kto learns from single answers, so each became two" in runs.said("kto of pairs")
    assert lines(run)[0]["rows"] == 8
    assert figures(run, "held_out/reward_chosen")[-1] > figures(run, "held_out/reward_rejected")[-1]


@pytest.mark.slow
def test_the_best_checkpoint_can_be_that_of_the_best_accuracy(runs: Runs) -> None:
    best = ("--keep.use-best", "--keep.best", "held_out/accuracy", "--keep.best-is", "highest")
    run = runs.run("best", "dpo", *LONG, *best, "--evaluate-every", 2, "--sample.rows", 0)
    accuracy = figures(run, "held_out/accuracy")
    step = 2 * (accuracy.index(max(accuracy)) + 1)
    kept = load_file(run / "checkpoints" / f"step-{step:08d}" / "model.safetensors")
    for name, weight in weights(run).items():
        assert torch.equal(weight, kept[f"model.{name}"])


@pytest.mark.slow
def test_an_answer_to_another_prompt_fits_beside_it_too(tmp_path: Path) -> None:
    """Long prompts have short answers here and short ones long ones; each row fits, and GPT-2 has no more."""
    toy = make_toy(tmp_path / "toy", family="gpt2")
    rows = judged("thumbs", 12)
    for number, row in enumerate(rows):
        part, word = ("prompt", " cat") if number % 2 else ("completion", " dogs")
        row[part] = f"{number}{word * 220}."
    data = write_rows(tmp_path / "rows.jsonl", rows)
    own = ("--max-length", 256, "--held-out", 0, "--sample.rows", 0)
    finish(*command("kto", toy, data, tmp_path / "run", *STILL, *own))
