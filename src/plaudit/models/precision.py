"""Weights that are kept in float32 and computed with in 16 bits.

A weight that learns is kept in float32, since small updates would vanish in fewer digits. For each pass
through a layer a copy of its weights is made in bfloat16, and the layer computes with that: states, products
and what backward needs take half the memory. Gradients come back in bfloat16 and are added up in float32,
over micro-batches and ranks. A weight that does not learn is rounded once and stays so.

    compute_in(policy, torch.bfloat16)     once, before the first pass
    with policy.backbone.computing(): …    copies of all weights for the time of many passes: drawing answers

Nothing is remembered from one pass to the next, so no pass can see weights from before a step. What stays
in float32: norms and softmax inside the layers (as transformers has them), a reward's head, log-sum-exp and
loss.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle


class _Narrow(torch.autograd.Function):
    """Copies of weights in fewer digits; their gradients are widened again."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        # None and not zeros for a weight that no token reached: the optimiser leaves it alone.
        ctx.set_materialize_grads(False)
        ctx.dtypes = [weight.dtype for weight in weights]
        return tuple(weight.to(dtype) for weight in weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        pairs = zip(grads, ctx.dtypes, strict=True)
        return None, *(None if grad is None else grad.to(dtype) for grad, dtype in pairs)


@dataclass(slots=True, kw_only=True)
class WeightGroup:
    """Weights of which copies are made together, and where modules look for them."""

    dtype: torch.dtype
    weights: list[nn.Parameter]
    """What is copied; a tied weight once."""
    owners: list[tuple[nn.Module, str, int]]
    suspended: bool = False
    """Whether no copies are made for the moment."""
    _depth: int = field(default=0, init=False)
    _copies: Sequence[Tensor] = field(default=(), init=False)

    @contextmanager
    def copied(self) -> Iterator[None]:
        """While this lasts modules find copies where their weights are; within itself it does nothing."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def begin(self) -> None:
        self._depth += 1
        if self._depth == 1 and self.weights and not self.suspended:
            apply: Any = _Narrow.apply  # pyright: ignore[reportUnknownMemberType]  torch leaves it untyped
            self._copies = cast("Sequence[Tensor]", apply(self.dtype, *self.weights))
            for module, name, number in self.owners:
                # What an object itself has comes before its parameters, which stay where they are registered.
                module.__dict__[name] = self._copies[number]
        if self._copies and torch.is_grad_enabled() and any(w.requires_grad for w in self.weights):
            # Copies for drawing answers are no part of a graph: what is learnt through them is lost.
            assert any(copy.requires_grad for copy in self._copies), "weights are copied without a gradient"

    def end(self) -> None:
        """Let go of the copies with the last `end`."""
        self._depth -= 1
        if self._depth == 0:
            for module, name, _ in self.owners:
                module.__dict__.pop(name, None)
            self._copies = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowed:
    """How a module computes in fewer digits than it keeps."""

    dtype: torch.dtype
    rest: WeightGroup
    """Weights outside of the layers that repeat."""
    layers: tuple[WeightGroup, ...] = ()
    """Those of each layer, which are copied for its own pass alone."""
    hooks: tuple[RemovableHandle, ...] = ()
    """What begins and ends the copies of a layer."""

    @staticmethod
    def by_shards(dtype: torch.dtype) -> "Narrowed":
        """Where divided weights are gathered in fewer digits already (`shard_module`)."""
        return Narrowed(dtype=dtype, rest=WeightGroup(dtype=dtype, weights=[], owners=[]))

    @property
    def is_by_shards(self) -> bool:
        """Whether weights are divided and gathered in fewer digits, so that nothing is copied here."""
        return not (self.rest.weights or self.hooks)

    def layer(self, number: int) -> WeightGroup | None:
        """The weights of one layer; None where they are not copied here."""
        return self.layers[number] if self.layers else None

    def remove(self) -> None:
        """Make no copies any more: something else will narrow the weights."""
        for hook in self.hooks:
            hook.remove()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """While this lasts no copies are made; what does not learn keeps its fewer digits."""
        groups = (self.rest, *self.layers)
        for group in groups:
            group.suspended = True
        try:
            yield
        finally:
            for group in groups:
                group.suspended = False

    @contextmanager
    def computing(self, *, whole: bool) -> Iterator[None]:
        """While this lasts passes compute in ``dtype``; ``whole``: all copies are made at once, and held."""
        with ExitStack() as stack:
            for group in (self.rest, *(self.layers if whole else ())):
                stack.enter_context(group.copied())
            yield


def compute_in(
    module: nn.Module,
    dtype: torch.dtype,
    *,
    layers: Iterable[nn.Module],
    but: Iterable[nn.Module] = (),
    frozen: bool = True,
) -> Narrowed:
    """Let passes through the module compute in ``dtype``; modules in ``but`` keep computing as they are.
    Weights that do not learn are rounded here, once, unless ``frozen`` is off (a reference that moves)."""
    parts = list(but)
    left = {id(p) for part in parts for p in part.parameters()}
    if frozen:
        for weight in module.parameters():
            if not weight.requires_grad and id(weight) not in left and weight.is_floating_point():
                weight.data = weight.data.to(dtype)
    groups: list[WeightGroup] = []
    hooks = [part.register_forward_pre_hook(_widen) for part in parts]
    for layer in layers:
        group = _group(layer, dtype, left)
        left |= {id(weight) for weight in group.weights}
        # Only while the layer is at work: all copies together would be half of the weights again.
        hooks += [
            layer.register_forward_pre_hook(lambda *_, group=group: group.begin()),
            layer.register_forward_hook(lambda *_, group=group: group.end(), always_call=True),
        ]
        groups.append(group)
    rest = _group(module, dtype, left)
    return Narrowed(dtype=dtype, rest=rest, layers=tuple(groups), hooks=tuple(hooks))


def _widen(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """What comes out of the layers, in the numbers of the weights that it meets."""
    return inputs[0].to(next(module.parameters()).dtype), *inputs[1:]


def _group(module: nn.Module, dtype: torch.dtype, without: set[int]) -> WeightGroup:
    numbers: dict[int, int] = {}
    group = WeightGroup(dtype=dtype, weights=[], owners=[])
    for owner in module.modules():
        for name, weight in owner.named_parameters(recurse=False, remove_duplicate=False):
            if id(weight) in without or weight.dtype == dtype or not weight.is_floating_point():
                continue
            if id(weight) not in numbers:
                numbers[id(weight)] = len(group.weights)
                group.weights.append(weight)
            group.owners.append((owner, name, numbers[id(weight)]))
    return group
