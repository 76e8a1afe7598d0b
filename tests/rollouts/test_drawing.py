"""Tokens are drawn as often as the model says they should be."""

import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from plaudit.data.records import user_turn
from plaudit.errors import UserError
from plaudit.models.load import load_model
from plaudit.rollouts.drawing import TOP_P_CANDIDATES, refuse_broken, sample_tokens, uniform_numbers
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.tokens.encode import make_encoder
from tests.models.zoo import VOCABULARY
from tests.rollouts.talkers import word, write_talker

CPU = torch.device("cpu")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("top_p", [0.8, 1.0])
def test_a_models_words_come_as_often_as_its_softmax_says(tmp_path, top_p):
    folder = write_talker(tmp_path)
    settings = SamplingSettings(temperature=0.7, top_p=top_p, max_tokens=1, seed=3)
    [answers] = LocalSampler(folder).generate_answers(["w7 w8"], settings, n=3000)
    drawn = Counter(answer.text for answer in answers)
    ids = make_encoder(folder).encode_prompt(user_turn("w7 w8"))
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
        return {int(sample_tokens(p_V.log(), chance[None], settings).token_N) for chance in every}

    assert found(0.01) == {1}
    assert found(0.5) == {1}
    assert found(0.51) == {1, 3}
    assert found(0.8) == {0, 1, 3}
    assert found(1.0) == {0, 1, 2, 3}
    # min-p keeps a token that is just so likely: of two likeliest ones both, at a share of 1.
    likeliest = torch.tensor([[0.0, 1.0, 1.0]])
    how = SamplingSettings(min_p=1)
    both = [int(sample_tokens(likeliest, chance[None], how).token_N) for chance in every]
    assert {*both} == {1, 2}


def test_a_tiny_temperature_is_nearly_greedy_none_is_and_what_has_no_chance_is_never_drawn():
    logits = torch.tensor([[1.0, 3.0, 2.999]])
    for temperature in (0.0, 1e-30, 1e-5):
        settings = SamplingSettings(temperature=temperature)
        assert sample_tokens(logits, torch.tensor([0.999]), settings).token_N.tolist() == [1]
    logits_NV = torch.tensor([[0.0, 1.0, -1.0]])
    drawn = sample_tokens(logits_NV, torch.tensor([0.5]), SamplingSettings(temperature=0))
    assert drawn.token_N.tolist() == [1]
    assert drawn.logp_N.tolist() == [0.0]
    torch.testing.assert_close(drawn.whole_logp_N, logits_NV.log_softmax(-1)[:, 1])
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]])
    settings = SamplingSettings()
    highest = torch.tensor([1 - 2**-53], dtype=torch.float64)
    assert sample_tokens(logits, torch.tensor([0.0]), settings).token_N.tolist() == [1]
    assert sample_tokens(logits, highest, settings).token_N.tolist() == [3]


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_scores_that_are_not_numbers_are_named(broken):
    scores = torch.tensor([[0.0, broken]])
    drawn = sample_tokens(scores, torch.tensor([0.5]), SamplingSettings(temperature=0))
    with pytest.raises(UserError, match="scores are not numbers"):
        refuse_broken(drawn.whole_logp_N.tolist())


def test_chances_differ_by_seed_prompt_and_draw_and_not_by_room():
    first = uniform_numbers(SamplingSettings(), (1, 2), 0, 20)
    assert torch.equal(uniform_numbers(SamplingSettings(), (1, 2), 0, 500)[:20], first)
    others = [
        uniform_numbers(SamplingSettings(seed=1), (1, 2), 0, 20),
        uniform_numbers(SamplingSettings(), (12,), 0, 20),
        uniform_numbers(SamplingSettings(), (1, 2), 1, 20),
    ]
    assert not any(torch.isclose(other, first).any() for other in others)


TRUNCATIONS = (
    SamplingSettings(),
    SamplingSettings(temperature=0.6),
    SamplingSettings(top_k=7),
    SamplingSettings(top_p=0.7),
    SamplingSettings(min_p=0.2),
    SamplingSettings(temperature=1.7, top_k=40, top_p=0.9, min_p=0.02),
)


def warped(logits_NV: Tensor, settings: SamplingSettings) -> Tensor:
    ids = torch.zeros(len(logits_NV), 1, dtype=torch.long)
    steps: list[Any] = [
        TemperatureLogitsWarper(float(settings.temperature)),
        TopKLogitsWarper(settings.top_k or logits_NV.shape[1]),
        TopPLogitsWarper(float(settings.top_p)),
        *([MinPLogitsWarper(settings.min_p)] if settings.min_p else []),
    ]
    for step in steps:
        logits_NV = step(ids, logits_NV)
    return logits_NV.log_softmax(-1)


@pytest.mark.parametrize("settings", TRUNCATIONS)
@pytest.mark.parametrize("words", [61, 1000, 5000])
def test_both_log_probs_are_those_of_transformers(settings: SamplingSettings, words: int) -> None:
    generator = torch.Generator().manual_seed(words)
    logits_NV = 3 * torch.randn(64, words, generator=generator)
    drawn = sample_tokens(logits_NV, torch.rand(64, generator=generator, dtype=torch.float64), settings)
    whole_NV = (logits_NV / settings.temperature).log_softmax(-1)
    for told_N, wanted_NV in ((drawn.logp_N, warped(logits_NV, settings)), (drawn.whole_logp_N, whole_NV)):
        wanted_N = wanted_NV.gather(1, drawn.token_N[:, None])[:, 0]
        torch.testing.assert_close(told_N, wanted_N, rtol=1e-5, atol=1e-5)
    assert bool((drawn.logp_N >= drawn.whole_logp_N - 1e-6).all())


@pytest.mark.parametrize("settings", TRUNCATIONS)
def test_every_chance_falls_on_the_token_whose_share_it_lies_in(settings: SamplingSettings) -> None:
    """Walking chance from 0 to 1 visits the tokens in order, each for as long as it is likely."""
    words, times = 700, 4000
    logits_V = 2 * torch.randn(words, generator=torch.Generator().manual_seed(1))
    chance_N = (torch.arange(times, dtype=torch.float64) + 0.5) / times
    drawn = sample_tokens(logits_V.expand(times, words), chance_N, settings)
    assert bool((drawn.token_N.diff() >= 0).all())
    share_V = drawn.token_N.bincount(minlength=words) / times
    wanted_V = warped(logits_V[None], settings).exp()[0]
    assert float((share_V - wanted_V).abs().max()) <= 1.01 / times
    assert set(drawn.token_N.tolist()) <= set(wanted_V.nonzero()[:, 0].tolist())


def test_a_flat_distribution_keeps_as_many_tokens_as_its_share_says() -> None:
    """More than are sorted at first, and all of them alike."""
    words = 2 * TOP_P_CANDIDATES[0]
    chance_N = (torch.arange(words, dtype=torch.float64) + 0.5) / words
    for top_p in (0.25, 0.75):
        drawn = sample_tokens(torch.zeros(words, words), chance_N, SamplingSettings(top_p=top_p))
        assert len(set(drawn.token_N.tolist())) == top_p * words
        torch.testing.assert_close(drawn.logp_N.exp(), torch.full((words,), 1 / (top_p * words)))
