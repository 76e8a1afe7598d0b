"""Weights divided over ranks (FSDP2): each rank holds a part of every weight, and gradients are summed."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

_MESHES: list[DeviceMesh] = []
"""Over which weights are divided now."""


def shard(module: nn.Module, blocks: Iterable[nn.Module], *, device: str, world: int) -> None:
    """Divide the weights of each block, and of what is left, over all ranks; gradients will be summed."""
    mesh = init_device_mesh(device, (world,))
    _MESHES.append(mesh)
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    for part in _sharded_parts(module):
        part.set_force_sum_reduction_for_comms(True)
        part.set_gradient_divide_factor(1.0)
    module.register_forward_hook(_divide_after_a_look)


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Weights outside of the blocks are whole while this lasts: for calls that do not go through ``module``.

    Every rank must come, and call the blocks as often as the others do.
    """
    outermost = [module] if isinstance(module, FSDPModule) else []
    for part in outermost:
        part.unshard()
    try:
        yield
    finally:
        for part in outermost:
            part.reshard()


def is_sharded(module: nn.Module) -> bool:
    """Whether ``shard`` has divided its weights."""
    return any(_sharded_parts(module))


def whole(tensor: Tensor) -> Tensor:
    """A tensor that may be sharded, in full: every rank must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def put(into: Tensor, values: Tensor) -> None:
    """Copy a full tensor into one that may be sharded."""
    if isinstance(into, DTensor):
        rank, world = into.device_mesh.get_local_rank(), into.device_mesh.size()
        pieces = values.chunk(world, dim=0)
        local = into.to_local()
        local.copy_(pieces[rank] if rank < len(pieces) else values[:0])
    else:
        into.copy_(values)


def forget_meshes() -> None:
    """Let go of every group that weights were divided over, so that the group's threads end.

    PyTorch's caches keep a mesh for as long as the process lives, and a mesh keeps its groups.
    """
    while _MESHES:
        getattr(_MESHES.pop(), "_pg_registry", {}).clear()
    gc.collect()


def _sharded_parts(module: nn.Module) -> list[FSDPModule]:
    return [part for part in module.modules() if isinstance(part, FSDPModule)]


def _divide_after_a_look(module: nn.Module, inputs: object, output: object) -> None:
    """A forward pass without gradients has no backward pass that would divide the outermost weights again."""
    del inputs, output
    if isinstance(module, FSDPModule) and not torch.is_grad_enabled():
        module.reshard()
