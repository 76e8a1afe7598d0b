"""What is in memory at once, found out on tensors that have shapes and no numbers.

The model's own code runs on torch's meta device, forward and backward, and every storage is counted from the
operation that makes it to the moment when nobody holds it any more. So nothing has to be known of a family of
models, and a model of 70 billion weights takes a few seconds and next to no memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import _engine_run_backward
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

_PRODUCTS = {
    torch.nn.functional.linear,
    torch.matmul,
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
    torch.bmm,
    scaled_dot_product_attention,
}
"""What autocast computes in fewer digits."""
_MATH = 0
"""The number by which torch calls attention that is written out."""


class Live(TorchDispatchMode):
    """Counts the bytes that are alive while it is on; what was there before is not counted."""

    def __init__(self) -> None:
        """Nothing is alive yet."""
        super().__init__()
        self.now = 0
        """Bytes now."""
        self.peak = 0
        """The most at once."""
        self._known: set[int] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation, and count what it made."""
        out = func(*args, **(kwargs or {}))
        made = [one.untyped_storage() for one in tree_leaves(out) if _counts(one)]
        new = [storage for storage in made if storage._cdata not in self._known]
        if new:
            given = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if _counts(one)}
            for storage in new:
                if storage._cdata not in given:
                    self._note(storage)
        return out

    def _note(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def _counts(one: object) -> bool:
    return isinstance(one, Tensor) and one.is_meta


class AsComputed(TorchFunctionMode):
    """Lets tensors without numbers go the way that those of a device would go.

    Attention is asked of the kernel that torch would choose there, and products are made in the numbers that
    autocast would make them in; ``seen`` collects the keys and values that attention was given.
    """

    def __init__(self, device: torch.device, products: torch.dtype) -> None:
        """On this device, in these numbers."""
        super().__init__()
        self._device, self._products = device, products
        self._weights: dict[int, Tensor] = {}
        self.kept = 0
        """Numbers that a sampler would remember of what was read."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Every call of torch's on tensors."""
        told: tuple[tuple[Any, ...], dict[str, Any]] = (args, kwargs or {})
        if func in _PRODUCTS:
            told = tree_map_only(Tensor, self._cast, told)
        said, named = told
        if func is scaled_dot_product_attention:
            return self._attend(*said, **named)
        return func(*said, **named)

    def _cast(self, tensor: Tensor) -> Tensor:
        """A weight is turned into other numbers once, and remembered as autocast does."""
        if tensor.dtype != torch.float32 or self._products == torch.float32:
            return tensor
        if not (isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad):
            return tensor.to(self._products)
        if id(tensor) not in self._weights:
            self._weights[id(tensor)] = tensor.to(self._products)
        return self._weights[id(tensor)]

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **how: Any
    ) -> Tensor:
        self.kept += key.numel() + value.numel()
        if self._written_out(query, key, value, attn_mask, how):
            return scaled_dot_product_attention(query, key, value, attn_mask=attn_mask, **how)
        return _fused(query, key, value)

    def _written_out(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, how: Mapping[str, Any]
    ) -> bool:
        """Whether torch has no kernel there that spares the scores; asked with tensors that hold nothing.

        Of a GPU that is not here it is taken for granted.
        """
        if self._device.type == "cuda" and not torch.cuda.is_available():
            return False
        real = [
            torch.empty(
                *one.shape[:2], min(one.shape[2], 2), one.shape[3], dtype=one.dtype, device=self._device
            )
            for one in (query, key, value)
        ]
        small = None if mask is None else torch.ones(real[0].shape[2], real[1].shape[2], dtype=torch.bool)
        asked = {name: how[name] for name in ("dropout_p", "is_causal", "scale", "enable_gqa") if name in how}
        choose: Any = torch._fused_sdp_choice  # pyright: ignore[reportPrivateImportUsage]  it has no other name
        return choose(*real, attn_mask=small, **asked) == _MATH


def backward(loss: Tensor) -> None:
    """``loss.backward()`` while the modes stay on, since layers may be computed again in it.

    A mode of torch's functions is off while it answers for one of them, and that would be all of the pass.
    """
    _engine_run_backward(
        (loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


class _Fused(torch.autograd.Function):
    """Attention whose scores are never in memory: it keeps what it was given, what it said, and sums."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        said = query.new_empty(*query.shape[:-1], value.shape[-1])
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, said, sums)
        return said

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        query, key, value, _, _ = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


_fused: Callable[..., Tensor] = _Fused.apply
