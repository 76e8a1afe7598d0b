"""What a model computes: healthy ones pass, and each way to break one is seen and named."""

from dataclasses import replace

import pytest

from plaudit.engine.settings import MemorySettings
from plaudit.models.settings import LoraSettings
from plaudit.preflight.check import run_checks
from plaudit.preflight.logprobs import CHECKS
from plaudit.preflight.rewards import check_reward_position
from tests.preflight import breakers_scoring as broken
from tests.preflight.subjects import healthy, says_only

LEAN = {"dropout", "padding-side", "packing", "shared-prompt"}
DRAWN = LoraSettings(rank=2, dropout=0.1)
SPEAKS = LEAN | {"base-loss"}
GRADIENTS = {"micro-batches", "accumulation", "ranks"}
"""What fails, too, where a row hangs on its neighbours."""


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("method", "settings", "passes"),
    [
        ("sft", {}, SPEAKS),
        ("reward", {}, LEAN),
        ("dpo", {}, SPEAKS | {"initial-kl"}),
        pytest.param("kto", {}, SPEAKS | {"initial-kl"}, marks=pytest.mark.slow),
        ("grpo", {}, LEAN | {"initial-kl"}),
        ("sft", {"dtype": "bfloat16"}, SPEAKS | {"bf16"}),
        pytest.param("reward", {"dtype": "bfloat16"}, LEAN | {"bf16"}, marks=pytest.mark.slow),
        pytest.param("sft", {"dtype": "float64"}, SPEAKS, marks=pytest.mark.slow),
        pytest.param("dpo", {"family": "gpt2"}, SPEAKS | {"initial-kl"}, marks=pytest.mark.slow),
        pytest.param("dpo", {"lora": LoraSettings(rank=2)}, SPEAKS | {"initial-kl"}, marks=pytest.mark.slow),
        pytest.param("grpo", {"lora": LoraSettings(rank=2)}, LEAN | {"initial-kl"}, marks=pytest.mark.slow),
        ("sft", {"lora": DRAWN}, SPEAKS),
        pytest.param("reward", {"lora": DRAWN}, LEAN, marks=pytest.mark.slow),
        ("sft", {"memory": MemorySettings(layout="left")}, SPEAKS - {"packing", "shared-prompt"}),
        pytest.param("sft", {"memory": MemorySettings(checkpointing=True)}, SPEAKS, marks=pytest.mark.slow),
    ],
)
def test_a_healthy_model_passes(tmp_path, method, settings, passes):
    with healthy(method, tmp_path, **settings) as subject:
        found = {one.check.name: one.result for one in run_checks(subject, CHECKS)}
        assert {name for name, result in found.items() if result.holds} == passes
        assert not {name for name, result in found.items() if result.holds is False}


def test_where_a_reward_is_read_is_seen_in_all_digits(tmp_path):
    with healthy("reward", tmp_path, dtype="bfloat16") as subject:
        assert float(check_reward_position(subject).details.rpartition(" ")[2]) < 1e-5


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("method", "breaks", "named", "fails", "settings"),
    [
        ("sft", broken.with_dropout, "layers.0.mlp.1", {"dropout"}, {}),
        pytest.param(
            "reward", broken.with_dropout, "layers.0.mlp.1", {"dropout"}, {}, marks=pytest.mark.slow
        ),
        (
            "sft",
            broken.with_dropout,
            "draw: model.base_model.model.model.layers.0.mlp.1",
            {"dropout"},
            {"lora": DRAWN},
        ),
        ("dpo", broken.with_another_reference, "nats a token", {"initial-kl"}, {}),
        pytest.param(
            "grpo", broken.with_another_reference, "nats a token", {"initial-kl"}, {}, marks=pytest.mark.slow
        ),
        ("sft", broken.blind_to_padding, "padded on the left", {"padding-side"}, {}),
        ("reward", broken.blind_to_padding, "padded on the left", {"padding-side", "reward-position"}, {}),
        ("sft", broken.counting_the_padding, "padded on the left", {"padding-side"}, {"family": "gpt2"}),
        ("sft", broken.rows_that_see_each_other, "packed", {"packing", "shared-prompt", *GRADIENTS}, {}),
        (
            "reward",
            broken.rows_that_see_each_other,
            "packed",
            {"packing", "shared-prompt", "reward-position", "reward-order", "reward-batching", *GRADIENTS},
            {},
        ),
        ("sft", broken.answers_that_see_each_other, "behind one prompt", {"shared-prompt"}, {}),
        ("sft", broken.without_digits, "bfloat16 and float32", {"bf16", "base-loss"}, {"dtype": "bfloat16"}),
    ],
)
def test_a_broken_model_is_named(tmp_path, method, breaks, named, fails, settings):
    with healthy(method, tmp_path, **settings) as subject:
        says_only(breaks(subject), named, fails)


def test_a_look_leaves_the_layout_as_it_was(tmp_path):
    with healthy("sft", tmp_path) as subject:
        assert subject.policy is not None
        assert [*run_checks(subject, CHECKS)]
        assert subject.policy.layout == "packed"
        assert subject.policy.backbone.share_prompts
        assert subject.policy.training


def test_a_reference_that_is_another_model_is_not_compared(tmp_path):
    with healthy("dpo", tmp_path) as subject:
        other = replace(subject, same_reference=False)
        [seen] = [one.result for one in run_checks(other, CHECKS) if one.check.name == "initial-kl"]
    assert seen.holds is None
    assert "another model" in seen.details


def test_where_there_is_no_row_nothing_is_said(tmp_path):
    with healthy("grpo", tmp_path) as subject:
        assert {one.result.holds for one in run_checks(replace(subject, records=()), CHECKS)} == {None}
