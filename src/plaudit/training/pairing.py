"""Which answers of judged rows stand against each other, and which are good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from plaudit.batches.judged import Compared, JudgedRow, Ranked, Rated


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Which answers of a piece stand against each other: B pairs of N answers.

    Example: of two comparisons ``first_B`` is [0, 2] and ``second_B`` [1, 3].
    """

    first_B: Tensor
    """The preferred answer's number."""
    second_B: Tensor
    """The other one's."""
    chance_B: Tensor
    """The chance that the first is the better one: ½ to 1."""
    weight_B: Tensor
    """What a pair counts; those of one row add up to 1, of a row that does not count to 0."""
    origins: tuple[str, ...]
    """File and row of each pair."""


def pairing(rows: Sequence[JudgedRow], like: Tensor, *, ties: bool = True) -> Pairing:
    """All pairs of these rows, the likelier winner first; of equal ranks each is as likely, or left out.

    Chances and weights have the numbers and the device of ``like``.
    """
    found: list[tuple[int, int, float, float, str]] = []
    start = 0
    for row in rows:
        pairs = pairs_of(row, ties=ties)
        weight = row.counts / max(1, len(pairs))
        found += [(start + a, start + b, chance, weight, row.origin) for a, b, chance in pairs]
        start += len(row.example.completions)
    first, second, chance, weight, origins = zip(*found, strict=True)
    return Pairing(
        first_B=torch.tensor(first, device=like.device),
        second_B=torch.tensor(second, device=like.device),
        chance_B=like.new_tensor(chance),
        weight_B=like.new_tensor(weight),
        origins=origins,
    )


def pairs_of(row: JudgedRow, *, ties: bool = True) -> list[tuple[int, int, float]]:
    """The pairs of one row: two answers' numbers, and the chance (½ to 1) that the first is better."""
    match row.said:
        case Compared(chance=chance):
            found = [(0, 1, chance) if chance >= 0.5 else (1, 0, 1 - chance)]
        case Ranked(ranks=ranks):
            ordered = sorted(range(len(ranks)), key=lambda n: ranks[n])
            found = [(a, b, 1.0 if ranks[a] < ranks[b] else 0.5) for a, b in combinations(ordered, 2)]
        case said:
            raise ValueError(f"{row.origin}: no pair in {type(said).__name__}")
    return [pair for pair in found if ties or pair[2] != 0.5]


def labels_of(row: JudgedRow) -> tuple[float, ...]:
    """For each answer of one row how surely it is good, from 0 to 1."""
    match row.said:
        case Compared(chance=chance):
            return (chance, 1 - chance)
        case Rated(score=score):
            return (score,)
        case said:
            raise ValueError(f"{row.origin}: no label in {type(said).__name__}")
