"""A device is what the user names, or nothing starts: a name that is none must not become the CPU."""

import pytest
import torch

from plaudit.engine.checkpoint.state import deterministic_kernels
from plaudit.errors import UserError
from plaudit.models.load import device_of, precision

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


@pytest.mark.parametrize("name", ["gpu", "cpuu", "", "cuda:x", "meta", "mps"])
def test_a_name_that_is_no_device_of_ours_is_refused(name):
    with pytest.raises(UserError, match=rf"device '{name}': use auto, cpu, cuda, or one of several"):
        device_of(name)


@NO_GPU
def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused():
    assert device_of("auto") == torch.device("cpu")
    for name in ("cuda", "cuda:1"):
        with pytest.raises(UserError, match=f"device {name} was asked for, but torch sees no CUDA device"):
            device_of(name)


@pytest.mark.gpu
def test_with_a_gpu_each_process_has_its_own_and_one_that_is_not_there_is_refused():
    assert device_of("auto") == device_of("cuda") == torch.device("cuda:0")
    last = torch.cuda.device_count() - 1
    assert device_of("cuda", process=last) == torch.device("cuda", last)
    with pytest.raises(UserError, match="Start at most one process for each"):
        device_of("cuda", process=last + 1)


def test_a_gpu_without_bfloat16_computes_in_float32_and_is_not_asked_for_more(monkeypatch):
    gpu = torch.device("cuda")
    assert precision("auto", gpu).products == torch.bfloat16, "a plan for a GPU that is not here"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert precision("auto", gpu).products == torch.float32
    with pytest.raises(UserError, match="--dtype bfloat16: cuda computes in it by emulation only"):
        precision("bfloat16", gpu)


def test_kernels_that_add_up_in_one_order_are_asked_for_while_a_run_lasts():
    with deterministic_kernels():
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.utils.deterministic.fill_uninitialized_memory
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory
