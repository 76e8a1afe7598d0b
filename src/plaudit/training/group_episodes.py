"""Episodes of few-shot learning: a group, some of its judgements as context, the others as targets.

A group and a context size are drawn uniformly, then which of its judgements are shown; the module learns to
predict the rest (Zhao, Dang and Grover 2023, arXiv:2310.11523). What is drawn is a pure function of the seed
and the step.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.errors import UserError
from plaudit.losses.group import choice, gaussian
from plaudit.models.group_preference import Context, GroupPreference


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupItems:
    """All that one group judged: B items of K answers each; build it with ``chosen`` or ``rated``.

    Example: ``GroupItems(name="Bowbury", embedding_BKH=…, shown_BK=…, label_BK=…)``; K = 2 for comparisons.
    """

    name: str
    """The group."""
    embedding_BKH: Float[Tensor, "B K H"]
    """Of each answer."""
    shown_BK: Float[Tensor, "B K"]
    """The preferences as a context shows them."""
    label_BK: Float[Tensor, "B K"]
    """What the loss compares with: shares that add up to 1, or ratings where K is 1."""

    @property
    def size(self) -> int:
        """How many items there are."""
        return self.embedding_BKH.shape[0]


def chosen(
    name: str, embedding_BKH: Float[Tensor, "B K H"], share_BK: Float[Tensor, "B K"] | None = None
) -> GroupItems:
    """Choices between K answers; without shares the first is the preferred one, so ties need (½, ½).

    A share y is shown as K y − 1, so that no preference is 0.

    >>> chosen("bakers", torch.zeros(1, 2, 8)).shown_BK
    tensor([[ 1., -1.]])
    """
    answers = embedding_BKH.shape[1]
    if answers < 2:
        raise UserError(f"{name}: a choice needs two answers or more; a single one is rated")
    if share_BK is None:
        share_BK = embedding_BKH.new_zeros(embedding_BKH.shape[:2])
        share_BK[:, 0] = 1
    return GroupItems(
        name=name, embedding_BKH=embedding_BKH, shown_BK=answers * share_BK - 1, label_BK=share_BK
    )


def rated(name: str, embedding_BH: Float[Tensor, "B H"], rating_B: Float[Tensor, " B"]) -> GroupItems:
    """Ratings, one answer each; standardise them over all groups, for the module sees them as they are."""
    return GroupItems(
        name=name,
        embedding_BKH=embedding_BH[:, None],
        shown_BK=rating_B[:, None],
        label_BK=rating_B[:, None],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeSettings:
    """How much of a group is shown, and how much is asked.

    Example: ``EpisodeSettings(least=0, most=32, targets=32)``
    """

    least: int = 0
    """Fewest items of a context; with 0 the module also learns what groups prefer in general."""
    most: int = 32
    """Most items of a context."""
    targets: int = 32
    """Most targets, for the sake of memory; 0 takes all the rest."""

    def __post_init__(self) -> None:
        """Refuse what no group could meet."""
        if not 0 <= self.least <= self.most:
            raise UserError(f"an episode shows {self.least} to {self.most} items: take 0 ≤ least ≤ most")
        if self.targets < 0:
            raise UserError(
                f"an episode asks for at most {self.targets} targets: take 1 or more, or 0 for all"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Which items are shown and which are asked.

    Example: ``Episode(group=2, context=(7, 0), targets=(3, 9, 1))``
    """

    group: int
    """Which of the groups."""
    context: tuple[int, ...]
    """Items that are shown."""
    targets: tuple[int, ...]
    """Items to predict, never one that is shown."""


def episode(sizes: Sequence[int], settings: EpisodeSettings, *, seed: int, step: int) -> Episode:
    """One episode from groups of these sizes; at least one item is always left to predict.

    >>> drawn = episode([3, 3], EpisodeSettings(least=1, most=1), seed=0, step=1)
    >>> len(drawn.context), len(drawn.targets)
    (1, 2)
    """
    for group, size in enumerate(sizes):
        if size < settings.least + 1:
            raise UserError(
                f"group {group} has {size} judgements, fewer than the {settings.least} to show and one to ask"
            )
    chance = random.Random(f"episode {seed}/{step}")
    group = chance.randrange(len(sizes))
    shown = chance.randint(settings.least, min(settings.most, sizes[group] - 1))
    order = chance.sample(range(sizes[group]), sizes[group])
    end = shown + settings.targets if settings.targets else None
    return Episode(group=group, context=tuple(order[:shown]), targets=tuple(order[shown:end]))


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeBatch:
    """Episodes as padded tensors: each of M context points and of B targets with K answers.

    Example: ``gathered(groups, [episode(sizes, settings, seed=0, step=n) for n in range(16)])``
    """

    context: Context
    """What is shown."""
    target_EBKH: Float[Tensor, "E B K H"]
    """Embeddings of what is asked."""
    label_EBK: Float[Tensor, "E B K"]
    """What the group said of it."""
    mask_EB: Bool[Tensor, "E B"]
    """False where an episode has fewer targets."""


def gathered(groups: Sequence[GroupItems], episodes: Sequence[Episode]) -> EpisodeBatch:
    """The tensors of some episodes."""
    context_EMKH, shown_EMK, _, mask_EM = _padded(groups, [(one.group, one.context) for one in episodes])
    target_EBKH, _, label_EBK, mask_EB = _padded(groups, [(one.group, one.targets) for one in episodes])
    return EpisodeBatch(
        context=Context(
            embedding_EMH=context_EMKH.flatten(1, 2),
            preference_EM=shown_EMK.flatten(1, 2),
            mask_EM=mask_EM.repeat_interleave(shown_EMK.shape[2], dim=1),
        ),
        target_EBKH=target_EBKH,
        label_EBK=label_EBK,
        mask_EB=mask_EB,
    )


def _padded(
    groups: Sequence[GroupItems], wanted: Sequence[tuple[int, tuple[int, ...]]]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Embeddings, shown preferences, labels and mask of some items of some groups, item 0 for padding."""
    most = max(len(items) for _, items in wanted)
    device = groups[0].embedding_BKH.device
    rows = [torch.tensor([*items, *[0] * (most - len(items))], dtype=torch.int64) for _, items in wanted]
    picked = [(groups[group], row.to(device)) for (group, _), row in zip(wanted, rows, strict=True)]
    count_E = torch.tensor([len(items) for _, items in wanted], device=device)
    return (
        torch.stack([group.embedding_BKH[row] for group, row in picked]),
        torch.stack([group.shown_BK[row] for group, row in picked]),
        torch.stack([group.label_BK[row] for group, row in picked]),
        torch.arange(most, device=device) < count_E[:, None],
    )


def scores(model: GroupPreference, batch: EpisodeBatch) -> Float[Tensor, "E B K"]:
    """The predicted score of every answer that is asked about."""
    predicted = model(batch.context, batch.target_EBKH.flatten(1, 2))
    return predicted.score_EN.view_as(batch.label_EBK)


def losses(model: GroupPreference, batch: EpisodeBatch) -> Float[Tensor, "E B"]:
    """The loss of every target, 0 at padding: ``choice`` of several answers, ``gaussian`` for ratings."""
    predicted = model(batch.context, batch.target_EBKH.flatten(1, 2))
    score_EBK, log_std_EBK = (
        value_EN.view_as(batch.label_EBK) for value_EN in (predicted.score_EN, predicted.log_std_EN)
    )
    if batch.label_EBK.shape[-1] == 1:
        loss_EB = gaussian(score_EBK[..., 0], log_std_EBK[..., 0], batch.label_EBK[..., 0])
    else:
        loss_EB = choice(score_EBK, batch.label_EBK)
    return loss_EB.masked_fill(~batch.mask_EB, 0.0)
