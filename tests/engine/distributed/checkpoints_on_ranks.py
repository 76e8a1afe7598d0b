"""What each rank does in test_divided_checkpoints.py: a small model is divided, trained, saved and loaded."""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from plaudit.engine.checkpoint import save
from plaudit.engine.checkpoint.state import (
    EmaReference,
    expected_shapes,
    load_snapshot,
    seed_everything,
    snapshot,
)
from plaudit.engine.distributed import Ranks, full_tensor, process_group, shard_module
from plaudit.engine.optimizer import make_optimizer
from plaudit.engine.settings import OptimizerSettings
from plaudit.engine.step import Stepper
from plaudit.errors import UserError
from tests.engine.distributed.collectives import net


def stepper_on(ranks: Ranks) -> tuple[Stepper[Any], EmaReference]:
    """A model whose weights are divided, its optimiser, and another model that follows it."""
    module, follower = net(), net()
    for model in (module, follower):
        if ranks.world_size > 1:
            shard_module(model, model.blocks, ranks=ranks)
    average = EmaReference(follower, source=module, every=1, share=0.25)
    optimizer = make_optimizer(module, 0.1, OptimizerSettings())
    # Steps are taken by hand: what learns is of no matter here.
    settings: Any = {"objective": None, "clip": 0.0}
    return Stepper(module=module, optimizer=optimizer, ranks=ranks, **settings), average


def step(stepper: Stepper[Any], average: EmaReference, number: int) -> None:
    torch.manual_seed(number)
    stepper.optimizer.zero_grad()
    stepper.module(torch.randn(3, 5, dtype=torch.float64)).backward()
    stepper.optimizer.step()
    average.after_step(number, {})


def whole(stepper: Stepper[Any], average: EmaReference) -> dict[str, Tensor]:
    """All of the state as whole tensors, gathered by other means than a checkpoint's."""
    names = {id(p): name for name, p in stepper.module.named_parameters()}
    tensors = {f"weight {name}": p.detach() for name, p in stepper.module.named_parameters()}
    for parameter, entries in stepper.optimizer.state.items():
        tensors |= {f"{key} {names[id(parameter)]}": value for key, value in entries.items()}
    tensors |= {f"average {name}": value for name, value in average.tensors().items()}
    return {name: full_tensor(tensor).clone() for name, tensor in tensors.items()}


def train_and_save(ranks: Ranks, folder: Path, *, shard_ranks: int = 0) -> None:
    """Three steps, each saved; while the last one is written, training goes on."""
    stepper, average = stepper_on(ranks.sharding_over(shard_ranks))
    writer = save.CheckpointWriter(ranks, background=True)
    for number in (1, 2, 3):
        step(stepper, average, number)
        state = snapshot(stepper, {"average": average}, step=number, facts={"number": number})
        assert writer.save(folder, state, keep=3, best=None) == ()
    saved = whole(stepper, average)
    if ranks.is_first:
        save_file(saved, folder / "expected.safetensors")
    step(stepper, average, 4)
    writer.finish()
    writer.close()


def load(ranks: Ranks, folder: Path, *, shard_ranks: int = 0) -> tuple[dict[str, Any], Stepper[Any], Any]:
    stepper, average = stepper_on(ranks.sharding_over(shard_ranks))
    loaded = save.load_latest_checkpoint(folder, expected=expected_shapes(stepper.module), ranks=ranks)
    assert loaded is not None
    load_snapshot(loaded.state, stepper.module, stepper.optimizer, ranks)
    average.load_tensors(loaded.state.tensors["average"])
    return {"step": loaded.state.step, "notes": loaded.notes}, stepper, average


def load_and_save(ranks: Ranks, folder: Path, *, to: str, shard_ranks: int = 0) -> dict[str, Any]:
    """Load on these ranks, compare with what was there when it was saved, and save as these ranks have it."""
    said, stepper, average = load(ranks, folder, shard_ranks=shard_ranks)
    expected, found = load_file(folder / "expected.safetensors"), whole(stepper, average)
    assert expected.keys() == found.keys()
    same = [torch.equal(found[name], expected[name]) for name in expected]
    state = snapshot(stepper, {"average": average}, step=said["step"], facts={})
    saved = save.save_checkpoint(folder.with_name(to), state, ranks=ranks)
    if ranks.is_first:
        save_file(expected, saved.path.parent / "expected.safetensors")
    return {**said, "same": all(same), "bytes": saved.bytes}


def load_only(ranks: Ranks, folder: Path) -> dict[str, Any]:
    return load(ranks, folder)[0]


def save_and_die(ranks: Ranks, folder: Path, *, victim: int, fatal: int) -> dict[str, Any]:
    """Save two checkpoints; one rank is killed just before its n-th fsync of the second one."""
    stepper, average = stepper_on(ranks)
    seed_everything(0, ranks.rank)
    for number in (1, 2):
        step(stepper, average, number)
        if number == 2:
            _die_before_fsync(fatal if ranks.rank == victim else 0)
        state = snapshot(stepper, {"average": average}, step=number, facts={})
        save.save_checkpoint(folder, state, keep=2, ranks=ranks)
    return {}


def save_beyond_a_limit(ranks: Ranks, folder: Path) -> dict[str, Any]:
    """The last rank may write no file of more than a kilobyte, as on a disk that is full for it alone."""
    stepper, average = stepper_on(ranks)
    step(stepper, average, 1)
    for number in (1, 2):
        state = snapshot(stepper, {"average": average}, step=number, facts={})
        try:
            save.save_checkpoint(folder, state, ranks=ranks)
        except UserError as error:
            return {"step": number, "said": str(error)}
        if ranks.rank == ranks.world_size - 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    return {}


def _die_before_fsync(fatal: int) -> None:
    calls = 0

    def watch(_frame: object, event: str, function: object) -> None:
        nonlocal calls
        if event == "c_call" and getattr(function, "__name__", "") == "fsync":
            calls += 1
            if calls == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    if fatal:
        sys.setprofile(watch)


WORK: Mapping[str, Callable[..., Any]] = {
    work.__name__: work
    for work in (train_and_save, load_and_save, load_only, save_beyond_a_limit, save_and_die)
}


def main(environment: Mapping[str, str], work: str, folder: Path, settings: Mapping[str, Any]) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    with process_group("cpu") as ranks:
        said = WORK[work](ranks, folder, **settings)
    (folder.parent / f"said.rank{ranks.rank}.json").write_text(json.dumps(said))
