"""What is drawn is told as tokens, with the log-probs it was drawn with; nothing is made from text again."""

import json
import math
from dataclasses import asdict, replace
from itertools import chain, pairwise
from pathlib import Path

import pytest
import torch

from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Rollout, SamplingSettings, rollout_from_json, rollout_to_json
from plaudit.tokens.batch import Completion, Example, batch_of
from plaudit.tokens.encode import Encoder, make_encoder
from tests.rollouts.talkers import answered, write_talker

CPU = torch.device("cpu")
STOPS = (2, 20, 30, 40)
PROMPTS = ("w7", "w9 w40 w31 w50 w18", "w30 w31")
TRUNCATED = SamplingSettings(temperature=0.8, top_k=12, top_p=0.8, min_p=0.05, max_tokens=30, seed=3)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_talker(tmp_path, stops=STOPS)


def parts(folder: Path) -> tuple[Policy, Encoder]:
    return Policy(load_model(folder, dtype=torch.float32, device=CPU)), make_encoder(folder)


def scored(policy: Policy, group: list[Rollout], temperature: float) -> list[list[float]]:
    """What the trainer's own pass says of the drawn tokens."""
    completions = tuple(
        Completion(ids=one.ids, mask=(True,) * len(one.ids), finished=one.answer.ended) for one in group
    )
    example = Example(prompt=group[0].prompt, completions=completions)
    with torch.no_grad():
        logp_NT = policy.score(batch_of([example]), temperature=temperature).logp_NT
    return [row[: len(one.ids)].tolist() for row, one in zip(logp_NT, group, strict=True)]


@pytest.mark.parametrize("settings", [TRUNCATED, SamplingSettings(max_tokens=30)])
def test_log_probs_are_those_of_the_trainers_own_pass(folder: Path, settings: SamplingSettings) -> None:
    policy, encoder = parts(folder)
    groups = answered(LocalSampler.from_policy(policy, encoder), PROMPTS, settings, n=5)
    for group in groups:
        for one, wanted in zip(group, scored(policy, group, settings.temperature), strict=True):
            assert one.whole_logp == pytest.approx(wanted, abs=2e-5)
            assert all(kept >= whole - 1e-6 for kept, whole in zip(one.logp, one.whole_logp, strict=True))
            if settings.is_unrestricted:
                assert one.logp == pytest.approx(one.whole_logp, abs=1e-6)
            else:
                assert sum(one.logp) > sum(one.whole_logp)
    lengths = {len(one.ids) for group in groups for one in group}
    assert len(lengths) > 3, "answers of one length would not show who left"


def test_an_updated_policy_answers_with_its_new_weights(folder: Path) -> None:
    """Stale weights would give the old answers, with the old log-probs."""
    policy, encoder = parts(folder)
    sampler = LocalSampler.from_policy(policy, encoder)
    settings = SamplingSettings(max_tokens=12)
    before = answered(sampler, PROMPTS, settings, n=2)
    assert answered(sampler, PROMPTS, settings, n=2) == before
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.5)
    [example] = [
        Example(prompt=before[0][0].prompt, completions=(Completion(ids=(25,), mask=(True,), finished=True),))
    ]
    policy.score(batch_of([example])).logp_NT.sum().neg().backward()
    optimizer.step()
    after = answered(sampler, PROMPTS, settings, n=2)
    assert after != before
    for group in after:
        for one, wanted in zip(group, scored(policy, group, 1.0), strict=True):
            assert one.whole_logp == pytest.approx(wanted, abs=2e-5)


def test_a_policy_in_training_is_left_in_training(folder: Path) -> None:
    policy, encoder = parts(folder)
    policy.train()
    before = policy.base.config._attn_implementation
    answered(LocalSampler.from_policy(policy, encoder), PROMPTS, SamplingSettings(max_tokens=3))
    assert policy.model.training
    assert policy.base.config._attn_implementation == before
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    policy.score(
        batch_of([Example(prompt=(5,), completions=(Completion(ids=(7,), mask=(True,), finished=True),))])
    ).logp_NT.sum().backward()


def test_the_tokens_are_those_that_the_text_was_spelled_from(folder: Path) -> None:
    for group in answered(LocalSampler(folder), PROMPTS, SamplingSettings(max_tokens=40), n=8):
        for one in group:
            assert one.answer.tokens == len(one.ids) == len(one.logp) == len(one.whole_logp)
            assert one.answer.ended == (one.ids[-1] in STOPS)
            assert not {*one.ids[:-1]} & {*STOPS}
            assert one.answer.text.split() == [
                f"w{token}" for token in one.ids if token > 5 and token not in STOPS
            ]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("stop", [("w33",), ("w33 w", "w5"), ("w33", "w44")])
def test_an_answer_ends_before_what_it_is_stopped_at(folder: Path, stop: tuple[str, ...]) -> None:
    sampler = LocalSampler(folder)
    free = SamplingSettings(max_tokens=60, seed=1)
    stopped = SamplingSettings(max_tokens=60, seed=1, stop=stop)
    both = [chain.from_iterable(answered(sampler, PROMPTS, one, n=16)) for one in (free, stopped)]
    cut = 0
    for whole, short in zip(*both, strict=True):
        assert short.ids == whole.ids[: len(short.ids)]
        assert not any(one in short.answer.text for one in stop)
        if any(one in whole.answer.text for one in stop):
            cut += 1
            assert short.answer.ended
            assert whole.answer.text.startswith(short.answer.text)
        else:
            assert (short.ids, short.answer) == (whole.ids, whole.answer)
    assert 0 < cut < 48


def test_a_long_stop_beside_a_short_one_is_seen(folder: Path) -> None:
    sampler, free = LocalSampler(folder), SamplingSettings(max_tokens=60, seed=1)
    wholes = chain.from_iterable(answered(sampler, PROMPTS, free, n=8))
    whole = max(wholes, key=lambda rollout: len(rollout.ids))
    stop = ("~", " ".join(whole.answer.text.split()[2:12]))
    cut = chain.from_iterable(answered(sampler, PROMPTS, replace(free, stop=stop), n=8))
    assert whole.ids[:12] in [rollout.ids for rollout in cut]


def test_a_stream_never_says_what_it_is_stopped_at(folder: Path) -> None:
    sampler = LocalSampler(folder)
    for seed in range(12):
        settings = SamplingSettings(max_tokens=60, seed=seed, stop=("w33 w", "w41"))
        [[wanted]] = sampler.generate_answers(["w7"], settings)
        assert "".join(sampler.stream("w7", settings)) == wanted.text


def test_a_consumer_of_a_stream_is_not_in_inference_mode(folder: Path) -> None:
    stream = LocalSampler(folder).stream("w7", SamplingSettings(max_tokens=4))
    next(stream)
    assert not torch.is_inference_mode_enabled()
    stream.close()


def test_a_group_shares_one_reading_of_its_prompt(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, encoder = parts(folder)
    widths: list[int] = []
    embed = policy.base.get_input_embeddings()
    embed.register_forward_hook(lambda _, ids, __: widths.append(ids[0].numel()))
    sampler = LocalSampler.from_policy(policy, encoder)
    widths.clear()
    groups = answered(sampler, PROMPTS, SamplingSettings(max_tokens=6), n=8)
    assert widths[0] == sum(len(group[0].prompt) for group in groups)
    assert max(widths[1:]) <= 24


def test_answers_that_have_ended_leave_the_batch(tmp_path: Path) -> None:
    policy, encoder = parts(write_talker(tmp_path, stops=(2, *range(7, 61, 3))))
    widths: list[int] = []
    policy.base.get_input_embeddings().register_forward_hook(lambda _, ids, __: widths.append(ids[0].numel()))
    sampler = LocalSampler.from_policy(policy, encoder)
    widths.clear()
    [group] = answered(sampler, ["w7"], SamplingSettings(max_tokens=40), n=32)
    assert all(later <= earlier for earlier, later in pairwise(widths[1:]))
    needed = sum(len(one.ids) - 1 for one in group)
    assert sum(widths[1:]) <= needed * 8 / 7 + len(widths)


def test_a_rollout_as_json_comes_back_to_the_bit_in_few_bytes(folder: Path) -> None:
    [[drawn]] = LocalSampler(folder, device="cpu").generate([(1, 7, 9)], TRUNCATED)
    narrow = replace(drawn, ids=drawn.ids * 40, logp=drawn.logp * 40, whole_logp=drawn.logp * 40)
    wide = replace(
        narrow, ids=(70_000, 3), logp=(-0.1, -math.inf), whole_logp=(1 / 3, 0.0), mask=(True, False)
    )
    for rollout in (drawn, narrow, wide):
        assert rollout_from_json(json.loads(json.dumps(rollout_to_json(rollout)))) == rollout
        # As 0.2.0 has it in its checkpoints.
        assert rollout_from_json(json.loads(json.dumps(asdict(replace(rollout, played=None))))) == rollout
    assert len(json.dumps(rollout_to_json(narrow))) < 14 * len(narrow.ids)
