"""Episodes: a group and a context size are drawn uniformly, no item twice, and padding counts nothing."""

import pytest
import torch

from plaudit.errors import UserError
from plaudit.methods.reward_model.group_preference import (
    Episode,
    EpisodeSettings,
    choice_items,
    collate_episodes,
    sample_episode,
    target_losses,
)
from tests.models.group_modules import H, module, normal


def test_an_episode_is_a_pure_function_of_seed_and_step() -> None:
    settings = EpisodeSettings(least=0, most=4, targets=0)
    drawn = [sample_episode([10, 3, 7], settings, seed=3, step=step) for step in range(3000)]
    assert drawn[17] == sample_episode([10, 3, 7], settings, seed=3, step=17)
    assert drawn[17] != sample_episode([10, 3, 7], settings, seed=4, step=17)
    for one in drawn:
        size = [10, 3, 7][one.group]
        assert sorted((*one.context, *one.targets)) == list(range(size)), "every other item is a target"
        assert len(one.targets) >= 1
    for group, sizes in ((0, 5), (1, 3), (2, 5)):
        own = [len(one.context) for one in drawn if one.group == group]
        assert len(own) / 3000 == pytest.approx(1 / 3, abs=0.04), "groups are drawn uniformly"
        shares = [own.count(m) / len(own) for m in range(sizes)]
        assert shares == pytest.approx([1 / sizes] * sizes, abs=0.06), "and so are context sizes"
    assert {
        len(sample_episode([10], EpisodeSettings(targets=2), seed=0, step=s).targets) for s in range(50)
    } == {1, 2}


def test_what_no_episode_can_be_drawn_from_is_refused() -> None:
    with pytest.raises(UserError, match="group 1 has 2 judgements, fewer than the 2 to show"):
        sample_episode([5, 2], EpisodeSettings(least=2, most=4), seed=0, step=0)
    with pytest.raises(UserError, match="0 ≤ least ≤ most"):
        EpisodeSettings(least=3, most=2)
    with pytest.raises(UserError, match="at most -1 targets"):
        EpisodeSettings(targets=-1)
    with pytest.raises(UserError, match="two answers or more"):
        choice_items("one", torch.zeros(4, 1, 8))


def test_gathered_episodes_say_what_each_says_alone() -> None:
    groups = [choice_items(str(k), normal(8, 2, H, seed=k)) for k in range(2)]
    some = [
        Episode(group=1, context=(3, 1, 0), targets=(5,)),
        Episode(group=0, context=(), targets=(2, 6, 7)),
        Episode(group=0, context=(4,), targets=(0, 1)),
    ]
    model, batch = module(), collate_episodes(groups, some)
    assert batch.mask_EB.sum(-1).tolist() == [1, 3, 2]
    assert batch.context.mask_EM.sum(-1).tolist() == [6, 0, 2]
    loss_EB = target_losses(model, batch)
    assert not bool(loss_EB[~batch.mask_EB].any())
    for e, one in enumerate(some):
        alone_EB = target_losses(model, collate_episodes(groups, [one]))
        torch.testing.assert_close(loss_EB[e][batch.mask_EB[e]], alone_EB[0], rtol=0, atol=1e-12)
    shown = collate_episodes(groups, [some[0]]).context
    assert shown.preference_EM.tolist() == [[1.0, -1.0] * 3]
    torch.testing.assert_close(shown.embedding_EMH[0, 2], groups[1].embedding_BKH[1, 0])
