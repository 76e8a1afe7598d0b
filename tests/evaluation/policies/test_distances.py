"""KL and entropy against the sums over every answer that a tiny model can give."""

from dataclasses import replace
from math import exp, sqrt

import numpy as np
import pytest

from examples.proofs.claims.optimum import best_of_n_exact_kl
from plaudit.data.records import Message
from plaudit.evaluation.policies.evaluate import EvaluationSettings, evaluate_policies
from plaudit.evaluation.policies.generate import (
    Contestant,
    GenerationSettings,
    generate_completions,
    load_policy_folder,
)
from plaudit.evaluation.policies.kl import CompletionScore, estimate_kl, mean_entropy, score_rollouts
from plaudit.evaluation.stats import Resampling
from plaudit.rollouts.sampler import SamplingSettings
from tests.evaluation.policies.tiny import ASKED, all_answers, as_rollout, chances, policy, prompts
from tests.models.reward_zoo import encoder_of

RESAMPLING = Resampling(times=100)
DRAWING = GenerationSettings(sampling=SamplingSettings(max_tokens=2), answers=1500, seeds=(3,), device="cpu")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    where = tmp_path_factory.mktemp("tiny")
    return [policy(where, seed) for seed in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_every_answer_has_the_log_prob_that_transformers_gives_it(folders, temperature):
    own, prompt = folders[0], prompts(folders[0])[0]
    known = chances(own, prompt, temperature)
    assert sum(map(exp, known.values())) == pytest.approx(1)
    speaker = load_policy_folder(own, GenerationSettings(device="cpu"))
    group = [as_rollout(prompt, ids) for ids in all_answers()]
    [found] = score_rollouts(speaker.policy, [group], temperature=temperature)
    assert [one.logp for one in found] == pytest.approx(list(known.values()), abs=2e-5)
    assert [one.tokens for one in found] == [len(ids) for ids in known]


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, pytest.param(0.7, marks=pytest.mark.slow)])
def test_kl_of_drawn_answers_is_the_sum_over_all_answers_within_its_error(folders, temperature):
    mine, other = folders
    drawing = replace(DRAWING, sampling=SamplingSettings(max_tokens=2, temperature=temperature))
    said = generate_completions("mine", mine, ASKED, drawing)
    theirs = score_rollouts(load_policy_folder(other, drawing).policy, said.rollouts, temperature=temperature)
    for place, prompt in enumerate(prompts(mine)):
        own, ref = chances(mine, prompt, temperature), chances(other, prompt, temperature)
        exact = sum(exp(logp) * (logp - ref[ids]) for ids, logp in own.items())
        gap_N = np.array([a.logp - b.logp for a, b in zip(said.scores[place], theirs[place], strict=True)])
        assert exact > 0.05
        assert gap_N.mean() == pytest.approx(exact, abs=4 * gap_N.std() / sqrt(len(gap_N)))
    kl, kl_token = estimate_kl(said.scores, theirs, RESAMPLING)
    tokens = sum(one.tokens for group in said.scores for one in group)
    assert kl_token.value * tokens == pytest.approx(kl.value * kl.n)
    assert (kl.prompts, kl.n) == (2, 3000)


@pytest.mark.slow
def test_kl_of_a_prompted_policy_is_that_of_both_asked_in_their_own_ways(folders):
    folder, system = folders[0], Message(role="system", content="w9 w30 w31")
    told = {"plain": None, "prompted": system.content}
    models = {name: Contestant(folder=folder, system=words) for name, words in told.items()}
    found = evaluate_policies(models, ASKED, None, EvaluationSettings(drawing=DRAWING, resampling=RESAMPLING))
    means, variances = [], []
    for question, prompt in zip(ASKED, prompts(folder), strict=True):
        own = chances(folder, encoder_of(folder).encode_prompt((system, *question.prompt)))
        plain = chances(folder, prompt)
        gaps = {ids: logp - plain[ids] for ids, logp in own.items()}
        means.append(sum(exp(logp) * gaps[ids] for ids, logp in own.items()))
        variances.append(sum(exp(logp) * gaps[ids] ** 2 for ids, logp in own.items()) - means[-1] ** 2)
    exact, error = sum(means) / 2, sqrt(sum(variances) / 4 / 1500)
    assert exact > 5 * error
    assert found.policies[1].kl is not None
    assert found.policies[1].kl.value == pytest.approx(exact, abs=4 * error)
    assert found.policies[0].kl.value == 0


def test_entropy_is_that_of_the_distributions_that_tokens_were_chosen_from(folders):
    prompt = prompts(folders[0])[0]
    known = chances(folders[0], prompt)
    first: dict[int, float] = {}
    for ids, logp in known.items():
        first[ids[0]] = first.get(ids[0], 0.0) + exp(logp)
    exact = -sum(p * np.log(p) for p in first.values())
    speaker = load_policy_folder(folders[0], GenerationSettings(device="cpu"))
    [[found]] = score_rollouts(speaker.policy, [[as_rollout(prompt, (2,))]])
    assert found.entropy == pytest.approx(exact, abs=1e-4)
    assert mean_entropy([[found]], RESAMPLING).value == pytest.approx(exact, abs=1e-4)


def test_a_policy_is_no_way_from_itself_and_tokens_weigh_alike():
    mine, theirs = (
        [[CompletionScore(logp=logp, entropy=entropy, tokens=tokens)] for logp, entropy, tokens in scores]
        for scores in (((-2.0, 1.0, 1), (-6.0, 6.0, 3)), ((-3.0, 0.0, 1), (-9.0, 0.0, 3)))
    )
    same, _ = estimate_kl(mine, mine, RESAMPLING)
    assert (same.value, same.low, same.high) == (0, 0, 0)
    kl, kl_token = estimate_kl(mine, theirs, RESAMPLING)
    assert (kl.value, kl_token.value) == (2.0, 1.0)
    assert mean_entropy(mine, RESAMPLING).value == 7 / 4


def test_chances_that_do_not_add_up_have_no_kl_of_best_of_n():
    with pytest.raises(ValueError, match="add up to"):
        best_of_n_exact_kl(np.array([0.5]), np.array([1.0]), 2)
