"""The bytes that a step holds beside its weights: it is run where tensors have shapes and no numbers.

The model's own code runs on torch's meta device, forward and backward, and every storage is counted from the
operation that makes it to the moment when nobody holds it any more. So nothing has to be known of a family of
models, and a model of 70 billion weights takes a few seconds and next to no memory.
"""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import _engine_run_backward
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from plaudit.models.backbone import Backbone, head_of
from plaudit.models.load import Precision
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel
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
        self.peak = 0
        self._counted: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
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
    values that attention was given."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device
        self.cached_numbers = 0
        """Numbers that a sampler would remember of what was read."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is scaled_dot_product_attention:
            return self._attend(*args, **(kwargs or {}))
        if func in (Tensor.item, Tensor.__bool__) and args[0].is_meta and args[0].dtype == torch.bool:
            # Asked whether places of pictures are as many as features, and a row one text: they are.
            return True
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
        # Whether attention would materialise its scores, there being no fused kernel.
        # Of a GPU that is not here it is taken for granted.
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
    A mode of torch's functions is off while it answers for one of them, and that would be all of the pass."""
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
    """The device, the precision, and how the loss goes over its tokens."""

    device: torch.device
    numbers: Precision
    uniform: bool
    """Whether all tokens weigh the same, so that the forward pass makes the head's gradient."""
    left_out: set[str] = field(default_factory=set)
    """What a model could not be shown here, since it chooses by the values: filled as it runs."""


def step_peak(
    learners: Sequence[Policy | RewardModel],
    reference: Policy | None,
    microbatch: Sequence[Example],
    setting: SimulationSetting,
    *,
    accumulates: bool,
) -> int:
    """The most bytes that a step holds beside its weights: activations, gradients, and those of before."""
    weights = [p for learner in learners for p in learner.parameters() if p.requires_grad and accumulates]
    for weight in weights:
        weight.grad = torch.empty_like(weight)
    with LiveBytes() as live, EmulateDevice(setting.device):
        _run_microbatch(learners, reference, microbatch, setting)
    for learner in learners:
        learner.zero_grad(set_to_none=True)
    return live.peak + sum(weight.nbytes for weight in weights)


@contextmanager
def gathered_weights(models: Sequence[nn.Module], dtype: torch.dtype) -> Iterator[None]:
    """While this lasts weights have the numbers in which a pass finds those that are divided over ranks."""
    weights = [weight for model in models for weight in model.parameters() if weight.is_floating_point()]
    divided = [weight.data for weight in weights]
    try:
        for weight in weights:
            weight.data = weight.data.to(dtype)
        yield
    finally:
        for weight, data in zip(weights, divided, strict=True):
            weight.data = data


def forward_peak(policy: Policy, microbatch: Sequence[Example], setting: SimulationSetting) -> int:
    """The most bytes that a forward pass without gradients holds, up to the hidden states."""
    computing = policy.backbone.computing()
    with LiveBytes() as live, EmulateDevice(setting.device), torch.no_grad(), computing:
        _hidden_states(policy.backbone, microbatch, _completion_states, setting)
    return live.peak


def cached_numbers_per_token(policy: Policy, setting: SimulationSetting) -> int:
    completion = Completion(ids=(0,) * PROBE_TOKENS, mask=(True,) * PROBE_TOKENS, finished=True)
    example = [Example(prompt=(0,) * PROBE_TOKENS, completions=(completion,))]
    computing = policy.backbone.computing()
    with EmulateDevice(setting.device) as emulation, torch.no_grad(), computing:
        _hidden_states(policy.backbone, example, _completion_states, setting)
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
        where = _last_token if model.pooling == "last" else _completion_states_index
        states = _hidden_states(model.backbone, microbatch, where, setting)
        score: Any = model.base.score
        return torch.nn.functional.linear(states.float(), score.weight.float()).sum()
    states = _hidden_states(model.backbone, microbatch, _completion_states, setting)
    weight: Tensor = head_of(model.base).layer.weight
    capped = head_of(model.base).rule.cap is not None
    return _logps(states, weight, setting, setting.uniform and not capped).sum()


def _hidden_states(
    backbone: Backbone,
    microbatch: Sequence[Example],
    where: Callable[[ForwardInputs, TokenBatch], Tensor],
    setting: SimulationSetting,
) -> Tensor:
    batch = batch_of(microbatch)
    inputs = layout_batch(batch, backbone.layout, share_prompts=backbone.share_prompts)
    wanted = where(inputs, batch)
    meta = torch.device("meta")
    selected = wanted.unique().to(meta)
    on_meta = inputs.to(meta)
    # How large pictures are stays known: towers count by it.
    sizes = {name: value for name, value in inputs.extras.items() if not value.is_floating_point()}
    try:
        states = backbone.all_states(replace(on_meta, extras={**on_meta.extras, **sizes}), selected)
    except RuntimeError:
        if not inputs.extras:
            raise
        # Some towers choose by the values of pictures, which are not known here: words alone are counted.
        setting.left_out.update(inputs.extras)
        states = backbone.all_states(replace(on_meta, extras={}), selected)
    return states[wanted.to(meta)]


def _completion_states(inputs: ForwardInputs, batch: TokenBatch) -> Tensor:
    return inputs.state_NT[batch.mask_NT]


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
    # Allocate the logits that exist at once: of all words where they are retained for their sum.
    (tokens, width), vocabulary = hidden_MH.shape, weight_VH.shape[0]
    rows = min(tokens, RETAINED_ROWS_AT_ONCE, width) if retains else min(tokens, TOKENS_AT_ONCE)
    block = rows * min(
        vocabulary, max(16, LOGITS_AT_ONCE.get(device, LOGITS_AT_ONCE["cuda"]) // max(1, rows))
    )
    live_numbers = (rows * vocabulary if retains else 0) + LIVE_LOGIT_BLOCKS * block
    weight_VH.new_empty(live_numbers, dtype=torch.float32)


_logps: Callable[..., Tensor] = _LogProbs.apply
