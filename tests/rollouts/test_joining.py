"""Requests take the places of those that have ended, and are answered as they would be by themselves."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plaudit.models.decode import CachedDecoder, SharedDecoder
from plaudit.models.policy import Policy
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import GenerationRequest, Rollout, SamplingSettings
from plaudit.tokens.encode import make_encoder
from tests.models.zoo import build
from tests.rollouts.talkers import write_talker

STOPS = (2, 17, 41)
PROMPTS = ("w7", "w9 w40 w31 w50 w18 w22 w7 w8 w12", "w30 w31", "w60 w12 w44 w19 w20", "w21", "w33 w8 w9")


@pytest.fixture
def sampler(tmp_path: Path) -> LocalSampler:
    folder = write_talker(tmp_path, stops=STOPS)
    return LocalSampler.from_policy(Policy(build("llama", torch.float64)), make_encoder(folder))


def side_by_side(sampler: LocalSampler, count: int) -> None:
    sampler._engine = replace(sampler._engine, batch_size=count)


def requests_of(sampler: LocalSampler, settings: SamplingSettings) -> list[GenerationRequest]:
    """Four answers to each prompt, with room for between 1 and 40 tokens."""
    asked = sampler.requests_for([sampler.encode(prompt) for prompt in PROMPTS], settings, 4)
    return [replace(request, max_new_tokens=1 + place * 17 % 40) for place, request in enumerate(asked)]


def assert_same(first: Sequence[Rollout], second: Sequence[Rollout]) -> None:
    assert [one.answer for one in first] == [one.answer for one in second]
    assert [one.ids for one in first] == [one.ids for one in second]
    for one, other in zip(first, second, strict=True):
        # Drawn from scores in float32, which may round another way at the last digit.
        assert one.logp == pytest.approx(other.logp, abs=1e-6)
        assert one.whole_logp == pytest.approx(other.whole_logp, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(max_tokens=40, seed=3),
        SamplingSettings(max_tokens=40, seed=3, temperature=0),
        SamplingSettings(max_tokens=40, seed=3, temperature=0.7, top_p=0.9),
        SamplingSettings(max_tokens=40, seed=3, stop=("w1", "w45 w")),
    ],
    ids=["plain", "greedy", "top-p", "stop strings"],
)
def test_answers_are_those_drawn_one_at_a_time(sampler: LocalSampler, settings: SamplingSettings) -> None:
    requests = requests_of(sampler, settings)
    wanted = [sampler.generate_requests([request], settings)[0] for request in requests]
    assert len({one.answer.tokens for one in wanted}) > 3
    for count in (2, 5, 64):
        side_by_side(sampler, count)
        assert_same(sampler.generate_requests(requests, settings), wanted)


def test_requests_in_any_order_are_answered_by_the_engine(sampler: LocalSampler) -> None:
    """Equal prompts that are no neighbours are read again, also when the last one's answers are gone."""
    settings = SamplingSettings(max_tokens=40, seed=3)
    requests = requests_of(sampler, settings)
    mixed = [requests[place * 7 % len(requests)] for place in range(len(requests))]
    side_by_side(sampler, 5)
    wanted = [sampler.generate_requests([request], settings)[0] for request in mixed]
    assert_same(sampler.generate_requests(mixed, settings), wanted)
    assert_same([replace(one, version=0) for one in sampler._engine.generate(mixed, settings)], wanted)


def test_places_of_ended_rows_are_taken_at_once(sampler, monkeypatch):
    calls: Counter[str] = Counter()
    for name in ("step", "join", "add_answers", "_read"):
        method = getattr(SharedDecoder, name)

        def counted(*given: object, _method=method, _name=name) -> object:
            calls[_name] += 1
            return _method(*given)

        monkeypatch.setattr(SharedDecoder, name, counted)
    settings = SamplingSettings(max_tokens=30, seed=1)
    [whole, *_] = sampler.requests_for([sampler.encode("w10")], settings, 1)
    # Of eight, one is long: chunks of eight would take 30 steps each, four times.
    requests = [replace(whole, sample=n, max_new_tokens=30 if n % 8 == 0 else 3) for n in range(32)]
    monkeypatch.setattr(type(sampler.encoder), "stop_ids", frozenset(), raising=False)
    side_by_side(sampler, 8)
    answers = sampler.generate_requests(requests, settings)
    assert [one.answer.tokens for one in answers] == [request.max_new_tokens for request in requests]
    assert calls["step"] < 60
    # One prompt: it is read once, and begun again for those who join.
    assert (calls["_read"], calls["join"]) == (1, 0)
    assert calls["add_answers"] > 2


def test_rows_of_transformers_own_cache_begin_together(sampler: LocalSampler) -> None:
    settings = SamplingSettings(max_tokens=40, seed=3)
    requests = requests_of(sampler, settings)
    wanted = sampler.generate_requests(requests, settings)
    sampler._engine = replace(sampler._engine, decoder=CachedDecoder, batch_size=5)
    assert_same(sampler.generate_requests(requests, settings), wanted)


def test_no_requests_have_no_answers(sampler: LocalSampler) -> None:
    assert sampler.generate_requests([], SamplingSettings()) == []
