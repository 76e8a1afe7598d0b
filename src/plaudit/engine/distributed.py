"""The ranks of a run: how they communicate, share weights (FSDP2), and stop together.

Started by ``torchrun`` or another starter; gloo on CPU, NCCL on GPU. Losses divide by global counts, so
gradients of ranks are *summed*; with ``--shard``, where each rank holds a part of every weight, FSDP2 does
that sum itself. The first rank to fail gives the reason, the others end with at most a sentence. A signal to
one of them stops all where they can be saved.
"""

import ctypes
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from itertools import count
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor

from plaudit.engine.starters import STARTED, is_last_try_of_torchrun, join_starter, say_after
from plaudit.errors import CommandEnd, UserError, first_line
from plaudit.files.user_code import exit_refused
from plaudit.models.load import device_of
from plaudit.models.sequence import SequenceRanks

TORCHELASTIC_ERROR_VARIABLE = "TORCHELASTIC_ERROR_FILE"
"""The environment variable with the file in which torchrun looks for a rank's reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFault:
    rank: int
    words: str


def error_text(error: BaseException) -> str:
    """Type and message of an error, by which two ranks recognise the same fault.

    >>> error_text(KeyError("x"))
    "KeyError: 'x'"
    """
    return f"{type(error).__name__}: {error}"


class LostPeersError(UserError):
    """This rank ends because others have; one of them knows why."""


def rank_error(
    error: Exception, *, rank: int, world: int, lost: bool, first: FirstFault | None
) -> BaseException:
    """The exception that this rank ends with. ``lost``: all that it knows is that it lost its peers.

    >>> lost = RuntimeError("connection closed")
    >>> str(rank_error(lost, rank=0, world=2, lost=True, first=FirstFault(rank=1, words="ValueError: no")))
    'rank 0 of 2: stopped, because rank 1 failed'
    """
    rank_label = f"rank {rank} of {world}"
    if first is None:
        return LostPeersError(
            f"{rank_label}: another rank ended without a word, or did not answer in time "
            f"({first_line(error)}). The same command goes on from the last checkpoint"
        )
    if first.rank == rank:
        error.add_note(f"This was {rank_label}.")
        return UserError(f"{rank_label}: {error}") if isinstance(error, UserError) else error
    # Every rank met the same fault, such as one bad row: the first says it once, the others leave in silence.
    if first.words == error_text(error):
        return CommandEnd(2)
    own_fault = "" if lost else f"; its own fault: {first_line(error)}"
    return LostPeersError(f"{rank_label}: stopped, because rank {first.rank} failed{own_fault}")


def report_to_torchelastic(error: Exception, raised: BaseException) -> None:
    """Write the error to torchrun's file; its summary takes the earliest one for the cause."""
    if TORCHELASTIC_ERROR_VARIABLE not in os.environ:
        return
    is_silent, is_follow_up = (
        isinstance(raised, SystemExit),
        isinstance(raised, UserError) and not isinstance(error, UserError),
    )
    record = {
        "message": error_text(error if is_silent else raised),
        # A rank that only lost its peers is dated one second later, or torchrun might name it as the cause.
        "timestamp": int(time.time()) + is_follow_up,
    }
    Path(os.environ[TORCHELASTIC_ERROR_VARIABLE]).write_text(json.dumps(record), encoding="utf-8")


# Modules that are unsharded until a block ends, and meshes that weights are sharded over now.
_HELD = set[FSDPModule]()
_ACTIVE_MESHES: list[DeviceMesh] = []


def shard_module(
    module: nn.Module,
    blocks: Iterable[nn.Module],
    *,
    ranks: "Ranks",
    compute: torch.dtype | None = None,
    exact: Iterable[nn.Module] = (),
) -> None:
    """Divide the weights of each block, and of what is left, over ranks; gradients will be summed.
    Gathered for a pass they are of the dtype ``compute``, and gradients are summed in float32; those of the
    modules in ``exact`` keep the dtype that they have."""
    over = ranks.shard_ranks or ranks.world_size
    # With fewer than all, the groups hold copies of each other (HSDP); the first dimension counts these.
    dimensions = (over,) if over == ranks.world_size else (ranks.world_size // over, over)
    names = ("copies", "shards")[-len(dimensions) :]
    mesh = init_device_mesh(ranks.device.type, dimensions, mesh_dim_names=names)
    _ACTIVE_MESHES.append(mesh)
    wide = None if compute is None else torch.float32
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=wide, cast_forward_inputs=False)
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    for part in exact:
        fully_shard(part, mesh=mesh)
    fully_shard(module, mesh=mesh, mp_policy=policy)
    for part in _sharded_parts(module):
        # FSDP averages by default; our losses divide by counts over all ranks already.
        part.set_force_sum_reduction_for_comms(True)
        part.set_gradient_divide_factor(1.0)
    module.register_forward_hook(_reshard_after_inference)


@contextmanager
def unsharded(module: nn.Module) -> Iterator[None]:
    """Within the block, weights outside of the blocks are unsharded, for calls not through ``module``.
    Every rank must come, and call the blocks as often as the others do."""
    held = {module} if isinstance(module, FSDPModule) else set[FSDPModule]()
    for part in held:
        part.unshard()
    try:
        _HELD.update(held)
        yield
    finally:
        _HELD.difference_update(held)
        for part in held:
            part.reshard()


def is_sharded(module: nn.Module) -> bool:
    """Whether each rank holds a part of every weight, by FSDP2 or by DeepSpeed."""
    return any(_sharded_parts(module)) or any(hasattr(weight, "ds_id") for weight in module.parameters())


def full_tensor(tensor: Tensor) -> Tensor:
    """The full tensor of one that may be sharded; every rank must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def copy_into(target: Tensor, values: Tensor) -> None:
    if isinstance(target, DTensor):
        begin, end = local_rows(target)
        target.to_local().copy_(values[begin:end])
    else:
        target.copy_(values)


def local_rows(tensor: DTensor) -> tuple[int, int]:
    """Where the rows of this rank begin and end, as FSDP2 cuts; a short tensor leaves the last with none."""
    mesh, rows = tensor.device_mesh, tensor.shape[0]
    place, most = mesh.get_local_rank(mesh.ndim - 1), -(-rows // mesh.size(mesh.ndim - 1))
    return min(rows, place * most), min(rows, (place + 1) * most)


def forget_meshes() -> None:
    """Let go of every group that weights were divided over, so that the group's threads end.
    PyTorch's caches keep a mesh for as long as the process lives, and a mesh keeps its groups."""
    while _ACTIVE_MESHES:
        getattr(_ACTIVE_MESHES.pop(), "_pg_registry", {}).clear()
    gc.collect()


def _sharded_parts(module: nn.Module) -> list[FSDPModule]:
    return [part for part in module.modules() if isinstance(part, FSDPModule)]


def _reshard_after_inference(module: nn.Module, inputs: object, output: object) -> None:
    """Reshard the outermost weights after a forward pass without gradients (no backward pass does it)."""
    del inputs, output
    if isinstance(module, FSDPModule) and not (module in _HELD or torch.is_grad_enabled()):
        module.reshard()


BUCKET_ELEMENTS = 2**23
"""Gradients are summed in pieces of so many numbers: few messages, little extra memory."""
TIMEOUT_VARIABLE = "PLAUDIT_RANK_TIMEOUT"
"""The environment variable with the seconds that a rank waits for the others; 1800 by default.

A rank that ends is noticed at once. This is for one that hangs, and the longest save must fit into it.
"""

_GROUP_NUMBERS = count()
"""Numbers the process groups of this process: each run has its own prefix in the store."""


class AgreedStopError(Exception):
    """Raised by every rank at the same place: the run ends, and no rank has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process's rank, the world size, and the collectives between ranks.

    Example: ``Ranks(rank=0, world_size=1, device=torch.device("cpu"))``.
    """

    rank: int
    """This process's rank."""
    world_size: int
    """The number of ranks."""
    device: torch.device
    """The device of this rank."""
    group: dist.ProcessGroup | None = None
    """The group that they speak in; None: the one that all share."""
    shard_ranks: int = 0
    """Over how many of them weights are divided; 0: over all."""
    sequence: SequenceRanks | None = None
    """Those that share each row's tokens with this one; None where each has whole rows."""
    same_place: "Ranks | None" = None
    """Those that have the same part of other rows, where rows are shared."""

    @property
    def rows(self) -> "Ranks":
        """The ranks over which rows are divided, and their figures added up: of those that share, one."""
        return self.same_place or self

    def with_separate_group(self) -> "Ranks":
        """The same ranks in a group of their own, in which a second thread may speak; all of them come."""
        if self.world_size == 1:
            return self
        return replace(self, group=dist.new_group(backend="gloo", timeout=_timeout()))

    def sharding_over(self, count: int) -> "Ranks":
        """The same ranks, of which ``count`` divide weights, and others hold copies; 0 for all."""
        if count and self.world_size % count:
            raise UserError(
                f"--shard-ranks {count} does not divide the {self.world_size} processes of this run"
            )
        return replace(self, shard_ranks=count)

    @property
    def is_first(self) -> bool:
        """True on rank 0, which writes files and reports."""
        return self.rank == 0

    def all_gather(self, values: Sequence[int | float]) -> list[list[float]]:
        """The values of each rank, in rank order; every rank brings as many."""
        if self.world_size == 1:
            return [[float(value) for value in values]]
        # On the CPU also beside GPUs: asking the other ranks something does not wait for the kernels.
        local = torch.tensor(values, dtype=torch.float64)
        rows = [torch.zeros_like(local) for _ in range(self.world_size)]
        dist.all_gather(rows, local, group=self.group)
        return [row.tolist() for row in rows]

    def first_says(self, flag: bool) -> bool:
        """What the first rank says, whatever the others do."""
        return bool(self.all_gather([float(flag)])[0][0])

    def all_gather_strings(self, texts: Sequence[str]) -> list[str]:
        """The strings of all ranks, on all ranks; as JSON, never pickled."""
        if self.world_size == 1:
            return list(texts)
        payload = torch.frombuffer(bytearray(json.dumps(list(texts)).encode()), dtype=torch.uint8)
        sizes = [int(size) for (size,) in self.all_gather([float(payload.numel())])]
        # gloo gathers equal shapes only: sizes go first, then everything padded to the longest.
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: payload.numel()] = payload
        rows = [torch.zeros_like(padded) for _ in range(self.world_size)]
        dist.all_gather(rows, padded, group=self.group)
        return [
            text
            for row, size in zip(rows, sizes, strict=True)
            for text in json.loads(bytes(row[:size].tolist()))
        ]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its sum over ranks; sharded ones have been summed on their way.

        A weight that took part on no rank keeps no gradient, so that weight decay leaves it alone, as it
        does in one process.
        """
        if self.world_size == 1:
            return
        plain = [p for p in parameters if p.requires_grad and not isinstance(p, DTensor)]
        # A used weight is summed on every rank, with zeros where it
        # took no part, so that collectives line up.
        used = [
            any(flags)
            for flags in zip(*self.all_gather([float(p.grad is not None) for p in plain]), strict=True)
        ]
        for bucket in _gradient_buckets([p for p, use in zip(plain, used, strict=True) if use]):
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
            flat = torch.cat([grad.flatten() for grad in grads])
            dist.all_reduce(flat, group=self.group)
            for parameter, summed in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                # A view into the flat bucket: no second copy of the gradients.
                parameter.grad = summed.view_as(parameter)

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Give every rank the first one's tensors."""
        if self.world_size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0, group=self.group)

    def all_reduce_sum(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over ranks."""
        if self.world_size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor, group=self.group)

    def barrier(self) -> None:
        """Block until every rank has called it (a barrier)."""
        # An empty message would be sent to nobody and waited for by nobody.
        self.all_gather([0.0])


def single_process(device: torch.device | str = "cpu") -> Ranks:
    return Ranks(rank=0, world_size=1, device=torch.device(device))


@contextmanager
def group_of_one() -> Iterator[None]:
    """While this lasts a process has a group, of itself alone where there was none."""
    if dist.is_initialized():
        yield
        return
    store: Store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]  torch leaves it out
    dist.init_process_group(store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        _leave_group()


def is_first_process() -> bool:
    """Whether this is rank 0, which reports; can be called before the process group is joined."""
    return os.environ.get("RANK", "0") == "0"


def is_distributed() -> bool:
    return dist.is_initialized() and dist.get_world_size() > 1


@contextmanager
def process_group(device: str = "auto", *, sequence_ranks: int = 1) -> Iterator[Ranks]:
    """Join the process group that ``torchrun`` or another starter began; a single process without one.
    A rank that fails inside the block tells the others, so that all end at once: one with the message, the
    rest with a sentence. So many ``sequence_ranks`` share the tokens of each row."""
    if STARTED & os.environ.keys():
        os.environ.update(join_starter(os.environ))
    local_device, world = _local_device(device), int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield _single(local_device, sequence_ranks)
        return
    from plaudit.engine.ranks import compare_machines, share_rows

    store = _join_group(local_device, world)
    ranks = Ranks(rank=dist.get_rank(), world_size=dist.get_world_size(), device=local_device)
    try:
        # A rank that some function of the user's ended would leave the others waiting.
        with exit_refused(f"rank {ranks.rank} of {world}"):
            compare_machines(ranks)
            yield share_rows(ranks, sequence_ranks, _timeout())
    # All ranks leave at the same place here, so tearing the group down cannot wait for anyone.
    except AgreedStopError:
        _leave_group()
        raise
    # As broad as can be, yet nothing is swallowed: the peers are told, and the error is raised again.
    except Exception as error:
        raised = _error_to_raise(ranks, store, error)
        report_to_torchelastic(error, raised)
        if is_last_try_of_torchrun() and _has_last_word(ranks, store):
            name = f"rank {ranks.rank} of {world}"
            words = raised if isinstance(raised, UserError) else f"{name}: {error_text(error)}"
            say_after(os.getppid(), f"plaudit: {words}")
        if local_device.type == "cpu":
            # Whoever waits for this rank learns it now; with NCCL the end of the process says it, since
            # there this call could itself wait for the others.
            _leave_group()
        if raised is error:
            raise
        raise raised from error
    _leave_group()


def _single(local_device: torch.device, sequence_ranks: int) -> Ranks:
    if sequence_ranks > 1:
        words = f"this is one process; start {sequence_ranks} with torchrun, or leave it out"
        raise UserError(f"--sequence-ranks {sequence_ranks}: {words}")
    return single_process(local_device)


def _local_device(device: str) -> torch.device:
    local_device = device_of(device)
    if local_device.type == "cuda":
        # NCCL and allocations without a device use the current one, which is GPU 0 on every rank until said.
        torch.cuda.set_device(local_device)
    return local_device


def _join_group(local_device: torch.device, world: int) -> Store:
    """Begin a group; what comes back is where its ranks leave word for each other."""
    # gloo beside NCCL: the agreements between hosts go over the CPU and never queue behind kernels.
    backend, timeout = ("gloo" if local_device.type == "cpu" else "cpu:gloo,cuda:nccl"), _timeout()
    # Have the kernel stop this rank as torchrun would, should torchrun itself be killed.
    if "TORCHELASTIC_RUN_ID" in os.environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    try:
        shared_store, rank, world = next(iter(rendezvous("env://", timeout=timeout)))
        # When torchrun starts ranks again, the store still holds where the ones before them listened.
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"plaudit/{restart}/{next(_GROUP_NUMBERS)}", shared_store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)
    except (dist.DistError, ValueError) as error:
        raise UserError(
            f"the {world} processes that WORLD_SIZE announces did not find each other "
            f"({first_line(error)}): start them with torchrun, or unset WORLD_SIZE"
        ) from error
    return store


def _leave_group() -> None:
    """Destroy the process group and the threads that serve it."""
    # A thread that waits for Python when Python ends aborts the process, and torchrun calls that a failure.
    # A sharded model holds the group, and a loop and its stepper hold each other, and with them the model.
    gc.collect()
    dist.destroy_process_group()
    forget_meshes()


def _timeout() -> timedelta:
    seconds = os.environ.get(TIMEOUT_VARIABLE, "1800")
    try:
        return timedelta(milliseconds=max(1, round(1000 * float(seconds))))
    except (ValueError, OverflowError) as error:
        raise UserError(f"{TIMEOUT_VARIABLE} is a number of seconds, not {seconds!r}") from error


def _error_to_raise(ranks: Ranks, store: Store, error: Exception) -> BaseException:
    # A broken connection is a symptom: such a rank never claims to have failed first.
    lost_peers = isinstance(error, dist.DistError) or "gloo/transport" in str(error)
    own_fault = None if lost_peers else FirstFault(rank=ranks.rank, words=error_text(error))
    if isinstance(error, UserError) and not ranks.is_first:
        # It may be a fault of all ranks. Then the first one says it, and torchrun, which ends everything
        # as soon as one rank is gone, must not come before it has written down which rows were bad.
        _wait_for_first_fault(store)
    first = _first_fault(store, own_fault)
    return rank_error(error, rank=ranks.rank, world=ranks.world_size, lost=lost_peers, first=first)


def _wait_for_first_fault(store: Store) -> None:
    try:
        store.wait(["fault"], timedelta(seconds=3))
    except dist.DistError:
        return


def _has_last_word(ranks: Ranks, store: Store) -> bool:
    """True on one rank alone: the first that failed, or one of those that know of no fault."""
    if (first := _first_fault(store, None)) is not None:
        return first.rank == ranks.rank
    try:
        return store.compare_set("last word", "", str(ranks.rank)) == str(ranks.rank).encode()
    except dist.DistError:
        return True


def _first_fault(store: Store, own_fault: FirstFault | None) -> FirstFault | None:
    """The fault that came first, after adding one's own; None when nobody left word."""
    try:
        if own_fault is not None:
            # Compare-and-set is atomic in the store: of two ranks that fail at once exactly one is the first.
            store.compare_set("fault", "", json.dumps(asdict(own_fault)))
        return FirstFault(**json.loads(store.get("fault"))) if store.check(["fault"]) else None
    except dist.DistError:
        # The store went with the machine that held it.
        return own_fault


def _gradient_buckets(parameters: Sequence[nn.Parameter]) -> Iterable[list[nn.Parameter]]:
    bucket: list[nn.Parameter] = []
    elements = 0
    for parameter in parameters:
        # `cat` would promote mixed dtypes, and the summed gradient would
        # come back in another one than its weight's.
        if bucket and (elements + parameter.numel() > BUCKET_ELEMENTS or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket, elements = [], 0
        bucket.append(parameter)
        elements += parameter.numel()
    if bucket:
        yield bucket
