"""From the rows of a batch to this rank's pieces, with whatever a loss must know of the whole batch.

A batch may come in pieces and over ranks, so what is told of all of it (who stands beside whom when both
sides are sorted, the mean Δ of answers to other prompts) is found before, in a look without gradient.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from plaudit.batches.judged import JudgedRow, muted
from plaudit.batches.split import portions, split
from plaudit.batches.tokens import Example, batch_of
from plaudit.errors import UserError
from plaudit.losses.answers import answers
from plaudit.losses.transport import Matched, matched
from plaudit.training.companion import RunningMean
from plaudit.training.pairing import labels_of, pairing, pairs_of
from plaudit.training.parallel import Ranks
from plaudit.training.preference import Eyes, PreferencePiece, seen, sides_of
from plaudit.training.preference_row import Known, PreferenceRow, SingleRow

Strangers = Mapping[Example, Example]
"""For each row its prompt with an answer to another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """How batches of a row of cells are divided, and what is found out about each before.

    Example: ``Batches(row=row, eyes=eyes, ranks=ranks, tokens_at_once=4096).pieces(rows)``
    """

    row: PreferenceRow | SingleRow
    """The algorithm."""
    eyes: Eyes
    """Policy and reference."""
    ranks: Ranks
    """This process among its peers."""
    tokens_at_once: int
    """The largest piece."""
    ties: bool = True
    """Whether equal ranks are pairs too."""
    running: RunningMean | None = None
    """The mean reward so far, where the loss measures from it."""
    strangers: Strangers = field(default_factory=dict[Example, Example])
    """Answers to other prompts, where the loss measures from their mean Δ."""

    def pieces(self, rows: Sequence[JudgedRow]) -> tuple[PreferencePiece, ...]:
        """This rank's pieces of a batch; every rank comes with the same rows."""
        single = isinstance(self.row, SingleRow)
        total = sum(len(labels_of(row)) for row in rows) if single else len(rows)
        known = Known(baseline=self._baseline(rows))
        shares = portions(rows, muted, ranks=self.ranks.world, tokens_at_once=self.tokens_at_once)
        if isinstance(self.row, PreferenceRow) and self.row.sorts:
            return self._sorted(shares, total, self.row)
        mine = shares[self.ranks.rank]
        return tuple(PreferencePiece(rows=piece, total=total, known=known) for piece in mine)

    def _baseline(self, rows: Sequence[JudgedRow]) -> float:
        if self.row.baseline == "running":
            assert self.running is not None, "nobody keeps the mean"
            return self.running.value
        return self._mismatched(rows) if self.row.baseline == "mismatched" else 0.0

    def _mismatched(self, rows: Sequence[JudgedRow]) -> float:
        """max(0, mean Δ) of answers to other prompts, one for each row of the batch."""
        asked = [self.strangers[row.example] for row in rows]
        # With divided weights every rank must look as often as the others do.
        shares = split(asked, ranks=self.ranks.world, tokens_at_once=self.tokens_at_once)
        found = 0.0
        for piece in shares[self.ranks.rank]:
            batch = batch_of(piece).to(self.eyes.policy.device)
            with torch.no_grad(), self.eyes.products():
                logp_NT = self.eyes.policy.score(batch).logp_NT
            ref_logp_NT = self.eyes.reference.logp(piece, batch).to(logp_NT.dtype)
            length_N = batch.mask_NT.sum(-1)
            logp_N, ref_logp_N = (
                self.row.measure(value_NT, batch.mask_NT, length_N) for value_NT in (logp_NT, ref_logp_NT)
            )
            found += float(self.row.answers(logp_N, ref_logp_N, length_N).shift_B.sum())
        return max(0.0, math.fsum(one for (one,) in self.ranks.every([found])) / len(rows))

    def _sorted(
        self, shares: Sequence[Sequence[tuple[JudgedRow, ...]]], total: int, row: PreferenceRow
    ) -> tuple[PreferencePiece, ...]:
        """Every pair of the batch is seen once; then each piece gets its part of who stands beside whom."""
        sizes = [
            [sum(len(pairs_of(one, ties=self.ties)) for one in piece) for piece in own] for own in shares
        ]
        mine_4B = torch.cat([self._figures(row, piece) for piece in shares[self.ranks.rank]], -1)
        padded_4B = mine_4B.new_full((4, max(map(sum, sizes))), math.nan)
        padded_4B[:, : mine_4B.shape[1]] = mine_4B
        rows = self.ranks.every(padded_4B.flatten().tolist())
        whole_4B = torch.cat(
            [
                padded_4B.new_tensor(one).view(4, -1)[:, : sum(own)]
                for one, own in zip(rows, sizes, strict=True)
            ],
            -1,
        )
        beside = _beside(whole_4B)
        start = sum(map(sum, sizes[: self.ranks.rank]))
        pieces: list[PreferencePiece] = []
        for piece, size in zip(shares[self.ranks.rank], sizes[self.ranks.rank], strict=True):
            known = Known(beside=beside.part(slice(start, start + size)))
            pieces.append(PreferencePiece(rows=piece, total=total, known=known))
            start += size
        return tuple(pieces)

    def _figures(self, row: PreferenceRow, rows: tuple[JudgedRow, ...]) -> Tensor:
        """Of each pair: log-prob gaps of policy and reference, and both Δ; NaN where it does not count."""
        with torch.no_grad():
            look = seen(self.eyes, rows)
            pairs = pairing(rows, look.logp_NT, ties=self.ties)
            chosen, rejected = row.sides(*sides_of(row, look, pairs))
        figures_4B = torch.stack(
            (
                chosen.logp_B - rejected.logp_B,
                chosen.ref_logp_B - rejected.ref_logp_B,
                chosen.shift_B,
                rejected.shift_B,
            )
        )
        return figures_4B.masked_fill(pairs.weight_B == 0, math.nan)


def strangers_of(
    rows: Sequence[JudgedRow],
    donors: Sequence[JudgedRow],
    seed: int,
    fit: Callable[[Example], Example] = lambda example: example,
) -> Strangers:
    """For each row one answer of another row whose prompt differs; the same ones for the same seed.

    ``fit`` makes room where a long prompt meets a long answer.
    """
    chance = random.Random(f"{seed}/strangers")
    if len({donor.prompt for donor in donors}) < 2:
        raise UserError(
            "all rows have the same prompt, and the loss measures from answers to other prompts: give rows "
            "of several prompts, or use apo-zero-unpaired or bco, which do not"
        )
    found: dict[Example, Example] = {}
    for row in rows:
        other = chance.choice(donors)
        while other.prompt == row.prompt:
            other = chance.choice(donors)
        answer = chance.choice(other.example.completions)
        found[row.example] = fit(replace(row.example, completions=(answer,)))
    return found


def _beside(figures_4B: Tensor) -> Matched:
    """Partners among the pairs that count; the others stand beside themselves."""
    counts_B = figures_4B.isfinite().all(0)
    gap_B, ref_gap_B, chosen_B, rejected_B = figures_4B
    zero_B = torch.zeros_like(gap_B[counts_B])
    one = zero_B + 1
    found = matched(
        replace(answers(gap_B[counts_B], ref_gap_B[counts_B], one), shift_B=chosen_B[counts_B]),
        replace(answers(zero_B, zero_B, one), shift_B=rejected_B[counts_B]),
    )
    return Matched(
        for_gap_B=_spread(found.for_gap_B, counts_B),
        for_chosen_B=_spread(found.for_chosen_B, counts_B),
        for_rejected_B=_spread(found.for_rejected_B, counts_B),
    )


def _spread(value: Tensor, counts_B: Tensor) -> Tensor:
    return value.new_zeros(counts_B.shape).masked_scatter(counts_B, value)
