"""The policy trainer: move towards answers that were better than expected, by any row of cells.

It runs rows of cells (``policy_row``) and knows no algorithm by name. What an answer was worth is fixed when
its round begins (``policy_experience``); here a piece of it is looked at by the policy that moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from plaudit.batches.tokens import TokenBatch
from plaudit.errors import UserError
from plaudit.losses.ratio import FARTHEST, log_ratio, ratio
from plaudit.losses.reduce import token_mean
from plaudit.losses.trust import clipped_high, clipped_low, kept_completions
from plaudit.losses.value import clipped_squared, squared
from plaudit.models.policy import Policy, Scores
from plaudit.models.reward import RewardModel
from plaudit.models.value_head import ValueHead
from plaudit.tensors.masked import masked_mean_rows, masked_sum, masked_sum_rows
from plaudit.training.metrics import Metric, count, mean
from plaudit.training.policy_experience import Watchers, refuse_another_policy
from plaudit.training.policy_round import Place, Round, Told
from plaudit.training.policy_row import Counts, Moment, PolicyRow, reduced
from plaudit.training.step import Terms
from plaudit.training.supervised import SupervisedPiece, likelihood

ROUNDING = 1e-4
"""Nats a token by which the policy may seem to differ from itself at the first move, in float32."""


class Actor(nn.Module):
    """What is trained: a policy, and beside it a critic where the algorithm has one."""

    def __init__(self, policy: Policy, critic: RewardModel | ValueHead | None) -> None:
        """Both are on their device."""
        super().__init__()
        self.policy = policy
        self.critic = critic


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPiece:
    """Groups that go through the model together.

    Example: ``PolicyPiece(round=round, places=(Place(group=0, tokens=90),), counts=Counts(…), first=True)``
    """

    round: Round
    """What they are part of."""
    places: tuple[Place, ...]
    """Which groups."""
    counts: Counts
    """How much there is in the **whole** minibatch, over all pieces and ranks."""
    first: bool
    """Whether the policy has not moved since the round began."""
    only: bool
    """Whether the round has no other move, and nobody asked before: then π_old is the policy itself."""
    penalty: int | float = 0.0
    """The coefficient of an adaptive penalty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLoss:
    """What a critic loses.

    Example: ``ValueLoss(weight=0.1, clip=0.2)``
    """

    weight: int | float = 1.0
    """How much it counts beside the policy's."""
    clip: int | float = 0.0
    """How far a value may move within a round before nothing more is gained; 0: no limit."""


Piece = PolicyPiece | SupervisedPiece
"""Judged answers, or text that the policy shall not forget."""


def groups_of(piece: PolicyPiece) -> tuple[PolicyPiece, ...]:
    """Each prompt alone, still counted as part of the same minibatch."""
    return tuple(replace(piece, places=(place,)) for place in piece.places)


def improving(
    row: PolicyRow, watchers: Watchers, critic: ValueLoss, *, rare: int | float = 0.0
) -> Callable[[PolicyPiece], Terms]:
    """The row's loss over the tokens of a minibatch, and the critic's.

    A bad answer that has become ``rare`` nats a token rarer since its round began teaches nothing more.
    """

    def objective(piece: PolicyPiece) -> Terms:
        batch, row_n = piece.round.batch(piece.places)
        batch = batch.to(watchers.policy.device)
        told = piece.round.told.of(row_n, batch.mask_NT.shape[1], watchers.policy.device)
        with watchers.products():
            also = ("entropy",) if row.entropy else ()
            beside = watchers.critic.read if isinstance(watchers.critic, ValueHead) else None
            scores = watchers.policy.score(batch, also=also, temperature=watchers.temperature, beside=beside)
        if piece.only:
            refuse_another_policy(watchers.policy, scores.logp_NT, told.old_logp_NT, batch.mask_NT)
            told = _as_itself(row, told, scores, batch)
        shift_NT = log_ratio(scores.logp_NT, told.old_logp_NT, batch.mask_NT)
        if piece.first:
            _refuse_to_have_moved(shift_NT, watchers, batch)
        moment = _moment(row, scores, told, shift_NT, batch, piece.penalty)
        loss_NT = row.surrogate(moment) * told.weight_NT
        if row.divergence == "loss":
            loss_NT = loss_NT + row.beta * row.estimator(moment.off_NT)
        if scores.entropy_NT is not None:
            loss_NT = loss_NT - row.entropy * scores.entropy_NT
        loss_NT = loss_NT.masked_fill(_left_out(told, moment, rare), 0.0)
        loss = reduced(row.reduction, loss_NT, batch.mask_NT, piece.counts)
        value_NT = _value_loss(watchers, critic, scores, batch, told)
        whole = loss
        if value_NT is not None:
            whole = loss + critic.weight * token_mean(value_NT, batch.mask_NT, tokens=piece.counts.tokens)
        return Terms(
            loss=whole,
            loss_N=_by_answer(loss_NT, value_NT, batch),
            origin_N=batch.origin_N,
            metrics=(*_metrics(row, piece, moment, loss, value_NT), *_round_metrics(piece)),
        )

    return objective


def remembering(watchers: Watchers, weight: int | float) -> Callable[[SupervisedPiece], Terms]:
    """weight · −log π of text that the policy shall not forget, a token (Ouyang et al. 2022, PPO-ptx)."""
    likely = likelihood(watchers.policy, watchers.products)

    def objective(piece: SupervisedPiece) -> Terms:
        terms = likely(piece)
        metrics = tuple(replace(one, name="ptx_loss") for one in terms.metrics if one.name == "loss")
        return replace(terms, loss=weight * terms.loss, loss_N=weight * terms.loss_N, metrics=metrics)

    return objective


def _as_itself(row: PolicyRow, told: Told, scores: Scores, batch: TokenBatch) -> Told:
    """With a single move π_old is π: to compute it twice would give the same numbers."""
    own_NT = scores.logp_NT.detach().masked_fill(~batch.mask_NT, 0.0)
    return replace(told, old_logp_NT=own_NT, ref_logp_NT=told.ref_logp_NT if row.referenced else own_NT)


def _left_out(told: Told, moment: Moment, rare: int | float) -> Tensor:
    """Tokens that lose nothing and are still counted: weight 0, or a bad answer that is rare already."""
    none_NT = told.weight_NT == 0
    if not rare:
        return none_NT
    better_N = masked_mean_rows(moment.advantage_NT, moment.mask_NT)
    kept_N = kept_completions(moment.shift_NT.detach(), better_N, moment.mask_NT, limit=rare)
    return none_NT | ~kept_N[:, None]


def _moment(
    row: PolicyRow, scores: Scores, told: Told, shift_NT: Tensor, batch: TokenBatch, penalty: int | float
) -> Moment:
    return Moment(
        logp_NT=scores.logp_NT,
        shift_NT=shift_NT,
        ratio_NT=ratio(row.ratio(shift_NT, batch.mask_NT)),
        advantage_NT=told.advantage_NT,
        apart_NT=shift_NT.clamp(max=FARTHEST).expm1() - shift_NT,
        off_NT=log_ratio(scores.logp_NT, told.ref_logp_NT, batch.mask_NT),
        mask_NT=batch.mask_NT,
        beta=penalty,
    )


def _value_loss(
    watchers: Watchers, critic: ValueLoss, scores: Scores, batch: TokenBatch, told: Told
) -> Tensor | None:
    if watchers.critic is None:
        return None
    value_NT = scores.beside_NT
    if value_NT is None:
        with watchers.products():
            value_NT = watchers.critic.values(batch, at="before")
    if critic.clip:
        return clipped_squared(value_NT, told.value_NT, told.return_NT, clip=critic.clip)
    return squared(value_NT, told.return_NT)


def _by_answer(loss_NT: Tensor, value_NT: Tensor | None, batch: TokenBatch) -> Tensor:
    own_NT = loss_NT if value_NT is None else loss_NT + value_NT
    return masked_sum_rows(own_NT.detach(), batch.mask_NT)


def _metrics(
    row: PolicyRow, piece: PolicyPiece, moment: Moment, loss: Tensor, value_NT: Tensor | None
) -> tuple[Metric, ...]:
    """What adds up over pieces: sums over tokens, whatever the reduction."""
    mask_NT, advantage_NT = moment.mask_NT, moment.advantage_NT
    tokens = int(mask_NT.sum())
    ratio_NT = moment.ratio_NT.detach()
    counting = sum(place.counts for place in piece.places)

    def share(which_NT: Tensor) -> float:
        return float((which_NT & mask_NT).sum())

    # The loss of a piece is its share of the minibatch's, so the shares add up.
    found = [
        Metric(name="loss", total=float(loss.detach()), how="sum"),
        mean("ratio", float(masked_sum(ratio_NT, mask_NT)), tokens),
        mean("kl_old", float(masked_sum(moment.apart_NT.detach(), mask_NT)), tokens),
    ]
    if row.clip_low or row.clip_high:
        found += [
            mean("clipped_low", share(clipped_low(ratio_NT, advantage_NT, low=row.clip_low)), tokens),
            mean("clipped_high", share(clipped_high(ratio_NT, advantage_NT, high=row.clip_high)), tokens),
        ]
    if row.adaptive:
        found.append(mean("penalty", piece.penalty * tokens, tokens))
    if value_NT is not None:
        found.append(mean("value_loss", float(masked_sum(value_NT.detach(), mask_NT)), tokens))
    return (*found, count("tokens", _computed(piece) if counting else 0), count("rows", counting))


def _computed(piece: PolicyPiece) -> int:
    return sum(place.tokens for place in piece.places if place.counts)


def _round_metrics(piece: PolicyPiece) -> Sequence[Metric]:
    """Those of the round, once with each piece: as means of equal numbers they stay what they are."""
    return piece.round.figures


def _refuse_to_have_moved(shift_NT: Tensor, watchers: Watchers, batch: TokenBatch) -> None:
    """At the first move of a round the policy is the one that the round began with."""
    apart = float(shift_NT.detach().abs().max())
    limit = _rounding(watchers)
    if apart <= limit:
        return
    worst = int(shift_NT.detach().abs().amax(-1).argmax())
    raise UserError(
        f"before the first move of a round the policy differs from itself by {apart:.2g} nats at a token of "
        f"an answer to {batch.origin_N[worst] or 'a prompt'}, so ratios begin at {1 + apart:.2f} and not at "
        "1: "
        "the model gives other numbers for the same tokens each time (dropout, or something else that is "
        "drawn). Set its dropout to 0 in config.json"
    )


def _rounding(watchers: Watchers) -> float:
    with watchers.products():
        device = watchers.policy.device.type
        half = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) != torch.float32
    if half or watchers.policy.base.dtype in (torch.bfloat16, torch.float16):
        return 0.2
    return 1e-9 if watchers.policy.base.dtype == torch.float64 else ROUNDING
