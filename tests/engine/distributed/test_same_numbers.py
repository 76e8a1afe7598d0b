"""Two ranks learn what one process learns: the same losses, norms, held-out figures, samples and weights.

Rows are ragged, a batch has 5 of them and the last one of an epoch a single one, so that a rank is muted;
pieces hold 60 tokens, so that gradients accumulate. What is left is the order of sums: 1e-10 relative in
float64 and 1e-5 in float32.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from tests.engine.distributed.runs import Run, Said, run_all
from tests.engine.toy import Toy, make_toy

EXACT = ("--dtype", "float64")
MANNERS: dict[str, tuple[str, ...]] = {
    "plain": (*EXACT, "--optimizer.weight-decay", "0.3", "--optimizer.clip", "0.05"),
    "padded, recomputed": (*EXACT, "--memory.layout", "left", "--memory.checkpointing"),
    "gpt2, in one piece": (*EXACT, "--memory.tokens-at-once", "8192"),
    "untied, one by one": (*EXACT, "--batch-size", "1"),
    "best": (*EXACT, "--keep.use-best", "--evaluate-every", "1", "--learning-rate", "0.3"),
    "distil": EXACT,
    "judged": (*EXACT, "--judge.by", "length:1-20", "--judge.tokens", "8", "--evaluate-every", "2"),
    "lora": (*EXACT, "--lora.rank", "2"),
    "four bits": (*EXACT, "--lora.rank", "2", "--lora.base", "4bit"),
    "float32": ("--dtype", "float32"),
    "bfloat16": ("--dtype", "bfloat16"),
}
WAYS = ("data", "shard")
QUICK = ("plain",)
PAIRS = [(manner, way) for manner in MANNERS for way in WAYS if (manner, way) != ("four bits", "shard")]
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}


def marked(*pairs: tuple[str, ...]) -> list[Any]:
    """Cases of a test, of which the first word is the manner."""
    return [pytest.param(*pair, marks=[] if pair[0] in QUICK else [pytest.mark.slow]) for pair in pairs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    folder: Path
    """Where the run folders lie."""
    alone: dict[str, list[Said]]
    together: dict[str, list[Said]]
    """What each of two ranks said."""


def train(folder: Path, manners: Sequence[str]) -> Trained:
    toys = {"llama": make_toy(folder / "toys" / "llama")}
    toys["gpt2"] = make_toy(folder / "toys" / "gpt2", family="gpt2")
    toys["untied"] = untied(toys["llama"], folder / "toys" / "untied")
    alone = {manner: command(toys, folder / manner, manner) for manner in manners}
    together = {
        f"{manner} {way}": command(toys, folder / f"{manner} {way}", manner, *["--shard"][: way == "shard"])
        for manner, way in PAIRS
        if manner in manners
    }
    return Trained(
        folder=folder, alone=run_all(alone, folder, ranks=1), together=run_all(together, folder, ranks=2)
    )


def in_groups(
    train: Callable[[Path, Sequence[str]], Trained],
    manners: Iterable[str],
    quick: Sequence[str],
    folders: pytest.TempPathFactory,
) -> Callable[[str], Trained]:
    @cache
    def group(is_quick: bool) -> Trained:
        chosen = [manner for manner in manners if (manner in quick) == is_quick]
        return train(folders.mktemp("ranks"), chosen)

    return lambda manner: group(manner in quick)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    return in_groups(train, MANNERS, QUICK, tmp_path_factory)


def untied(toy: Toy, folder: Path) -> Toy:
    copytree(toy.model, folder)
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(toy.model, tie_word_embeddings=False)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return Toy(model=folder, data=toy.data)


def command(toys: dict[str, Toy], out: Path, manner: str, *more: str) -> Run:
    toy = toys.get(manner.partition(",")[0], toys["llama"])
    method = ("distil", "--teacher", str(toys["untied"].model)) if manner == "distil" else ("sft",)
    arguments = (
        *("train", *method, "--model", str(toy.model), "--data", str(toy.data), "--out", str(out)),
        *("--steps", "5", "--batch-size", "5", "--learning-rate", "0.01", "--held-out", "0.1"),
        *("--memory.tokens-at-once", "60", "--evaluate-every", "2", "--sample-every", "4"),
        *("--sample.rows", "2", "--sample.tokens", "6", "--device", "cpu", *MANNERS[manner], *more),
    )
    return Run(arguments=arguments, environment={})


def lines(run: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name != "timing"} for line in found]


def files_of(run: Path) -> set[str]:
    return {re.sub(r"-0000.-of-00002", "", str(path.relative_to(run))) for path in run.rglob("*")}


def apart(found: object, expected: object) -> float:
    """How far two figures are apart, relative to the expected one; whole numbers must be the same."""
    assert type(found) is type(expected)
    if not isinstance(found, float) or not isinstance(expected, float):
        assert found == expected
        return 0.0
    return abs(found - expected) / max(abs(expected), 1e-3)


def check_as_one(
    runs: Trained, manner: str, way: str, tolerance: float, *, weights: bool = True, samples: bool = True
) -> None:
    """All end well, only the first rank speaks, and what was learnt is what one process has learnt."""
    name = f"{manner} {way}"
    (one,), (first, second) = runs.alone[manner], runs.together[name]
    assert (one.code, first.code, second.code) == (0, 0, 0), first.err
    assert (second.out, second.err) == ("", "")
    assert first.out == one.out.replace(manner, name)
    assert (first.left, second.left) == ((), ()), "no thread of a group outlives its run"
    alone, together = (stages(runs.folder / run) for run in (manner, name))
    for here, there in zip(alone, together, strict=True):
        for expected, found in zip(lines(here), lines(there), strict=True):
            assert found.keys() == expected.keys()
            distance = {key: apart(found[key], expected[key]) for key in expected}
            assert max(distance.values()) < tolerance, (expected["step"], distance)
        wanted, own = (load_file(run / "model" / "model.safetensors") for run in (here, there))
        assert wanted.keys() == own.keys()
        for key, weight in wanted.items() if weights else ():
            torch.testing.assert_close(own[key], weight, rtol=tolerance, atol=tolerance, msg=key)
        if samples:
            assert (there / "samples.jsonl").read_bytes() == (here / "samples.jsonl").read_bytes() != b""


def stages(run: Path) -> list[Path]:
    return sorted(path.parent for path in run.rglob("metrics.jsonl"))


@pytest.mark.parametrize(("manner", "way"), marked(*PAIRS))
def test_two_ranks_learn_what_one_process_learns(trained, manner, way):
    exact = {"weights": manner != "bfloat16", "samples": manner not in TOLERANCE}
    check_as_one(trained(manner), manner, way, TOLERANCE.get(manner, 1e-10), **exact)
    assert len(lines(trained(manner).folder / manner)) >= 4


@pytest.mark.parametrize("way", WAYS)
def test_the_folder_of_two_ranks_is_the_folder_of_one(trained: Callable[[str], Trained], way: str) -> None:
    alone, together = (files_of(trained("plain").folder / name) for name in ("plain", f"plain {way}"))
    assert together == alone


@pytest.mark.parametrize("manner", marked(("plain",), ("untied, one by one",), ("gpt2, in one piece",)))
def test_plain_transformers_gives_the_trained_logits(trained: Callable[[str], Trained], manner: str) -> None:
    """Of a model that was divided while it learnt; its held-out loss is computed here once more."""
    run = trained(manner).folder / f"{manner} shard"
    model = AutoModelForCausalLM.from_pretrained(run / "model", dtype=torch.float64).eval()
    one = AutoModelForCausalLM.from_pretrained(
        trained(manner).folder / manner / "model", dtype=torch.float64
    ).eval()
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        logits = model(ids).logits
        torch.testing.assert_close(logits, one(ids).logits, rtol=1e-9, atol=1e-9)
    assert math.isfinite(logits.abs().sum().item())


@pytest.mark.parametrize("manner", marked(*((manner,) for manner in MANNERS)))
def test_learning_was_worth_comparing(trained: Callable[[str], Trained], manner: str) -> None:
    """The runs do move: what stands still is the same on any number of ranks."""
    reported = lines(trained(manner).folder / manner)
    losses = [line["held_out/loss"] for line in reported if "held_out/loss" in line]
    assert losses[-1] < losses[0] - 0.01
