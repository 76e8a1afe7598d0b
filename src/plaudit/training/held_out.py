"""What an objective makes of rows that are never trained, as figures of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from plaudit.training.metrics import Metric
from plaudit.training.parallel import Ranks
from plaudit.training.plan import Pause
from plaudit.training.step import Terms, add_over_ranks

Piece = TypeVar("Piece")
"""What goes through the model at once."""


def held_out(
    objective: Callable[[Piece], Terms], pieces: Sequence[Piece], ranks: Ranks, names: Mapping[str, str]
) -> Callable[[Pause], tuple[Metric, ...]]:
    """The objective's figures over all pieces and ranks; ``names`` says which, and what they are called."""

    def evaluate(pause: Pause) -> tuple[Metric, ...]:
        found: list[Metric] = []
        with torch.no_grad():
            for piece in pieces:
                pause()
                found += objective(piece).metrics
        together = add_over_ranks(found, ranks)
        return tuple(replace(one, name=names[one.name]) for one in together if one.name in names)

    return evaluate
