"""Calibration of policies: by hand, as others compute it, and on questions whose answer is drawn as said."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

from plaudit.data.records import assistant_turn, user_turn
from plaudit.evaluation.policies.calibration import (
    ChoiceLogprobs,
    at_temperature,
    fitted_temperature,
    policy_calibration,
)
from plaudit.evaluation.policies.generate import GenerationSettings, load_policy_folder
from plaudit.evaluation.policies.multiple_choice import ChoiceQuestion, EncodedChoices, score_choices
from plaudit.evaluation.stats import Resampling
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.exam import closed_questions
from plaudit.lab.world.prompts import question_of_prompt, split_of
from plaudit.tokens.encode import make_encoder
from tests.evaluation.policies.tiny import policy

QUICK = Resampling(times=200)


def asked(*p: float, right: int = 0, prompt: str = "?") -> ChoiceLogprobs:
    logp = tuple(math.log(value) for value in p)
    choices = tuple(f"c{n}" for n in range(len(p)))
    return ChoiceLogprobs(policy="a", prompt=prompt, category=None, choices=choices, logp=logp, right=right)


def drawn(n: int, seed: int, heat: float = 1.0) -> list[ChoiceLogprobs]:
    """Questions of four choices; the right one is drawn by softmax(log π / heat)."""
    chance = np.random.default_rng(seed)
    found = []
    for number in range(n):
        logp_C = np.log(chance.dirichlet(np.full(4, 0.6)) + 1e-9)
        right = int(chance.choice(4, p=np.exp(logp_C / heat - np.logaddexp.reduce(logp_C / heat))))
        found.append(asked(*np.exp(logp_C), right=right, prompt=str(number)))
    return found


def test_two_questions_by_hand():
    """0.8 and right, 0.6 and wrong; the first has half of all that the policy may say, the second all."""
    found = policy_calibration(
        [asked(0.4, 0.1, right=0, prompt="a"), asked(0.1, 0.6, 0.3, right=2, prompt="b")], QUICK
    )
    assert found.accuracy.value == 0.5
    assert found.confidence.value == pytest.approx(0.7)
    assert found.surplus.value == pytest.approx(0.2)
    assert found.ece.value == pytest.approx(abs(0.6 - 0.2) / 2), "one bin of two"
    assert found.brier.value == pytest.approx((2 * 0.2**2 + 0.1**2 + 0.6**2 + 0.7**2) / 2)
    assert found.log_loss.value == pytest.approx(-(math.log(0.8) + math.log(0.3)) / 2)
    assert found.covered.value == pytest.approx(0.75)
    assert [(one.pairs, one.right) for one in found.by_width] == [(1, 0.0), (1, 1.0)]


def test_of_equally_likely_choices_each_counts_its_share_whatever_their_order():
    found = policy_calibration(
        [asked(0.3, 0.3, 0.4 / 2, right=0), asked(0.25, 0.25, 0.25, 0.25, right=3)], QUICK
    )
    assert found.accuracy.value == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert (found.accuracy.n, found.accuracy.prompts, found.accuracy.low) == (2, 1, None)
    assert (found.ece.low, found.ece.high) == (None, None)


def test_scores_agree_with_scikit_learn():
    rows = drawn(200, seed=3)
    found = policy_calibration(rows, QUICK)
    p_QC = np.exp([one.logp for one in rows])
    p_QC /= p_QC.sum(1, keepdims=True)
    right_Q = [one.right for one in rows]
    assert found.log_loss.value == pytest.approx(log_loss(right_Q, p_QC, labels=range(4)))
    assert found.brier.value == pytest.approx(float(((p_QC - np.eye(4)[right_Q]) ** 2).sum(1).mean()))
    assert found.accuracy.value == np.mean(p_QC.argmax(1) == right_Q)


def test_whoever_is_right_as_often_as_sure_is_told_so_nine_times_in_ten():
    """The plain error is never 0; its interval reaches 0 where only chance made it."""
    found = [policy_calibration(drawn(150, seed=seed), QUICK) for seed in range(20)]
    assert all(one.ece.value > 0.01 for one in found)
    assert sum(one.ece.low == 0 for one in found) >= 18
    assert sum(one.surplus.low < 0 < one.surplus.high for one in found) >= 17


@pytest.mark.slow
def test_whoever_is_too_sure_is_told_so_and_by_how_much():
    """Right by softmax(log π / 3): the error over many questions is what that of few should cover."""
    truth = policy_calibration(drawn(10_000, seed=99, heat=3.0), Resampling(times=2)).ece.value
    found = [policy_calibration(drawn(200, seed=seed, heat=3.0), QUICK).ece for seed in range(20)]
    assert truth > 0.15
    assert sum(one.low <= truth <= one.high for one in found) >= 16
    assert all(one.low > 0 for one in found)


def test_where_all_were_right_by_luck_the_error_is_not_known_exactly():
    """Nine of ten are promised and all of sixty came: the true error may well be smaller."""
    found = policy_calibration([asked(0.9, 0.1, prompt=str(n)) for n in range(60)], QUICK).ece
    assert found.value == pytest.approx(0.1)
    assert 0 < found.low < 0.08
    assert found.high == pytest.approx(0.1, abs=0.005)


def test_a_temperature_is_found_on_some_questions_and_mends_others():
    rows = drawn(3000, seed=1, heat=2.5)
    heat = fitted_temperature(rows)
    assert heat == pytest.approx(2.5, rel=0.1)
    fresh = drawn(1000, seed=2, heat=2.5)
    before, after = policy_calibration(fresh, QUICK), policy_calibration(at_temperature(fresh, heat), QUICK)
    assert after.ece.high < before.ece.low
    assert after.accuracy.value == before.accuracy.value
    assert after.surplus.low < 0 < after.surplus.high
    losses = [
        policy_calibration(at_temperature(rows, value), Resampling(times=2)).log_loss.value
        for value in (heat * 0.9, heat, heat * 1.1)
    ]
    assert min(losses) == losses[1]


def test_where_nothing_can_be_fitted_the_temperature_stays_finite():
    always, never = [asked(0.6, 0.4)], [asked(0.4, 0.6)]
    assert 0 < fitted_temperature(always) < 0.02
    assert 100 < fitted_temperature(never) < math.inf


def test_changes_are_those_of_the_same_questions():
    rows = drawn(200, seed=5, heat=2.5)
    found = policy_calibration(rows, QUICK, at_temperature(rows, 2.5))
    assert found.surplus_change.low > 0
    assert found.ece_change.low > 0
    assert found.ece_change.value == pytest.approx(
        found.ece.value - policy_calibration(at_temperature(rows, 2.5), QUICK).ece.value
    )
    same = policy_calibration(rows, QUICK, rows)
    assert (same.ece_change.value, same.ece_change.low, same.ece_change.high) == (0, 0, 0)
    assert policy_calibration(rows, QUICK).ece_change is None
    with pytest.raises(ValueError, match="other questions"):
        policy_calibration(rows, QUICK, rows[1:])
    others = [replace(row, prompt=f"other {row.prompt}") for row in rows]
    with pytest.raises(ValueError, match="other questions"):
        policy_calibration(rows, QUICK, others)


def test_questions_of_one_prompt_are_drawn_together():
    rows = drawn(60, seed=8, heat=2.0)
    again = [replace(one, right=one.right) for one in rows for _ in range(4)]
    once, four = policy_calibration(rows, QUICK), policy_calibration(again, QUICK)
    assert four.ece.n == 240
    assert four.ece.prompts == 60
    assert four.ece.high - four.ece.low == pytest.approx(once.ece.high - once.ece.low, rel=0.35)


def by_transformers(folder, one: ChoiceQuestion) -> list[float]:
    """log π of every choice, each in a pass of its own in float64, by transformers alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    prompt = [{"role": turn.role, "content": turn.content} for turn in one.prompt]
    found = []
    for choice in one.choices:
        turns = [*prompt, {"role": "assistant", "content": choice}]
        begun = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)
        whole = tokenizer.apply_chat_template(turns, return_dict=True)
        first, ids = len(begun["input_ids"]), torch.tensor([whole["input_ids"]])
        assert ids[0, -1] == tokenizer.eos_token_id
        with torch.no_grad():
            logp_LV = model(ids).logits[0].log_softmax(-1)
        found.append(sum(float(logp_LV[at - 1, ids[0, at]]) for at in range(first, ids.shape[1])))
    return found


def test_log_probs_are_those_of_transformers_in_float64_end_and_all():
    speaker = load_policy_folder(base_model_folder(), GenerationSettings(device="cpu", dtype="float64"))
    rows = closed_questions(4)
    found = score_choices("base", speaker.policy, speaker.encoder, rows)
    for one, own in zip(rows[:2], found[:2], strict=True):
        assert own.logp == pytest.approx(by_transformers(base_model_folder(), one), abs=1e-9)
        assert own.right == one.right
    assert [one.category for one in found] == ["fact", "arithmetic", "fact", "arithmetic"]


def test_a_text_is_a_users_turn_where_there_is_a_template(tmp_path):
    speaker = load_policy_folder(policy(tmp_path, 0), GenerationSettings(device="cpu"))
    text = ChoiceQuestion(prompt="w9 w12", choices=("w3", "w4 w5"), right=0)
    turns = replace(text, prompt=user_turn("w9 w12"))
    both = [score_choices("a", speaker.policy, speaker.encoder, [one])[0] for one in (text, turns)]
    assert both[0].logp == pytest.approx(both[1].logp)
    example = speaker.encoder.encode(turns.prompt, [assistant_turn("w3")])
    assert example.completions[0].ids[-1] in speaker.encoder.stop_ids


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_worlds_questions_are_of_the_split_and_their_right_choice_is_the_best_answer(split):
    rows = closed_questions(40, split=split)
    for one in rows:
        question = question_of_prompt(one.prompt)
        assert split_of(question) == split
        assert one.choices[one.right] == question.best
        assert len(set(one.choices)) == len(one.choices) > 1
    assert len({one.prompt for one in rows}) == 40
    assert rows == closed_questions(40, split=split)
    assert closed_questions(40, split=split, seed=1) != rows
    assert len(closed_questions(100_000, split="validation")) > 100


def test_questions_become_tokens_once_for_models_that_encode_alike(tmp_path):
    rows, encoded = [ChoiceQuestion(prompt="w9 w12", choices=("w3", "w4 w5"), right=0)], EncodedChoices()
    one, other = (make_encoder(policy(tmp_path, seed)) for seed in (0, 1))
    first = encoded.examples(rows, one)
    assert encoded.examples([*rows], other) is first
    assert encoded.examples([replace(rows[0], right=1)], other) is not first
    assert encoded.examples(rows, replace(other, turns="last")) is not first
