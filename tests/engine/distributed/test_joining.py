"""A group that cannot come together says so, and what to do."""

import os
import re
import subprocess
import sys

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
        ({"SLURM_STEP_NUM_TASKS": "2"}, "srun started 2 processes, and does not say which one this is"),
        (
            {f"OMPI_COMM_WORLD_{name}": "1" for name in ("RANK", "LOCAL_RANK")}
            | {"OMPI_COMM_WORLD_SIZE": "4"},
            "mpirun started 4 processes on several machines: name the first one",
        ),
        ({"MASTER_ADDR": "127.0.0.1", "ACCELERATE_MIXED_PRECISION": "no"}, "accelerate launch, asked for"),
    ],
)
def test_processes_that_nothing_joins_are_refused(monkeypatch, started, says):
    for name, value in started.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert refusal().startswith(says)
    monkeypatch.setenv("WORLD_SIZE", "1")
    with process_group("cpu") as ranks:
        assert ranks.world_size == 1


SRUN = {
    "SLURM_PROCID": "{}",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "127.0.0.[1-2]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
MPIRUN = {"RANK": "{}", "LOCAL_RANK": "{}", "SIZE": "2", "LOCAL_SIZE": "2"}
PRINTS = """
from plaudit.engine.distributed import process_group
with process_group() as ranks:
    print(ranks.all_gather([ranks.rank, 7]))
"""


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(SRUN, id="srun"),
        pytest.param(
            {f"OMPI_COMM_WORLD_{name}": value for name, value in MPIRUN.items()},
            id="mpirun",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_processes_of_srun_and_mpirun_find_each_other(facts: dict[str, str]) -> None:
    job = {"SLURM_JOB_ID": str(free_port()), "PMIX_NAMESPACE": str(free_port())}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PRINTS],
            env={**os.environ, **job, **{name: value.format(rank) for name, value in facts.items()}},
            stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    assert [process.communicate(timeout=120)[0] for process in started] == 2 * [b"[[0.0, 7.0], [1.0, 7.0]]\n"]


OTHER = """
import sys, time
from plaudit import releases
if sys.argv[1] == "release":
    releases.installed_version = lambda name: "5.17.0"
else:
    before, time.time = time.time, lambda: before() + 600
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "says"), [("release", "has plaudit 5.17.0, torch 5.17.0"), ("clock", "clock is +600 s from")]
)
def test_machines_with_other_releases_are_refused_and_other_clocks_are_told(what: str, says: str) -> None:
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", OTHER * rank + PRINTS, what],
            env={**os.environ, **world, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [process.communicate(timeout=120)[1] for process in started]
    assert says in said[0], said
    assert [bool(process.returncode) for process in started] == 2 * [what == "release"]


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
