"""Each collective of the one module that has them, in a group of two and of three real processes."""

from pathlib import Path

import pytest
import torch
from torch import nn

from plaudit.engine.distributed import copy_into, full_tensor, is_sharded, single_process, unsharded
from tests.engine.distributed import collectives
from tests.engine.distributed.launch import run


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_collective_does_what_it_says(ranks: int, tmp_path: Path) -> None:
    """Ten groups in the same processes, one after the other: runs in a row do not disturb each other."""
    done = run(collectives.__file__, ranks=ranks, cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.out.split() == [check.__name__ for check in collectives.CHECKS]
    assert done.err == ""


def test_alone_every_collective_is_the_identity() -> None:
    ranks = single_process()
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    ranks.sum_gradients([weight])
    ranks.broadcast([weight.data])
    ranks.barrier()
    module = nn.Linear(1, 1)
    with unsharded(module):
        copy_into(weight.data, torch.zeros(2))
    assert ranks.all_gather([1.0, 2.5]) == [[1.0, 2.5]]
    assert ranks.all_gather_strings(["a", ""]) == ["a", ""]
    assert torch.equal(weight.grad, torch.ones(2))
    assert torch.equal(full_tensor(weight.data), torch.zeros(2))
    assert not is_sharded(module)
