"""The same on GPUs: one of them learns what a CPU learns, and two over NCCL what one learns."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.engine.distributed.launch import run
from tests.engine.distributed.runs import run_all
from tests.engine.distributed.test_same_numbers import WAYS, apart, command, lines
from tests.engine.toy import Toy
from tests.models.digits import ENVIRONMENT

pytestmark = pytest.mark.gpu
GPU = ("--device", "cuda")
ENOUGH = 60.0
"""Seconds for torchrun to end a rank that waits inside a kernel: it is asked first, and killed after 30."""


def two_gpus() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip(f"needs two CUDA devices, and there is {torch.cuda.device_count()}")


def closely(folder: Path, name: str, like: str, *, within: float) -> None:
    found, expected = lines(folder / name), lines(folder / like)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        assert max(apart(one[key], other[key]) for key in other) < within


def test_a_gpu_learns_what_a_cpu_learns(toy: Toy, tmp_path: Path) -> None:
    toys = {"llama": toy}
    plan = {
        "cpu": replace(command(toys, tmp_path / "cpu", "plain"), environment={ENVIRONMENT: "1"}),
        "gpu": replace(command(toys, tmp_path / "gpu", "plain", *GPU), environment={ENVIRONMENT: "1"}),
        "gpu, bfloat16": command(toys, tmp_path / "gpu, bfloat16", "bfloat16", *GPU),
    }
    assert [one.code for (one,) in run_all(plan, tmp_path, ranks=1).values()] == [0, 0, 0]
    closely(tmp_path, "gpu", "cpu", within=1e-8)
    losses = [line["held_out/loss"] for line in lines(tmp_path / "gpu, bfloat16") if "held_out/loss" in line]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("way", WAYS)
def test_two_gpus_learn_what_one_learns(toy: Toy, tmp_path: Path, way: str) -> None:
    two_gpus()
    more = (*GPU, *["--shard"][: way == "shard"])
    one = {"one": command({"llama": toy}, tmp_path / "one", "plain", *GPU)}
    two = {"two": command({"llama": toy}, tmp_path / "two", "plain", *more)}
    run_all(one, tmp_path, ranks=1)
    said = run_all(two, tmp_path, ranks=2)
    assert [rank.code for rank in said["two"]] == [0, 0]
    assert said["two"][1].err == ""
    closely(tmp_path, "two", "one", within=1e-8)


@pytest.mark.parametrize("end", ["raising", "killed"])
def test_a_rank_that_fails_ends_the_run_on_gpus_too(toy: Toy, tmp_path: Path, end: str) -> None:
    two_gpus()
    own = ("--optimizer.name", f"tests.engine.distributed.user_optimizers:{end}")
    arguments = command({"llama": toy}, tmp_path / "run", "float32", *GPU, *own).arguments
    done = run("-m", "--", "plaudit", *arguments, cwd=tmp_path, TOY_STOP="1:3")
    assert done.code == 1
    assert done.at - float(done.out.partition("the end begins at ")[2].split()[0]) < ENOUGH
    assert "rank 1 of 2" in done.err or "Signal 9 (SIGKILL)" in done.err
