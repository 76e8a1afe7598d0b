"""Many processes as one: what ranks say to each other is said here.

Started by ``torchrun``; gloo on CPU, NCCL on GPU. Losses divide by global counts, so gradients of ranks
are *summed*. With ``--shard`` FSDP2 does that sum itself (shards.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import count

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor

from plaudit.errors import UserError
from plaudit.models.device import device_of
from plaudit.training.last_word import FirstFault, first_line, last_word, report, words_of
from plaudit.training.shards import forget_meshes

BUCKET_ELEMENTS = 2**23
"""Gradients are summed in pieces of so many numbers: few messages, little extra memory."""
PATIENCE = "PLAUDIT_RANK_TIMEOUT"
"""The environment variable with the seconds for which a rank waits for the others; 1800 by default.

A rank that ends is noticed at once. This is for one that hangs, and the longest save must fit into it.
"""

_GROUPS = count()
"""One run after another in the same processes: each has its own part of the store."""


class AgreedStopError(Exception):
    """Raised by every rank at the same place: the run ends, and no rank has failed."""


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

    def every(self, values: Sequence[int | float]) -> list[list[float]]:
        """The values of each rank, in rank order; every rank brings as many."""
        if self.world == 1:
            return [[float(value) for value in values]]
        # On the CPU also beside GPUs: asking the other ranks something does not wait for the kernels.
        mine = torch.tensor(values, dtype=torch.float64)
        rows = [torch.zeros_like(mine) for _ in range(self.world)]
        dist.all_gather(rows, mine)
        return [row.tolist() for row in rows]

    def gather_words(self, words: Sequence[str]) -> list[str]:
        """The strings of all ranks, on all ranks; as JSON, never pickled."""
        if self.world == 1:
            return list(words)
        mine = torch.frombuffer(bytearray(json.dumps(list(words)).encode()), dtype=torch.uint8)
        sizes = [int(size) for (size,) in self.every([float(mine.numel())])]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: mine.numel()] = mine
        rows = [torch.zeros_like(padded) for _ in range(self.world)]
        dist.all_gather(rows, padded)
        return [
            word
            for row, size in zip(rows, sizes, strict=True)
            for word in json.loads(bytes(row[:size].tolist()))
        ]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its sum over ranks; sharded ones have been summed on their way.

        A weight that took part on no rank keeps no gradient, so that weight decay leaves it alone, as it
        does in one process.
        """
        if self.world == 1:
            return
        plain = [p for p in parameters if p.requires_grad and not isinstance(p, DTensor)]
        used = [
            any(flags) for flags in zip(*self.every([float(p.grad is not None) for p in plain]), strict=True)
        ]
        for bucket in _buckets([p for p, use in zip(plain, used, strict=True) if use]):
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

    def add_up(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over ranks."""
        if self.world > 1:
            for tensor in tensors:
                dist.all_reduce(tensor)

    def wait(self) -> None:
        """Until every rank is here."""
        # An empty message would be sent to nobody and waited for by nobody.
        self.every([0.0])


def alone(device: torch.device | str = "cpu") -> Ranks:
    """One process, no group."""
    return Ranks(rank=0, world=1, device=torch.device(device))


def speaks() -> bool:
    """Whether this is the one process of its group that speaks; known before the group is joined."""
    return os.environ.get("RANK", "0") == "0"


def several() -> bool:
    """Whether this process is in a group with others."""
    return dist.is_initialized() and dist.get_world_size() > 1


@contextmanager
def joined(device: str = "auto") -> Iterator[Ranks]:
    """This process's place in the group that ``torchrun`` started, or alone.

    A rank that fails inside the block tells the others, so that all end at once: one with the message,
    the rest with a sentence.
    """
    place, world = _place(device), int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield alone(place)
        return
    store = _start(place, world)
    ranks = Ranks(rank=dist.get_rank(), world=dist.get_world_size(), device=place)
    try:
        yield ranks
    except AgreedStopError:
        _leave()
        raise
    except Exception as error:
        last = _last_word(ranks, store, error)
        report(error, last)
        if place.type == "cpu":
            # Whoever waits for this rank learns it now; with NCCL the end of the process says it, since
            # there this call could itself wait for the others.
            _leave()
        if last is error:
            raise
        raise last from error
    _leave()


def _place(device: str) -> torch.device:
    place = device_of(device, process=int(os.environ.get("LOCAL_RANK", "0")))
    if place.type == "cuda":
        torch.cuda.set_device(place)
    return place


def _start(place: torch.device, world: int) -> Store:
    """Begin a group; what comes back is where its ranks leave word for each other."""
    backend, patience = ("gloo" if place.type == "cpu" else "cpu:gloo,cuda:nccl"), _patience()
    try:
        agreed, rank, world = next(iter(rendezvous("env://", timeout=patience)))
        # When torchrun starts ranks again, the store still holds where the ones before them listened.
        start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"plaudit/{start}/{next(_GROUPS)}", agreed)
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=patience)
    except (dist.DistError, ValueError) as error:
        raise UserError(
            f"the {world} processes that WORLD_SIZE announces did not find each other "
            f"({first_line(error)}): start them with torchrun, or unset WORLD_SIZE"
        ) from error
    return store


def _leave() -> None:
    """End the group and the threads that serve it.

    A thread that waits for Python when Python ends aborts the process, and torchrun calls that a failure.
    """
    dist.destroy_process_group()
    forget_meshes()


def _patience() -> timedelta:
    given = os.environ.get(PATIENCE, "1800")
    try:
        return timedelta(milliseconds=max(1, round(1000 * float(given))))
    except (ValueError, OverflowError) as error:
        raise UserError(f"{PATIENCE} is a number of seconds, not {given!r}") from error


def _last_word(ranks: Ranks, store: Store, error: Exception) -> BaseException:
    lost = isinstance(error, dist.DistError) or "gloo/transport" in str(error)
    mine = None if lost else FirstFault(rank=ranks.rank, words=words_of(error))
    if isinstance(error, UserError) and not ranks.first:
        # It may be a fault of all ranks. Then the first one says it, and torchrun, which ends everything
        # as soon as one rank is gone, must not come before it has written down which rows were bad.
        _wait_for_word(store)
    first = _first_fault(store, mine)
    return last_word(error, rank=ranks.rank, world=ranks.world, lost=lost, first=first)


def _wait_for_word(store: Store) -> None:
    try:
        store.wait(["fault"], timedelta(seconds=3))
    except dist.DistError:
        return


def _first_fault(store: Store, mine: FirstFault | None) -> FirstFault | None:
    """The fault that came first, after adding one's own; None when nobody left word."""
    try:
        if mine is not None:
            store.compare_set("fault", "", json.dumps(asdict(mine)))
        return FirstFault(**json.loads(store.get("fault"))) if store.check(["fault"]) else None
    except dist.DistError:
        # The store went with the machine that held it.
        return mine


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
