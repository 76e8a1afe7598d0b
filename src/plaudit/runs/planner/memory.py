"""The memory of a run: a line for each thing that a process holds, and the peak of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch

from plaudit.methods.config import RunConfig
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.preference.config import PreferenceConfig
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.models.adapters import numbers_in_four_bits
from plaudit.models.attention import ACCELERATED
from plaudit.models.kv_cache import ROOM_STEP
from plaudit.models.paged_cache import PAGE_TOKENS, pooled_tokens
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel
from plaudit.rollouts.local import LOOK_EVERY, MAX_BATCH_SIZE
from plaudit.runs.planner.machine import Machine, format_bytes
from plaudit.runs.planner.models import CACHED, LIVE, RunModels, model_size, optimizer_state
from plaudit.runs.planner.schedule import PlannedRows, Schedule
from plaudit.runs.planner.simulation import (
    SimulationSetting,
    cached_numbers_per_token,
    forward_peak,
    gathered_weights,
    step_peak,
)
from plaudit.tokens.batch import Completion, Example

ALLOCATOR_OVERHEAD = {
    "cpu": (0.25, "malloc does not hand back (as measured)"),
    "cuda": (0.05, "lies in pieces too small for others (taken for granted, not measured)"),
}
"""The share of transient memory that an allocator keeps (on a CPU by benchmarks/planning.py), and why."""
CUDA_KERNELS = 2**30
"""Bytes of a CUDA context with the workspaces of its libraries."""
_END = Completion(ids=(0,), mask=(True,), finished=True)
PROCESS, ALWAYS, STEP, GENERATE, SAVE, LOAD = "process", "always", "step", "draw", "save", "load"
"""When a line is in memory: as long as the process lives, once models are there, while a step is taken,
answers are drawn, or a checkpoint is written, and while models are loaded.
"""
COPY = "copy that draws"
# Of its share of the weights, what a process holds at most while it reads it: one tensor is read at a time.
LOADING_ROOM = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    name: str
    bytes: int
    when: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLedger:
    lines: tuple[MemoryLine, ...]

    def during(self, when: str) -> int:
        """Bytes of the lines of one phase, without those that are always there."""
        return sum(line.bytes for line in self.lines if line.when == when)

    @property
    def peak(self) -> int:
        """The most at once: loading, steps, drawing and saving follow each other."""
        later = self.during(ALWAYS) + max(map(self.during, (STEP, GENERATE, SAVE)))
        return self.during(PROCESS) + max(later, self.during(LOAD))

    def with_process(self, size: int) -> MemoryLedger:
        line = MemoryLine(name="process", bytes=size, when=PROCESS, why="Python, its libraries, the rows")
        return MemoryLedger(lines=(line, *self.lines)) if size else self

    def with_measured_peak(self, size: int, process: int) -> MemoryLedger:
        missing = size + process - self.peak
        if missing <= 0:
            return self
        line = MemoryLine(
            name="found by measuring", bytes=missing, when=ALWAYS, why="what steps took beyond all this"
        )
        return MemoryLedger(lines=(*self.lines, line))


def estimate_memory(
    config: RunConfig, roles: RunModels, plan: Schedule, rows: PlannedRows, machine: Machine, process: int
) -> MemoryLedger:
    """The memory of one process, of which Python and its libraries take ``process``."""
    bare = MemoryLedger(lines=tuple(_memory_lines(config, roles, plan, rows, machine)))
    transient = max(bare.during(STEP), bare.during(GENERATE))
    return MemoryLedger(lines=(*bare.lines, *_overhead(transient, machine))).with_process(process)


def _overhead(transient: int, machine: Machine) -> Iterator[MemoryLine]:
    # What the device takes beside tensors, and what its allocator does not hand back.
    share, whose = ALLOCATOR_OVERHEAD[machine.device_kind]
    if machine.device_kind == "cuda":
        why = "context and workspaces of its libraries (taken for granted, not measured)"
        yield MemoryLine(name="kernels", bytes=CUDA_KERNELS, when=PROCESS, why=why)
    why = f"{share:.0%} of what comes and goes, which {whose}"
    yield MemoryLine(name="allocator", bytes=int(share * transient), when=ALWAYS, why=why)


def memory_lower_bound(
    config: RunConfig, roles: RunModels, plan: Schedule, rows: PlannedRows, process: int
) -> int:
    """What one process holds at least: all but activations and generation, so no step is simulated."""
    return MemoryLedger(lines=tuple(_fixed_lines(config, roles, plan, rows))).with_process(process).peak


def _memory_lines(
    config: RunConfig, roles: RunModels, plan: Schedule, rows: PlannedRows, machine: Machine
) -> Iterator[MemoryLine]:
    yield from _fixed_lines(config, roles, plan, rows)
    models = [*_trained_models(roles), *([roles.reference_model] if roles.reference_model else [])]
    divided = shares(config, plan) > 1
    with gathered_weights(models, roles.numbers.products) if divided else nullcontext():
        yield _activation_line(config, roles, plan, machine)
        if plan.rounds is not None and not _drawn_elsewhere(config):
            yield from _generation_lines(roles, plan, rows, machine)
    if divided:
        if not isinstance(config, PreferenceConfig):
            models = _trained_models(roles)
        yield _gathered_line(_trained_models(roles), models, roles.numbers.products.itemsize)
        largest = max(p.nbytes for model in models for p in model.parameters() if p.requires_grad)
        if machine.device_kind == "cpu":
            # Of a GPU's process both are in its machine's memory.
            largest += sum(p.nbytes for p in roles.trained_model.parameters())
        why = "the result is gathered, a tensor at a time; the first process keeps it"
        yield MemoryLine(name="saving", bytes=largest, when=SAVE, why=why)
    background = divided if config.keep.background is None else config.keep.background
    if background and machine.device_kind == "cpu":
        size = (_trained_bytes(roles) + _state_bytes(config, roles)) // shares(config, plan)
        why = "a copy of what it writes, while the run goes on"
        yield MemoryLine(name="checkpoint", bytes=size, when=ALWAYS, why=why)


def shares(config: RunConfig, plan: Schedule) -> int:
    """Over how many processes weights are divided."""
    return min(config.shard_ranks or plan.ranks, plan.ranks) if config.shard else 1


def _gathered_line(
    learners: Sequence[Policy | RewardModel], models: Sequence[Policy | RewardModel], size: int
) -> MemoryLine:
    # What FSDP puts together: a layer, the one before, the one on its way, and what is in no layer.
    rest = layer = summed = 0
    for model in models:
        layers = [model_size(block) for block in model.backbone.repeated_layers]
        whole, largest = model_size(model), max(layers, key=lambda block: block.total)
        rest += size * (whole.total - sum(block.total for block in layers))
        layer = max(layer, 3 * size * largest.total)
        if model in learners:
            rest += size * (whole.trained - sum(block.trained for block in layers))
            summed = max(summed, 4 * largest.trained)
    why = f"three layers ({format_bytes(layer)}), what is in none with its gradient ({format_bytes(rest)}), "
    why += f"a layer's gradients in float32 on their way ({format_bytes(summed)})"
    return MemoryLine(name="gathered weights", bytes=rest + layer + summed, when=STEP, why=why)


def _drawn_elsewhere(config: RunConfig) -> bool:
    # Whether servers draw, with memory of their own.
    return isinstance(config, PolicyConfig) and config.sampler != "local"


def _fixed_lines(
    config: RunConfig, roles: RunModels, plan: Schedule, rows: PlannedRows
) -> Iterator[MemoryLine]:
    share = shares(config, plan)
    divided = f", divided over {share} processes" if share > 1 else ""
    yield from _weight_lines(roles, share, divided)
    yield _loading_line(roles, share)
    if share > 1 and isinstance(config, PolicyConfig) and not _drawn_elsewhere(config):
        numbers, kind = model_size(roles.trained_model).total, roles.numbers.products
        why = f"all weights in {str(kind).removeprefix('torch.')}, gathered before a round is drawn"
        yield MemoryLine(name=COPY, bytes=numbers * kind.itemsize, when=ALWAYS, why=why)
    for scorer in roles.scorers:
        why = f"{scorer.size.total:,} numbers, {scorer.folder}"
        yield MemoryLine(name=scorer.name, bytes=scorer.size.bytes, when=ALWAYS, why=why)
    moments = len(_moments(config))
    yield MemoryLine(
        name="optimiser",
        bytes=_state_bytes(config, roles) // share,
        when=ALWAYS,
        why=f"{config.optimizer.name}: {moments} numbers for each that learns{divided}",
    )
    if roles.reference_kind == CACHED:
        tokens = sum(row.trained_tokens for row in (*rows.train, *rows.held_out))
        yield MemoryLine(
            name="reference",
            bytes=4 * tokens,
            when=ALWAYS,
            why=f"log-probs of {tokens:,} tokens, computed once",
        )
    size = _trained_bytes(roles) // share
    yield MemoryLine(name="gradients", bytes=size, when=STEP, why="a number for each that learns")


def _moments(config: RunConfig) -> list[torch.dtype]:
    return [dtype for in_shape, dtype in optimizer_state(config.optimizer).values() if in_shape]


def _state_bytes(config: RunConfig, roles: RunModels) -> int:
    numbers = _trained_bytes(roles) // roles.numbers.weights.itemsize
    return numbers * sum(dtype.itemsize for dtype in _moments(config))


def _loading_line(roles: RunModels, share: int) -> MemoryLine:
    # What the largest model takes while it is loaded, beside what is left of those before it.
    most, before, why = 0, 0, ""
    for model in (roles.trained_model, roles.critic, roles.reference_model):
        if model is None:
            continue
        size = model_size(model)
        # What learns, or is beneath adapters, is read in all digits and rounded then; for 4 bits off the GPU.
        wide = roles.numbers.weights.itemsize if model is not roles.reference_model else 0
        read = size.bytes if not wide or numbers_in_four_bits(model) else size.total * wide
        taken = before + (int(LOADING_ROOM * read / share) if share > 1 else read)
        if taken > most:
            most, each = taken, f"{size.total:,} numbers × {read / size.total:.2g} bytes"
            why = (
                f"{each} / {share} processes × {LOADING_ROOM}: each reads its part alone, tensor by tensor"
                if share > 1
                else f"{each}: each process reads all of it, through its machine's own memory"
            )
            why += f"; {format_bytes(before)} of models before it" * (before > 0)
        before += size.bytes // share
    return MemoryLine(name="loading", bytes=most, when=LOAD, why=why)


def _weight_lines(roles: RunModels, share: int, divided: str) -> Iterator[MemoryLine]:
    for name, model in (
        ("weights", roles.trained_model),
        ("critic", roles.critic),
        ("reference", roles.reference_model),
    ):
        if model is not None:
            size = model_size(model)
            kinds = {str(p.dtype).removeprefix("torch.") for p in model.parameters() if p.is_floating_point()}
            note = f"{size.total:,} numbers in {' and '.join(sorted(kinds))}, {size.trained:,} of them learn"
            note += divided
            if count := numbers_in_four_bits(model):
                note += f", {count:,} in 4 bits"
            yield MemoryLine(name=name, bytes=size.bytes // share, when=ALWAYS, why=note)


def _trained_models(roles: RunModels) -> list[Policy | RewardModel]:
    return [model for model in (roles.trained_model, roles.critic) if model is not None]


def _trained_bytes(roles: RunModels) -> int:
    return sum(
        p.numel() * p.element_size()
        for model in _trained_models(roles)
        for p in model.parameters()
        if p.requires_grad
    )


def _activation_line(config: RunConfig, roles: RunModels, plan: Schedule, machine: Machine) -> MemoryLine:
    uniform = not isinstance(config, PreferenceConfig | PolicyConfig | RewardConfig)
    setting = SimulationSetting(device=machine.device, numbers=roles.numbers, uniform=uniform)
    reference = None
    if isinstance(config, PreferenceConfig) and roles.reference_kind == LIVE:
        reference = roles.reference_model
    # Divided, even the first piece's gradients are small beside its activations: they have a line.
    accumulates = plan.microbatches > 1 or shares(config, plan) > 1
    peak = step_peak(_trained_models(roles), reference, plan.largest, setting, accumulates=accumulates)
    tokens = sum(example.tokens for example in plan.largest)
    method = "all layers, the head in blocks"
    if config.memory.checkpointing:
        method = "each layer's input, the rest computed again"
    why = f"a piece of {tokens:,} tokens: {method}"
    if setting.left_out:
        why += f"; without {' and '.join(sorted(setting.left_out))}, whose values decide what is computed"
    return MemoryLine(name="activations", bytes=peak - _trained_bytes(roles), when=STEP, why=why)


def _cached_tokens(prompts: int, answers: int, prompt: int, answer: int, machine: Machine) -> int:
    # Places for keys and values of so many prompts and answers, of these lengths at most.
    if machine.device_kind not in ACCELERATED:
        return prompts * prompt + answers * ROOM_STEP * ceil(answer / ROOM_STEP)
    kind = machine.device_kind
    return pooled_tokens(prompts, answers, prompt, answer + LOOK_EVERY[kind], PAGE_TOKENS[kind])


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawingShape:
    """How answers of a round are drawn side by side."""

    rows: int
    lengths: tuple[int, ...]
    """Tokens of the prompts that are read at once, the longest ones, downwards."""
    cached_tokens: int
    token_bytes: int


def drawing_shape(roles: RunModels, plan: Schedule, rows: PlannedRows, machine: Machine) -> DrawingShape:
    assert plan.rounds is not None
    assert isinstance(roles.trained_model, Policy)
    answers = plan.rounds.answers
    completions = ceil(min(plan.batch_size, plan.rows) / plan.ranks) * answers
    batch_size = min(completions, MAX_BATCH_SIZE[machine.device_kind])
    prompts = ceil(batch_size / answers)
    lengths = tuple(sorted((len(row.prompt) for row in rows.train), reverse=True)[:prompts])
    # Where others join, a prompt stays as long as one of its answers grows.
    live = prompts if completions == batch_size else min(2 * prompts, batch_size)
    setting = SimulationSetting(device=machine.device, numbers=roles.numbers, uniform=False)
    return DrawingShape(
        rows=batch_size,
        lengths=lengths,
        cached_tokens=_cached_tokens(live, batch_size, lengths[0], plan.rounds.longest, machine),
        token_bytes=cached_numbers_per_token(roles.trained_model, setting) * roles.numbers.products.itemsize,
    )


def _generation_lines(
    roles: RunModels, plan: Schedule, rows: PlannedRows, machine: Machine
) -> Iterator[MemoryLine]:
    assert isinstance(roles.trained_model, Policy)
    shape = drawing_shape(roles, plan, rows, machine)
    batch_size, longest = shape.rows, shape.lengths
    yield MemoryLine(
        name="cache of the sampler",
        bytes=shape.cached_tokens * shape.token_bytes,
        when=GENERATE,
        why=f"keys and values of {batch_size} answers side by side, {shape.cached_tokens:,} places of "
        f"{shape.token_bytes:,} bytes",
    )
    setting = SimulationSetting(device=machine.device, numbers=roles.numbers, uniform=False)
    packed = [Example(prompt=(0,) * (length - 1 or 1), completions=(_END,)) for length in longest]
    embedding: Any = roles.trained_model.base.get_input_embeddings()
    vocabulary: int = embedding.weight.shape[0]
    prefill = forward_peak(roles.trained_model, packed, setting)
    decode = 2 * batch_size * vocabulary * 4
    yield MemoryLine(
        name="reading and drawing",
        bytes=max(prefill, decode),
        when=GENERATE,
        why=f"{len(longest)} prompts at once, {sum(longest):,} tokens; then {vocabulary:,} scores an answer",
    )
