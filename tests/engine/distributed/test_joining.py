"""A group that cannot come together says so, and what to do."""

from __future__ import annotations

import re

import pytest
import torch

from plaudit.engine.distributed import TIMEOUT_VARIABLE, is_first_process, process_group
from plaudit.errors import UserError
from tests.engine.distributed.launch import free_port


def refusal(device: str = "cpu") -> str:
    with pytest.raises(UserError) as caught, process_group(device):
        pass
    return str(caught.value)


def test_without_torchrun_a_process_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with process_group("cpu") as ranks:
        assert (ranks.rank, ranks.world_size, ranks.device) == (0, 1, torch.device("cpu"))


def test_a_world_without_torchrun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    said = refusal()
    assert said.startswith("the 2 processes that WORLD_SIZE announces did not find each other")
    assert "RANK expected" in said
    assert said.endswith("start them with torchrun, or unset WORLD_SIZE")


@pytest.mark.parametrize(
    ("started", "says"),
    [
        ({"SLURM_STEP_NUM_TASKS": "2"}, "srun started 2 processes, and nothing joins them: torchrun"),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "mpirun started 4 processes, and nothing joins them"),
        ({"MASTER_ADDR": "127.0.0.1", "ACCELERATE_MIXED_PRECISION": "no"}, "accelerate launch, asked for"),
    ],
)
def test_processes_that_nothing_joins_are_refused(
    monkeypatch: pytest.MonkeyPatch, started: dict[str, str], says: str
) -> None:
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert refusal().startswith(says)
    monkeypatch.setenv("WORLD_SIZE", "1")
    with process_group("cpu") as ranks:
        assert ranks.world_size == 1


@pytest.mark.slow
def test_others_that_do_not_come_are_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    world = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for name, value in {**world, TIMEOUT_VARIABLE: "1"}.items():
        monkeypatch.setenv(name, value)
    assert "1/2 clients joined" in refusal()


@pytest.mark.parametrize("seconds", ["soon", "", "1e400"])
def test_a_patience_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(TIMEOUT_VARIABLE, seconds)
    assert refusal() == f"{TIMEOUT_VARIABLE} is a number of seconds, not {seconds!r}"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    assert re.match("device cuda was asked for, but torch sees no CUDA device", refusal("cuda"))


def test_a_device_that_does_not_exist_is_not_taken_for_the_cpu() -> None:
    assert refusal("gpu") == "device 'gpu': use auto, cpu, cuda, or one of several as cuda:1"


def test_one_rank_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert is_first_process()
    monkeypatch.setenv("RANK", "0")
    assert is_first_process()
    monkeypatch.setenv("RANK", "1")
    assert not is_first_process()
