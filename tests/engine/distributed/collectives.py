"""Each collective of `plaudit.engine.distributed` on every rank of a real group (see test_collectives.py)."""

import time

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from plaudit.engine import distributed
from plaudit.engine.checkpoint.state import OptimizerState, read_optimizer_state, write_optimizer_state
from plaudit.engine.distributed import (
    Ranks,
    copy_into,
    full_tensor,
    is_sharded,
    process_group,
    shard_module,
    unsharded,
)
from plaudit.engine.optimizer import make_optimizer
from plaudit.engine.settings import OptimizerSettings


class Net(nn.Module):
    """Blocks, and weights outside of them: even, uneven and smaller than the group."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(5, 5) for _ in range(2))
        self.out = nn.Linear(5, 1)
        self.body = 0

    def forward(self, x_BH: Tensor) -> Tensor:
        for block in self.blocks:
            x_BH = torch.tanh(block(x_BH))
        return self.out(x_BH).sum()


def net() -> Net:
    torch.manual_seed(0)
    return Net().double()


def every_brings_the_values_of_each_rank_in_order(ranks: Ranks) -> None:
    expected = [[float(rank), 0.1 + rank, float("inf")] for rank in range(ranks.world_size)]
    assert ranks.all_gather([ranks.rank, 0.1 + ranks.rank, float("inf")]) == expected
    assert ranks.all_gather([]) == [[]] * ranks.world_size


def words_of_any_kind_arrive(ranks: Ranks) -> None:
    mine = ["", "line\nbreak", "Käse 🧀"] * ranks.rank
    assert ranks.all_gather_strings(mine) == [
        word for rank in range(ranks.world_size) for word in ["", "line\nbreak", "Käse 🧀"] * rank
    ]
    assert ranks.all_gather_strings([]) == []


def gradients_are_summed_and_not_averaged(ranks: Ranks) -> None:
    weights = [nn.Parameter(torch.zeros(n, dtype=dtype)) for n in (3, 4) for dtype in KINDS]
    weights[0].grad = torch.full((3,), 1.0 + ranks.rank, dtype=KINDS[0])
    if ranks.rank == 1:
        weights[1].grad = torch.ones(3, dtype=KINDS[1])
    distributed.BUCKET_ELEMENTS = 4
    ranks.sum_gradients(weights)
    assert torch.equal(weights[0].grad, torch.full((3,), sum(range(1, ranks.world_size + 1)), dtype=KINDS[0]))
    assert weights[1].grad is not None
    assert torch.equal(weights[1].grad, torch.ones(3, dtype=KINDS[1]))
    # Nobody used these: a gradient of zero would let weight decay move them.
    assert weights[2].grad is None
    assert weights[3].grad is None


KINDS = (torch.float32, torch.float64)


def the_first_ranks_tensors_go_to_all(ranks: Ranks) -> None:
    tensor = torch.full((3, 2), float(ranks.rank))
    ranks.broadcast([tensor])
    assert torch.equal(tensor, torch.zeros(3, 2))


def shards_of_every_size_come_back_whole(ranks: Ranks) -> None:
    module = nn.ParameterList(nn.Parameter(torch.zeros(rows, 3)) for rows in (1, 2, 3, 4, 5, 7))
    shard_module(module, [], ranks=ranks)
    for parameter in module:
        values = torch.arange(parameter.numel(), dtype=torch.float32).view(parameter.shape) + 1
        assert isinstance(parameter, DTensor)
        with torch.no_grad():
            copy_into(parameter, values)
        assert torch.equal(full_tensor(parameter.detach()), values)
        own = values.chunk(ranks.world_size)[ranks.rank : ranks.rank + 1]
        assert torch.equal(parameter.to_local().detach(), own[0] if own else values[:0])


def a_tensor_that_is_not_sharded_is_put_as_it_is(ranks: Ranks) -> None:
    assert ranks.world_size > 1
    into = torch.zeros(2)
    copy_into(into, torch.ones(2))
    assert torch.equal(full_tensor(into), torch.ones(2))


def sharded_gradients_are_sums_too(ranks: Ranks) -> None:
    plain, divided = net(), net()
    shard_module(divided, divided.blocks, ranks=ranks)
    assert is_sharded(divided)
    assert not is_sharded(plain)
    rows = torch.arange(10.0, dtype=torch.float64).view(2, 5) / 10
    plain(rows).backward()
    for piece in rows[ranks.rank :: ranks.world_size].split(1):
        divided(piece).backward()
    found = {name: full_tensor(p.grad) for name, p in divided.named_parameters() if p.grad is not None}
    for name, parameter in plain.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-12, atol=1e-14)


def a_look_without_gradients_leaves_weights_divided(ranks: Ranks) -> None:
    module = net()
    shard_module(module, module.blocks, ranks=ranks)
    with torch.no_grad():
        module(torch.ones(1, 5, dtype=torch.float64))
    assert all(isinstance(p, DTensor) for p in module.parameters())


def gathered_weights_serve_calls_that_go_around_the_module(ranks: Ranks) -> None:
    plain, module = net(), net()
    shard_module(module, module.blocks, ranks=ranks)
    x = torch.ones(1, 5, dtype=torch.float64)
    with torch.no_grad():
        expected = plain(x)
        module(x)
        with unsharded(module):
            hidden = x
            for block in module.blocks:
                hidden = torch.tanh(block(hidden))
            assert torch.equal(module.out(hidden).sum(), expected)
    assert all(isinstance(p, DTensor) for p in module.parameters())


def moments_of_few_digits_come_back_to_their_shards(ranks: Ranks) -> None:
    module = net().float()
    shard_module(module, module.blocks, ranks=ranks)
    optimizer = make_optimizer(module, 1e-3, OptimizerSettings(state="float8"))
    module(torch.linspace(-1, 1, 10).view(2, 5)).backward()
    optimizer.step()
    before = read_optimizer_state(module, optimizer)
    whole = {path: full_tensor(value) for path, value in before.tensors.items()}
    assert {path: value.shape for path, value in whole.items()}["out.weight/exp_avg_rms_factor"] == (1, 1)
    write_optimizer_state(module, optimizer, OptimizerState(tensors=whole, facts=before.facts))
    after = read_optimizer_state(module, optimizer)
    for path, value in after.tensors.items():
        assert torch.equal(full_tensor(value), whole[path])
        assert local(value).shape == local(before.tensors[path]).shape
        assert torch.equal(local(value), local(before.tensors[path]))
    optimizer.step()


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def nobody_goes_on_before_all_are_here(ranks: Ranks) -> None:
    time.sleep(0.1 * ranks.rank)
    before = time.monotonic()
    ranks.barrier()
    after = time.monotonic()
    # One machine, one clock.
    assert max(then for (then,) in ranks.all_gather([before])) <= min(
        now for (now,) in ranks.all_gather([after])
    )


CHECKS = (
    every_brings_the_values_of_each_rank_in_order,
    words_of_any_kind_arrive,
    gradients_are_summed_and_not_averaged,
    the_first_ranks_tensors_go_to_all,
    shards_of_every_size_come_back_whole,
    a_tensor_that_is_not_sharded_is_put_as_it_is,
    sharded_gradients_are_sums_too,
    a_look_without_gradients_leaves_weights_divided,
    gathered_weights_serve_calls_that_go_around_the_module,
    moments_of_few_digits_come_back_to_their_shards,
    nobody_goes_on_before_all_are_here,
)


if __name__ == "__main__":
    for check in CHECKS:
        with process_group("cpu") as group:
            check(group)
            if group.is_first:
                print(check.__name__, flush=True)
