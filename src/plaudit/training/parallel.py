"""Many processes as one: every reduction over ranks happens here and nowhere else.

Started by ``torchrun``; gloo on CPU, NCCL on GPU. Losses divide by global counts, so gradients of ranks
are *summed*. With ``--shard`` FSDP2 holds a part of each weight on each rank and does that sum itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from plaudit.errors import UserError

BUCKET_ELEMENTS = 2**23
"""Gradients are summed in pieces of so many numbers: few messages, little extra memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process among its peers.

    Example: alone, ``Ranks(rank=0, world=1, device=torch.device("cpu"))``.
    """

    rank: int
    """Which process this is."""
    world: int
    """How many there are."""
    device: torch.device
    """Where this process computes."""

    @property
    def first(self) -> bool:
        """True on the one process that writes files and speaks."""
        return self.rank == 0

    def every(self, values: Sequence[float]) -> list[list[float]]:
        """The values of each rank, in rank order; every rank brings as many."""
        if self.world == 1:
            return [[float(value) for value in values]]
        mine = torch.tensor(values, dtype=torch.float64, device=self.device)
        rows = [torch.zeros_like(mine) for _ in range(self.world)]
        dist.all_gather(rows, mine)
        return [row.tolist() for row in rows]

    def gather_words(self, words: Sequence[str]) -> list[str]:
        """The strings of all ranks, on all ranks; as bytes, never pickled."""
        if self.world == 1:
            return list(words)
        mine = torch.tensor(list("\n".join(words).encode()), dtype=torch.uint8, device=self.device)
        sizes = [torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(self.world)]
        dist.all_gather(sizes, torch.tensor([mine.numel()], device=self.device))
        width = max(int(size) for size in sizes)
        padded = torch.zeros(width, dtype=torch.uint8, device=self.device)
        padded[: mine.numel()] = mine
        rows = [torch.zeros_like(padded) for _ in range(self.world)]
        dist.all_gather(rows, padded)
        texts = [bytes(row[: int(size)].tolist()).decode() for row, size in zip(rows, sizes, strict=True)]
        return [line for text in texts if text for line in text.split("\n")]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its sum over ranks; sharded ones have been summed on their way."""
        if self.world == 1:
            return
        whole = [p for p in parameters if p.requires_grad and not isinstance(p, DTensor)]
        for bucket in _buckets(whole):
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
            flat = torch.cat([grad.flatten() for grad in grads])
            dist.all_reduce(flat)
            for parameter, piece in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                parameter.grad = piece.view_as(parameter)

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Give every rank the first one's tensors."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def wait(self) -> None:
        """Until every rank is here."""
        if self.world > 1:
            dist.barrier()

    def leave(self) -> None:
        """End the group; after this no reduction is possible."""
        if self.world > 1:
            dist.destroy_process_group()


def alone(device: torch.device | str = "cpu") -> Ranks:
    """One process, no group."""
    return Ranks(rank=0, world=1, device=torch.device(device))


def join(device: str = "auto", *, timeout_seconds: float = 600.0) -> Ranks:
    """This process's place in the group that ``torchrun`` started, or alone."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    on_gpu = torch.cuda.is_available() if device == "auto" else device.startswith("cuda")
    if on_gpu and not torch.cuda.is_available():
        raise UserError("device cuda was asked for, but torch sees no CUDA device: use --device cpu")
    local = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = device if ":" in device else f"cuda:{local}"
    place = torch.device(chosen) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(place)
    if world == 1:
        return alone(place)
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(seconds=timeout_seconds))
    return Ranks(rank=dist.get_rank(), world=dist.get_world_size(), device=place)


def shard(module: nn.Module, blocks: Iterable[nn.Module]) -> None:
    """Divide the weights of each block, and of what is left, over all ranks; gradients will be summed."""
    for block in blocks:
        fully_shard(block)
    fully_shard(module)
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_force_sum_reduction_for_comms(True)
            part.set_gradient_divide_factor(1.0)


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


def _buckets(parameters: Sequence[nn.Parameter]) -> Iterable[list[nn.Parameter]]:
    bucket: list[nn.Parameter] = []
    held = 0
    for parameter in parameters:
        if bucket and (held + parameter.numel() > BUCKET_ELEMENTS or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket, held = [], 0
        bucket.append(parameter)
        held += parameter.numel()
    if bucket:
        yield bucket
