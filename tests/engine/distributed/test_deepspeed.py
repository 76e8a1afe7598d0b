"""DeepSpeed takes the steps that plaudit takes: twenty of the embedded model, on two ranks, to 1e-5.

Pieces hold few tokens, so that gradients accumulate, and the clip is at work. In ``make deepspeed-peer``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from plaudit.cli.main import main
from plaudit.data.records import Record
from plaudit.data.write import write_records
from plaudit.lab.world import SHIPPED_MODEL_FOLDER
from plaudit.lab.world.annotators import annotator_pool
from plaudit.lab.world.making import comparisons, demonstrations
from tests.engine.distributed.launch import ROOT
from tests.engine.distributed.test_same_numbers import apart, lines
from tests.engine.toy import make_toy

DEEPSPEED = Path(os.environ.get("PLAUDIT_DEEPSPEED_PYTHON", ROOT / ".peers/deepspeed/bin/python"))
TOLERANCE = {"bfloat16": 5e-2}
"""Where it is not 1e-5: rounding depends on the order of sums."""
ENGINE = ("--engine", "deepspeed", "--deepspeed.stage")
WAYS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "zero 2": (*ENGINE, "2"),
    "zero 2 offload": (*ENGINE, "2", "--deepspeed.offload"),
    "zero 3": (*ENGINE, "3"),
    "zero 3 offload": (*ENGINE, "3", "--deepspeed.offload"),
}
RUNS: dict[str, tuple[str, ...]] = {
    "sft": tuple(WAYS),
    "dpo": ("plain", "zero 3"),
    "reward": ("plain", "zero 2 offload", "zero 3"),
    "dpo lora": ("plain", "zero 3"),
    "spoiled": ("plain", "zero 2", "zero 3 offload"),
    "recomputed": ("plain", "zero 3 offload"),
    "bfloat16": ("plain", "zero 2", "zero 3"),
}
GOES_ON = {"zero 3 offload": "plain", "plain": "zero 3", "zero 3": "zero 2", "zero 2": "zero 2 offload"}
"""Where twenty steps of sft begin, and who takes the last ten of them."""
PAIRS = [(run, way) for run, ways in RUNS.items() for way in ways if way != "plain"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deepspeed")
    words = {run: command(folder, run) for run in RUNS}
    written: list[tuple[str, list[Any]]] = [
        ("demonstrations", demonstrations(40)),
        ("comparisons", comparisons(40, annotator_pool("experts"))),
    ]
    for name, rows in written:
        records: list[Record] = rows
        write_records(records, folder / f"{name}.jsonl")
    make_toy(folder / "toy", rare="nan")
    together = {f"{run} {way}": [*words[run], *WAYS[way]] for run, ways in RUNS.items() for way in ways}
    alone = {f"sft {way} alone": together[f"sft {way}"] for way in ("plain", "zero 3 offload")}
    begun = {f"sft {a}, {b}": f"sft {a}" for a, b in GOES_ON.items()}
    others = {f"sft {a}, {b}": together[f"sft {b}"] for a, b in GOES_ON.items()}
    groups = [
        {"ranks": 2, "goes_on": {}, "commands": together},
        {"ranks": 2, "goes_on": begun, "commands": others},
        {"ranks": 1, "goes_on": {}, "commands": alone},
    ]
    (folder / "groups.json").write_text(json.dumps(groups))
    arguments = [str(DEEPSPEED), "-m", "tests.engine.distributed.deepspeed_runs", str(folder)]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def command(folder: Path, run: str) -> list[str]:
    method = run.split(maxsplit=1)[0] if run.startswith(("dpo", "reward")) else "sft"
    rows = folder / ("demonstrations.jsonl" if method == "sft" else "comparisons.jsonl")
    model, rate = SHIPPED_MODEL_FOLDER, "1e-4"
    more = {
        "dpo lora": ["--lora.rank", "4", "--learning-rate", "1e-3"],
        "bfloat16": ["--dtype", "bfloat16"],
        "spoiled": ["--safety.on-nonfinite", "skip", "--no-check"],
        "recomputed": ["--memory.checkpointing", "--memory.layout", "left"],
    }.get(run, [])
    if run == "spoiled":
        model, rows = folder / "toy/base", folder / "toy/rows.jsonl"
    # By the default ε of 1e-8 a gradient that is rounding and no more moves its weight by a whole step.
    more += ["--optimizer.eps", "1e-6"]
    return [
        *("train", method, "--model", str(model), "--data", str(rows), "--learning-rate", rate),
        *("--steps", "20", "--batch-size", "6", "--held-out", "0.1", "--memory.tokens-at-once", "60"),
        *("--evaluate-every", "10", "--save-every", "10", "--keep.last", "3", "--sample-every", "10"),
        *("--sample.rows", "1", "--sample.tokens", "8", "--optimizer.weight-decay", "0.1"),
        *("--optimizer.clip", "0.5", "--dtype", "float32", "--device", "cpu", *more),
    ]


def difference(name: str, found: Any, expected: Any) -> float:
    """Of a loss or a norm relative; of others, some of which are differences near 0, of 1 at least."""
    is_exact = name.endswith("loss") or name == "grad_norm" or not isinstance(expected, float)
    return apart(found, expected) if is_exact else abs(found - expected) / max(1.0, abs(expected))


def distance(found: Path, expected: Path) -> float:
    """The largest difference of a figure, relative, or of a weight."""
    largest = 0.0
    for one, other in zip(lines(found), lines(expected), strict=True):
        assert one.keys() == other.keys()
        largest = max(largest, *(difference(name, one[name], other[name]) for name in other))
    weights, others = (load_file(run / "model" / "model.safetensors") for run in (found, expected))
    assert weights.keys() == others.keys()
    return max(largest, *(float((weights[name] - others[name]).abs().max()) for name in others))


@pytest.mark.peer(DEEPSPEED)
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("run", "way"), PAIRS)
def test_twenty_steps_are_those_of_plaudit(trained: Path, run: str, way: str) -> None:
    found = distance(trained / f"{run} {way}", trained / f"{run} plain")
    print(f"DISTANCE {run} {way}: {found:.1e}")
    assert found < TOLERANCE.get(run, 1e-5)


@pytest.mark.peer(DEEPSPEED)
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", [*(f"sft {a}, {b}" for a, b in GOES_ON.items()), "sft zero 3 offload alone"])
def test_a_run_goes_on_by_another_engine_or_in_one_process(trained: Path, name: str) -> None:
    expected = "sft plain alone" if name.endswith("alone") else "sft plain"
    found = distance(trained / name, trained / expected)
    print(f"DISTANCE {name}: {found:.1e}")
    assert found < 1e-5


@pytest.mark.peer(DEEPSPEED)
@pytest.mark.timeout(1500)
def test_what_is_compared_was_learnt_clipped_in_pieces_and_once_left_out(trained: Path) -> None:
    for run in RUNS:
        reported = lines(trained / f"{run} plain")
        losses = [line["held_out/loss"] for line in reported if "held_out/loss" in line]
        assert run == "spoiled" or losses[-1] < losses[0]
    assert max(line["grad_norm"] for line in lines(trained / "sft plain")) > 0.5
    notes = (trained / "spoiled zero 2" / "notes.jsonl").read_text()
    assert "is not a finite number; no weight was changed" in notes
    assert not list(trained.rglob("*.pt"))


REFUSED = {
    "sft --shard": "--shard",
    "sft --compile": "--compile",
    "sft --dtype float64": "--dtype float64",
    "sft --lora.rank 2 --lora.base 4bit": "--lora.base 4bit",
    "sft --optimizer.name sgd": "--optimizer.name sgd",
    "sft --optimizer.state bfloat16": "--optimizer.state bfloat16",
    "sft --judge.by length --deepspeed.stage 3": "--judge.by",
    "dpo --reference.kind average --deepspeed.stage 3": "reference.kind average",
    "grpo --reward length": "drawn from the weights",
    "iterated --reward length": "drawn from the weights",
    "reward --deepspeed.stage 3 --dtype bfloat16": "a reward model's head",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_deepspeed_does_not_go_with_is_refused(words, tmp_path, toy, capsys, monkeypatch):
    monkeypatch.setattr("plaudit.runs.deepspeed.import_deepspeed", lambda device: None)
    assert train(words, toy, tmp_path) == 2
    said = capsys.readouterr().err
    assert REFUSED[words] in said
    assert "deepspeed" in said


def test_it_is_named_where_it_is_not_installed_asked_for_or_planned(tmp_path, toy, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    assert train("sft", toy, tmp_path) == 2
    assert 'pip install "plaudit[deepspeed]"' in capsys.readouterr().err
    assert train("sft --engine plaudit --deepspeed.offload", toy, tmp_path) == 2
    assert "--engine deepspeed" in capsys.readouterr().err
    assert train("sft", toy, tmp_path, verb="plan") == 2
    assert "--shard" in capsys.readouterr().err


def train(words: str, toy: Any, folder: Path, verb: str = "train") -> int:
    method, *more = words.split()
    data = "--prompts" if method in ("grpo", "iterated") else "--data"
    rows = toy.data if method != "reward" else folder / "pairs.jsonl"
    if method == "reward":
        pair = {"chosen": "two", "rejected": "three"}
        rows.write_text("".join(json.dumps({"prompt": f"{n}?", **pair}) + "\n" for n in range(40)))
    place = ["--model", str(toy.model), data, str(rows), "--out", str(folder / "run"), "--device", "cpu"]
    return main([verb, method, *place, "--engine", "deepspeed", *more])
