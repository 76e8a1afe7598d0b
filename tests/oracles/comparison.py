"""One comparison, and how plain lists become tensors."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

KINDS = {"mask": torch.bool, "step": torch.bool, "group": torch.long}
"""What is no real number, by what it is called where it is drawn."""


@dataclass(frozen=True, slots=True)
class Comparison:
    name: str
    draw: Callable[[Random], SimpleNamespace]
    plain: Callable[[SimpleNamespace], Any]
    ours: Callable[[SimpleNamespace], Any]
    within: float = 1e-12


def row(
    name: str,
    draw: Callable[[Random], SimpleNamespace],
    plain: Callable[..., Any],
    ours: Callable[..., Any],
    given: str | Callable[[SimpleNamespace], Iterable[Any]],
    **settings: float,
) -> Comparison:
    """Of the same settings, in the formula's order; plaudit is told what is named, or made of the draw."""

    def told(i: SimpleNamespace) -> Iterable[Any]:
        return [named(i, one) for one in given.split()] if isinstance(given, str) else given(i)

    return Comparison(
        name, draw, lambda i: plain(i, *settings.values()), lambda i: ours(*told(i), **settings)
    )


def named(i: SimpleNamespace, name: str) -> Tensor:
    return torch.tensor(getattr(i, name), dtype=KINDS.get(name, torch.float64))


def t(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def seen(mask: Any) -> Tensor:
    return torch.tensor(mask, dtype=torch.bool)


def whole(value: Any) -> Tensor:
    return torch.tensor(value, dtype=torch.long)
