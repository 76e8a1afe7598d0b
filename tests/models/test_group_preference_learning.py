"""A few judgements of a group that was never seen are enough to predict its others."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from plaudit.methods.reward_model.group_preference import (
    Episode,
    EpisodeSettings,
    GroupItems,
    choice_items,
    collate_episodes,
    predicted_scores,
    rating_items,
    sample_episode,
    target_losses,
)
from plaudit.models.group_preference import GroupPreference, GroupPreferenceConfig
from tests.models.group_modules import normal


def _tasters(
    count: int, items: int, seed: int, taste: tuple[Tensor, Tensor]
) -> tuple[list[GroupItems], Tensor]:
    """Groups whose taste is linear: a part that all share, and two numbers of their own."""
    common_H, basis_DH = taste
    generator = torch.Generator().manual_seed(seed)
    weight_GH = common_H + torch.randn(count, len(basis_DH), generator=generator) @ basis_DH
    found: list[GroupItems] = []
    for g, weight_H in enumerate(weight_GH):
        embedding_B2H = torch.randn(items, 2, len(common_H), generator=generator)
        chance_B = torch.sigmoid(embedding_B2H.diff(dim=1)[:, 0].neg() @ weight_H)
        swap_B = torch.rand(items, generator=generator) > chance_B
        embedding_B2H[swap_B] = embedding_B2H[swap_B].flip(1)
        found.append(choice_items(str(g), embedding_B2H))
    return found, weight_GH


def _trained(groups: list[GroupItems], steps: int, most: int = 16) -> GroupPreference:
    width = groups[0].embedding_BKH.shape[-1]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = GroupPreference(GroupPreferenceConfig(embedding=width, width=32, layers=2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    settings, sizes = EpisodeSettings(most=most, targets=12), [group.size for group in groups]
    for step in range(steps):
        for settled in optimizer.param_groups:
            settled["lr"] = 3e-3 * min(1, (step + 1) / 30) * (1 - step / steps)
        drawn = [sample_episode(sizes, settings, seed=0, step=step * 16 + k) for k in range(16)]
        batch = collate_episodes(groups, drawn)
        optimizer.zero_grad()
        (target_losses(model, batch).sum() / batch.mask_EB.sum()).backward()
        optimizer.step()
    return model


def _accuracy(model: GroupPreference, groups: list[GroupItems], shown: int, asked_from: int = 16) -> float:
    some = [
        Episode(group=g, context=tuple(range(shown)), targets=tuple(range(asked_from, group.size)))
        for g, group in enumerate(groups)
    ]
    with torch.no_grad():
        score_EB2 = predicted_scores(model, collate_episodes(groups, some))
    return float((score_EB2[..., 0] > score_EB2[..., 1]).float().mean())


def _regression_accuracy(groups: list[GroupItems], shown: int, asked_from: int = 16) -> float:
    """What a logistic regression learns of each group from the same choices, with the best of four ridges."""
    return max(_ridge_accuracy(groups, shown, asked_from, ridge) for ridge in (0.03, 0.3, 1.0, 3.0))


def _ridge_accuracy(groups: list[GroupItems], shown: int, asked_from: int, ridge: float) -> float:
    hits: list[float] = []
    for group in groups:
        gap_BH = group.embedding_BKH[:, 0] - group.embedding_BKH[:, 1]
        weight_H = torch.zeros(gap_BH.shape[1], requires_grad=True)
        optimizer = torch.optim.LBFGS([weight_H], max_iter=40)

        def loss(gap_BH: Tensor = gap_BH[:shown], weight_H: Tensor = weight_H) -> Tensor:
            weight_H.grad = None
            value = softplus(-gap_BH @ weight_H).sum() + ridge / 2 * weight_H.square().sum()
            value.backward()
            return value

        optimizer.step(loss)
        hits.append(float((gap_BH[asked_from:] @ weight_H.detach() > 0).float().mean()))
    return sum(hits) / len(hits)


@pytest.mark.slow
def test_a_few_choices_of_an_unseen_group_are_enough() -> None:
    taste = 0.8 * normal(8, seed=5).float(), 2.5 * normal(2, 8, seed=6).float()
    train, _ = _tasters(150, 40, seed=1, taste=taste)
    unseen, weight_GH = _tasters(40, 116, seed=2, taste=taste)
    model = _trained(train, steps=200)
    found = {shown: _accuracy(model, unseen, shown) for shown in (0, 1, 2, 4, 8, 16)}
    assert list(found.values()) == sorted(found.values()), found
    assert found[16] > found[0] + 0.15, found
    assert found[2] > found[0] + 0.08, found
    gap = [group.embedding_BKH[16:, 0] - group.embedding_BKH[16:, 1] for group in unseen]
    knowing = sum(
        float((one @ weight_H > 0).float().mean()) for one, weight_H in zip(gap, weight_GH, strict=True)
    )
    assert found[16] < knowing / len(unseen), "nobody predicts better than who knows the taste"
    for shown, ahead in ((2, 0.08), (4, 0.05), (8, 0.03)):
        assert found[shown] > _regression_accuracy(unseen, shown) + ahead, (shown, found)


@pytest.mark.slow
def test_opposite_groups_cancel_out_until_one_of_them_speaks() -> None:
    """Two groups want the opposite: without a context the chance is one half and the loss log 2."""
    embedding_B2H = normal(60, 2, 4, seed=3).float()
    first = embedding_B2H[:, 0, 0] > embedding_B2H[:, 1, 0]
    sorted_B2H = torch.where(first[:, None, None], embedding_B2H, embedding_B2H.flip(1))
    pair = [choice_items("more", sorted_B2H), choice_items("less", sorted_B2H.flip(1))]
    model = _trained(pair, steps=120, most=4)
    some = [Episode(group=g, context=(), targets=tuple(range(16, 60))) for g in (0, 1)]
    with torch.no_grad():
        loss_EB = target_losses(model, collate_episodes(pair, some))
    assert float(loss_EB.mean()) == pytest.approx(0.6931, abs=0.03)
    assert _accuracy(model, pair, 0) == pytest.approx(0.5, abs=1e-6)
    assert _accuracy(model, pair, 2) > 0.9


@pytest.mark.slow
def test_ratings_of_a_group_are_learnt_with_their_spread() -> None:
    """Groups differ by a level of their own; what is left is noise of 0.3."""
    generator = torch.Generator().manual_seed(0)
    groups = [
        rating_items(
            str(g),
            torch.randn(30, 3, generator=generator),
            torch.randn((), generator=generator) + 0.3 * torch.randn(30, generator=generator),
        )
        for g in range(80)
    ]
    model = _trained(groups[:60], steps=80)
    some = [Episode(group=g, context=tuple(range(12)), targets=tuple(range(16, 30))) for g in range(60, 80)]
    batch = collate_episodes(groups, some)
    with torch.no_grad():
        predicted = model(batch.context, batch.target_EBKH.flatten(1, 2))
        blind = predicted_scores(model, collate_episodes(groups, [replace(one, context=()) for one in some]))
    error = (predicted.score_EN - batch.label_EBK[..., 0]).square().mean().sqrt()
    print(
        float(error),
        float((blind - batch.label_EBK).square().mean().sqrt()),
        predicted.log_std_EN.exp().mean(),
    )
    assert float(error) < 0.45
    assert float((blind - batch.label_EBK).square().mean().sqrt()) > 0.7
    assert float(predicted.log_std_EN.exp().mean()) == pytest.approx(0.33, abs=0.12)
