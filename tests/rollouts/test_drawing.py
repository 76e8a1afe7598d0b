"""Tokens are drawn as often as the model says they should be."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from plaudit.batches.template import make_encoder
from plaudit.errors import UserError
from plaudit.models.files import load_model
from plaudit.records.messages import user_says
from plaudit.rollouts.drawing import chances, next_tokens
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampling import SamplingSettings
from tests.models.zoo import VOCABULARY
from tests.rollouts.talkers import word, write_talker

CPU = torch.device("cpu")


@pytest.mark.parametrize("top_p", [0.8, 1.0])
def test_a_models_words_come_as_often_as_its_softmax_says(tmp_path, top_p):
    folder = write_talker(tmp_path)
    settings = SamplingSettings(temperature=0.7, top_p=top_p, max_tokens=1, seed=3)
    [answers] = LocalSampler(folder).sample(["w7 w8"], settings, n=3000)
    drawn = Counter(answer.text for answer in answers)

    ids = make_encoder(folder).encode_prompt(user_says("w7 w8"))
    with torch.no_grad():
        logits_V = load_model(folder, dtype=torch.float32, device=CPU)(torch.tensor([ids])).logits[0, -1]
    share = dict(enumerate((logits_V / 0.7).softmax(-1).tolist()))
    kept: dict[int, float] = {}
    for token in sorted(share, key=lambda token: -share[token]):
        if sum(kept.values()) < top_p:
            kept[token] = share[token]
    assert len(kept) == VOCABULARY if top_p == 1 else 5 < len(kept) < VOCABULARY - 10

    spoken = {token: 3000 * p / sum(kept.values()) for token, p in kept.items() if token > 5}
    assert set(drawn) <= {word(token) for token in kept if token > 5} | {""}
    often = {token: wanted for token, wanted in spoken.items() if wanted >= 5}
    squares = sum((drawn[word(token)] - wanted) ** 2 / wanted for token, wanted in often.items())
    assert 0.2 * len(often) < squares < len(often) + 4 * math.sqrt(2 * len(often))


def test_top_p_keeps_the_fewest_tokens_that_reach_it():
    p_V = torch.tensor([[0.125, 0.5, 0.125, 0.25]])
    every = torch.linspace(0, 1, 101)[:-1]

    def found(top_p: float) -> set[int]:
        settings = SamplingSettings(top_p=top_p)
        return {int(next_tokens(p_V.log(), chance[None], settings)) for chance in every}

    assert found(0.01) == {1}
    assert found(0.5) == {1}
    assert found(0.51) == {1, 3}
    assert found(0.8) == {0, 1, 3}
    assert found(1.0) == {0, 1, 2, 3}


def test_a_tiny_temperature_is_nearly_greedy():
    logits = torch.tensor([[1.0, 3.0, 2.999]])
    for temperature in (0.0, 1e-30, 1e-5):
        settings = SamplingSettings(temperature=temperature)
        assert next_tokens(logits, torch.tensor([0.999]), settings).tolist() == [1]


def test_a_token_without_probability_is_never_drawn():
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]])
    settings = SamplingSettings()
    highest = torch.tensor([1 - 2**-53], dtype=torch.float64)
    assert next_tokens(logits, torch.tensor([0.0]), settings).tolist() == [1]
    assert next_tokens(logits, highest, settings).tolist() == [3]


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_scores_that_are_not_numbers_are_named(broken):
    with pytest.raises(UserError, match="scores are not numbers"):
        next_tokens(torch.tensor([[0.0, broken]]), torch.tensor([0.5]), SamplingSettings(temperature=0))


def test_chances_differ_by_seed_prompt_and_draw_and_not_by_room():
    first = chances(SamplingSettings(), (1, 2), 0, 20)
    assert torch.equal(chances(SamplingSettings(), (1, 2), 0, 500)[:20], first)
    others = [
        chances(SamplingSettings(seed=1), (1, 2), 0, 20),
        chances(SamplingSettings(), (12,), 0, 20),
        chances(SamplingSettings(), (1, 2), 1, 20),
    ]
    assert not any(torch.isclose(other, first).any() for other in others)
