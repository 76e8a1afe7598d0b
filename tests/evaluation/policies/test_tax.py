"""The alignment tax: item by item, by hand, and of a model that was damaged."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import binomtest

from plaudit.errors import UserError
from plaudit.evaluation.policies.drawn import Asked, Drawing, load_speaker
from plaudit.evaluation.policies.tax import Item, asked_items, paired
from plaudit.evaluation.resample import wilson
from plaudit.rewards.named import reward_named
from plaudit.world.prompts import questions
from plaudit.world.shipped import SHIPPED
from tests.evaluation.policies.duels import DRAWS


def items(*scores, task="sums", prompts=None):
    return [
        Item(task=task, name=f"{n}", prompt=f"{n if prompts is None else prompts[n]}", score=score)
        for n, score in enumerate(scores)
    ]


def test_by_hand():
    [found] = paired(items(1.0, 1.0, 0.0, 1.0, None), items(1.0, 0.0, 1.0, 0.0, 1.0), DRAWS)
    assert (found.task, found.gained, found.lost, found.unscored) == ("sums", 1, 2, 1)
    assert (found.before.value, found.after.value, found.change.value) == (0.75, 0.5, -0.25)
    assert found.p_value == 1.0
    assert found.change.n == 4


def test_the_difference_is_taken_item_by_item():
    """Of 200 items that are hard or easy for both, the same twenty are lost: far from chance."""
    hard = np.random.default_rng(0).random(200) < 0.5
    after = hard & ~((np.arange(200) % 5 == 0) & hard)
    [found] = paired(items(*hard.astype(float)), items(*after.astype(float)), DRAWS)
    apart = paired(items(*hard.astype(float)), items(*np.roll(after, 7).astype(float)), DRAWS)[0]
    assert found.change.value == apart.change.value
    assert found.change.high - found.change.low < 0.7 * (apart.change.high - apart.change.low)
    assert found.p_value == pytest.approx(max(binomtest(0, found.lost).pvalue, 2e-4), rel=0.1)


def test_the_gate_closes_on_a_sure_loss_and_opens_on_none():
    before = items(*[1.0] * 100)
    worse, same = items(*[0.0] * 30, *[1.0] * 70), items(*[1.0] * 97, *[0.0] * 3)
    [lost], [kept] = paired(before, worse, DRAWS), paired(before, same, DRAWS)
    assert lost.regressed(0.1)
    assert lost.regressed(0)
    assert not lost.regressed(0.3)
    assert not lost.kept(0.1)
    assert kept.kept(0.1)
    assert not kept.regressed(0.1)
    assert not kept.kept(0.01)


def test_nothing_lost_in_a_few_items_is_not_yet_nothing_lost():
    [few] = paired(items(1.0, 0.0, 1.0), items(1.0, 0.0, 1.0), DRAWS)
    width = wilson(0.0, 3)[1]
    assert (few.change.low, few.change.high) == (-width, width)
    assert not few.kept(0.05)
    [many] = paired(items(*[1.0] * 200), items(*[1.0] * 200), DRAWS)
    assert many.kept(0.05)
    [gone] = paired(items(*[1.0] * 10), items(*[0.0] * 10), DRAWS)
    assert gone.change.low == -1
    assert gone.regressed(0.5)


def test_one_prompt_gives_no_interval_and_many_items_of_it_no_more():
    [found] = paired(items(1.0, 1.0, prompts="aa"), items(0.0, 0.0, prompts="aa"), DRAWS)
    assert (found.change.low, found.change.prompts, found.p_value) == (None, 1, 1.0)
    assert found.regressed(0.5)
    assert not found.kept(1.0)


def test_several_tasks_are_told_in_order_and_their_p_values_by_holm():
    before = items(*[1.0] * 12) + items(*[0.5] * 4, task="words")
    after = items(*[0.0] * 12) + items(*[0.7] * 4, task="words")
    sums, words = paired(before, after, DRAWS)
    assert (sums.task, words.task) == ("sums", "words")
    assert sums.p_value == pytest.approx(2 * 2 / 2**12)
    assert words.p_value == pytest.approx(2 / 2**4)
    assert paired([], [], DRAWS) == ()


def test_scores_that_are_no_shares_have_their_own_intervals():
    [found] = paired(items(*[0.0] * 5, -3.0), items(*[0.0] * 5, -3.0), DRAWS)
    assert found.change.low == -3 * wilson(0.0, 6)[1]
    assert found.before.high <= 0.0


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (items(1.0, 1.0), items(1.0), "'1' was asked only before"),
        (items(1.0), items(1.0, 1.0), "'1' was asked only after"),
        (items(1.0), items(1.0, task="other"), "'0' was asked only before"),
        (items(1.0) * 2, items(1.0), "'0' is there twice"),
        (items(None), items(1.0), "no item has a verdict both"),
    ],
)
def test_unlike_items_are_refused(before, after, why):
    with pytest.raises(UserError, match=why):
        paired(before, after, DRAWS)


def test_a_damaged_model_is_found_to_have_regressed(tmp_path):
    damaged = shutil.copytree(SHIPPED, tmp_path / "damaged")
    [weights] = damaged.glob("*.safetensors")
    tensors = load_file(weights)
    chance = torch.Generator().manual_seed(0)
    for name, tensor in tensors.items():
        if tensor.ndim == 2:
            tensors[name] = torch.randn(tensor.shape, generator=chance).to(tensor.dtype) * tensor.std()
    save_file(tensors, weights, metadata={"format": "pt"})
    asked = [Asked(prompt=one.messages, truth=one.answer) for one in questions("test", "arithmetic")[:24]]
    said = {}
    for name, folder in (("before", SHIPPED), ("again", SHIPPED), ("after", damaged)):
        speaker = load_speaker(folder, Drawing(device="cpu"))
        said[name] = asked_items("sums", speaker, asked, reward_named("number"), max_tokens=24)
    [same] = paired(said["before"], said["again"], DRAWS)
    [worse] = paired(said["before"], said["after"], DRAWS)
    assert (same.change.value, same.p_value) == (0.0, 1.0)
    assert worse.before.value > 0.3
    assert worse.regressed(0.1)
    assert not worse.kept(0.1)
