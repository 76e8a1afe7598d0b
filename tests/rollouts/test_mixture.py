"""What is drawn from a mixture of two models has the chances of the mixture that is written out."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from plaudit.models.load import load_model
from plaudit.models.mixture import MixtureScorer
from plaudit.models.policy import ModelReference, Policy
from plaudit.rollouts.drawing import uniform_numbers
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Rollout, SamplingSettings
from plaudit.tokens.batch import Completion, Example, batch_of
from plaudit.tokens.encode import Encoder, make_encoder
from tests.rollouts.talkers import answered, write_talker

PROMPTS = ("w7", "w9 w40 w31 w50 w18")
PLAIN = SamplingSettings(max_tokens=12, seed=5)
WARM = replace(PLAIN, temperature=1.4)
CUT = replace(PLAIN, temperature=0.8, top_k=9, top_p=0.9, min_p=0.02)
SHARE = 0.3


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Policy, Encoder]:
    folders = [
        write_talker(tmp_path_factory.mktemp(f"talker-{seed}"), stops=(2, 20, 30), seed=seed)
        for seed in (0, 1)
    ]
    cpu = torch.device("cpu")
    own, other = (Policy(load_model(folder, dtype=torch.float32, device=cpu)) for folder in folders)
    return own, other, make_encoder(folders[0])


def samplers(pair: tuple[Policy, Policy, Encoder], share: float) -> tuple[LocalSampler, ...]:
    own, other, encoder = pair
    alone = LocalSampler.from_policy(own, encoder)
    return (alone, LocalSampler.from_policy(other, encoder), alone.mixed_with(ModelReference(other), share))


def written_out(pair: tuple[Policy, Policy, Encoder], ids: tuple[int, ...], heat: float) -> Tensor:
    chance = []
    for policy in pair[:2]:
        with torch.no_grad(), policy.as_plain_model() as plain:
            logits_V = plain(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].double()
        chance.append((logits_V / heat).softmax(-1))
    weighed_V = chance[0] ** (1 - SHARE) * chance[1] ** SHARE
    return weighed_V / weighed_V.sum()


def left(chance_V: Tensor, settings: SamplingSettings) -> Tensor:
    """What top-k, top-p and min-p leave, token by token from the likeliest down."""
    order = sorted(range(len(chance_V)), key=lambda v: -float(chance_V[v]))[: settings.top_k or None]
    total, kept, before = sum(float(chance_V[v]) for v in order), torch.zeros_like(chance_V), 0.0
    for v in order:
        if before < settings.top_p * total and float(chance_V[v]) >= settings.min_p * float(chance_V.max()):
            kept[v] = chance_V[v]
        before += float(chance_V[v])
    return kept / kept.sum()


@pytest.mark.slow
@pytest.mark.parametrize("settings", [PLAIN, WARM, CUT])
def test_every_chance_falls_on_the_token_of_the_mixture(pair, settings):
    """A number from 0 to 1 draws the token at which the chances before it, added up, pass it."""
    *_, mixed = samplers(pair, SHARE)
    groups = answered(mixed, PROMPTS, settings, n=12)
    for group in groups:
        for draw, one in enumerate(group):
            chance_T = uniform_numbers(settings, one.prompt, draw, settings.max_tokens)
            for t, token in enumerate(one.ids):
                whole_V = written_out(pair, (*one.prompt, *one.ids[:t]), settings.temperature)
                kept_V = left(whole_V, settings)
                ends_V = kept_V.cumsum(-1)
                assert float(ends_V[token] - kept_V[token]) - 1e-5 <= float(chance_T[t])
                assert float(chance_T[t]) <= float(ends_V[token]) + 1e-5
                assert one.whole_logp[t] == pytest.approx(float(whole_V[token].log()), abs=1e-4)
                assert one.logp[t] == pytest.approx(float(kept_V[token].log()), abs=1e-4)
    assert len({len(one.ids) for group in groups for one in group}) > 3


def test_first_tokens_come_as_often_as_they_are_likely(pair: tuple[Policy, Policy, Encoder]) -> None:
    """Pearson's χ² over the tokens; neither half alone would pass."""
    *_, mixed = samplers(pair, SHARE)
    settings, count = replace(PLAIN, max_tokens=1), 3000
    [group] = answered(mixed, PROMPTS[:1], settings, n=count)
    chance_V = written_out(pair, group[0].prompt, 1.0)
    seen_V = torch.bincount(torch.tensor([one.ids[0] for one in group]), minlength=len(chance_V))
    own, other, encoder = pair
    far = [written_out((one, one, encoder), group[0].prompt, 1.0) for one in (own, other)]

    def chi(expected_V: Tensor) -> float:
        return float(((seen_V - count * expected_V).square() / (count * expected_V)).sum())

    freedom = len(chance_V) - 1
    limit = freedom + 4 * (2 * freedom) ** 0.5
    assert chi(chance_V) < limit
    assert min(map(chi, far)) > 2 * limit


@pytest.mark.one_in(3)
@pytest.mark.parametrize("settings", [PLAIN, CUT, replace(PLAIN, temperature=0)])
@pytest.mark.parametrize("share", [0, 1, 0.0, 1.0])
def test_nothing_of_the_one_is_the_other_bit_by_bit(pair, share, settings):
    own, other, mixed = samplers(pair, share)
    found = answered(mixed, PROMPTS, settings, n=4)
    assert found == answered(other if share else own, PROMPTS, settings, n=4)
    assert found != answered(own if share else other, PROMPTS, settings, n=4)


def test_a_mixed_sampler_leaves_the_one_that_it_was_made_of_as_it_was(pair):
    own, _, mixed = samplers(pair, SHARE)
    alone = LocalSampler.from_policy(pair[0], pair[2])
    assert answered(mixed, PROMPTS, PLAIN, n=2) != answered(own, PROMPTS, PLAIN, n=2)
    assert answered(own, PROMPTS, PLAIN, n=2) == answered(alone, PROMPTS, PLAIN, n=2)


def example(group: list[Rollout]) -> Example:
    said = tuple(
        Completion(ids=one.ids, mask=(True,) * len(one.ids), finished=one.answer.ended) for one in group
    )
    return Example(prompt=group[0].prompt, completions=said)


@pytest.mark.parametrize("settings", [PLAIN, WARM, CUT])
def test_trainer_and_reference_together_say_what_the_sampler_said(pair, settings):
    own, other, _ = pair
    *_, mixed = samplers(pair, SHARE)
    groups = answered(mixed, PROMPTS, settings, n=3)
    heat = settings.temperature
    blend = MixtureScorer(
        policy=ModelReference(own, temperature=heat),
        reference=ModelReference(other, temperature=heat),
        reference_share=SHARE,
    )
    examples = [example(group) for group in groups]
    batch = batch_of(examples)
    found_NT, known_NT = blend.logp_of_first(examples, batch, least=1)
    assert known_NT.equal(batch.mask_NT)
    answers = [one for group in groups for one in group]
    for logp_T, one in zip(found_NT, answers, strict=True):
        assert logp_T[: len(one.ids)].tolist() == pytest.approx(one.whole_logp, abs=5e-5)


def test_where_not_everything_fits_the_first_prompts_are_looked_at(pair, monkeypatch):
    own, other, _ = pair
    *_, mixed = samplers(pair, SHARE)
    examples = [example(group) for group in answered(mixed, (*PROMPTS, "w30 w31"), PLAIN, n=2)]
    blend = MixtureScorer(policy=ModelReference(own), reference=ModelReference(other), reference_share=SHARE)
    batch = batch_of(examples)
    monkeypatch.setattr("plaudit.models.mixture.MAX_DISTRIBUTION_CELLS", 0)
    for least in (1, 2, 3):
        found_NT, known_NT = blend.logp_of_first(examples, batch, least=least)
        assert known_NT[: 2 * least].equal(batch.mask_NT[: 2 * least])
        assert not known_NT[2 * least :].any()
        assert not found_NT[~known_NT].any()
