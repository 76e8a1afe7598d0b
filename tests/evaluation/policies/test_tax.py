"""The alignment tax: item by item, by hand, and of a model that was damaged."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import binomtest

from plaudit.errors import UserError
from plaudit.evaluation.policies.alignment_tax import TaskItem, items_from_prompts, paired_changes
from plaudit.evaluation.policies.generate import EvaluationPrompt, GenerationSettings, load_policy_folder
from plaudit.evaluation.stats import wilson_interval
from plaudit.lab.world import SHIPPED_MODEL_FOLDER
from plaudit.lab.world.prompts import questions
from plaudit.rewards.registry import resolve_reward
from tests.evaluation.policies.duels import DRAWS


def items(*scores, task="sums", prompts=None):
    return [
        TaskItem(task=task, name=f"{n}", prompt=f"{n if prompts is None else prompts[n]}", score=score)
        for n, score in enumerate(scores)
    ]


def test_by_hand():
    [found] = paired_changes(items(1.0, 1.0, 0.0, 1.0, None), items(1.0, 0.0, 1.0, 0.0, 1.0), DRAWS)
    assert (found.task, found.gained, found.lost, found.unscored) == ("sums", 1, 2, 1)
    assert (found.before.value, found.after.value, found.change.value) == (0.75, 0.5, -0.25)
    assert found.p_value == 1.0
    assert found.change.n == 4


def test_the_difference_is_taken_item_by_item():
    """Of 200 items that are hard or easy for both, the same twenty are lost: far from chance."""
    hard = np.random.default_rng(0).random(200) < 0.5
    after = hard & ~((np.arange(200) % 5 == 0) & hard)
    [found] = paired_changes(items(*hard.astype(float)), items(*after.astype(float)), DRAWS)
    apart = paired_changes(items(*hard.astype(float)), items(*np.roll(after, 7).astype(float)), DRAWS)[0]
    assert found.change.value == apart.change.value
    assert found.change.high - found.change.low < 0.7 * (apart.change.high - apart.change.low)
    assert found.p_value == pytest.approx(max(binomtest(0, found.lost).pvalue, 2e-4), rel=0.1)


def test_the_gate_closes_on_a_sure_loss_and_opens_on_none():
    before = items(*[1.0] * 100)
    worse, same = items(*[0.0] * 30, *[1.0] * 70), items(*[1.0] * 97, *[0.0] * 3)
    [lost], [kept] = paired_changes(before, worse, DRAWS), paired_changes(before, same, DRAWS)
    assert not lost.retained(0.1)
    assert kept.retained(0.1)
    assert not kept.retained(0.01)


def test_nothing_lost_in_a_few_items_is_not_yet_nothing_lost():
    [few] = paired_changes(items(1.0, 0.0, 1.0), items(1.0, 0.0, 1.0), DRAWS)
    width = wilson_interval(0.0, 3)[1]
    assert (few.change.low, few.change.high) == (-width, width)
    assert not few.retained(0.05)
    [many] = paired_changes(items(*[1.0] * 200), items(*[1.0] * 200), DRAWS)
    assert many.retained(0.05)
    [gone] = paired_changes(items(*[1.0] * 10), items(*[0.0] * 10), DRAWS)
    assert gone.change.low == -1


def test_one_prompt_gives_no_interval_and_many_items_of_it_no_more():
    [found] = paired_changes(items(1.0, 1.0, prompts="aa"), items(0.0, 0.0, prompts="aa"), DRAWS)
    assert (found.change.low, found.change.prompts, found.p_value) == (None, 1, 1.0)
    assert not found.retained(1.0)


def test_several_tasks_are_told_in_order_and_their_p_values_by_holm():
    before = items(*[1.0] * 12) + items(*[0.5] * 4, task="words")
    sums, words = paired_changes(before, items(*[0.0] * 12) + items(*[0.7] * 4, task="words"), DRAWS)
    assert (sums.task, words.task) == ("sums", "words")
    assert sums.p_value == pytest.approx(2 * 2 / 2**12)
    assert words.p_value == pytest.approx(2 / 2**4)
    assert paired_changes([], [], DRAWS) == ()


def test_scores_that_are_no_shares_have_their_own_intervals():
    [found] = paired_changes(items(*[0.0] * 5, -3.0), items(*[0.0] * 5, -3.0), DRAWS)
    assert found.change.low == -3 * wilson_interval(0.0, 6)[1]
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
        paired_changes(before, after, DRAWS)


@pytest.mark.slow
def test_a_damaged_model_is_found_to_have_regressed(tmp_path):
    damaged = shutil.copytree(SHIPPED_MODEL_FOLDER, tmp_path / "damaged")
    [weights] = damaged.glob("*.safetensors")
    tensors = load_file(weights)
    chance = torch.Generator().manual_seed(0)
    for name, tensor in tensors.items():
        if tensor.ndim == 2:
            tensors[name] = torch.randn(tensor.shape, generator=chance).to(tensor.dtype) * tensor.std()
    save_file(tensors, weights, metadata={"format": "pt"})
    asked = [
        EvaluationPrompt(prompt=one.messages, reference_answer=one.answer)
        for one in questions("test", "arithmetic")[:24]
    ]
    said, folders = {}, {"before": SHIPPED_MODEL_FOLDER, "again": SHIPPED_MODEL_FOLDER, "after": damaged}
    for name, folder in folders.items():
        speaker = load_policy_folder(folder, GenerationSettings(device="cpu"))
        said[name] = items_from_prompts("sums", speaker, asked, resolve_reward("number"), max_tokens=24)
    [same] = paired_changes(said["before"], said["again"], DRAWS)
    [worse] = paired_changes(said["before"], said["after"], DRAWS)
    assert (same.change.value, same.p_value) == (0.0, 1.0)
    assert worse.before.value > 0.3
    assert not worse.retained(0.1)
