"""``plaudit plan``: what it says beforehand is what a real run then does."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from plaudit.cli.main import main
from plaudit.engine.sinks.files import read_reports
from plaudit.errors import UserError
from plaudit.models.adapters import with_lora
from plaudit.models.load import load_model
from plaudit.models.settings import LoraSettings
from plaudit.runs.planner.machine import parse_bytes
from plaudit.runs.planner.memory import ALWAYS, LOAD, MemoryLedger, MemoryLine
from tests.engine.toy import demonstrations, make_model, write_rows

SEVEN_B: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}
QUIET = ("--device", "cpu", "--no-check")


def planned(folder: Path, *words: object, status: int = 0) -> dict[str, Any]:
    file = folder / "plan.json"
    assert main(["plan", *map(str, words), "--json", str(file)]) == status
    return json.loads(file.read_text())


def trained(folder: Path, *words: object) -> list[Any]:
    out = folder / "run"
    assert main(["train", *map(str, words), "--out", str(out)]) == 0
    return list(read_reports(out))


def pairs(folder: Path) -> Path:
    shown = demonstrations(20)
    rows = [
        {"prompt": one["prompt"], "chosen": one["completion"], "rejected": other["completion"]}
        for one, other in zip(shown, shown[1:] + shown[:1], strict=True)
    ]
    return write_rows(folder / "pairs.jsonl", rows)


def prompts(folder: Path) -> Path:
    return write_rows(folder / "prompts.jsonl", [{"prompt": one["prompt"]} for one in demonstrations(11)])


def line(plan: dict[str, Any], name: str) -> int:
    return sum(one["bytes"] for one in plan["memory"] if one["name"] == name)


def bare(folder: Path, facts: dict[str, Any]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(facts))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        (),
        pytest.param(("--epochs", "1.6"), marks=pytest.mark.slow),
        pytest.param(("--steps", "4"), marks=pytest.mark.slow),
        pytest.param(("--memory.tokens-at-once", "64"), marks=pytest.mark.slow),
    ],
)
def test_the_arithmetic_of_sft_is_that_of_the_run(tmp_path, toy, more):
    words = ("sft", "--model", toy.model, "--data", toy.data, "--batch-size", 5, *QUIET, *more)
    plan = planned(tmp_path, *words, "--no-measure")
    reports = trained(tmp_path, *words, "--sample.rows", 0)
    assert plan["steps"] == len(reports)
    assert plan["tokens"] == sum(one.values["tokens"] for one in reports)
    assert plan["epochs"] == pytest.approx(reports[-1].epoch)


def test_rows_of_stated_length_may_have_fields_of_other_names(tmp_path, toy):
    rows = [{"ask": one["prompt"], "completion": one["completion"]} for one in demonstrations(8)]
    data = write_rows(tmp_path / "named.jsonl", rows)
    words = ("sft", "--model", toy.model, "--data", data, "--held-out", 0)
    for lengths in ((), ("--prompt-tokens", 8, "--answer-tokens", 4)):
        plan = planned(tmp_path, *words, *QUIET, *lengths, "--columns", "prompt=ask", "--no-measure")
        assert plan["rows"] == 8


@pytest.mark.slow
def test_the_arithmetic_of_dpo_is_that_of_the_run(tmp_path, toy):
    words = ("dpo", "--model", toy.model, "--data", pairs(tmp_path), "--batch-size", 4, *QUIET)
    words = (*words, "--reference.cache", tmp_path / "cache", "--held-out", "0.2")
    plan = planned(tmp_path, *words, "--no-measure")
    reports = trained(tmp_path, *words, "--sample.rows", 0)
    assert (plan["rows"], plan["held_out"]) == (16, 4)
    assert plan["steps"] == len(reports)
    assert plan["tokens"] == sum(one.values["tokens"] for one in reports)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        (),
        pytest.param(("--steps", "5"), marks=pytest.mark.slow),
        pytest.param(("--rounds", "4"), marks=pytest.mark.slow),
    ],
)
def test_the_arithmetic_of_ppo_is_that_of_the_run(tmp_path, toy, more):
    words = ("ppo", "--model", toy.model, "--prompts", prompts(tmp_path), "--reward", "length:1-9", *QUIET)
    words = (*words, "--batch-size", 4, "--draw.max-tokens", 5, "--group-size", 3, "--held-out", 0)
    words = (*words, "--update-epochs", 2, "--minibatches", 2, "--draw.stop", "never said", *more)
    plan = planned(tmp_path, *words, "--no-measure")
    reports = trained(tmp_path, *words, "--sample.rows", 0)
    assert plan["steps"] == len(reports)
    assert plan["batches"] == -(-len(reports) // 4)
    # An answer may end before its room is used up; the plan takes it to be as long as it may be.
    assert plan["tokens"] >= sum(one.values["tokens"] for one in reports)
    assert max(one.values["length_max"] for one in reports) <= 5
    first = [one for one in reports if one.step % 4 == 1]
    assert plan["answers"] >= 3 * sum(one.values["rows"] for one in first)


@pytest.mark.slow
def test_weights_and_adapters_are_counted_as_they_are(tmp_path, toy):
    real = load_model(toy.model, dtype=torch.float32, device=torch.device("cpu"))
    words = ("sft", "--model", toy.model, "--data", toy.data, *QUIET, "--no-measure")
    whole = planned(tmp_path, *words)
    assert line(whole, "weights") == sum(p.nbytes for p in real.parameters())
    assert line(whole, "gradients") == line(whole, "weights")
    assert line(whole, "optimiser") == 2 * line(whole, "weights")
    adapted = planned(tmp_path, *words, "--lora.rank", 4)
    own = with_lora(real, LoraSettings(rank=4))
    learns = sum(p.nbytes for p in own.parameters() if p.requires_grad)
    assert line(adapted, "gradients") == learns
    assert line(adapted, "weights") == sum(p.nbytes for p in own.parameters())
    four = planned(tmp_path, *words, "--lora.rank", 4, "--lora.base", "4bit")
    fresh = load_model(toy.model, dtype=torch.float32, device=torch.device("cpu"))
    own = with_lora(fresh, LoraSettings(rank=4, base="4bit"))
    assert line(four, "weights") == sum(p.nbytes for p in own.parameters())
    assert line(four, "gradients") == learns
    momentum = planned(tmp_path, *words, "--optimizer.name", "sgd")
    assert line(momentum, "optimiser") == line(momentum, "weights")


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "more",
    [(), ("--lora.rank", "4"), ("--lora.rank", "4", "--lora.base", "4bit"), ("--optimizer.name", "sgd")],
)
def test_a_checkpoint_takes_the_bytes_that_were_said(tmp_path, more):
    base = AutoModelForCausalLM.from_config(_medium())
    make_model(tmp_path / "base")
    base.save_pretrained(tmp_path / "base")
    data = write_rows(tmp_path / "rows.jsonl", demonstrations(8))
    words = ("sft", "--model", tmp_path / "base", "--data", data, "--steps", 2, *QUIET, *more)
    words = (*words, "--batch-size", 2)
    plan = planned(tmp_path, *words, "--no-measure")
    trained(tmp_path, *words, "--sample.rows", 0)
    said = {one["name"]: one["bytes"] for one in plan["disk"]}
    for folder in (tmp_path / "run" / "checkpoints").glob("step-*"):
        taken = sum(file.stat().st_size for file in folder.iterdir())
        assert taken == pytest.approx(said["checkpoints"], rel=0.02)
    model = sum(file.stat().st_size for file in (tmp_path / "run" / "model").glob("*.safetensors"))
    assert model == pytest.approx(said["model"], rel=0.02)


def _medium() -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=512,
        vocab_size=320,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=2,
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_7b_does_not_fit_into_4_gib_whatever_is_set(tmp_path, toy, capsys):
    model = bare(tmp_path / "llama", SEVEN_B)
    words = ("sft", "--model", model, "--data", toy.data, "--machine-memory", "4GiB")
    words = (*words, "--prompt-tokens", 200, "--answer-tokens", 100, "--on", "cuda")
    plan = planned(tmp_path, *words, status=1)
    assert not plan["fits"]
    assert plan["suggestions"] == []
    said = capsys.readouterr().out.replace("\n", " ")
    assert "does NOT fit" in said
    assert "nothing that can be set makes it fit into 4.00 GiB" in said


@pytest.mark.slow
def test_less_memory_is_offered_by_single_changes_first(tmp_path, toy):
    words = ("sft", "--model", toy.model, "--data", toy.data, *QUIET, "--no-measure", "--on", "cuda")
    tight = planned(tmp_path, *words, "--machine-memory", "2GiB")["peak_bytes"] - 1
    assert planned(tmp_path, *words, "--machine-memory", f"{tight}B")["peak_bytes"] < tight
    words += ("--no-memory.checkpointing",)
    plan = planned(tmp_path, *words, "--machine-memory", f"{tight}B", status=1)
    assert next(one["settings"] for one in plan["suggestions"]) == "--memory.checkpointing"
    for offer in plan["suggestions"]:
        again = planned(tmp_path, *words, "--machine-memory", f"{tight}B", *offer["settings"].split())
        assert again["peak_bytes"] == offer["peak_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("sft",),
        ("dpo",),
        ("kto",),
        ("reward",),
        ("grpo", "--group-size", "2"),
        ("ppo", "--critic.shared"),
        ("preferred", "--memory.checkpointing"),
    ],
)
def test_time_is_measured_and_nothing_is_written(tmp_path, toy, words, capfd):
    work = tmp_path / "work"
    data: Sequence[object] = ("--data", toy.data if words[0] == "sft" else pairs(work))
    if words[0] in ("grpo", "ppo"):
        data = ("--prompts", prompts(work), "--reward", "length:1-9", "--draw.max-tokens", 4)
    before = _files(tmp_path)
    plan = planned(
        tmp_path, *words, "--model", toy.model, *data, "--batch-size", 3, "--steps", 3, "--device", "cpu"
    )
    assert plan["seconds"]["total"] > 0
    assert "measuring some steps" in capfd.readouterr().err, "a pipe shows no bar"
    assert plan["tokens_per_second"] > 0
    assert (plan["seconds"]["drawing"] > 0) is (words[0] in ("grpo", "ppo"))
    assert _files(tmp_path) - before == {"plan.json"}


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_stated_pace_is_used(tmp_path, toy):
    words = ("sft", "--model", toy.model, "--data", toy.data, *QUIET, "--tokens-per-second", "100")
    plan = planned(tmp_path, *words, "--held-out", 0)
    assert plan["seconds"]["total"] == pytest.approx(plan["tokens"] / 100)
    shared = planned(tmp_path, *words, "--held-out", 0, "--ranks", 2)
    assert shared["seconds"]["total"] == pytest.approx(plan["seconds"]["total"] / 2)


def test_weights_that_are_divided_are_read_in_parts_and_have_to_fit(tmp_path, toy):
    machine = ("--on", "cuda", "--ranks", 4, "--shard", "--machine-memory", "24GiB")
    words = ("sft", "--model", toy.model, "--data", toy.data, *machine)
    plan = planned(tmp_path, *words, "--no-measure", "--disk-rate", "1MB")
    assert line(plan, "loading") == pytest.approx(1.2 * line(plan, "weights"), rel=1e-3)
    whole = planned(tmp_path, *words, "--no-measure", "--no-shard")
    assert line(whole, "loading") == line(whole, "weights")
    # A base beneath adapters is read in all digits, and rounded then.
    adapted = planned(tmp_path, *words, "--no-measure", "--no-shard", "--lora.rank", 1)
    assert line(adapted, "loading") > line(whole, "weights") > line(adapted, "weights")
    took = {one["name"]: one for one in plan["transfers"]}
    assert took["load"]["bytes"] == pytest.approx(line(plan, "weights"), rel=1e-3)
    assert took["save"]["seconds"] == pytest.approx(plan["disk"][0]["bytes"] / 4 / 1e6, rel=1e-3)
    assert took["go on"]["bytes"] == took["load"]["bytes"] + took["save"]["bytes"]
    later = MemoryLine(name="weights", bytes=5, when=ALWAYS, why="")
    loading = MemoryLine(name="loading", bytes=7, when=LOAD, why="")
    assert MemoryLedger(lines=(later, loading)).with_process(1).peak == 8
    reward = ("--prompts", prompts(tmp_path), "--reward", "length:1-9")
    drawn = planned(tmp_path, "grpo", "--model", toy.model, *reward, *machine, "--no-measure")
    assert line(drawn, "copy that draws") == pytest.approx(2 * line(plan, "weights"), rel=1e-3), "in 16 bits"


def test_a_gpu_by_name_has_its_memory_and_an_estimate_of_time(tmp_path, toy):
    from plaudit.runs.planner.cost import TRAINING_SHARE
    from plaudit.runs.planner.machine import GPUS
    from plaudit.runs.verbs.plan import GPU_NAMES

    assert sorted(GPU_NAMES) == sorted(GPUS)
    words = ("sft", "--model", toy.model, "--data", toy.data, "--steps", 10, "--batch-size", 8, "--seed", 0)
    plans = {name: planned(tmp_path, *words, "--gpu", name) for name in ("h200", "a100-80")}
    for name, plan in plans.items():
        assert plan["machine_bytes"] == GPUS[name].memory
        assert line(plan, "kernels") == 2**30
    shares = GPUS["h200"].rate / GPUS["a100-80"].rate
    assert plans["a100-80"]["seconds"]["moves"] == pytest.approx(shares * plans["h200"]["seconds"]["moves"])
    model = AutoModelForCausalLM.from_pretrained(toy.model)
    multiplied = sum(p.numel() for p in model.parameters() if p.ndim >= 2)
    if not model.config.tie_word_embeddings:
        multiplied -= model.get_input_embeddings().weight.numel()
    seconds = plans["h200"]["tokens"] * 6 * multiplied / (TRAINING_SHARE * GPUS["h200"].rate)
    assert plans["h200"]["seconds"]["moves"] == pytest.approx(seconds)


def test_gpus_are_shared_where_both_sides_together_are_quickest(tmp_path, toy, capsys):
    words = ("grpo", "--model", toy.model, "--prompts", prompts(tmp_path), "--reward", "length:1-20")
    plan = planned(tmp_path, *words, "--gpu", "h100", "--gpus", 5)
    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines() if re.fullmatch(r"\s+\d\s+\d .*", line)]
    assert [(int(learn), int(draw)) for learn, draw, *_ in rows] == [(4, 1), (3, 2), (2, 3), (1, 4)]
    best = max(rows, key=lambda row: int(row[-1].replace(",", "")))
    assert f"the quickest that fits: {best[0]} learn, {best[1]} draw: --sampler http://server-1:8000" in said
    assert plan["ranks"] == int(best[0])
    assert "cache of the sampler" not in {line["name"] for line in plan["memory"]}


@pytest.mark.slow
def test_grpo_of_7b_with_a_reference_is_made_to_fit_one_h200(tmp_path):
    words = ("grpo", "--model", bare(tmp_path / "llama", SEVEN_B), "--prompts", prompts(tmp_path))
    words = (*words, "--reward", "length:1-20", "--prompt-tokens", 256, "--answer-tokens", 512)
    words = (*words, "--kl-coef", 0.01, "--draw.max-tokens", 512, "--gpu", "h200")
    words = (*words, "--no-memory.checkpointing")
    plan = planned(tmp_path, *words, status=1)
    numbers = 6_738_415_616
    assert (line(plan, "weights"), line(plan, "reference")) == (4 * numbers, 2 * numbers)
    assert plan["seconds"]["drawing"] > 0
    offers = {one["settings"]: one for one in plan["suggestions"]}
    assert "--optimizer.state float8" in offers or "--optimizer.state bfloat16" in offers
    for settings, offer in offers.items():
        again = planned(tmp_path, *words, *settings.split())
        assert again["peak_bytes"] == offer["peak_bytes"] <= plan["machine_bytes"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--machine-memory=-3GiB",), "more than no memory"),
        (("--machine-memory", "24 barrels"), "write a number and one of"),
        (("--machine-memory", "1.2.3GiB"), "is no number"),
        (("--on", "cuda"), "say --machine-memory too"),
        (("--gpu", "h200", "--on", "cpu"), "say one of them"),
        (("--gpu", "h2000"), "h200"),
        (("--tokens-per-second", "0"), "above 0"),
        (("--prompt-tokens", "5"), "both"),
        (("--ranks", "0"), "1 or more"),
        (("--gpus", "4"), "say which, by --gpu NAME"),
    ],
)
def test_what_makes_no_sense_is_refused(toy, capsys, words, complaint):
    assert main(["plan", "sft", "--model", str(toy.model), "--data", str(toy.data), *words]) == 2
    assert complaint in capsys.readouterr().err


def test_folders_without_config_or_tokenizer_are_refused_in_words(tmp_path, toy, capsys):
    data = str(toy.data)
    (tmp_path / "empty").mkdir()
    stated = ["--prompt-tokens", "5", "--answer-tokens", "5"]
    assert main(["plan", "sft", "--model", str(tmp_path / "empty"), "--data", data, *stated]) == 2
    assert "config.json is missing" in capsys.readouterr().err
    assert main(["plan", "sft", "--model", str(bare(tmp_path / "llama", SEVEN_B)), "--data", data]) == 2
    assert "--prompt-tokens" in capsys.readouterr().err


def test_bytes_are_read_as_people_write_them():
    assert parse_bytes("1.5gib") == 3 * 2**29
    assert parse_bytes("2 TB") == 2 * 10**12
    with pytest.raises(UserError, match="more than no memory"):
        parse_bytes("0GB")
