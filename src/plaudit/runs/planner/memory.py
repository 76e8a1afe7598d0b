"""The memory of a run: a line for each thing that a process holds, and the peak of a training step.

The model's own code runs on torch's meta device, where tensors have shapes and no numbers, forward and
backward, and every storage is counted from the operation that makes it to the moment when nobody holds it any
more. So nothing has to be known of a family of models, and a model of 70 billion weights takes a few seconds
and next to no memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import _engine_run_backward
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from plaudit.methods.config import RunConfig
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.preference.config import PreferenceConfig
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.models.attention import ACCELERATED
from plaudit.models.backbone import Backbone, head_of
from plaudit.models.four_bits import numbers_in_four_bits
from plaudit.models.kv_cache import ROOM_STEP
from plaudit.models.load import Precision
from plaudit.models.paged_cache import PAGE_TOKENS, pooled_tokens
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel
from plaudit.rollouts.local import LOOK_EVERY, MAX_BATCH_SIZE
from plaudit.runs.planner.machine import Machine
from plaudit.runs.planner.models import CACHED, LIVE, RunModels, model_size, optimizer_state
from plaudit.runs.planner.schedule import PlannedRows, Schedule
from plaudit.tensors.logprobs import (
    LOGITS_AT_ONCE,
    RETAINED_ROWS_AT_ONCE,
    TOKENS_AT_ONCE,
    caches_logits,
    wide_zeros,
)
from plaudit.tokens.batch import Completion, Example, TokenBatch, batch_of
from plaudit.tokens.microbatch import ForwardInputs, layout_batch

_SDPA_MATH = 0
"""The number by which torch calls attention that is written out."""


class LiveBytes(TorchDispatchMode):
    """Counts the bytes that come alive while the mode is on, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        """Bytes now."""
        self.peak = 0
        """The most at once."""
        self._counted: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation, and count the storages that it made."""
        out = func(*args, **(kwargs or {}))
        outputs = [leaf.untyped_storage() for leaf in tree_leaves(out) if _is_meta_tensor(leaf)]
        new = [storage for storage in outputs if storage._cdata not in self._counted]
        if new:
            inputs = {
                leaf.untyped_storage()._cdata for leaf in tree_leaves((args, kwargs)) if _is_meta_tensor(leaf)
            }
            for storage in new:
                if storage._cdata not in inputs:
                    self._count(storage)
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._counted:
            return
        self._counted.add(key)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self._counted.discard(key)
        self.now -= size


def _is_meta_tensor(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_meta


class EmulateDevice(TorchFunctionMode):
    """Lets meta tensors take the code paths that tensors of a device would take.

    Attention is asked of the kernel that torch would choose there; ``cached_numbers`` counts the keys and
    values that attention was given.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self.cached_numbers = 0
        """Numbers that a sampler would remember of what was read."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Send attention to the kernel that the device would use."""
        if func is scaled_dot_product_attention:
            return self._attend(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **flags: Any
    ) -> Tensor:
        self.cached_numbers += key.numel() + value.numel()
        if self._materialises_scores(query, key, value, attn_mask, flags):
            return scaled_dot_product_attention(query, key, value, attn_mask=attn_mask, **flags)
        return _fused_attention(query, key, value)

    def _materialises_scores(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, how: Mapping[str, Any]
    ) -> bool:
        """Whether attention would materialise its scores, there being no fused kernel.

        Of a GPU that is not here it is taken for granted.
        """
        if self._device.type == "cuda" and not torch.cuda.is_available():
            return False
        probes = [
            torch.empty(
                *tensor.shape[:2],
                min(tensor.shape[2], 2),
                tensor.shape[3],
                dtype=tensor.dtype,
                device=self._device,
            )
            for tensor in (query, key, value)
        ]
        small = None if mask is None else torch.ones(probes[0].shape[2], probes[1].shape[2], dtype=torch.bool)
        flags = {name: how[name] for name in ("dropout_p", "is_causal", "scale", "enable_gqa") if name in how}
        choose: Any = torch._fused_sdp_choice  # pyright: ignore[reportPrivateImportUsage]  it has no other name
        return choose(*probes, attn_mask=small, **flags) == _SDPA_MATH


def run_backward(loss: Tensor) -> None:
    """``loss.backward()`` while the modes stay on, since layers may be computed again in it.

    A mode of torch's functions is off while it answers for one of them, and that would be all of the pass.
    """
    _engine_run_backward(
        (loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


class _FusedAttention(torch.autograd.Function):
    """Attention that never materialises its scores: it keeps its inputs, its output and the sums."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = query.new_empty(*query.shape[:-1], value.shape[-1])
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, output, sums)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        query, key, value, _, _ = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


_fused_attention: Callable[..., Tensor] = _FusedAttention.apply

LIVE_LOGIT_BLOCKS = 3
"""Blocks of logits that are alive at once: the logits, their exponentials, and their gradient."""
PROBE_TOKENS = 4
"""Tokens of prompt and completion by which the size of the KV cache is found out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSetting:
    """The device, the precision, and how the loss goes over its tokens.

    Example: ``SimulationSetting(device=torch.device("cpu"), numbers=precision("auto",
        device), uniform=True)``
    """

    device: torch.device
    numbers: Precision
    uniform: bool
    """Whether all tokens weigh the same, so that the forward pass makes the head's gradient."""


def step_peak(
    learners: Sequence[Policy | RewardModel],
    reference: Policy | None,
    microbatch: Sequence[Example],
    setting: SimulationSetting,
    *,
    accumulates: bool,
) -> int:
    """The most bytes that a step holds beside its weights: gradients and activations.

    ``asked`` is a reference that looks at each piece; ``several`` pieces begin with the gradients of others.
    """
    with LiveBytes() as live, EmulateDevice(setting.device):
        for _ in range(2 if accumulates else 1):
            _run_microbatch(learners, reference, microbatch, setting)
    for learner in learners:
        learner.zero_grad(set_to_none=True)
    return live.peak


def forward_peak(policy: Policy, microbatch: Sequence[Example], setting: SimulationSetting) -> int:
    """The most bytes that a forward pass without gradients holds, up to the hidden states."""
    computing = policy.backbone.computing()
    with LiveBytes() as live, EmulateDevice(setting.device), torch.no_grad(), computing:
        _hidden_states(policy.backbone, microbatch, lambda inputs, batch: inputs.state_NT[batch.mask_NT])
    return live.peak


def cached_numbers_per_token(policy: Policy, setting: SimulationSetting) -> int:
    """Numbers that the KV cache holds of a token, over all layers."""
    completion = Completion(ids=(0,) * PROBE_TOKENS, mask=(True,) * PROBE_TOKENS, finished=True)
    example = [Example(prompt=(0,) * PROBE_TOKENS, completions=(completion,))]
    computing = policy.backbone.computing()
    with EmulateDevice(setting.device) as emulation, torch.no_grad(), computing:
        _hidden_states(policy.backbone, example, lambda inputs, batch: inputs.state_NT[batch.mask_NT])
    return emulation.cached_numbers // (2 * PROBE_TOKENS)


def _run_microbatch(
    learners: Sequence[Policy | RewardModel],
    reference: Policy | None,
    microbatch: Sequence[Example],
    setting: SimulationSetting,
) -> None:
    losses: list[Tensor] = []
    for learner in learners:
        with learner.backbone.computing():
            losses.append(_loss(learner, microbatch, setting))
    if reference is not None:
        with torch.no_grad(), reference.backbone.computing():
            _loss(reference, microbatch, setting)
    run_backward(torch.stack(losses).sum())


def _loss(model: Policy | RewardModel, microbatch: Sequence[Example], setting: SimulationSetting) -> Tensor:
    if isinstance(model, RewardModel):
        states = _hidden_states(
            model.backbone, microbatch, _last_token if model.pooling == "last" else _completion_states_index
        )
        score: Any = model.base.score
        return torch.nn.functional.linear(states.float(), score.weight.float()).sum()
    states = _hidden_states(model.backbone, microbatch, lambda inputs, batch: inputs.state_NT[batch.mask_NT])
    weight: Tensor = head_of(model.base).layer.weight
    capped = head_of(model.base).rule.cap is not None
    return _logps(states, weight, setting, setting.uniform and not capped).sum()


def _hidden_states(
    backbone: Backbone, microbatch: Sequence[Example], where: Callable[[ForwardInputs, TokenBatch], Tensor]
) -> Tensor:
    batch = batch_of(microbatch)
    inputs = layout_batch(batch, backbone.layout, share_prompts=backbone.share_prompts)
    wanted = where(inputs, batch)
    meta = torch.device("meta")
    return backbone.all_states(inputs.to(meta), wanted.unique().to(meta))[wanted.to(meta)]


def _last_token(inputs: ForwardInputs, batch: TokenBatch) -> Tensor:
    return inputs.own_NT.gather(1, batch.length_N[:, None] - 1)[:, 0]


def _completion_states_index(inputs: ForwardInputs, batch: TokenBatch) -> Tensor:
    return inputs.own_NT[batch.mask_NT]


class _LogProbs(torch.autograd.Function):
    """Of the sizes that ``score_tokens`` and ``score_tokens_equally_weighted`` make; it computes nothing."""

    @staticmethod
    def forward(
        ctx: Any, hidden_MH: Tensor, weight_VH: Tensor, setting: SimulationSetting, uniform: bool
    ) -> Tensor:
        gradients_in_forward = uniform and any(ctx.needs_input_grad[:2])
        ctx.early = _head_gradients(ctx, hidden_MH, weight_VH) if gradients_in_forward else None
        ctx.device = setting.device.type
        _allocate_logit_blocks(hidden_MH, weight_VH, ctx.device, retains=gradients_in_forward)
        caches = (
            not gradients_in_forward and any(ctx.needs_input_grad) and caches_logits(hidden_MH, weight_VH)
        )
        cached = hidden_MH.shape[0] * weight_VH.shape[0] if caches else 0
        ctx.cached = weight_VH.new_empty(cached, dtype=torch.float32)
        logp_M = hidden_MH.new_empty(hidden_MH.shape[0], dtype=torch.float32)
        ctx.save_for_backward(hidden_MH, weight_VH, torch.empty_like(logp_M))
        return logp_M

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden_MH, weight_VH, _ = ctx.saved_tensors
        gradients = ctx.early
        ctx.early = None
        if gradients is None:
            gradients = _head_gradients(ctx, hidden_MH, weight_VH)
            _allocate_logit_blocks(hidden_MH, weight_VH, ctx.device, retains=False)
        ctx.cached = None
        hidden_grad, weight_grad = gradients
        weight_grad = None if weight_grad is None else weight_grad.to(weight_VH.dtype)
        return hidden_grad.to(hidden_MH.dtype), weight_grad, None, None


def _head_gradients(ctx: Any, hidden_MH: Tensor, weight_VH: Tensor) -> tuple[Tensor, Tensor | None]:
    return wide_zeros(hidden_MH), wide_zeros(weight_VH) if ctx.needs_input_grad[1] else None


def _allocate_logit_blocks(hidden_MH: Tensor, weight_VH: Tensor, device: str, *, retains: bool) -> None:
    """Allocate the logits that exist at once: of all words where they are retained for their sum."""
    (tokens, width), vocabulary = hidden_MH.shape, weight_VH.shape[0]
    rows = min(tokens, RETAINED_ROWS_AT_ONCE, width) if retains else min(tokens, TOKENS_AT_ONCE)
    block = rows * min(
        vocabulary, max(16, LOGITS_AT_ONCE.get(device, LOGITS_AT_ONCE["cuda"]) // max(1, rows))
    )
    live_numbers = (rows * vocabulary if retains else 0) + LIVE_LOGIT_BLOCKS * block
    weight_VH.new_empty(live_numbers, dtype=torch.float32)


_logps: Callable[..., Tensor] = _LogProbs.apply

ALLOCATOR_OVERHEAD = {
    "cpu": (0.25, "malloc does not hand back (as measured)"),
    "cuda": (0.05, "lies in pieces too small for others (taken for granted, not measured)"),
}
"""The share of transient memory that an allocator keeps (on a CPU by benchmarks/planning.py), and why."""
CUDA_KERNELS = 2**30
"""Bytes of a CUDA context with the workspaces of its libraries."""
_END = Completion(ids=(0,), mask=(True,), finished=True)
ALWAYS, STEP, GENERATE = "always", "step", "draw"
"""When a line is in memory: at any time, while a step is taken, while answers are drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """One thing that takes memory.

    Example: ``MemoryLine(name="weights", bytes=44_000_000, when="always",
        why="11,010,304 numbers in float32")``
    """

    name: str
    bytes: int
    """How much it takes in one process."""
    when: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLedger:
    """All that one process holds in memory.

    Example: ``estimate_memory(config, roles, planned, machine).peak``
    """

    lines: tuple[MemoryLine, ...]

    def during(self, when: str) -> int:
        """Bytes of the lines of one phase, without those that are always there."""
        return sum(line.bytes for line in self.lines if line.when == when)

    @property
    def peak(self) -> int:
        """The most at once: steps and drawing follow each other."""
        return self.during(ALWAYS) + max(self.during(STEP), self.during(GENERATE))

    def with_process(self, size: int) -> MemoryLedger:
        """The same with a line for Python and its libraries."""
        line = MemoryLine(name="process", bytes=size, when=ALWAYS, why="Python, its libraries, the rows")
        return MemoryLedger(lines=(line, *self.lines)) if size else self

    def with_measured_peak(self, size: int, process: int) -> MemoryLedger:
        """The same with a line for what a measurement took beyond the estimate."""
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
    if plan.rounds is not None:
        yield from _generation_lines(roles, plan, rows, machine)


def _fixed_lines(
    config: RunConfig, roles: RunModels, plan: Schedule, rows: PlannedRows
) -> Iterator[MemoryLine]:
    share = plan.ranks if config.shard else 1
    trained = _trained_bytes(roles)
    divided = f", divided over {share} processes" if share > 1 else ""
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
    setting = simulation_setting(config, roles, machine)
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


def simulation_setting(config: RunConfig, roles: RunModels, machine: Machine) -> SimulationSetting:
    uniform = not isinstance(config, PreferenceConfig | PolicyConfig | RewardConfig)
    return SimulationSetting(device=machine.device, numbers=roles.numbers, uniform=uniform)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawingShape:
    """How answers of a round are drawn side by side.

    Example: ``drawing_shape(roles, plan, rows, machine).rows``
    """

    rows: int
    lengths: tuple[int, ...]
    """Tokens of the prompts that are read at once, the longest ones, downwards."""
    cached_tokens: int
    """Places for keys and values."""
    token_bytes: int
    """Bytes of a token's keys and values in all layers."""


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
