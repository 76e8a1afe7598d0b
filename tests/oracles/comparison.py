"""One comparison, and how plain lists become tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    name: str
    draw: Callable[[Random], SimpleNamespace]
    plain: Callable[[SimpleNamespace], Any]
    ours: Callable[[SimpleNamespace], Any]
    within: float = 1e-12


def row(
    name: str,
    draw: Callable[[Random], SimpleNamespace],
    plain: Callable[[SimpleNamespace], Any],
    ours: Callable[[SimpleNamespace], Any],
    within: float = 1e-12,
) -> Comparison:
    return Comparison(name=name, draw=draw, plain=plain, ours=ours, within=within)


def t(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def seen(mask: Any) -> Tensor:
    return torch.tensor(mask, dtype=torch.bool)


def whole(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.long)
