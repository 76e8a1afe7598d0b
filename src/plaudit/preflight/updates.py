"""What a step does to weights, on a few of the user's own rows; afterwards they are what they were."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plaudit.engine.checkpoint import save as checkpoints, state
from plaudit.engine.checkpoint.state import expected_shapes, load_snapshot, snapshot
from plaudit.engine.loop import TrainingJob
from plaudit.engine.metrics import values_of
from plaudit.engine.step import Stepper, take_step
from plaudit.preflight.check import Check, Result, failed, not_applicable, passed, preserve_weights
from plaudit.preflight.gradients import (
    MAX_NAMED_WEIGHTS,
    trained_parameters,
    trial_step_or_reason,
    trial_stepper,
)
from plaudit.preflight.samples import TrialStep, likelihood_step
from plaudit.preflight.subject import PreflightSubject

RELATIVE_UPDATES = (0.01, 0.1, 0.001)
"""How much of their size weights move in the first step that is tried, one try after another."""
OVERFIT_STEPS = 10
"""Steps of a try."""
CLEAR_DECREASE = 0.02
"""The relative decrease of the loss from which it counts as learnt."""
MAX_CHECKPOINT_BYTES = 64 * 2**20
"""The most bytes of weights that the trial checkpoint holds; in a larger model the largest weights are
frozen.
"""


def check_overfits(subject: PreflightSubject) -> Result:
    """The loss of a few rows falls when only they are learnt."""
    trial = trial_step_or_reason(subject)
    if isinstance(trial, Result):
        return trial
    if subject.trial is not None and (trial := likelihood_step(subject)) is None:
        return not_applicable("no prompt to learn")
    with preserve_weights(trial.job.module) as original:
        first = _relative_update(trial, original)
    if isinstance(first, Result):
        return first
    attempts: list[str] = []
    for share in RELATIVE_UPDATES:
        with preserve_weights(trial.job.module):
            losses = _losses(trial, trial.job.learning_rate * share / first)
        change = f"from {losses[0]:.4g} to {losses[-1]:.4g} (steps: {len(losses) - 1})"
        if _has_decreased(losses):
            return passed(f"{trial.description}: the loss falls {change}")
        attempts.append(change)
    return failed(f"{trial.description}: the loss does not fall at any rate: {'; '.join(attempts)}")


def check_adapters(subject: PreflightSubject) -> Result:
    """A step moves the adapters, and nothing of the model beneath them."""
    model = subject.policy or subject.scorer
    if not subject.adapted or model is None:
        return not_applicable("all weights learn: see all-learn")
    trial = trial_step_or_reason(subject)
    if isinstance(trial, Result):
        return trial
    weights = dict(model.named_parameters())
    with preserve_weights(trial.job.module):
        before = {name: _tensor_digest(weight) for name, weight in weights.items()}
        stepper = trial_stepper(trial.job)
        # An adapter begins as 0 · A, so A learns once 0 has moved.
        for _ in range(2):
            take_step(stepper, trial.batch, trial.job.learning_rate)
        changed = {name for name, weight in weights.items() if _tensor_digest(weight) != before[name]}
    adapter_names = {name for name in weights if "lora_" in name}
    base_names = {name for name in weights if name not in adapter_names and "modules_to_save" not in name}
    # Of experts only those learn that a token is sent to.
    unchanged = {name for name in adapter_names - changed if "expert" not in name}
    if base_names & changed:
        return failed(
            f"{len(base_names & changed)} weights beneath the adapters moved: "
            f"{_abbreviated_names(base_names & changed)}"
        )
    if unchanged or not adapter_names:
        return failed(
            f"{len(unchanged)} of {len(adapter_names)} adapters did not move in two steps: "
            f"{_abbreviated_names(unchanged)}"
        )
    return passed(
        f"{trial.description}: {len(adapter_names & changed)} adapters moved in two steps, "
        f"{len(base_names)} weights beneath "
        "did not"
    )


def check_checkpoint_resume(subject: PreflightSubject) -> Result:
    """A step after a stop is, bit for bit, the step without one."""
    trial = trial_step_or_reason(subject)
    if isinstance(trial, Result):
        return trial
    with (
        _freeze_largest_weights(trial.job) as freeze_note,
        tempfile.TemporaryDirectory(prefix="plaudit-check-") as folder,
    ):
        uninterrupted, checkpoint_bytes = _uninterrupted_digests(trial, Path(folder))
        resumed = _resumed_digests(trial, Path(folder))
    differing = [name for name, digest in uninterrupted.items() if resumed.get(name) != digest]
    differing += [name for name in resumed if name not in uninterrupted]
    if differing:
        return failed(
            f"{len(differing)} of {len(uninterrupted)} tensors are others after a stop than without one: "
            f"{_abbreviated_names(differing)}"
        )
    return passed(
        f"{trial.description}: a step after a checkpoint of {checkpoint_bytes / 2**20:.1f} MiB was read "
        "gives the same "
        f"weights and optimiser, {len(uninterrupted)} tensors, bit for bit{freeze_note}"
    )


@contextmanager
def _freeze_largest_weights(job: TrainingJob[Any]) -> Iterator[str]:
    """While this lasts only so many weights learn that a checkpoint is quickly written; says how many."""
    learning = sorted(trained_parameters(job), key=lambda weight: weight.numel())
    ends = accumulate(weight.nbytes for weight in learning)
    beyond = [weight for weight, end in zip(learning, ends, strict=True) if end > MAX_CHECKPOINT_BYTES]
    left_out = beyond if len(beyond) < len(learning) else beyond[1:]
    for weight in left_out:
        weight.requires_grad_(False)
    try:
        yield f"; of {len(learning)} weights the {len(left_out)} largest were held still" if left_out else ""
    finally:
        for weight in left_out:
            weight.requires_grad_(True)


def _relative_update(trial: TrialStep, original: Mapping[str, Tensor]) -> float | Result:
    """How much of their size weights move in a step at the run's own rate."""
    job = trial.job
    outcome = take_step(trial_stepper(job), trial.batch, job.learning_rate)
    if outcome.fault is not None:
        return failed(outcome.fault.message(1))
    if outcome.gradient_norm == 0:
        return not_applicable("the gradient of these rows is 0: there is nothing to learn from them")
    learning = {name: one for name, one in job.module.named_parameters() if one.requires_grad}
    size = _total_norm([original[name] for name in learning])
    change = _total_norm([one.detach() - original[name] for name, one in learning.items()])
    return change / size if change else failed(f"a step at the rate {job.learning_rate:g} moves no weight")


def _losses(trial: TrialStep, rate: float) -> list[float]:
    """The loss before each step, until it has clearly fallen."""
    stepper, losses = trial_stepper(trial.job), list[float]()
    for _ in range(OVERFIT_STEPS + 1):
        outcome = take_step(stepper, trial.batch, rate)
        losses.append(float(values_of(outcome.metrics)["loss"]))
        if outcome.fault is not None or _has_decreased(losses):
            break
    return losses


def _has_decreased(losses: list[float]) -> bool:
    return losses[0] - losses[-1] > CLEAR_DECREASE * abs(losses[0])


def _uninterrupted_digests(trial: TrialStep, folder: Path) -> tuple[dict[str, bytes], int]:
    """Digests after a step, a checkpoint and another step without interruption, and the checkpoint's size
    in bytes.
    """
    job = trial.job
    with preserve_weights(job.module):
        stepper = trial_stepper(job)
        take_step(stepper, trial.batch, job.learning_rate)
        saved = checkpoints.save_checkpoint(folder, snapshot(stepper, {}, step=1, facts={}))
        take_step(stepper, trial.batch, job.learning_rate)
        return _state_digests(stepper), saved.bytes


def _resumed_digests(trial: TrialStep, folder: Path) -> dict[str, bytes]:
    """Digests after the step that follows a resume from the checkpoint, with weights and optimiser made
    anew.
    """
    job = trial.job
    with preserve_weights(job.module):
        stepper = trial_stepper(job)
        loaded = checkpoints.load_latest_checkpoint(folder, expected=expected_shapes(job.module))
        assert loaded is not None, "it was just written"
        load_snapshot(loaded.state, job.module, stepper.optimizer, stepper.ranks)
        del loaded
        take_step(stepper, trial.batch, job.learning_rate)
        return _state_digests(stepper)


def _state_digests(stepper: Stepper[Any]) -> dict[str, bytes]:
    """A digest of every trained weight and of all optimiser state."""
    memory = state.read_optimizer_state(stepper.module, stepper.optimizer)
    learning = {name: one for name, one in stepper.module.named_parameters() if one.requires_grad}
    tensors = {**learning, **memory.tensors}
    facts = {name: repr(value).encode() for name, value in memory.facts.items()}
    return {name: _tensor_digest(value) for name, value in tensors.items()} | facts


def _tensor_digest(tensor: Tensor) -> bytes:
    """A digest of a tensor's bits."""
    plain = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    bits: Any = plain.numpy()
    return hashlib.blake2b(bits, digest_size=16).digest()


def _total_norm(tensors: list[Tensor]) -> float:
    norms = [torch.linalg.vector_norm(one, dtype=torch.float64) for one in tensors]
    return float(torch.stack(norms).square().sum().sqrt())


def _abbreviated_names(names: Any) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:MAX_NAMED_WEIGHTS]) + (" …" if len(ordered) > MAX_NAMED_WEIGHTS else "")


CHECKS = (
    Check(
        name="overfits",
        proves="A few steps on nothing but a few rows make their loss clearly smaller, at a rate that suits "
        "the model.",
        matters="A loss with the wrong sign, an optimiser that moves nothing, or gradients of something "
        "else than the loss that is shown all look like a run that is hard to tune. 'It does not learn' is "
        "what users report, and a test of a minute would have told them: TRL#41, TRL#615, TRL#1098.",
        mend="Look at all-learn and micro-batches first. If they hold, look at a loss of your own (is "
        "smaller better?) and at an optimiser of your own (does it use the gradients that it is given?).",
        run=check_overfits,
    ),
    Check(
        name="adapters",
        proves="With LoRA, steps move every adapter, and no weight of the model beneath them.",
        matters="Adapters that do not move leave the model what it was, and a base that moves is lost: only "
        "the adapters are saved, and the reference that is read beneath them moves along. One such run "
        "cost two months: verl#7495; others: peft#793, mlx-vlm#2181.",
        mend="Look at the weights that are named: if they are adapters, raise --learning-rate or look why "
        "no gradient reaches them; if they are the model's own, an optimiser of your own moves what it was "
        "not given.",
        run=check_adapters,
    ),
    Check(
        name="checkpoint",
        proves="A run that is stopped after a step and goes on from its checkpoint has, after the next "
        "step, the same weights and the same optimiser state to the last bit.",
        matters="A resumed run whose optimiser or chance begins anew jumps in loss and length and cannot be "
        "repeated: TRL#3247, open-r1#450. In open-instruct the option to resume was read by nothing "
        "(open-instruct#1823).",
        mend="Use an optimiser that keeps everything in its state as tensors and numbers. On a GPU a "
        "kernel that is not deterministic may be the cause: look whether two runs without a stop agree.",
        run=check_checkpoint_resume,
    ),
)
"""Checks of steps."""
