"""The trainer of group preferences: episodes in which a few judgements of a group must tell of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from plaudit.models.group_preference import GroupPreference
from plaudit.training.group_episodes import (
    Episode,
    EpisodeBatch,
    EpisodeSettings,
    GroupItems,
    episode,
    gathered,
    losses,
    scores,
)
from plaudit.training.metrics import Metric, add, count, mean
from plaudit.training.parallel import Ranks
from plaudit.training.plan import Pause
from plaudit.training.step import Terms, add_over_ranks

HELD_OUT = ("held_out/loss", "held_out/accuracy", "held_out/accuracy_unseen")
"""What `evaluation` reports."""
TRIALS = 32
"""Episodes a held-out group is asked in, each with another context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPiece:
    """Episodes that go through the module together.

    Example: ``GroupPiece(episodes=(…,), total=512)``: they ask for part of 512 targets.
    """

    episodes: tuple[Episode, ...]
    """What is shown and asked."""
    total: int
    """Targets of the **whole** step, over all ranks: the denominator."""
    counts: bool = True
    """False for a stand-in, with which a rank without episodes computes along."""


def pieces_of(episodes: Sequence[Episode], ranks: Ranks) -> tuple[GroupPiece, ...]:
    """This rank's episodes of a step; every rank knows all of them, and so the count."""
    total = sum(len(one.targets) for one in episodes)
    mine = tuple(episodes[ranks.rank :: ranks.world])
    return (GroupPiece(episodes=mine or (episodes[0],), total=total, counts=bool(mine)),)


def episodes_of(piece: GroupPiece) -> tuple[GroupPiece, ...]:
    """Each episode alone, still counted as part of the same step."""
    return tuple(replace(piece, episodes=(one,)) for one in piece.episodes)


def predicting(model: GroupPreference, groups: Sequence[GroupItems]) -> Callable[[GroupPiece], Terms]:
    """Σ −log P(what the group preferred) over the targets / targets of the whole step."""

    def objective(piece: GroupPiece) -> Terms:
        batch = gathered(groups, piece.episodes)
        loss_EB = losses(model, batch)
        shown, targets = (
            sum(len(getattr(one, name)) for one in piece.episodes) for name in ("context", "targets")
        )
        weight = piece.counts
        return Terms(
            loss=weight * loss_EB.sum() / piece.total,
            loss_N=loss_EB.sum(-1).detach(),
            origin_N=tuple(f"group {groups[one.group].name}" for one in piece.episodes),
            metrics=(
                mean("loss", weight * float(loss_EB.detach().sum()), weight * targets),
                *_right("accuracy", model, batch, weight=weight),
                count("tokens", weight * (shown + targets)),
                count("rows", weight * len(piece.episodes)),
            ),
        )

    return objective


def evaluation(
    model: GroupPreference, groups: Sequence[GroupItems], settings: EpisodeSettings, ranks: Ranks
) -> Callable[[Pause], tuple[Metric, ...]]:
    """Loss and accuracy on groups that were never trained, after a context and without any."""
    sizes = [group.size for group in groups]
    trials = [episode(sizes, settings, seed=-1, step=trial) for trial in range(TRIALS * len(groups))]

    def evaluate(pause: Pause) -> tuple[Metric, ...]:
        found: list[Metric] = []
        with torch.no_grad():
            for one in trials[ranks.rank :: ranks.world]:
                pause()
                batch, bare = (gathered(groups, [each]) for each in (one, replace(one, context=())))
                found.append(mean("held_out/loss", float(losses(model, batch).sum()), len(one.targets)))
                found += _right("held_out/accuracy", model, batch, weight=True)
                found += _right("held_out/accuracy_unseen", model, bare, weight=True)
        return add_over_ranks(add(found), ranks)

    return evaluate


def _right(name: str, model: GroupPreference, batch: EpisodeBatch, *, weight: bool) -> tuple[Metric, ...]:
    """How often the answer that the group preferred is the one of the highest score; ties are left out."""
    with torch.no_grad():
        best_EB = scores(model, batch).argmax(-1)
    decided_EB = batch.mask_EB & (batch.label_EBK.amax(-1) > batch.label_EBK.amin(-1))
    right_EB = decided_EB & (best_EB == batch.label_EBK.argmax(-1))
    return (mean(name, weight * int(right_EB.sum()), weight * int(decided_EB.sum())),)
