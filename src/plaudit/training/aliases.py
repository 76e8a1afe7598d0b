"""Tensors that share memory: tied weights are stored once and come back tied; other overlaps are refused."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import pairwise

from torch import Tensor


def find(part: str, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """For each name that is the very same tensor as an earlier name: that earlier name.

    ``ValueError`` when two tensors share some of their memory without being the same: stored apart, they
    would come back untied, and a run that relied on the sharing would go on differently.

    >>> import torch
    >>> weight = torch.zeros(3, 2)
    >>> find("model", {"embed": weight, "head": weight})
    {'head': 'embed'}
    """
    first: dict[Hashable, str] = {}
    same: dict[str, str] = {}
    for name, tensor in tensors.items():
        if not tensor.numel():
            continue
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if key in first:
            same[name] = first[key]
        else:
            first[key] = name
    _refuse_overlaps(part, {name: tensors[name] for name in first.values()})
    return same


def _refuse_overlaps(part: str, tensors: Mapping[str, Tensor]) -> None:
    spans = sorted((str(tensor.device), *_span(tensor), name) for name, tensor in tensors.items())
    for (device, _, end, name), (other_device, begin, _, other) in pairwise(spans):
        if device == other_device and begin < end:
            raise ValueError(
                f"{part}: {name} and {other} share memory without being the same tensor; "
                "pass `.clone()` of one of them, or one tensor under both names"
            )


def _span(tensor: Tensor) -> tuple[int, int]:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()
