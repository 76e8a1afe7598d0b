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

from plaudit.checks.check import Check, Result, failed, not_applicable, passed
from plaudit.checks.checking import weights_kept
from plaudit.checks.few import Trial, likely
from plaudit.checks.learning import NAMED, machine, ready, trained
from plaudit.checks.subject import Lesson, Subject
from plaudit.training import checkpoint as checkpoints
from plaudit.training import optimizer_memory
from plaudit.training.metrics import values_of
from plaudit.training.state import expected_shapes, snapshot, take_up
from plaudit.training.step import Machine, take_step

SHARES = (0.01, 0.1, 0.001)
"""How much of their size weights move in the first step that is tried, one try after another."""
STEPS = 10
"""Steps of a try."""
CLEAR = 0.02
"""A fall of the loss by this share of it is clear."""
LOOKED_AT = 64 * 2**20
"""Bytes of weights that a checkpoint for a look is made of; of a larger model the largest are left out."""


def overfits(subject: Subject) -> Result:
    """The loss of a few rows falls when only they are learnt."""
    tried = ready(subject)
    if isinstance(tried, Result):
        return tried
    if tried.lesson.draws and (tried := likely(subject)) is None:
        return not_applicable("no prompt to learn")
    with weights_kept(tried.lesson.module) as kept:
        first = _moved(tried, kept)
    if isinstance(first, Result):
        return first
    seen: list[str] = []
    for share in SHARES:
        with weights_kept(tried.lesson.module):
            losses = _losses(tried, tried.lesson.rate * share / first)
        said = f"from {losses[0]:.4g} to {losses[-1]:.4g} (steps: {len(losses) - 1})"
        if _fell(losses):
            return passed(f"{tried.what}: the loss falls {said}")
        seen.append(said)
    return failed(f"{tried.what}: the loss does not fall at any rate: {'; '.join(seen)}")


def adapters(subject: Subject) -> Result:
    """A step moves the adapters, and nothing of the model beneath them."""
    model = subject.policy or subject.scorer
    if not subject.adapted or model is None:
        return not_applicable("all weights learn: see all-learn")
    tried = ready(subject)
    if isinstance(tried, Result):
        return tried
    weights = dict(model.named_parameters())
    with weights_kept(tried.lesson.module):
        before = {name: _print(weight) for name, weight in weights.items()}
        mover = machine(tried.lesson)
        # An adapter begins as 0 · A, so A learns once 0 has moved.
        for _ in range(2):
            take_step(mover, tried.batch, tried.lesson.rate)
        moved = {name for name, weight in weights.items() if _print(weight) != before[name]}
    own = {name for name in weights if "lora_" in name}
    beneath = {name for name in weights if name not in own and "modules_to_save" not in name}
    # Of experts only those learn that a token is sent to.
    still = {name for name in own - moved if "expert" not in name}
    if beneath & moved:
        return failed(f"{len(beneath & moved)} weights beneath the adapters moved: {_names(beneath & moved)}")
    if still or not own:
        return failed(f"{len(still)} of {len(own)} adapters did not move in two steps: {_names(still)}")
    return passed(
        f"{tried.what}: {len(own & moved)} adapters moved in two steps, {len(beneath)} weights beneath "
        "did not"
    )


def checkpoint(subject: Subject) -> Result:
    """A step after a stop is, bit for bit, the step without one."""
    tried = ready(subject)
    if isinstance(tried, Result):
        return tried
    with _few_learn(tried.lesson) as few, tempfile.TemporaryDirectory(prefix="plaudit-check-") as folder:
        straight, written = _straight(tried, Path(folder))
        resumed = _resumed(tried, Path(folder))
    apart = [name for name, found in straight.items() if resumed.get(name) != found]
    apart += [name for name in resumed if name not in straight]
    if apart:
        return failed(
            f"{len(apart)} of {len(straight)} tensors are others after a stop than without one: "
            f"{_names(apart)}"
        )
    return passed(
        f"{tried.what}: a step after a checkpoint of {written / 2**20:.1f} MiB was read gives the same "
        f"weights and optimiser, {len(straight)} tensors, bit for bit{few}"
    )


@contextmanager
def _few_learn(lesson: Lesson) -> Iterator[str]:
    """While this lasts only so many weights learn that a checkpoint is quickly written; says how many."""
    learning = sorted(trained(lesson), key=lambda weight: weight.numel())
    ends = accumulate(weight.nbytes for weight in learning)
    beyond = [weight for weight, end in zip(learning, ends, strict=True) if end > LOOKED_AT]
    left_out = beyond if len(beyond) < len(learning) else beyond[1:]
    for weight in left_out:
        weight.requires_grad_(False)
    try:
        yield f"; of {len(learning)} weights the {len(left_out)} largest were held still" if left_out else ""
    finally:
        for weight in left_out:
            weight.requires_grad_(True)


def _moved(tried: Trial, kept: Mapping[str, Tensor]) -> float | Result:
    """How much of their size weights move in a step at the run's own rate."""
    lesson = tried.lesson
    outcome = take_step(machine(lesson), tried.batch, lesson.rate)
    if outcome.fault is not None:
        return failed(outcome.fault.sentence(1))
    if outcome.gradient_norm == 0:
        return not_applicable("the gradient of these rows is 0: there is nothing to learn from them")
    learning = {name: one for name, one in lesson.module.named_parameters() if one.requires_grad}
    size = _norm([kept[name] for name in learning])
    moved = _norm([one.detach() - kept[name] for name, one in learning.items()])
    return moved / size if moved else failed(f"a step at the rate {lesson.rate:g} moves no weight")


def _losses(tried: Trial, rate: float) -> list[float]:
    """The loss before each step, until it has clearly fallen."""
    mover, losses = machine(tried.lesson), list[float]()
    for _ in range(STEPS + 1):
        outcome = take_step(mover, tried.batch, rate)
        losses.append(float(values_of(outcome.metrics)["loss"]))
        if outcome.fault is not None or _fell(losses):
            break
    return losses


def _fell(losses: list[float]) -> bool:
    return losses[0] - losses[-1] > CLEAR * abs(losses[0])


def _straight(tried: Trial, folder: Path) -> tuple[dict[str, bytes], int]:
    """A step, a checkpoint and another step; what it comes to, and the checkpoint's bytes."""
    lesson = tried.lesson
    with weights_kept(lesson.module):
        mover = machine(lesson)
        take_step(mover, tried.batch, lesson.rate)
        saved = checkpoints.save(folder, snapshot(mover, {}, step=1, facts={}))
        take_step(mover, tried.batch, lesson.rate)
        return _prints(mover), saved.bytes


def _resumed(tried: Trial, folder: Path) -> dict[str, bytes]:
    """The step after the checkpoint was read into weights that know nothing of the step before."""
    lesson = tried.lesson
    with weights_kept(lesson.module):
        mover = machine(lesson)
        loaded = checkpoints.load_latest(folder, expected=expected_shapes(lesson.module))
        assert loaded is not None, "it was just written"
        take_up(loaded.state, lesson.module, mover.optimizer, mover.ranks)
        del loaded
        take_step(mover, tried.batch, lesson.rate)
        return _prints(mover)


def _prints(mover: Machine[Any]) -> dict[str, bytes]:
    """Of every weight that learns and of everything that the optimiser remembers."""
    memory = optimizer_memory.read(mover.module, mover.optimizer)
    learning = {name: one for name, one in mover.module.named_parameters() if one.requires_grad}
    tensors = {**learning, **memory.tensors}
    facts = {name: repr(value).encode() for name, value in memory.facts.items()}
    return {name: _print(value) for name, value in tensors.items()} | facts


def _print(tensor: Tensor) -> bytes:
    """A digest of its bits."""
    plain = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    bits: Any = plain.numpy()
    return hashlib.blake2b(bits, digest_size=16).digest()


def _norm(tensors: list[Tensor]) -> float:
    norms = [torch.linalg.vector_norm(one, dtype=torch.float64) for one in tensors]
    return float(torch.stack(norms).square().sum().sqrt())


def _names(names: Any) -> str:
    found = sorted(names)
    return ", ".join(found[:NAMED]) + (" …" if len(found) > NAMED else "")


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
        look=overfits,
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
        look=adapters,
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
        look=checkpoint,
    ),
)
"""Checks of steps."""
