"""A run that is too large for its GPU is refused before a model is loaded, with settings that would fit."""

from __future__ import annotations

import gc
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import plaudit
from plaudit.cli.main import main
from plaudit.engine.distributed import single_process
from plaudit.engine.settings import MemorySettings
from plaudit.errors import UserError
from plaudit.methods.registry import config_type
from plaudit.preflight.check import Result
from plaudit.runs.planner import cost, fit
from plaudit.runs.planner.machine import Machine, format_bytes
from tests.engine.toy import make_model, write_rows
from tests.preflight.subjects import Method, rows_for

QWEN: dict[str, Any] = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 6,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 32000,
    "tie_word_embeddings": True,
}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
ROOM = 2**40
"""More bytes than any of these runs takes."""


def options(method: Method, folder: Path) -> dict[str, str]:
    rows = "prompts" if method in ("grpo", "ppo") else "data"
    rewarded = {"reward": "length:1-20", "draw.max-tokens": "64"} if rows == "prompts" else {}
    return {"model": str(folder / "base"), rows: str(rows_for(method, folder)), **rewarded}


def words_of(settings: dict[str, str]) -> list[str]:
    return [word for name, value in settings.items() for word in (f"--{name}", value)]


def without_weights(folder: Path, shape: dict[str, Any]) -> Path:
    """A model of this shape as far as a plan wants it: its config, and a tokenizer."""
    make_model(folder)
    (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text(json.dumps(shape), encoding="utf-8")
    return folder


def fitted(method: Method, folder: Path, room: int, **changed: Any) -> Result:
    where = options(method, folder)
    given: dict[str, Any] = {name: where[name] for name in ("data", "prompts", "reward") if name in where}
    unless = MemorySettings(checkpointing=False)
    config = config_type(method)(model=folder / "base", out=folder / "run", **given, memory=unless)
    config = replace(config, **changed)
    if method in ("grpo", "ppo"):
        config = replace(config, draw=replace(config.draw, max_tokens=64))
    return fit.fit_of(cost.plan_on(method, config, Machine(memory=room, device_kind="cuda")))


def planned(method: Method, folder: Path, memory: int) -> dict[str, Any]:
    file = folder / "plan.json"
    where = ["--machine-memory", f"{memory}B", "--on", "cuda", "--no-measure", "--json", str(file)]
    where += ["--no-memory.checkpointing"]
    main(["plan", method, *words_of(options(method, folder)), *where])
    return json.loads(file.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.cases(quick=("sft-shape0",))
@pytest.mark.parametrize(
    ("method", "shape"),
    [
        ("sft", QWEN),
        ("dpo", LLAMA),
        pytest.param("reward", QWEN, marks=pytest.mark.slow),
        pytest.param("grpo", LLAMA, marks=pytest.mark.slow),
        pytest.param("ppo", QWEN, marks=pytest.mark.slow),
    ],
)
def test_a_run_is_told_what_a_plan_says(tmp_path, method, shape, capsys):
    without_weights(tmp_path / "base", shape)
    peak = planned(method, tmp_path, ROOM)["peak_bytes"]
    assert fitted(method, tmp_path, peak).holds
    plan = planned(method, tmp_path, peak - 1)
    capsys.readouterr()
    refused = fitted(method, tmp_path, peak - 1)
    assert refused.holds is False
    first, *others = refused.details.splitlines()
    assert first == f"about {format_bytes(peak)} at the peak, and the GPU has {format_bytes(peak - 1)}"
    named = [line.strip().partition(": ")[0] for line in others if line.strip().startswith("--")]
    assert named == [offer["settings"] for offer in plan["suggestions"]]
    assert named


@pytest.mark.slow
def test_where_nothing_fits_the_least_is_said(tmp_path):
    without_weights(tmp_path / "base", QWEN)
    said = fitted("sft", tmp_path, 2**20).details
    assert "nothing that can be set makes it fit into 1.00 MiB: the least is" in said


@pytest.fixture
def gpu_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """From a number of bytes to a machine on which the CPU passes for a GPU with so many."""

    def with_memory(size: int) -> None:
        monkeypatch.setattr(fit, "gpu_memory", lambda _: size)

    return with_memory


def train(folder: Path, out: str, *more: str, method: Method = "sft") -> int:
    if not (folder / "base").exists():
        make_model(folder / "base")
    usual = ("--device", "cpu", "--steps", "2", "--sample.rows", "0")
    return main(
        ["train", method, *words_of(options(method, folder)), "--out", str(folder / out), *usual, *more]
    )


def verdict(run: Path) -> tuple[str, str]:
    checks = json.loads((run / "checks.json").read_text("utf-8"))["checks"]
    [found] = [(one["verdict"], one["finding"]) for one in checks if one["name"] == "memory"]
    return found


def weights(run: Path) -> str:
    return hashlib.sha256((run / "model" / "model.safetensors").read_bytes()).hexdigest()


def test_the_command_refuses_before_a_model_is_loaded(tmp_path, gpu_of, capsys, monkeypatch):
    def loaded(*_: object) -> None:
        raise AssertionError("a model was loaded")

    gpu_of(2**30)
    with monkeypatch.context() as patch:
        patch.setattr("plaudit.methods.supervised.run.prepare_policy", loaded)
        assert train(tmp_path, "run") == 2
    said = capsys.readouterr().err
    assert "plaudit: too large for the GPU; looking for settings that fit …\n" in said
    assert "memory: about 1.00 GiB at the peak, and the GPU has 1.00 GiB" in said
    assert "to train all the same: --allow memory" in said
    # The folder holds nothing yet, so the same command may go on with other settings.
    assert train(tmp_path, "run", "--allow", "memory", "--lora.rank", "4") == 0
    assert verdict(tmp_path / "run")[0] == "allowed"
    assert "check memory fails and is allowed to" in (tmp_path / "run" / "notes.jsonl").read_text("utf-8")
    assert train(tmp_path, "blind", "--no-check") == 0


def test_layers_are_computed_again_where_the_memory_of_a_gpu_asks_for_it(tmp_path, gpu_of, capsys):
    make_model(tmp_path / "base")
    config = config_type("sft")(model=tmp_path / "base", data=rows_for("sft", tmp_path), out=tmp_path / "run")
    whole = cost.plan_on("sft", replace(config, steps=2), Machine(memory=ROOM, device_kind="cuda"))
    gpu_of(whole.memory.peak - 1)
    assert train(tmp_path, "run") == 0
    assert "--memory.checkpointing: layers are computed again" in capsys.readouterr().err
    assert train(tmp_path, "told", "--no-memory.checkpointing") == 2
    gpu_of(ROOM)
    assert train(tmp_path, "whole") == 0
    assert "computed again" not in capsys.readouterr().err.rpartition("fit …")[2]
    losses = [plaudit.TrainingResult(tmp_path / out).metrics.column("loss") for out in ("run", "whole")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_finished_run_is_not_asked_again(tmp_path, gpu_of):
    gpu_of(ROOM)
    assert train(tmp_path, "run") == 0
    gpu_of(2**30)
    assert train(tmp_path, "run") == 0


@pytest.mark.parametrize("method", ["sft", pytest.param("ppo", marks=pytest.mark.slow)])
def test_asking_changes_nothing(tmp_path, gpu_of, method):
    assert train(tmp_path, "blind", "--no-check", method=method) == 0
    gpu_of(ROOM)
    assert train(tmp_path, "asked", method=method) == 0
    assert verdict(tmp_path / "asked")[0] == "pass"
    assert "and the GPU has 1.00 TiB" in verdict(tmp_path / "asked")[1]
    assert weights(tmp_path / "asked") == weights(tmp_path / "blind")


def test_on_a_cpu_nothing_is_planned(tmp_path, monkeypatch):
    def plan(*_: object) -> None:
        raise AssertionError("a run on a CPU was planned")

    monkeypatch.setattr(cost, "plan_on", plan)
    assert train(tmp_path, "run") == 0
    assert verdict(tmp_path / "run") == ("not applicable", "the run computes on no GPU")


@pytest.mark.slow
def test_the_check_says_it_and_loads_nothing(tmp_path, gpu_of, capsys):
    make_model(tmp_path / "base")
    words = ["check", "sft", *words_of(options("sft", tmp_path)), "--device", "cpu"]
    gpu_of(2**30)
    assert main([*words, "--only", "memory", "mask"]) == 1
    said = capsys.readouterr().out
    assert "the GPU has 1.00 GiB" in said
    assert "mask: no model was loaded, since the run would not fit" in said
    # Whoever asks for others alone, or allows it, gets them.
    assert main([*words, "--only", "mask"]) == 0
    assert main([*words, "--only", "memory", "mask", "--allow", "memory"]) == 0
    assert "1 checks pass, none fails, 1 allowed to fail" in capsys.readouterr().out
    gpu_of(ROOM)
    assert main([*words, "--only", "memory"]) == 0


def test_the_fault_of_a_row_is_told_by_the_run_itself(tmp_path, gpu_of, capsys):
    make_model(tmp_path / "base")
    rows = write_rows(tmp_path / "rows.jsonl", [{"prompt": "one?"}, {"prompt": "two?"}])
    words = ["train", "sft", "--model", str(tmp_path / "base"), "--data", str(rows), "--device", "cpu"]
    words += ["--out", str(tmp_path / "run")]
    assert main(words) == 2
    usual = capsys.readouterr().err
    gpu_of(ROOM)
    assert main(words) == 2
    assert capsys.readouterr().err == usual


def test_a_model_that_needs_numbers_is_trained_without_a_plan(tmp_path, gpu_of, monkeypatch):
    def attend(*_: object, **__: object) -> None:
        torch.zeros((), device="meta").item()

    gpu_of(ROOM)
    monkeypatch.setattr("plaudit.runs.planner.simulation.layout_batch", attend)
    assert train(tmp_path, "run") == 0
    found, why = verdict(tmp_path / "run")
    assert found == "not applicable"
    assert why.startswith("it cannot be planned: Tensor.item()")


@pytest.mark.slow
def test_python_is_refused_too_and_an_algorithm_of_ones_own_has_no_plan(tmp_path, gpu_of):
    make_model(tmp_path / "base")
    settings: dict[str, Any] = {"model": tmp_path / "base", "data": rows_for("dpo", tmp_path), "steps": 1}
    settings |= {"device": "cpu", "sinks": []}
    gpu_of(2**30)
    with pytest.raises(UserError, match=r"the GPU has 1\.00 GiB"):
        plaudit.train("dpo", out=tmp_path / "named", **settings)
    with pytest.raises(UserError, match=r"the GPU has 1\.00 GiB"):
        plaudit.train(plaudit.dpo(beta=0.2), out=tmp_path / "record", **settings)
    plaudit.train(replace(plaudit.dpo(beta=0.2), name="mine"), out=tmp_path / "own", **settings)
    assert verdict(tmp_path / "own") == ("not applicable", "plaudit plan does not know runs of mine")


def test_the_memory_of_a_gpu_is_all_that_it_has(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (3, 80))
    assert fit.gpu_memory(torch.device("cuda")) == 80
    assert fit.gpu_memory(torch.device("cpu")) is None
    cpu = single_process(torch.device("cpu"))
    assert fit.estimate_fit("sft", None, cpu)[0].details == "the run computes on no GPU"


@pytest.mark.gpu
def test_a_gpu_that_is_too_small_is_left_alone_and_a_real_one_is_enough(tmp_path, capsys, monkeypatch):
    gc.collect()
    before = torch.cuda.memory_allocated()
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "mem_get_info", lambda *_: (2**30, 2**30))
        assert train(tmp_path, "small", "--device", "cuda") == 2
    assert "the GPU has 1.00 GiB" in capsys.readouterr().err
    assert torch.cuda.memory_allocated() == before
    assert train(tmp_path, "run", "--device", "cuda") == 0
    assert verdict(tmp_path / "run")[0] == "pass"
