"""Checks of the sampler: they hold on sound models of every kind, and each fault is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from plaudit.methods.policy.config import DrawSettings
from plaudit.models.settings import LoraSettings
from plaudit.preflight import exact_sampling, sampling
from plaudit.preflight.check import run_checks
from plaudit.rollouts.drawing import sample_tokens
from plaudit.rollouts.sampler import Answer, Rollout, SamplingSettings
from tests.engine.toy import demonstrations
from tests.preflight.breakers_sampling import BROKEN, Broken, sharp
from tests.preflight.subjects import failing, healthy
from tests.rollouts.talkers import write_talker

EVERY = {check.name for check in sampling.CHECKS}
SOUND: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "truncated": {"draw": DrawSettings(temperature=0.7, top_k=40, top_p=0.9, min_p=0.01)},
    "adapted": {"lora": LoraSettings(rank=4)},
    "in half the digits": {"dtype": "bfloat16", "draw": DrawSettings(top_p=0.9)},
    "in twice the digits": {"dtype": "float64", "draw": DrawSettings(top_p=0.9)},
}


def _seen(subject: Any) -> dict[str, Any]:
    return {one.check.name: one.result for one in run_checks(subject, sampling.CHECKS)}


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=[pytest.mark.slow] if "digits" in how else []) for how in SOUND]
)
def test_sound_samplers_pass(tmp_path: Path, how: str) -> None:
    with healthy("grpo", tmp_path, model=sharp(tmp_path / "sharp"), **SOUND[how]) as subject:
        found = _seen(subject)
    assert all(one.holds for one in found.values()), found
    assert set(found) == EVERY


@pytest.mark.parametrize(
    "name",
    ["qwen2", "gpt2", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gemma2", "cohere", "phi"))],
)
def test_sound_samplers_of_every_family_pass(tmp_path: Path, name: str) -> None:
    folder = write_talker(tmp_path / "model", name, stops=(2, 3))
    with healthy("grpo", tmp_path, model=folder, draw=DrawSettings(max_tokens=8)) as subject:
        found = _seen(subject)
    assert all(one.holds for one in found.values()), found


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_broken_sampler_is_named_and_nothing_else(tmp_path: Path, broken: Broken) -> None:
    with healthy("grpo", tmp_path, model=sharp(tmp_path / "sharp"), **broken.settings) as subject:
        found = failing(broken.spoil(subject))
    assert set(found) == broken.fails, found
    assert any(broken.says in saw for saw in found.values()), found


@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_where_nothing_is_sampled_only_ends_are_looked_at(tmp_path: Path, method: Any) -> None:
    with healthy(method, tmp_path, model=sharp(tmp_path / "sharp")) as subject:
        found = _seen(subject)
    assert {name for name, one in found.items() if one.holds} == {"stop-tokens"}
    assert {name for name, one in found.items() if one.holds is None} == EVERY - {"stop-tokens"}
    assert "(1)" in found["stop-tokens"].details


@pytest.mark.parametrize("method", ["sft", "grpo"])
def test_a_word_that_ends_answers_is_named(tmp_path: Path, method: Any) -> None:
    folder = sharp(tmp_path / "sharp")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    word = tokenizer.encode(demonstrations(1)[0]["completion"], add_special_tokens=False)[0]
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"eos_token_id": [2, word]}))
    with healthy(method, tmp_path, model=folder) as subject:
        found = _seen(subject)["stop-tokens"]
    assert found.holds is False
    assert found.details.startswith(
        f"{tokenizer.convert_ids_to_tokens(word)!r} ({word}) is declared as an end"
    )
    assert ("in the middle of an answer of sft.jsonl:" in found.details) == (method == "sft")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("more", [{}, {"lora": LoraSettings(rank=4)}], ids=["whole", "adapted"])
def test_the_policy_is_bit_by_bit_as_before(tmp_path: Path, more: dict[str, Any]) -> None:
    with healthy("grpo", tmp_path, **more) as subject:
        assert subject.policy is not None
        before = {name: value.clone() for name, value in subject.policy.state_dict().items()}
        chance, training = torch.get_rng_state(), subject.policy.training
        _seen(subject)
        after = subject.policy.state_dict()
        assert subject.policy.training == training
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert torch.equal(chance, torch.get_rng_state())


@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(),
        SamplingSettings(temperature=0.5, top_k=7),
        SamplingSettings(top_p=0.6),
        SamplingSettings(temperature=1.7, min_p=0.3),
        SamplingSettings(top_k=30, top_p=0.8, min_p=0.05),
        SamplingSettings(temperature=0),
    ],
    ids=str,
)
def test_log_probs_written_out_in_full_are_those_of_a_sound_draw(settings: SamplingSettings) -> None:
    chance = torch.Generator().manual_seed(3)
    logits_TV = 3 * torch.randn(200, 50, generator=chance)
    drawn = sample_tokens(logits_TV, torch.rand(200, dtype=torch.float64, generator=chance), settings)
    rollout = Rollout(
        prompt=(1,),
        ids=tuple(drawn.token_N.tolist()),
        logp=tuple(drawn.logp_N.tolist()),
        whole_logp=tuple(drawn.whole_logp_N.tolist()),
        answer=Answer(text="", tokens=200, ended=False),
    )
    found = exact_sampling.logprob_errors(logits_TV.double(), rollout, settings, slack=1e-6)
    assert max(float(found.logp_T.max()), float(found.whole_T.max())) < 1e-5
    assert not found.excluded_tokens


def test_a_token_on_the_border_may_be_in_or_out() -> None:
    settings = SamplingSettings(top_p=0.75)
    sorted_TV = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64).log()
    assert exact_sampling.sampling_filter_mask(sorted_TV, settings, -1e-3).tolist() == [[True, True, False]]
    assert exact_sampling.sampling_filter_mask(sorted_TV, settings, 1e-3).tolist() == [[True, True, True]]
    for logp in (0.5 / 0.75, 0.5):
        rollout = Rollout(
            prompt=(1,),
            ids=(0,),
            logp=(float(torch.tensor(logp).double().log()),),
            whole_logp=(float(sorted_TV[0, 0]),),
            answer=Answer(text="", tokens=1, ended=False),
        )
        assert float(exact_sampling.logprob_errors(sorted_TV, rollout, settings, slack=1e-3).logp_T) < 1e-6


def test_the_p_value_is_uniform_over_seeds_of_a_sound_draw_and_nothing_for_a_wrong_one() -> None:
    chance = torch.Generator().manual_seed(0)
    logits_1V = torch.randn(1, 40, generator=chance, dtype=torch.float64)
    p_V = exact_sampling.sampling_probabilities(logits_1V, SamplingSettings(top_p=0.9))
    assert float(p_V.sum()) == pytest.approx(1)
    counts = [torch.multinomial(p_V, 512, True, generator=chance).bincount(minlength=40) for _ in range(200)]
    values = sorted(exact_sampling.chi_square_test(count_V, p_V).p for count_V in counts)
    assert values[0] > 1e-4
    assert abs(sum(values) / len(values) - 0.5) < 0.08
    other_V = exact_sampling.sampling_probabilities(logits_1V, SamplingSettings(temperature=0.5))
    assert max(exact_sampling.chi_square_test(count_V, other_V).p for count_V in counts) < 1e-6
