"""Checks of the reward: they hold for rules, functions and reward models, and each fault is named."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plaudit.preflight import rewards
from plaudit.preflight.check import run_checks
from plaudit.preflight.checks import CHECKS
from tests.engine.toy import TEMPLATE, write_rows
from tests.preflight import breakers_rewarding
from tests.preflight.subjects import failing, healthy, make_model_with_bos
from tests.rewards.server import lengths, serving

OF_MODELS = {"reward-position", "reward-template"}
EVERY = {check.name for check in rewards.CHECKS}


def _seen(subject: Any) -> dict[str, Any]:
    return {one.check.name: one.result for one in run_checks(subject, rewards.CHECKS)}


@pytest.mark.parametrize("method", ["grpo", pytest.param("ppo", marks=pytest.mark.slow)])
@pytest.mark.parametrize("reward", ["length:1-20", "letters"])
def test_sound_rules_and_functions_pass(tmp_path: Path, method: Any, reward: str) -> None:
    word = f"{breakers_rewarding.write_functions(tmp_path)}:letters" if reward == "letters" else reward
    with healthy(method, tmp_path, reward=word) as subject:
        found = _seen(subject)
    assert {name for name, one in found.items() if one.holds} == EVERY - OF_MODELS, found
    assert {name for name, one in found.items() if one.holds is None} == OF_MODELS


@pytest.mark.parametrize("family", ["llama", pytest.param("gpt2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("layout", ["packed", "left", "right"])
def test_a_sound_reward_model_that_learns_passes(tmp_path: Path, family: str, layout: Any) -> None:
    with healthy("reward", tmp_path, family=family) as subject:
        assert subject.scorer is not None
        subject.scorer.use_layout(layout)
        found = _seen(subject)
        assert subject.scorer.layout == layout
    assert all(one.holds for name, one in found.items() if name != "reward-template"), found
    assert found["reward-template"].holds is None


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("template", "told"),
    [(TEMPLATE, "the policy's template"), (breakers_rewarding.SHOUTS, "template of its own")],
)
def test_a_sound_reward_model_that_scores_a_policy_passes(tmp_path: Path, template: str, told: str) -> None:
    base = make_model_with_bos(tmp_path / "base")
    folder = breakers_rewarding.scorer_folder(base, tmp_path / "reward", template)
    with healthy("ppo", tmp_path, model=base, reward=str(folder)) as subject:
        found = _seen(subject)
    assert all(one.holds for one in found.values()), found
    assert told in found["reward-template"].details


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", breakers_rewarding.FUNCTIONS)
def test_a_function_that_is_wrong_is_named(tmp_path: Path, name: str) -> None:
    fails, says = breakers_rewarding.FUNCTIONS[name]
    with healthy(
        "grpo", tmp_path, reward=f"{breakers_rewarding.write_functions(tmp_path)}:{name}"
    ) as subject:
        found = failing(subject)
    assert set(found) == fails, found
    assert any(says in saw for saw in found.values()), found


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", breakers_rewarding.MIXES)
def test_scores_that_are_mixed_up_are_named(tmp_path: Path, name: str) -> None:
    mix, fails, says = breakers_rewarding.MIXES[name]
    with healthy(
        "grpo", tmp_path, reward=f"{breakers_rewarding.write_functions(tmp_path)}:letters"
    ) as subject:
        assert subject.reward is not None
        found = failing(replace(subject, reward=breakers_rewarding.Mixed(reward=subject.reward, mix=mix)))
    assert set(found) == fails, found
    assert any(says in saw for saw in found.values()), found


def test_an_endpoint_is_asked_little_and_before_a_run_not_at_all(tmp_path: Path) -> None:
    with serving(lengths) as server, healthy("grpo", tmp_path, reward=server.url) as subject:
        list(run_checks(subject, [check for check in CHECKS.values() if check.at_start]))
        assert not server.asked
        found = _seen(subject)
        answers = sum(len(one["answers"]) for one in server.asked)
    assert {name for name, one in found.items() if one.holds} == EVERY - OF_MODELS, found
    assert answers <= 50


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", [breakers_rewarding.reads_the_end, breakers_rewarding.reads_one_early])
def test_a_reward_model_that_is_read_elsewhere_is_named(tmp_path: Path, kind: Any) -> None:
    with healthy("reward", tmp_path) as subject:
        found = failing(breakers_rewarding.misread(subject, kind))
    assert "at its answer's last token" in found["reward-position"]
    assert set(found) == {"reward-position"} | (
        {"reward-batching"} if kind is breakers_rewarding.reads_the_end else set()
    ), found


def test_padding_that_is_the_end_of_a_turn_is_named(tmp_path: Path) -> None:
    with healthy("reward", tmp_path) as subject:
        found = failing(breakers_rewarding.pads_with_the_end(subject))
    assert set(found) == {"reward-position"}, found
    assert "in transformers' own classifier" in found["reward-position"]


@pytest.mark.parametrize(
    ("template", "fails", "says"),
    [
        (breakers_rewarding.LOSES_WORDS, {"reward-template"}, "is not among what it is shown"),
        (None, {"reward-finite", "reward-template"}, "no chat template"),
    ],
)
def test_a_template_that_loses_words_or_is_missing_is_named(tmp_path, template, fails, says):
    base = make_model_with_bos(tmp_path / "base")
    folder = breakers_rewarding.scorer_folder(base, tmp_path / "reward", template)
    with healthy("grpo", tmp_path, model=base, reward=str(folder)) as subject:
        found = failing(subject)
    assert set(found) == fails, found
    assert says in found["reward-template"]


def test_control_tokens_that_are_read_as_letters_are_named(tmp_path: Path) -> None:
    base = make_model_with_bos(tmp_path / "base")
    other = make_model_with_bos(tmp_path / "other")
    breakers_rewarding.rename_control(other, "<|im_start|>", "<turn>")
    folder = breakers_rewarding.scorer_folder(other, tmp_path / "reward", None)
    prompts = write_rows(
        tmp_path / "rendered.jsonl", [{"prompt": f"<|im_start|>user\nthe {n} cats"} for n in range(8)]
    )
    with healthy("grpo", tmp_path, model=base, reward=str(folder), prompts=prompts) as subject:
        [one] = list(run_checks(subject, [CHECKS["reward-template"]]))
    assert one.result.holds is False
    assert "rendered.jsonl:1: the policy's control token '<|im_start|>'" in one.result.details
