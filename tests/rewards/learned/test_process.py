"""A process reward model scores each step at its last token, and a whole answer by its steps."""

import math
from pathlib import Path

import pytest
import torch

from plaudit.data.judging import Task
from plaudit.data.records import Steps, assistant_turn, user_turn
from plaudit.losses.reward import binary
from plaudit.models.reward_model import RewardModel
from plaudit.rewards.base import Reward
from plaudit.rewards.learned import process
from plaudit.rewards.learned.scalar import LearnedReward
from plaudit.rewards.learned.step_payments import step_lines
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import make_encoder
from plaudit.tokens.preferences import encode_judged
from tests.models.reward_zoo import fresh, plain_values, start
from tests.rewards.scorers import known, said, scorer

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
