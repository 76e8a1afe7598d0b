"""The memory of a run: a line for each thing that a process holds, and the peak of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import Any

from plaudit.methods.config import RunConfig
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.preference.config import PreferenceConfig
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.models.attention import ACCELERATED
from plaudit.models.four_bits import numbers_in_four_bits
from plaudit.models.kv_cache import ROOM_STEP
from plaudit.models.paged_cache import PAGE_TOKENS, pooled_tokens
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel
from plaudit.rollouts.local import LOOK_EVERY, MAX_BATCH_SIZE
from plaudit.runs.planner.machine import Machine
from plaudit.runs.planner.models import CACHED, LIVE, RunModels, model_size, optimizer_state
from plaudit.runs.planner.schedule import PlannedRows, Schedule
from plaudit.runs.planner.simulation import (
    SimulationSetting,
    cached_numbers_per_token,
    forward_peak,
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
ALWAYS, STEP, GENERATE, LOAD = "always", "step", "draw", "load"
"""When a line is in memory: at any time, while a step is taken, while answers are drawn, while models are
loaded, which is all that there is then.
"""


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
        """The most at once: loading, steps and drawing follow each other."""
        later = self.during(ALWAYS) + max(self.during(STEP), self.during(GENERATE))
        return max(later, self.during(LOAD))

    def with_process(self, size: int) -> MemoryLedger:
        line = MemoryLine(name="process", bytes=size, when=ALWAYS, why="Python, its libraries, the rows")
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
    """What the device takes beside tensors, and what its allocator does not hand back."""
    share, whose = ALLOCATOR_OVERHEAD[machine.device_kind]
    if machine.device_kind == "cuda":
        why = "context and workspaces of its libraries (taken for granted, not measured)"
        yield MemoryLine(name="kernels", bytes=CUDA_KERNELS, when=ALWAYS, why=why)
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
    yield _activation_line(config, roles, plan, machine)
    if plan.rounds is not None and not _drawn_elsewhere(config):
        yield from _generation_lines(roles, plan, rows, machine)


def _drawn_elsewhere(config: RunConfig) -> bool:
    """Whether servers draw, with memory of their own."""
    return isinstance(config, PolicyConfig) and config.sampler != "local"


def _fixed_lines(
    config: RunConfig, roles: RunModels, plan: Schedule, rows: PlannedRows
) -> Iterator[MemoryLine]:
    share = plan.ranks if config.shard else 1
    trained = _trained_bytes(roles)
    divided = f", divided over {share} processes" if share > 1 else ""
    yield from _weight_lines(roles, share, divided)
    if share > 1 and isinstance(config, PolicyConfig) and not _drawn_elsewhere(config):
        numbers, kind = model_size(roles.trained_model).total, roles.numbers.products
        why = f"all weights in {str(kind).removeprefix('torch.')}, gathered before a round is drawn"
        yield MemoryLine(name="copy that draws", bytes=numbers * kind.itemsize, when=ALWAYS, why=why)
    for scorer in roles.scorers:
        why = f"{scorer.size.total:,} numbers, {scorer.folder}"
        yield MemoryLine(name=scorer.name, bytes=scorer.size.bytes, when=ALWAYS, why=why)
    moments = [dtype for in_shape, dtype in optimizer_state(config.optimizer).values() if in_shape]
    # `trained` counts bytes, of weights in the numbers of the run.
    state = trained * sum(dtype.itemsize for dtype in moments) // roles.numbers.weights.itemsize // share
    yield MemoryLine(
        name="optimiser",
        bytes=state,
        when=ALWAYS,
        why=f"{config.optimizer.name}: {len(moments)} numbers for each that learns{divided}",
    )
    if roles.reference_kind == CACHED:
        tokens = sum(row.trained_tokens for row in (*rows.train, *rows.held_out))
        yield MemoryLine(
            name="reference",
            bytes=4 * tokens,
            when=ALWAYS,
            why=f"log-probs of {tokens:,} tokens, computed once",
        )
    yield MemoryLine(name="gradients", bytes=trained // share, when=STEP, why="a number for each that learns")


def _weight_lines(roles: RunModels, share: int, divided: str) -> Iterator[MemoryLine]:
    sizes = list[int]()
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
            sizes.append(size.bytes)
    if share > 1:
        # One model after the other: of those before it parts are left.
        whole = max(size + sum(sizes[:n]) // share for n, size in enumerate(sizes))
        why = "each process loads all weights, here and in its machine's own memory, and divides them then"
        yield MemoryLine(name="whole weights", bytes=whole, when=LOAD, why=why)


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
    reference = (
        roles.reference_model
        if isinstance(config, PreferenceConfig) and roles.reference_kind == LIVE
        else None
    )
    peak = step_peak(
        _trained_models(roles), reference, plan.largest, setting, accumulates=plan.microbatches > 1
    )
    tokens = sum(example.tokens for example in plan.largest)
    method = (
        "each layer's input, the rest computed again"
        if config.memory.checkpointing
        else "all layers, the head in blocks"
    )
    return MemoryLine(
        name="activations",
        bytes=peak - _trained_bytes(roles),
        when=STEP,
        why=f"a piece of {tokens:,} tokens: {method}",
    )


def _cached_tokens(prompts: int, answers: int, prompt: int, answer: int, machine: Machine) -> int:
    """Places for keys and values of so many prompts and answers, of these lengths at most."""
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
