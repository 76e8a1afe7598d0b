"""The exact expected loss of a row of cells, and its minimum: training without samples and without noise.

The row's own measure, link, price, hold, weight, NLL and loss are used, as the trainer uses them. What a
trainer keeps beside the gradient (a reference point, weights, who stands beside whom in a sorted batch) is
held while the loss is minimised, taken anew, and so on until it stays: that is where training would rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from plaudit.errors import UserError
from plaudit.losses.answers import Answers
from plaudit.losses.transport import matched
from plaudit.proof.evidence import Pairs, Thumbs, counted
from plaudit.proof.language import Language, conditional
from plaudit.proof.policies import Speaker, Table
from plaudit.training.preference_row import Known, PreferenceRow, SingleRow

Row = PreferenceRow | SingleRow
"""What is proven."""

RESTS = 1e-9
"""A change of what is held that no longer counts."""
KINK = 1e-4
"""A slope that no smooth loss is left with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A row, the feedback it learns from and the language it is in.

    Example: ``Task(row=row_of("dpo"), found=pairs(spoken), spoken=spoken)``
    """

    row: Row
    """The algorithm."""
    found: Pairs | Thumbs
    """The feedback in expectation; pairs of equal weight for a row that sorts."""
    spoken: Language
    """The language, with the reference."""
    baseline: float | None = None
    """A reference point in place of the one that the row would keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How long is minimised.

    Example: ``Effort(rounds=1, steps=50)``
    """

    rounds: int = 100
    """How often what is held is taken anew, at most; a row that holds nothing needs one round."""
    steps: int = 2000
    """Iterations of L-BFGS in a round, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What has no gradient and stays as it is while the loss is minimised.

    Example: ``hold(task, logp_PYT)``
    """

    known: Known
    """What the loss is told."""
    weight_B: Float[Tensor, " B"]
    """The factor of each pair."""

    def figures(self) -> Float[Tensor, " F"]:
        """All of it in one row, to see whether it has come to rest."""
        beside = self.known.beside
        sorted_ones = [] if beside is None else [beside.for_gap_B, beside.for_chosen_B, beside.for_rejected_B]
        return torch.cat([self.weight_B.new_tensor([self.known.baseline]), self.weight_B, *sorted_ones])


def task(row: Row, found: Pairs | Thumbs, spoken: Language, baseline: float | None = None) -> Task:
    """The task; for a row that sorts its batch, pairs are repeated instead of weighed.

    >>> from plaudit.proof.evidence import pairs
    >>> from plaudit.proof.language import language
    >>> from plaudit.recipes.preference_rows import row_of
    >>> spoken = language(seed=0)
    >>> dpo = task(row_of("dpo"), pairs(spoken), spoken)
    >>> round(expected_loss(dpo, spoken.ref_logp_PYT, hold(dpo, spoken.ref_logp_PYT)).item(), 4)
    0.6931
    """
    if isinstance(row, PreferenceRow) and row.sorts and isinstance(found, Pairs):
        found = counted(found)
    return Task(row=row, found=found, spoken=spoken, baseline=baseline)


def expected_loss(work: Task, logp_PYT: Float[Tensor, "P Y T"], held: Held) -> Float[Tensor, ""]:
    """Σ over pairs (or answers) of their share times the row's loss, as the trainer would put it together."""
    row, found = work.row, work.found
    if isinstance(row, SingleRow):
        assert isinstance(found, Thumbs), "a row for single answers needs marked answers"
        loss_B = row.loss(_marked(work, found, logp_PYT), found.label_B, held.known)
        return (found.weight_B * _one_each(loss_B, found)).sum()
    assert isinstance(found, Pairs), "a row for pairs needs pairs"
    chosen, rejected = _both(work, row, found, logp_PYT)
    loss_B = held.weight_B * _one_each(row.loss(*row.sides(chosen, rejected), held.known), found)
    if row.nll:
        length_B = work.spoken.length_Y[found.chosen_B]
        loss_B = loss_B - row.nll * logp_PYT[found.prompt_B, found.chosen_B].sum(-1) / length_B
    return (found.weight_B * loss_B).sum()


def hold(work: Task, logp_PYT: Float[Tensor, "P Y T"]) -> Held:
    """What the trainer would keep beside the gradient, of the policy as it is."""
    row, found, logp_PYT = work.row, work.found, logp_PYT.detach()
    weight_B = torch.ones_like(found.weight_B)
    if isinstance(row, SingleRow):
        assert isinstance(found, Thumbs), "a row for single answers needs marked answers"
        good_B = found.weight_B * found.label_B
        bad_B = found.weight_B - good_B
        said = _marked(work, found, logp_PYT)
        known = Known(baseline=_baseline(work, logp_PYT, (said, good_B), (said, bad_B)))
        return Held(known=known, weight_B=weight_B)
    assert isinstance(found, Pairs), "a row for pairs needs pairs"
    chosen, rejected = _both(work, row, found, logp_PYT)
    known = Known(
        baseline=_baseline(work, logp_PYT, (chosen, found.weight_B), (rejected, found.weight_B)),
        beside=matched(chosen, rejected) if row.sorts else None,
    )
    if row.weight is not None:
        for answer_B in (found.chosen_B, found.rejected_B):
            weight_B = weight_B * _factor(work, row, logp_PYT, (found.prompt_B, answer_B))
    return Held(known=known, weight_B=weight_B)


def minimise(work: Task, speaker: Speaker, effort: Effort | None = None) -> Float[Tensor, "P Y"]:
    """Let the speaker learn until nothing moves, or the effort ends; log π of what it has become."""
    effort = effort or Effort()
    held = hold(work, speaker())
    for _ in range(effort.rounds):
        _descend(work, speaker, held, effort.steps)
        anew = hold(work, speaker())
        rests = torch.equal(anew.figures(), held.figures()) or (
            (anew.figures() - held.figures()).abs().max().item() < RESTS
        )
        held = anew
        if rests:
            break
    return speaker().detach().sum(-1)


def settle(
    work: Task, start_PY: Float[Tensor, "P Y"] | None = None, effort: Effort | None = None
) -> Float[Tensor, "P Y"]:
    """log π of a table that starts as the reference, or as told, when the row has nothing more to change."""
    table = Table(work.spoken, start_PY)
    logp_PY = minimise(work, table, effort)
    sorts = isinstance(work.row, PreferenceRow) and work.row.sorts
    if not sorts and slope(work, logp_PY) > KINK:
        # A line search stops at the first kink of a loss such as the hinge; small steps go on.
        _walk(work, table)
    return table().detach().sum(-1)


def slope(work: Task, logp_PY: Float[Tensor, "P Y"]) -> float:
    """The largest entry of the expected loss's gradient by a table's logits, at this policy: 0 if it rests.

    >>> from plaudit.proof.evidence import pairs
    >>> from plaudit.proof.exact import optimum
    >>> from plaudit.proof.language import language
    >>> from plaudit.recipes.preference_rows import row_of
    >>> spoken = language(seed=0)
    >>> slope(task(row_of("dpo"), pairs(spoken), spoken), optimum(spoken, 0.1)) < 1e-12
    True
    """
    table = Table(work.spoken, logp_PY)
    logp_PYT = table()
    (grad_PY,) = torch.autograd.grad(
        _learnable(expected_loss(work, logp_PYT, hold(work, logp_PYT))), table.weights()
    )
    return grad_PY.abs().max().item()


def _descend(work: Task, speaker: Speaker, held: Held, steps: int) -> None:
    lbfgs = torch.optim.LBFGS(
        speaker.weights(),
        max_iter=steps,
        max_eval=4 * steps,
        tolerance_grad=1e-12,
        tolerance_change=1e-15,
        history_size=30,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        lbfgs.zero_grad()
        loss = _learnable(expected_loss(work, speaker(), held))
        loss.backward()
        return loss.item()

    lbfgs.step(closure)


def _one_each(loss_B: Tensor, found: Pairs | Thumbs) -> Tensor:
    if loss_B.shape != found.weight_B.shape:
        shape, rows = tuple(loss_B.shape), len(found.weight_B)
        raise UserError(
            f"the row's loss returned shape {shape} for {rows} pairs or answers: return one number for each, "
            f"shape ({rows},), and leave sum and mean to the trainer"
        )
    return loss_B


def _learnable(loss: Tensor) -> Tensor:
    if not loss.requires_grad:
        raise UserError(
            "the row's loss has no gradient by the policy: use logp_B or shift_B, and do not detach both"
        )
    return loss


def _walk(work: Task, table: Table, *, steps: int = 1000) -> None:
    """Adam with ever smaller steps."""
    adam = torch.optim.Adam(table.weights(), lr=0.1)
    fall = torch.optim.lr_scheduler.ExponentialLR(adam, gamma=10 ** (-6 / steps))
    for _ in range(steps):
        adam.zero_grad()
        logp_PYT = table()
        expected_loss(work, logp_PYT, hold(work, logp_PYT)).backward()
        adam.step()
        fall.step()


def _of(work: Task, logp_PYT: Tensor, where: tuple[Tensor, Tensor], shorter_B: Int[Tensor, " B"]) -> Answers:
    row, spoken = work.row, work.spoken
    mask_BT = spoken.mask_YT[where[1]]
    logp_B = row.measure(logp_PYT[where], mask_BT, shorter_B)
    ref_logp_B = torch.zeros_like(logp_B)
    if row.referenced:
        ref_logp_B = row.measure(spoken.ref_logp_PYT[where], mask_BT, shorter_B)
    return row.answers(logp_B, ref_logp_B, spoken.length_Y[where[1]])


def _both(work: Task, row: PreferenceRow, found: Pairs, logp_PYT: Tensor) -> tuple[Answers, Answers]:
    length_Y = work.spoken.length_Y
    shorter_B = torch.minimum(length_Y[found.chosen_B], length_Y[found.rejected_B])
    chosen = _of(work, logp_PYT, (found.prompt_B, found.chosen_B), shorter_B)
    return chosen, _of(work, logp_PYT, (found.prompt_B, found.rejected_B), shorter_B)


def _marked(work: Task, found: Thumbs, logp_PYT: Tensor) -> Answers:
    return _of(work, logp_PYT, (found.prompt_B, found.answer_B), work.spoken.length_Y[found.answer_B])


def _factor(work: Task, row: PreferenceRow, logp_PYT: Tensor, where: tuple[Tensor, Tensor]) -> Tensor:
    assert row.weight is not None
    power_PYT = conditional(logp_PYT.sum(-1), work.spoken)[1]
    return row.weight(logp_PYT[where], power_PYT[where], work.spoken.mask_YT[where[1]])


def _baseline(
    work: Task, logp_PYT: Tensor, good: tuple[Answers, Tensor], bad: tuple[Answers, Tensor]
) -> float:
    """The reference point of the row: none, halfway between the mean rewards, or the mean Δ elsewhere."""
    if work.baseline is not None:
        return work.baseline
    if work.row.baseline == "running":
        means = [(weight_B * said.shift_B).sum() / weight_B.sum() for said, weight_B in (good, bad)]
        return work.row.beta * (means[0] + means[1]).item() / 2
    if work.row.baseline == "mismatched":
        return _elsewhere(work, logp_PYT)
    return 0.0


def _elsewhere(work: Task, logp_PYT: Tensor) -> float:
    """Mean Δ of answers to the other prompts, at least 0."""
    prompts, answers = logp_PYT.shape[:2]
    found = work.found
    answer_B = found.answer_B if isinstance(found, Thumbs) else found.chosen_B
    drawn_PY = logp_PYT.new_zeros(prompts, answers)
    drawn_PY.index_put_((found.prompt_B, answer_B), found.weight_B, accumulate=True)
    strange_PY = (drawn_PY.sum(0) - drawn_PY) / max(1, prompts - 1)
    prompt_B, all_B = (
        grid.flatten() for grid in torch.meshgrid(torch.arange(prompts), torch.arange(answers), indexing="ij")
    )
    said = _of(work, logp_PYT, (prompt_B, all_B), work.spoken.length_Y[all_B])
    return max(0.0, (strange_PY.flatten() * said.shift_B).sum().item())
