"""Runs with ``--compile`` learn what others learn, and compile before their first step and never again."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch._dynamo.utils import counters

from plaudit.cli.main import main
from plaudit.engine import loop
from plaudit.engine.sinks.files import read_notes
from tests.engine.toy import Toy, make_toy
from tests.engine.toy_command import sft
from tests.methods.policy.commands import make_place, well
from tests.methods.preference.test_runs import command as preference, kind_of, make_opinions
from tests.methods.reward_model.rows import command as reward

COMPILED = "compiled: LlamaAttention, LlamaMLP, LlamaRMSNorm in 2 layers"


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many programs there are at the end of each step."""
    found: list[int] = []
    take_step: Any = loop.take_step

    def counted(*args: Any) -> Any:
        outcome = take_step(*args)
        found.append(counters["stats"]["unique_graphs"])
        return outcome

    monkeypatch.setattr(loop, "take_step", counted)
    return found


@pytest.fixture(scope="module")
def opinions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Toy, dict[str, Path]]:
    return make_opinions(tmp_path_factory.mktemp("toy"), rows=60)


def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]


def went(command: list[Any]) -> None:
    assert main([str(word) for word in command]) == 0


@pytest.mark.slow
def test_sft_learns_as_it_does_uncompiled_and_no_length_is_compiled_anew(tmp_path, programs):
    toy = make_toy(tmp_path / "toy")
    # Micro-batches of ever-new lengths, down to single rows.
    words = ("--memory.tokens-at-once", 40, "--device", "cpu")
    went(sft(toy, tmp_path / "plain", *words))
    assert counters["stats"]["unique_graphs"] == programs[0]
    programs.clear()
    went(sft(toy, tmp_path / "compiled", *words, "--compile"))
    assert len({*programs}) == 1
    assert losses(tmp_path / "compiled") == pytest.approx(losses(tmp_path / "plain"), rel=1e-4)
    notes = [*read_notes(tmp_path / "compiled")]
    assert COMPILED in notes
    assert not any("not compiled" in note for note in notes)
    names = {path.name for path in (tmp_path / "compiled" / "model").iterdir()}
    assert names == {path.name for path in (tmp_path / "plain" / "model").iterdir()}


@pytest.mark.slow
def test_without_a_compiler_layers_stay_as_they_are_and_that_is_said(tmp_path: Path) -> None:
    toy = make_toy(tmp_path / "toy")
    nowhere = {"CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    words = sft(toy, tmp_path / "run", "--steps", 1, "--device", "cpu", "--compile")
    # A process of its own: torch remembers the compiler that it found.
    done = subprocess.run(
        [sys.executable, "-m", "plaudit", *map(str, words)],
        env={**os.environ, **nowhere},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [note] = [note for note in read_notes(tmp_path / "run") if note.startswith("compiled: ")]
    assert note.startswith("compiled: nothing in 2 layers; LlamaAttention, LlamaMLP, LlamaRMSNorm as without")
    assert "No working C++ compiler found" in note


@pytest.mark.slow
@pytest.mark.parametrize("how", [("--memory.layout", "left"), ("--dtype", "bfloat16", "--lora.rank", 4)])
def test_dpo_begins_where_its_reference_is(opinions, tmp_path, programs, how):
    toy, rows = opinions
    more = ("--steps", 8, "--batch-size", 4, "--learning-rate", 0.01, "--device", "cpu", *how, "--compile")
    went(preference("dpo", toy, rows[kind_of("dpo")], tmp_path / "run", "--reference.kind", "live", *more))
    assert len({*programs}) == 1
    assert COMPILED in read_notes(tmp_path / "run")
    loss = losses(tmp_path / "run")
    assert loss[0] == pytest.approx(0.6931, abs=2e-3)
    assert loss[-1] < loss[0]


@pytest.mark.slow
def test_a_reward_model_learns(opinions, tmp_path, programs):
    toy, rows = opinions
    more = ("--steps", 20, "--batch-size", 8, "--learning-rate", 0.02, "--memory.checkpointing", "--compile")
    went(reward(toy.model, rows["comparisons"], tmp_path / "run", *more))
    assert len({*programs}) == 1
    loss = losses(tmp_path / "run")
    assert sum(loss[-5:]) < sum(loss[:5])


@pytest.mark.slow
def test_ppo_compiles_policy_and_critic(tmp_path: Path, programs: list[int]) -> None:
    done = well(make_place(tmp_path), "ppo", "run", "--rounds", 6, "--learning-rate", 0.05, "--compile")
    assert len({*programs}) == 1
    assert {COMPILED, f"critic, {COMPILED}"} <= {*read_notes(done.run)}
    assert sum(done.figures("reward")[-2:]) > sum(done.figures("reward")[:2])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (("--shard",), "--compile is for whole weights"),
        (("--lora.rank", 4, "--lora.base", "4bit"), "--compile is for whole weights"),
        (("--memory.checkpointing", "--memory.keep-products"), "no product is kept within compiled layers"),
        (("--lora.rank", 4, "--lora.dropout", 0.1), "--lora.dropout draws"),
    ],
)
def test_what_cannot_be_compiled_is_refused_in_words(tmp_path, capsys, more, why):
    toy = Toy(model=tmp_path / "base", data=tmp_path / "rows.jsonl")
    assert main([str(word) for word in sft(toy, tmp_path / "run", "--compile", *more)]) != 0
    assert why in capsys.readouterr().err
