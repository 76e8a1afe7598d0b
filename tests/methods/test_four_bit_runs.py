"""Runs on a base in 4 bits through the command: each learns, goes on exactly, and merges into its folder."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from plaudit.models.adapters import merge_adapters, with_adapter
from plaudit.models.load import load_model
from plaudit.models.reward_model import load_reward_model
from tests.engine.test_exact_resume import at_random, during_a_save, same
from tests.engine.toy import Toy, make_toy
from tests.engine.toy_command import Command, finish, outcome, refused, sft
from tests.methods.policy.commands import make_place, well
from tests.methods.preference.test_runs import command as preference, kind_of, make_opinions
from tests.methods.reward_model.rows import command as reward

pytestmark = pytest.mark.slow

pytest.importorskip("peft", reason="needs plaudit[lora]")
FOUR = ("--lora.rank", 4, "--lora.base", "4bit")
LONG = (*FOUR, "--steps", 30, "--batch-size", 8, "--learning-rate", 0.02)
CPU = torch.device("cpu")
Files = tuple[Toy, dict[str, Path]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_opinions(tmp_path_factory.mktemp("toy"), rows=60)


def held_out(run: Path, name: str) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [line[f"held_out/{name}"] for line in lines if f"held_out/{name}" in line]


def ran(command: list[object]) -> str:
    done = finish(*command)
    assert "linear layers are held in 4 bits (NF4)" in done.err
    assert "the model beneath the adapters" in done.err or "dpo" not in command
    return done.err


def merged_into_its_folder(run: Path, folder: Path) -> None:
    """The result is the folder's own weights with the adapter added, which no 4 bits have touched."""
    base = load_model(folder, dtype=torch.float32, device=CPU)
    wanted: Any = merge_adapters(with_adapter(base, run / "adapter")).state_dict()
    found = load_file(run / "model" / "model.safetensors")
    assert found
    for key, weight in found.items():
        assert torch.equal(weight, wanted[key]), key
    begun = load_file(folder / "model.safetensors")
    # What no adapter stands beside is as it was, to the bit.
    assert torch.equal(found["model.embed_tokens.weight"], begun["model.embed_tokens.weight"])
    assert any(not torch.equal(found[key], weight) for key, weight in begun.items())


def test_sft_learns_and_merges_into_the_folder_that_it_began_with(files: Files, tmp_path: Path) -> None:
    toy, _ = files
    ran(sft(toy, tmp_path / "run", *LONG))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    loss = [json.loads(line)["loss"] for line in lines]
    # Adapters alone cannot do much with layers that were never trained; whole ones do no better above them.
    assert sum(loss[-5:]) / 5 < loss[0] - 0.1
    merged_into_its_folder(tmp_path / "run", toy.model)


@pytest.mark.parametrize("kind", ["live", "precomputed"])
def test_dpo_learns_against_the_base_in_four_bits(files: Files, tmp_path: Path, kind: str) -> None:
    toy, data = files
    rows, kept = data[kind_of("dpo")], tmp_path / "kept"
    words = ("--reference.kind", kind, "--reference.cache", kept)
    done = finish(*preference("dpo", toy, rows, tmp_path / "run", *LONG, "--evaluate-every", 5, *words))
    assert ("the model beneath the adapters" in done.err) == (kind == "live")
    accuracy = held_out(tmp_path / "run", "loss")
    # The reference is the policy's own base, 4 bits and all: every log-ratio begins at 0.
    assert accuracy[-1] < 0.9 * accuracy[0]
    merged_into_its_folder(tmp_path / "run", toy.model)


def test_log_probs_of_another_base_are_not_taken_from_the_cache(files: Files, tmp_path: Path) -> None:
    toy, data = files
    rows, words = data[kind_of("dpo")], ("--reference.cache", tmp_path / "kept", "--lora.rank", 4)
    for name, more in (("wide", ()), ("four", ("--lora.base", "4bit")), ("again", ("--lora.base", "4bit"))):
        done = finish(*preference("dpo", toy, rows, tmp_path / name, "--steps", 1, *words, *more))
        assert ("log-probs found in" in done.err) == (name == "again")
        first = json.loads((tmp_path / name / "metrics.jsonl").read_text("utf-8").splitlines()[0])
        assert first["loss"] == pytest.approx(0.6931, abs=2e-3)


def test_a_reward_model_learns_and_its_head_is_saved_with_it(files: Files, tmp_path: Path) -> None:
    toy, data = files
    run = tmp_path / "run"
    ran(reward(toy.model, data["comparisons"], run, *LONG, "--evaluate-every", 5))
    assert held_out(run, "accuracy")[-1] > 0.8
    begun = load_file(toy.model / "model.safetensors")
    found = load_file(run / "model" / "model.safetensors")
    adapter = load_file(run / "adapter" / "adapter_model.safetensors")
    [head] = [weight for key, weight in adapter.items() if key.endswith("score.weight")]
    assert torch.equal(found["score.weight"], head)
    update = {
        key.removeprefix("base_model.model.").replace(".lora_B.weight", ""): weight
        @ adapter[key.replace("lora_B", "lora_A")]
        * 2
        for key, weight in adapter.items()
        if "lora_B" in key
    }
    assert update
    for key, change in update.items():
        torch.testing.assert_close(found[f"{key}.weight"], begun[f"{key}.weight"] + change, rtol=0, atol=1e-6)
    load_reward_model(run / "model", dtype=torch.float32, device=CPU)


@pytest.mark.slow
def test_grpo_draws_and_learns_on_it(tmp_path: Path) -> None:
    place = make_place(tmp_path)
    words = ("--rounds", 12, "--learning-rate", 0.05, "--reward", place.rule("w33"))
    went = well(place, "grpo", "four", *words, *FOUR)
    assert "linear layers are held in 4 bits (NF4)" in went.said
    assert "the model beneath the adapters" in went.said
    assert went.figures("kl")[0] == pytest.approx(0, abs=1e-5)
    reward = went.figures("reward")
    assert sum(reward[-3:]) > sum(reward[:3])
    merged_into_its_folder(went.run, place.model)


def test_a_run_that_was_killed_goes_on_to_the_bit(files: Files, tmp_path: Path) -> None:
    toy, _ = files
    chance = random.Random("four bits")
    finish(*sft(toy, tmp_path / "undisturbed", *FOUR))
    command = sft(toy, tmp_path / "run", *FOUR)
    Command(command).kill_when(during_a_save(tmp_path / "run", after=1))
    Command(command).kill_when(at_random(chance))
    finish(*command)
    same(tmp_path / "run", outcome(tmp_path / "undisturbed"))
    # Only what learns is in a checkpoint: the base is made anew from its folder.
    newest = max((tmp_path / "run" / "checkpoints").glob("step-*"))
    names = {name for path in newest.glob("*.safetensors") for name in load_file(path)}
    assert any("lora_" in name for name in names)
    assert not any("codes" in name or "scale_bits" in name for name in names)


def test_a_base_that_was_rounded_to_bfloat16_is_merged_as_it_was(files: Files, tmp_path: Path) -> None:
    toy, _ = files
    finish(*sft(toy, tmp_path / "run", "--lora.rank", 4, "--dtype", "bfloat16"))
    merged_into_its_folder(tmp_path / "run", toy.model)


def test_an_adapter_as_a_model_is_merged_before_it_is_rounded(files: Files, tmp_path: Path) -> None:
    toy, _ = files
    finish(*sft(toy, tmp_path / "first", *FOUR))
    second = make_toy(tmp_path / "second")
    shutil.copytree(tmp_path / "first" / "model", second.model, dirs_exist_ok=True)
    ran(sft(second, tmp_path / "run", *FOUR))
    merged_into_its_folder(tmp_path / "run", second.model)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((*FOUR, "--shard"), "--shard divides whole weights"),
        (("--lora.rank", 4, "--lora.base", "8bit"), "lora.base"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_loaded(files, tmp_path, more, words):
    toy, _ = files
    assert words in refused(*sft(toy, tmp_path / "run", *more))
    assert not (tmp_path / "run" / "checkpoints").exists()
