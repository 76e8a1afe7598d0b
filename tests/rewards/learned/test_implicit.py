"""The implicit reward of a policy and its reference; a process reward model, step by step."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from plaudit.data.judging import Task
from plaudit.data.records import Steps, assistant_turn, user_turn
from plaudit.errors import UserError
from plaudit.losses.reward import binary
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel
from plaudit.rewards.base import Reward
from plaudit.rewards.combine.manifest import ImplicitManifest, save_manifest
from plaudit.rewards.learned import process
from plaudit.rewards.learned.process import step_lines
from plaudit.rewards.learned.scalar import ImplicitReward, LearnedReward
from plaudit.rewards.load import load_reward
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import make_encoder
from plaudit.tokens.preferences import encode_judged
from tests.models.reward_zoo import CPU, SPECIAL, fresh, plain_values, start
from tests.models.zoo import build
from tests.rewards.scorers import apart, known, said, scorer, task, tasks


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


ASKED = user_turn("w20 w21 w22")


def _solution(*lengths: int, seed: int = 0) -> process.Solution:
    return process.Solution(prompt=ASKED, steps=tuple(said(n, seed * 10 + i) for i, n in enumerate(lengths)))


def test_each_step_is_read_at_its_last_token_whatever_is_asked_along_with_it(tmp_path: Path) -> None:
    reward, model = scorer(tmp_path, tokens_at_once=60)
    asked = [_solution(3, 1, 5), _solution(2, seed=1), _solution(7, 7, 1, 4, seed=2), _solution(3, 1, 5)]
    found = reward.step_logits(asked)
    assert found[0] == found[3]
    for solution, values in zip(asked, found, strict=True):
        example = make_encoder(tmp_path / "start-llama").encode(
            ASKED, [assistant_turn("\n".join(solution.steps))]
        )
        [value_T] = plain_values(model, batch_of([example]))
        words = [len(step.split()) for step in solution.steps]
        # In the zoo a word is a token, and a line's end is none.
        ends = [sum(words[: c + 1]) - 1 for c in range(len(words))]
        assert values == pytest.approx(value_T[ends].tolist(), abs=1e-4)
        assert values == pytest.approx(reward.step_logits([solution])[0], abs=1e-5)


def test_steps_are_encoded_as_they_are_in_training(tmp_path: Path) -> None:
    encoder = make_encoder(start(tmp_path))
    solution = _solution(3, 2)
    example, ends = process.encode_steps(solution, encoder)
    [row] = encode_judged([Steps(prompt=ASKED, steps=solution.steps, labels=(1.0, 0.0))], encoder).examples
    assert (example, ends) == (row.example, row.judgement.ends)


def test_a_solution_that_cannot_be_read_is_no_verdict_with_its_reason(tmp_path: Path) -> None:
    reward, _ = scorer(tmp_path)
    found = reward.step_logits([_solution(200), process.Solution(prompt=ASKED, steps=()), _solution(2)])
    assert [values is None for values in found] == [True, True, False]
    assert len(reward.refused) == 2


def test_the_three_readings_of_steps() -> None:
    logits = [2.0, -1.0, 0.5]
    chances = [1 / (1 + math.exp(-x)) for x in logits]
    assert process.step_product(logits) == pytest.approx(math.prod(chances))
    assert process.step_minimum(logits) == pytest.approx(chances[1])
    assert process.last_step(logits) == pytest.approx(chances[2])
    assert process.step_product([3.0]) == process.step_minimum([3.0]) == process.last_step([3.0])
    assert (process.step_minimum([-1e6, 5.0]), process.step_product([1e6, 1e6])) == (0.0, 1.0)


@pytest.mark.parametrize("reading", ["product", "min", "last"])
def test_an_answer_is_scored_by_its_lines(tmp_path: Path, reading: str) -> None:
    model, _ = scorer(tmp_path)
    reward = process.StepReward(model=model, reading=reading)
    assert isinstance(reward, Reward)
    assert reward.name == "fresh"
    solution = _solution(3, 2)
    answers = (assistant_turn("\n\n".join(solution.steps) + "\n"), assistant_turn("  \n"))
    [row] = reward.scores([Task(prompt=ASKED, answers=answers, ended=(True, True))])
    [values] = model.step_logits([solution])
    assert values is not None
    assert known(row[0]) == pytest.approx(
        {"product": process.step_product, "min": process.step_minimum, "last": process.last_step}[reading](
            values
        )
    )
    assert row[1] is None
    assert reward.refused == model.refused != {}
    assert step_lines("a\n\n b \n") == ("a", "b")


@pytest.mark.slow
def test_a_model_that_learned_from_steps_finds_the_wrong_one_in_new_solutions(tmp_path: Path) -> None:
    """Wrong steps hold the word w10."""
    model, encoder = fresh(start(tmp_path)), make_encoder(tmp_path / "start-llama")
    _train(model, [_labelled(seed) for seed in range(30)], encoder)
    reward = LearnedReward("steps", model, encoder)
    new = [_labelled(seed) for seed in range(100, 130)]
    found = reward.step_logits([process.Solution(prompt=one.prompt, steps=one.steps) for one in new])
    right = [
        (value > 0) == (label == 1.0)
        for values, one in zip(found, new, strict=True)
        for value, label in zip(values or (), one.labels, strict=True)
    ]
    assert sum(right) / len(right) > 0.9
    whole = process.StepReward(model=reward).scores(
        [
            Task(prompt=one.prompt, answers=(assistant_turn("\n".join(one.steps)),), ended=(True,))
            for one in new
        ]
    )
    good = [known(row[0]) for row, one in zip(whole, new, strict=True) if all(one.labels)]
    bad = [known(row[0]) for row, one in zip(whole, new, strict=True) if not all(one.labels)]
    assert sum(good) / len(good) > 0.7
    assert sum(bad) / len(bad) < 0.3


def _labelled(seed: int) -> Steps:
    wrong = seed % 3
    steps = [said(3, 7 * seed + c).replace("w10", "w11") for c in range(2)]
    if wrong < 2:
        steps[wrong] = f"{steps[wrong]} w10"
    labels = tuple(0.0 if c == wrong else 1.0 for c in range(2))
    return Steps(prompt=ASKED, steps=tuple(steps), labels=labels)


def _train(model: RewardModel, rows: list[Steps], encoder: object) -> None:
    told = encode_judged(rows, encoder).examples
    batch = batch_of([row.example for row in told])
    end_NC = torch.tensor([row.judgement.ends for row in told])
    label_NC = torch.tensor([row.judgement.labels for row in told])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        binary(model.step_rewards(batch, end_NC), label_NC).mean().backward()
        optimizer.step()
