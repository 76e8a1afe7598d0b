"""The implicit reward is how much likelier the policy finds an answer than its reference does."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plaudit.data.judging import Task
from plaudit.errors import UserError
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.rewards.base import Reward
from plaudit.rewards.combine.manifest import ImplicitManifest, save_manifest
from plaudit.rewards.learned.scalar import ImplicitReward
from plaudit.rewards.load import load_reward
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import make_encoder
from tests.models.reward_zoo import CPU, SPECIAL, start
from tests.models.zoo import build
from tests.rewards.scorers import apart, known, task, tasks


def _start(where: Path, seed: int) -> Path:
    (where / str(seed)).mkdir(parents=True)
    return start(where / str(seed), model=build("llama", seed=seed))


def _policy(folder: Path) -> Policy:
    return Policy(load_model(folder, dtype=torch.float32, device=CPU)).eval()


def _logp(folder: Path, one: Task) -> list[float]:
    """Σ log π over the answer and its end of turn, by transformers alone."""
    model, encoder = load_model(folder, dtype=torch.float32, device=CPU), make_encoder(folder)
    found = []
    for answer in one.answers:
        example = encoder.encode(one.prompt, [answer])
        ids = torch.tensor([[*example.prompt, *example.completions[0].ids]])
        with torch.no_grad():
            logp_SV = model(input_ids=ids, use_cache=False).logits[0].double().log_softmax(-1)
        first = len(example.prompt)
        found.append(sum(float(logp_SV[s - 1, ids[0, s]]) for s in range(first, ids.shape[1])))
    return found


def _implicit(policy: Path, reference: Path, beta: float = 0.1, tokens_at_once: int = 8192) -> ImplicitReward:
    return ImplicitReward(
        "dpo",
        _policy(policy),
        _policy(reference),
        make_encoder(policy),
        beta=beta,
        tokens_at_once=tokens_at_once,
    )


def test_it_is_beta_times_the_difference_of_the_log_probabilities(tmp_path: Path) -> None:
    policy, reference = _start(tmp_path, 0), _start(tmp_path, 1)
    reward = _implicit(policy, reference, 0.3)
    assert isinstance(reward, Reward)
    wanted = [
        tuple(0.3 * (a - b) for a, b in zip(_logp(policy, one), _logp(reference, one), strict=True))
        for one in tasks(6)
    ]
    found = reward.scores(tasks(6))
    assert apart(found, wanted) < 1e-3
    assert max(abs(known(score)) for row in found for score in row) > 1


def test_batch_mates_order_and_the_size_of_a_pass_change_nothing(tmp_path: Path) -> None:
    policy, reference = _start(tmp_path, 0), _start(tmp_path, 1)
    reward, small = _implicit(policy, reference), _implicit(policy, reference, tokens_at_once=40)
    together = reward.scores(tasks(8))
    alone = [reward.scores([one])[0] for one in tasks(8)]
    # Scores of these random models go up to about 10, sums of some thirty log-probs in float32.
    assert apart(together, alone) < 1e-4
    assert apart(together, small.scores(tasks(8))[::1]) < 1e-4
    assert apart(together[::-1], reward.scores(tasks(8)[::-1])) < 1e-4


def test_a_policy_that_is_its_reference_scores_exactly_0(tmp_path: Path) -> None:
    folder = _start(tmp_path, 0)
    assert {score for row in _implicit(folder, folder).scores(tasks()) for score in row} == {0.0}


def test_an_unfinished_answer_is_scored_as_if_it_had_ended(tmp_path: Path) -> None:
    reward = _implicit(_start(tmp_path, 0), _start(tmp_path, 1))
    one = task(5, 7)
    assert reward.scores([one]) == reward.scores([replace(one, ended=(False, False))])


def test_a_policy_that_was_taught_some_answers_values_them(tmp_path: Path) -> None:
    reference = _start(tmp_path, 0)
    policy, encoder = _policy(reference).train(), make_encoder(reference)
    pairs = [task(4, 4, seed=seed) for seed in range(8)]
    batch = batch_of([encoder.encode(one.prompt, one.answers[:1]) for one in pairs])
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    for _ in range(15):
        optimizer.zero_grad()
        (-policy.score(batch).logp_NT.sum(-1).mean()).backward()
        optimizer.step()
    rows = ImplicitReward("sft", policy, _policy(reference), encoder, beta=0.1).scores(pairs)
    assert all(known(good) > max(0.0, known(other)) for good, other in rows)


def test_its_folder_is_loaded_like_any_reward(tmp_path: Path) -> None:
    policy, reference = _start(tmp_path, 0), _start(tmp_path, 1)
    save_manifest(tmp_path / "mine", ImplicitManifest(policy=policy, reference=reference, beta=0.2))
    reward = load_reward(tmp_path / "mine", device="cpu")
    assert reward.name == "mine"
    assert apart(reward.scores(tasks(4)), _implicit(policy, reference, 0.2).scores(tasks(4))) < 1e-5


def test_without_a_reference_it_is_how_likely_the_answer_is(tmp_path: Path) -> None:
    policy = _start(tmp_path, 0)
    save_manifest(tmp_path / "likely", ImplicitManifest(policy=policy, reference=None, beta=0.5))
    asked = tasks(3)
    expected = tuple(tuple(0.5 * logp for logp in _logp(policy, one)) for one in asked)
    assert apart(load_reward(tmp_path / "likely", device="cpu").scores(asked), expected) < 1e-4


def test_policies_of_other_tokens_make_no_reward(tmp_path: Path) -> None:
    policy = _start(tmp_path, 0)
    (tmp_path / "other").mkdir()
    other = start(tmp_path / "other", specials={**SPECIAL, 9: "<|other|>"})
    save_manifest(tmp_path / "mine", ImplicitManifest(policy=policy, reference=other, beta=0.2))
    with pytest.raises(UserError, match="its tokenizer differs"):
        load_reward(tmp_path / "mine", device="cpu")


@pytest.mark.parametrize("beta", [0, -0.1, float("nan")])
def test_a_beta_that_turns_the_reward_round_is_refused(tmp_path: Path, beta: int | float) -> None:
    folder = _start(tmp_path, 0)
    with pytest.raises(UserError, match="expected a number above 0"):
        save_manifest(tmp_path / "mine", ImplicitManifest(policy=folder, reference=folder, beta=beta))
    assert not (tmp_path / "mine").exists()
    with pytest.raises(UserError, match="expected a number above 0"):
        _implicit(folder, folder, beta)
