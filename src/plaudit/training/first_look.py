"""Before the first step: policy and reference are one, and the loss is what it must be; or the run stops.

Where the reference is the very model that learns, every log-ratio is 0 at the start: DPO's loss is ln 2,
the distance 0. If not, one of three things is wrong, and which one can be found out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plaudit.batches.judged import JudgedRow
from plaudit.errors import UserError
from plaudit.tensors.masked import masked_sum_rows
from plaudit.training.preference import Eyes, PreferenceObjective, Seen, seen
from plaudit.training.preference_batch import Batches
from plaudit.training.preference_row import Known, PreferenceRow, SingleRow

ROWS = 8
"""How many rows are looked at: the shortest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLook:
    """What was seen before the first step.

    Example: ``FirstLook(loss=0.6931, apart=0.0, sentence="at the start …")``
    """

    loss: float
    """The loss of a few rows."""
    apart: float
    """The largest |log π − log π_ref| of a token."""
    sentence: str
    """Both, for the user."""


def first_look(
    batches: Batches, objective: PreferenceObjective, rows: Sequence[JudgedRow], *, same: bool
) -> FirstLook:
    """Look at a few rows; ``same`` says that policy and reference are one model. Every rank comes."""
    few = sorted(rows, key=lambda row: row.tokens)[:ROWS]
    with torch.no_grad():
        look = seen(batches.eyes, few)
        pieces = batches.pieces(few)
        terms = [objective(piece) for piece in pieces]
    loss = _mean_loss(batches, [float(one.loss) for one in terms])
    apart = _apart(look)
    if not math.isfinite(loss):
        raise UserError(
            f"before the first step the loss of {few[0].origin} and {len(few) - 1} other rows is {loss}: the "
            "model's log-probs are not numbers. Look at its weights, or use --dtype float32"
        )
    if not batches.row.referenced:
        return FirstLook(loss=loss, apart=0.0, sentence=f"before the first step the loss is {loss:.4f}")
    if not same:
        return FirstLook(
            loss=loss,
            apart=apart,
            sentence=f"the reference is another model: before the first step the loss is {loss:.4f}, and the "
            f"two differ by up to {apart:.2g} nats a token",
        )
    if apart > tolerance(batches.eyes):
        raise UserError(_diagnosis(batches.eyes, few, look, apart))
    rest = _at_rest(batches.row, look)
    if rest is not None and not rest.lowest <= loss <= rest.highest:
        raise UserError(
            f"before the first step the loss is {loss:.4f} and should be {rest.loss:.4f}, though policy and "
            "reference agree: the loss itself is not what its row says"
        )
    return FirstLook(
        loss=loss,
        apart=apart,
        sentence=f"before the first step policy and reference agree (to {apart:.1g} nats a token) and the "
        f"loss is {loss:.4f}",
    )


def tolerance(eyes: Eyes) -> float:
    """How far two computations of one log-prob may lie apart in the numbers at hand."""
    with eyes.products():
        device = eyes.policy.device.type
        half = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) != torch.float32
    if half:
        return 0.2
    return 1e-8 if eyes.policy.base.dtype == torch.float64 else 2e-3


def _mean_loss(batches: Batches, losses: Sequence[float]) -> float:
    return math.fsum(one for (one,) in batches.ranks.every([math.fsum(losses)]))


def _apart(look: Seen) -> float:
    return float((look.logp_NT - look.ref_logp_NT).masked_fill(~look.batch.mask_NT, 0.0).abs().max())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    """The loss where every Δ is 0, and how far the rounding that was seen can take it."""

    loss: float
    lowest: float
    highest: float


def _at_rest(row: PreferenceRow | SingleRow, look: Seen) -> _Rest | None:
    """None where the loss depends on more than Δ: on lengths, labels or likelihood."""
    if isinstance(row, SingleRow) or row.nll or row.price or row.weight is not None or row.sorts:
        return None
    apart_N = masked_sum_rows(look.logp_NT - look.ref_logp_NT, look.batch.mask_NT)
    most = float(apart_N.abs().max())
    corners = [(0.0, 0.0), (most, most), (most, -most), (-most, most), (-most, -most)]
    chosen_B, rejected_B = torch.tensor(corners).unbind(-1)
    zero_B = torch.zeros_like(chosen_B)
    sides = row.sides(row.answers(chosen_B, zero_B, zero_B), row.answers(rejected_B, zero_B, zero_B))
    losses = row.loss(*sides, Known()).tolist()
    rounding = 1e-5 * max(1.0, *map(abs, losses))
    return _Rest(loss=losses[0], lowest=min(losses) - rounding, highest=max(losses) + rounding)


def _diagnosis(eyes: Eyes, rows: Sequence[JudgedRow], look: Seen, apart: float) -> str:
    """Which of the model, the masks and the reference it is: each is tried alone."""
    begins = (
        f"before the first step policy and reference should be one model, but log-probs differ by up to "
        f"{apart:.2g} ({_worst(rows, look)}): "
    )
    with torch.no_grad():
        again = seen(eyes, rows)
    if _far(again.logp_NT, look.logp_NT, eyes):
        return begins + (
            "the model itself gives other numbers for the same rows each time (dropout, or something else "
            "that is drawn). Set its dropout to 0 in config.json"
        )
    if bool(((look.ref_logp_NT != 0) != look.batch.mask_NT).any()):
        return begins + (
            "the reference has log-probs for other tokens than those that are trained, so its masks are of "
            "other rows. Delete the kept log-probs, or name another folder with --reference.cache"
        )
    return begins + (
        "the reference is not the model that the run starts from. Delete the kept log-probs, or name "
        "another folder with --reference.cache; with --reference.model, name the folder of --model"
    )


def _far(one_NT: Tensor, other_NT: Tensor, eyes: Eyes) -> bool:
    return float((one_NT - other_NT).abs().max()) > tolerance(eyes)


def _worst(rows: Sequence[JudgedRow], look: Seen) -> str:
    apart_NT = (look.logp_NT - look.ref_logp_NT).masked_fill(~look.batch.mask_NT, 0.0).abs()
    answer = int(apart_NT.amax(-1).argmax())
    return rows[int(look.batch.group_N[answer])].origin
