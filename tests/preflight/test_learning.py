"""What a step does: healthy runs pass, each way to break one is named, and nothing is left changed."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from plaudit.engine.checkpoint.state import capture_rng_state
from plaudit.engine.settings import MemorySettings, OptimizerSettings
from plaudit.methods.policy.held_out import RolloutTrial
from plaudit.models.settings import LoraSettings
from plaudit.preflight import updates
from plaudit.preflight.check import run_checks
from plaudit.preflight.samples import make_trial_step
from tests.preflight import breakers_learning as broken
from tests.preflight.subjects import healthy, says_only

CHECKS = (*updates.GRADIENT_CHECKS, *updates.CHECKS)
SUMS = {"micro-batches", "accumulation", "ranks"}
"""What fails where parts do not add up."""
ALL = SUMS | {"gradient-flow", "overfits", "checkpoint"}
"""What a run without adapters can be asked."""
ADAPTED = ALL - {"gradient-flow"} | {"adapters"}
"""What a run with adapters can be asked."""


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("method", "settings", "passes"),
    [
        ("sft", {}, ALL),
        ("reward", {}, ALL),
        pytest.param("reward", {"family": "gpt2"}, ALL, marks=pytest.mark.slow),
        ("dpo", {}, ALL),
        pytest.param("kto", {}, ALL, marks=pytest.mark.slow),
        ("grpo", {}, ALL),
        ("ppo", {}, ALL),
        ("sft", {"lora": LoraSettings(rank=2, dropout=0.1)}, ADAPTED),
        pytest.param("reward", {"lora": LoraSettings(rank=2, dropout=0.1)}, ADAPTED, marks=pytest.mark.slow),
        pytest.param("grpo", {"lora": LoraSettings(rank=2)}, ADAPTED, marks=pytest.mark.slow),
        pytest.param("dpo", {"dtype": "bfloat16"}, ALL, marks=pytest.mark.slow),
        pytest.param("sft", {"dtype": "float64"}, ALL, marks=pytest.mark.slow),
        pytest.param("sft", {"optimizer": OptimizerSettings(name="sgd")}, ALL, marks=pytest.mark.slow),
        pytest.param("sft", {"memory": MemorySettings(checkpointing=True)}, ALL, marks=pytest.mark.slow),
        ("dpo", {"memory": MemorySettings(layout="right", tokens_at_once=16)}, ALL),
    ],
)
def test_a_healthy_run_passes(tmp_path, method, settings, passes):
    with healthy(method, tmp_path, **settings) as subject:
        found = {one.check.name: one.result for one in run_checks(subject, CHECKS)}
    assert not {name: result.details for name, result in found.items() if result.holds is False}
    assert {name for name, result in found.items() if result.holds} == passes


@pytest.mark.one_in(9)
@pytest.mark.parametrize(
    ("method", "breaks", "named", "fails", "settings"),
    [
        ("sft", broken.dividing_by_the_piece, "row by row", SUMS, {}),
        ("dpo", broken.dividing_by_the_rows, "row by row", SUMS, {}),
        pytest.param("reward", broken.dividing_by_the_rows, "row by row", SUMS, {}, marks=pytest.mark.slow),
        ("grpo", broken.dividing_by_the_groups, "row by row", SUMS, {}),
        ("sft", broken.reporting_by_the_piece, "the reported loss", {"accumulation"}, {}),
        ("sft", broken.teaching_without_rows, "a rank without rows", {"ranks"}, {}),
        ("sft", broken.cut_off, "layers.0.mlp", {"gradient-flow"}, {}),
        ("dpo", broken.uphill, "does not fall", {"overfits"}, {}),
        pytest.param("reward", broken.uphill, "does not fall", {"overfits"}, {}, marks=pytest.mark.slow),
        ("sft", broken.moving_nothing, "moves no weight", {"overfits"}, {}),
        ("sft", broken.forgetting, "after a stop", {"checkpoint"}, {}),
        ("sft", broken.learning_beneath, "input_layernorm", {"adapters"}, {"lora": LoraSettings(rank=2)}),
        ("dpo", broken.adapters_held, "layers.1", {"adapters"}, {"lora": LoraSettings(rank=2)}),
    ],
)
def test_a_broken_step_is_named(tmp_path, method, breaks, named, fails, settings):
    with healthy(method, tmp_path, **settings) as subject:
        says_only(breaks(subject), named, fails)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("method", "settings"),
    [("sft", {}), ("ppo", {}), ("dpo", {"lora": LoraSettings(rank=2)}), ("reward", {})],
)
def test_nothing_is_left_changed(tmp_path, method, settings):
    with healthy(method, tmp_path, **settings) as subject:
        assert subject.job is not None
        module = subject.job.module
        before = _state(module)
        assert [*run_checks(subject, CHECKS)]
        after = _state(module)
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Weights to the last bit, what learns, modes, gradients and chance."""
    return {
        **{name: value.clone() for name, value in module.state_dict().items()},
        **{f"{name} learns": torch.tensor(one.requires_grad) for name, one in module.named_parameters()},
        "modes": torch.tensor([inner.training for inner in module.modules()]),
        "gradients": torch.tensor([one.grad is not None for one in module.parameters()]),
        "torch": torch.get_rng_state(),
        "numpy": capture_rng_state()["numpy_words"],
    }


def test_a_checkpoint_of_a_large_model_holds_the_small_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(updates, "MAX_CHECKPOINT_BYTES", 20_000)
    with healthy("sft", tmp_path) as subject:
        seen = updates.check_checkpoint_resume(subject)
    assert seen.holds
    assert "largest were held still" in seen.details


def test_a_round_that_is_tried_is_none_of_the_run(tmp_path):
    with healthy("grpo", tmp_path) as subject:
        trial = subject.trial
        assert isinstance(trial, RolloutTrial)
        rounds = trial.rounds
        before = rounds.tensors()
        tried = make_trial_step(subject)
        assert tried is not None
        assert "a round of 4 short answers" in tried.description
        assert rounds.current is None
        assert torch.equal(before["memory"], rounds.tensors()["memory"])


def test_answers_that_are_all_alike_are_called_good_and_bad(tmp_path):
    with healthy("grpo", tmp_path, reward="length:1-999") as subject:
        tried = make_trial_step(subject)
        assert tried is not None
        assert "good and bad in turn" in tried.description
        seen = updates.check_microbatches(subject)
    assert seen.holds


def test_where_no_group_is_left_likelihood_is_learnt(tmp_path):
    with healthy("grpo", tmp_path, reward="length:1-999") as subject:
        trial = subject.trial
        assert isinstance(trial, RolloutTrial)
        rounds = trial.rounds
        unlike = replace(rounds, collector=replace(rounds.collector, dynamic_sampling=True))
        alike = replace(subject, trial=replace(trial, rounds=unlike))
        tried = make_trial_step(alike)
        assert tried is not None
        assert tried.description == "likelihood of 4 prompts continued"
        seen = updates.check_microbatches(alike)
    assert seen.holds


def test_nothing_is_compared_where_there_is_no_gradient(tmp_path):
    with healthy("sft", tmp_path) as subject:
        assert subject.job is not None
        objective = subject.job.objective

        def nothing(piece: Any) -> Any:
            terms = objective(piece)
            return replace(terms, loss=0.0 * terms.loss)

        lazy = replace(subject, job=replace(subject.job, objective=nothing))
        seen = {one.check.name: one.result.holds for one in run_checks(lazy, CHECKS)}
    assert seen["micro-batches"] is seen["accumulation"] is seen["ranks"] is seen["overfits"] is None
    assert seen["gradient-flow"] is False
