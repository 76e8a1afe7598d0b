"""Who judges: the truth, a reward's chance, a function in both orders; and who is related to whom."""

import json
import math
from pathlib import Path

import pytest

from plaudit.data.judging import BothWays, Judge, Mark, Task, Verdict
from plaudit.errors import UserError
from plaudit.evaluation.policies.generate import EvaluationPrompt, GenerationSettings, generate_completions
from plaudit.evaluation.policies.judge import check_judge, family_note, judge_pairs, load_judge, sees_order
from plaudit.evaluation.policies.win_rate import contest_result
from plaudit.evaluation.stats import Resampling
from plaudit.rewards.base import FunctionReward
from plaudit.rewards.comparing import FunctionJudge, RewardJudge
from plaudit.rewards.registry import UserFunctionReward
from plaudit.rollouts.sampler import SamplingSettings
from tests.evaluation.policies.tiny import ASKED, policy
from tests.feedback.judges.judges import InOrders, both_orders


def length(prompt, answer) -> float | None:
    return None if not answer else float(len(answer))


def shorter(first: str, second: str) -> str | None:
    if "?" in first + second:
        return None
    return "tie" if len(first) == len(second) else "first" if len(first) < len(second) else "second"


def likes_the_first(first: str, second: str) -> Verdict:
    return Verdict(marks=(Mark(rank=1), Mark(rank=2)), probability=0.8, annotator="biased")


def pair(first: str, second: str) -> Task:
    return Task(prompt="q", answers=(first, second), ended=(True, True))


LENGTH = FunctionReward(name="length", function=length)


def test_a_score_judge_prefers_the_higher_and_a_learnt_one_says_how_likely():
    tasks = [pair("abc", "a"), pair("a", "abc"), pair("ab", "cd"), pair("a", "")]
    gold = RewardJudge(name="gold", reward=LENGTH)
    silent = InOrders(forward=None, backward=None, reason="no verdict")
    assert isinstance(gold, Judge)
    assert not sees_order(gold)
    assert both_orders(gold, tasks) == [InOrders(forward=p, backward=p) for p in (1.0, 0.0, 0.5)] + [silent]
    learnt = both_orders(RewardJudge(name="reward", reward=LENGTH, log_odds=True), tasks)
    sigma = 1 / (1 + math.exp(-2))
    assert [one.forward for one in learnt] == pytest.approx([sigma, 1 - sigma, 0.5, None])
    assert both_orders(gold, []) == []


def test_a_function_is_asked_in_both_orders_and_its_chance_counts():
    judge = load_judge(f"{__name__}:shorter")
    assert isinstance(judge, BothWays)
    found = both_orders(judge, [pair("a", "abc"), pair("abc", "a"), pair("ab", "cd"), pair("a?", "b")])
    assert [one.forward for one in found] == [1.0, 0.0, 0.5, None]
    assert [one.backward for one in found] == [1.0, 0.0, 0.5, None]
    assert found[3].reason == "no verdict"
    biased = BothWays(judge=FunctionJudge(name="biased", function=likes_the_first))
    [one] = both_orders(biased, [pair("a", "b")])
    assert (one.forward, one.backward) == (0.8, pytest.approx(0.2))


def test_a_judge_that_sees_only_places_finds_nobody_better(tmp_path):
    drawing = GenerationSettings(sampling=SamplingSettings(max_tokens=5), answers=3, device="cpu")
    mine, theirs = (generate_completions(str(n), policy(tmp_path, n), ASKED, drawing) for n in (0, 1))
    biased = BothWays(judge=FunctionJudge(name="biased", function=likes_the_first))
    found = judge_pairs(biased, ASKED, {("0", "1"): (mine, theirs), ("1", "0"): (theirs, mine)})
    told = contest_result(("0", "1", "biased"), found["0", "1"], Resampling(times=50), sees_order=True)
    assert (told.won, told.tied, told.lost) == (0, 6, 0)
    assert told.consistency is not None
    assert told.consistency.value == 0
    assert told.first is not None
    assert told.first.value == 1
    assert [one.mine for one in found["1", "0"]] == [one.theirs for one in found["0", "1"]]
    assert [one.category for one in found["0", "1"]] == ["odd"] * 3 + ["even"] * 3


def test_gold_is_told_of_answers_that_were_cut_off():
    gold = UserFunctionReward(name="gold", function=lambda answer, ended: float(ended))
    task = EvaluationPrompt(prompt="q").task([("a", True), ("a", False)])
    assert both_orders(RewardJudge(name="gold", reward=gold), [task])[0].forward == 1.0


def test_words_that_name_no_judge_are_refused():
    with pytest.raises(UserError, match="where the true worth is known"):
        check_judge("gold", has_gold=False)
    with pytest.raises(UserError, match="nobody knows"):
        load_judge("gold")
    with pytest.raises(UserError, match="cannot be imported"):
        check_judge("no_such_module:f", has_gold=False)
    with pytest.raises(UserError, match="no reward"):
        check_judge("nonsense", has_gold=True)
    check_judge("openai:http://127.0.0.1:8000/v1#m", has_gold=False)
    with pytest.raises(UserError, match="name the model behind a #"):
        check_judge("openai:http://127.0.0.1:8000/v1", has_gold=False)


def test_a_judge_of_the_same_family_is_named(tmp_path):
    def folder(name: str, kind: str) -> Path:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"architectures": [kind]}))
        return tmp_path / name

    policies = {"sft": folder("sft", "Qwen2ForCausalLM"), "gpt": folder("gpt", "GPT2LMHeadModel")}
    said = family_note("openai:http://x/v1#Qwen2.5-72B-Instruct", "judge", policies)
    assert said == "judge is of the same family of models as sft; a judge may prefer its own kind"
    assert family_note("openai:http://x/v1#mistral-large", "judge", policies) is None
    reward = folder("reward", "Qwen3ForSequenceClassification")
    assert "as sft" in str(family_note(str(reward), "reward", policies))
    assert family_note("length:1-20", "length", policies) is None
