"""Rows too long for one rank: several share a packed row's tokens, and exchange heads for attention.

Each rank takes an equal part of the row through embeddings, norms and feed-forward parts. One all-to-all
gives it all tokens of 1/N of the heads, which its own kernel attends with, and another one gives its own
tokens back (DeepSpeed-Ulysses: Jacobs et al. 2023, arXiv:2309.14509). What is read of a state is read where
it lies and put together everywhere: each rank has the whole loss and the gradient of its own part, so
gradients of ranks add up as they do where rows are divided.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from plaudit.errors import UserError
from plaudit.tokens.microbatch import ForwardInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRanks:
    """The ranks that share each row's tokens, as one of them sees it.
    Example: ``SequenceRanks(place=1, size=4, group=group)`` has the second quarter of each row."""

    place: int
    """Which part of a row is this rank's."""
    size: int
    group: dist.ProcessGroup

    def own_part(self, inputs: ForwardInputs) -> ForwardInputs:
        """This rank's tokens of a packed row; the segments stay those of the whole row."""
        assert inputs.segments is not None, "rows lie packed"
        if inputs.extras:
            raise UserError(
                f"--sequence-ranks: rows show {' and '.join(inputs.extras)} beside words, which are not "
                "divided; leave it out"
            )
        missing = -inputs.ids_RS.shape[1] % self.size
        width = (inputs.ids_RS.shape[1] + missing) // self.size
        segments = inputs.segments
        if missing:
            # Equal parts, by a segment that no token of another one sees and nobody reads.
            prompts, completions = (*segments.prompts, missing), (*segments.completions, ())
            segments = replace(segments, prompts=prompts, completions=completions)
        part = slice(self.place * width, (self.place + 1) * width)
        ids_RS, position_RS = (
            functional.pad(whole_RS, (0, missing))[:, part]
            for whole_RS in (inputs.ids_RS, inputs.position_RS)
        )
        return replace(inputs, ids_RS=ids_RS, position_RS=position_RS, segments=segments)

    def own_states(self, selected_M: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Which of the wanted states lie in this rank's part of ``width`` tokens, and where in it."""
        from_begin_M = selected_M - self.place * width
        own_m = ((from_begin_M >= 0) & (from_begin_M < width)).nonzero()[:, 0]
        return own_m, from_begin_M[own_m]

    def to_heads(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """All tokens of this rank's heads ``[1, heads/N, S, size]``, from its own tokens of all heads."""
        if query.shape[1] % self.size:
            raise UserError(
                f"--sequence-ranks {self.size}: a layer has {query.shape[1]} heads, which so many ranks "
                "cannot share alike; take a divisor of that"
            )
        # A head of keys that several ranks ask goes to each of them, no more often than needed.
        copies = self.size // math.gcd(key.shape[1], self.size)
        parts = (query, *(x.repeat_interleave(copies, dim=1) if copies > 1 else x for x in (key, value)))
        # For each rank its heads' queries, keys and values of a token side by side: one message a layer.
        sent = [x[0].unflatten(0, (self.size, -1)).transpose(1, 2).flatten(2) for x in parts]
        all_SW = _exchange(torch.cat(sent, dim=-1), self.group).flatten(0, 1)
        widths = [x.shape[-1] for x in sent]
        return [
            own_SW.unflatten(-1, (-1, part.shape[-1])).transpose(0, 1)[None]
            for own_SW, part in zip(all_SW.split(widths, dim=-1), parts, strict=True)
        ]

    def to_tokens(self, attended: Tensor) -> Tensor:
        """This rank's tokens of all heads ``[1, S/N, heads, size]``, from all tokens of its own heads."""
        all_NsW = _exchange(attended[0].unflatten(0, (self.size, -1)).flatten(2), self.group)
        return all_NsW.transpose(0, 1).unflatten(-1, (-1, attended.shape[-1])).flatten(1, 2)[None]

    def own_heads(self, of_heads: Tensor | None) -> Tensor | None:
        """This rank's part of what a layer has for each head."""
        return None if of_heads is None else of_heads.chunk(self.size)[self.place]

    def put_together(self, values: Sequence[Tensor], own_m: Tensor, shape: torch.Size) -> tuple[Tensor, ...]:
        """All values in this shape, from those that each rank has read; a gradient flows to its own alone."""
        place_m = own_m.to(values[0].device, non_blocking=True)
        # Sums of numbers, also of what is yes or no.
        numbers = (value.to(torch.uint8) if value.dtype == torch.bool else value for value in values)
        whole = (_put_together(number, place_m, shape, self.group) for number in numbers)
        return tuple(found.to(value.dtype) for found, value in zip(whole, values, strict=True))


class _Exchange(torch.autograd.Function):
    """Part n of the first dimension goes to rank n, from which one's own part comes; back the same way."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        received = torch.empty_like(parts, memory_format=torch.contiguous_format)
        dist.all_to_all_single(received, parts.contiguous(), group=group)
        return received

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _exchange(grads[0], ctx.group), None


class _PutTogether(torch.autograd.Function):
    """Each rank's values at their places among all; backward takes one's own, as every rank has the loss."""

    @staticmethod
    def forward(
        ctx: Any, value_m: Tensor, place_m: Tensor, shape: torch.Size, group: dist.ProcessGroup
    ) -> Tensor:
        ctx.save_for_backward(place_m)
        ctx.dimensions = len(shape)
        # Made in its shape: what a divided module returns may be no view.
        whole = value_m.new_zeros(*shape, *value_m.shape[1:])
        whole.view(-1, *value_m.shape[1:]).index_copy_(0, place_m, value_m)
        dist.all_reduce(whole, group=group)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        grad_M = grads[0].flatten(0, ctx.dimensions - 1)
        return grad_M.index_select(0, ctx.saved_tensors[0]), None, None, None


_exchange = cast(
    "Callable[[Tensor, dist.ProcessGroup], Tensor]",
    _Exchange.apply,  # pyright: ignore[reportUnknownMemberType]  torch leaves it untyped
)
_put_together = cast(
    "Callable[[Tensor, Tensor, torch.Size, dist.ProcessGroup], Tensor]",
    _PutTogether.apply,  # pyright: ignore[reportUnknownMemberType]  torch leaves it untyped
)
