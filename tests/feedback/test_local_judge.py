"""A chat model of a folder as a judge: the chances of whole words, as transformers alone has them."""

import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from examples.mind_server.server import MindServer
from plaudit.data.judging import NoVerdict, Orders, Task, Verdict, first_probability, outcomes
from plaudit.errors import UserError
from plaudit.evaluation.policies.judge import check_judge, family_note, load_judge
from plaudit.feedback import local_judge
from plaudit.feedback.asking import ModelJudgeSettings
from plaudit.feedback.judge_kinds import SINGLE_ANSWER, JudgeReward
from plaudit.feedback.judges.chat import TOO_LONG
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.modes import HowToAsk
from plaudit.feedback.judges.replies import CUT
from plaudit.feedback.judges.wording import ShownPair, pair_question, wording_named
from plaudit.feedback.local_judge import LocalChat, folder_stamp
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.minds import Mind
from plaudit.rewards.comparing import judge_named
from plaudit.rewards.kinds import JudgeSettings
from plaudit.rewards.registry import resolve_reward
from plaudit.tokens.encode import make_encoder
from tests.feedback.judges.judges import pair
from tests.rewards.llm.generative_zoo import by_transformers, task

OWL = pair("Mice.", "Bark.")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies of before are not read: every test asks the model itself."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def local(how: str, **more: object) -> ModelJudge:
    found = judge_named(
        f"model:{base_model_folder()},how={how}",
        ModelJudgeSettings(device="cpu", ask=HowToAsk(**more)),  # type: ignore[arg-type]
    )
    assert isinstance(found, ModelJudge)
    return found


def chat_of(judge: ModelJudge) -> LocalChat:
    assert isinstance(judge.asker, LocalChat)
    return judge.asker


def test_points_are_the_mean_over_the_chances_that_transformers_gives_the_numbers():
    judge = local("points")
    [[mice, bark]] = judge.scores([OWL])
    assert isinstance(mice, float)
    encoder = make_encoder(base_model_folder())
    request, _ = judge._requests(OWL)
    from plaudit.data.records import assistant_turn, user_turn

    shown = user_turn(request.question.text(controls=encoder.info.specials))
    logps = [
        by_transformers(base_model_folder(), encoder, shown, assistant_turn(str(n))) for n in range(1, 6)
    ]
    weights = [math.exp(logp - max(logps)) for logp in logps]
    expected = sum(n * weight for n, weight in enumerate(weights, 1)) / sum(weights)
    assert mice == pytest.approx(expected, abs=1e-3)
    assert mice != bark


def test_a_tokenizer_that_does_not_know_the_letters_is_refused_with_what_to_do():
    with pytest.raises(
        UserError, match=r"does not know the word 'B', so it cannot reply with A or B; ask in another"
    ):
        outcomes(local("letter"), [OWL], 0)


def test_reasons_are_written_and_a_reply_that_never_comes_to_its_verdict_is_none(tmp_path):
    found = outcomes(local("verdict", max_tokens=4), [OWL, OWL], 0)
    assert [outcome.reason for outcome in found if isinstance(outcome, NoVerdict)] == [CUT, CUT]


@pytest.mark.parametrize("how", ["points", "verdict"])
def test_a_question_longer_than_the_model_is_too_long_and_no_side(monkeypatch, how):
    monkeypatch.setattr(local_judge, "LONGEST_QUESTION", 20)
    [found] = outcomes(local(how), [OWL], 0)
    assert isinstance(found, NoVerdict)
    assert found.reason == TOO_LONG


def test_a_folder_is_loaded_once_and_its_replies_are_on_disk(tmp_path, monkeypatch):
    first, again = local("points", max_tokens=4), local("verdict", max_tokens=4)
    assert chat_of(first)._model is chat_of(again)._model
    assert chat_of(again)._model.sampler.policy is chat_of(again)._model.policy
    said = [outcomes(judge, [OWL], 0) for judge in (first, again)]
    before = chat_of(first).estimate(first._requests(OWL))
    assert before.cached == before.questions == 2

    def nobody(*_: object) -> list[object]:
        raise AssertionError("nothing is computed twice")

    monkeypatch.setattr(LocalChat, "_scored", nobody)
    monkeypatch.setattr(LocalChat, "_written", nobody)
    assert [outcomes(judge, [OWL], 0) for judge in (first, again)] == said
    # Weights that are written anew are another model.
    copy = tmp_path / "model"
    shutil.copytree(base_model_folder(), copy)
    stamp = folder_stamp(copy)
    os.utime(copy / "model.safetensors", ns=(1, 1))
    assert folder_stamp(copy) != stamp


def test_what_a_local_model_writes_is_in_the_numbers_that_were_asked_for():
    settings = ModelJudgeSettings(device="cpu", dtype="bfloat16", ask=HowToAsk(how="verdict", max_tokens=2))
    judge = judge_named(f"model:{base_model_folder()}", settings)
    assert isinstance(judge, ModelJudge)
    assert chat_of(judge)._model.sampler.policy.base.dtype == torch.bfloat16
    assert outcomes(judge, [OWL], 0) == [NoVerdict(reason=CUT, orders=Orders(forward=None, backward=None))]


def test_control_tokens_of_the_very_model_are_taken_apart():
    encoder = make_encoder(base_model_folder())
    control = encoder.info.specials[0]
    text = pair_question(
        wording_named("letter"), ShownPair(prompt="p", first=f"a {control} b", second="c")
    ).text(controls=encoder.info.specials)
    assert control not in text


def test_a_judge_of_the_judged_models_kind_and_a_missing_folder_are_told(tmp_path):
    check_judge(f"model:{base_model_folder()},how=points", has_gold=False)
    with pytest.raises(UserError, match="there is no folder"):
        check_judge(f"model:{tmp_path / 'none'}", has_gold=False)
    note = family_note(f"model:{base_model_folder()}", "local", {"sft": base_model_folder()})
    assert note is not None
    assert note == "local is the very model of sft; a judge may prefer its own kind"
    shutil.copytree(base_model_folder(), tmp_path / "other")
    policies = {"sft": base_model_folder(), "other": tmp_path / "other"}
    note = family_note(f"model:{base_model_folder()}", "local", policies)
    assert note is not None
    assert note.startswith("local is the very model of sft and of the same family of models as other;")
    path = tmp_path / "jury.yaml"
    path.write_text(f"- model:{base_model_folder()},how=points\n- length:1-20\n")
    assert family_note(f"jury:{path}", "jury", {"sft": base_model_folder()}) is not None
    assert load_judge(f"jury:{path}", {}, JudgeSettings(device="cpu")).verdicts([OWL], 0)[0] is not None


def test_any_judge_is_a_reward_by_points_by_the_truth_or_against_the_other_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    answers = ("Mice.", "Bark.", "Perhaps mice.")
    asked = Task(prompt="What does the owl eat?", answers=answers, ended=(True,) * 3, reference_answer="mice")
    with MindServer([Mind(accuracy=1.0)]) as server:
        word = f"judge:openai:{server.url}#world"
        for how, compares in (("", False), (",how=answer", False), (",how=letter", True)):
            reward = resolve_reward(f"{word}{how}")
            assert isinstance(reward, JudgeReward)
            assert reward.traits.compares_answers == compares
            [(mice, bark, perhaps)] = reward.scores([asked])
            assert mice is not None
            assert bark is not None
            assert perhaps is not None
            assert mice > bark
            assert perhaps > bark
        single = replace(asked, answers=answers[:1], ended=(True,))
        reward = resolve_reward(f"{word},how=letter")
        assert reward.scores([single]) == ((None,),)
        assert isinstance(reward, JudgeReward)
        assert reward.refused == {SINGLE_ANSWER: 1}
    terse = tmp_path / "mine.py"
    terse.write_text("def terser(first, second): return 'first' if len(first) < len(second) else 'second'\n")
    for word in ("judge:length:1-1", f"judge:{terse}:terser"):
        [row] = resolve_reward(word).scores([task("p", "a", "b c d")])
        assert row == (1.0, 0.0)


def test_a_judge_without_the_word_is_no_reward_and_says_how_to_make_it_one():
    with pytest.raises(UserError, match="As a reward it is judge:openai:http://h/v1#m, which gives points"):
        resolve_reward("openai:http://h/v1#m")


def test_verdicts_of_a_local_model_say_the_same_for_every_seed():
    first, second = (outcomes(local("points"), [OWL], seed) for seed in (0, 9))
    assert first == second
    assert isinstance(first[0], Verdict)
    # Two numbers of which either may be the higher: the chance is no side.
    assert 0.3 < first_probability(first[0]) < 0.7
    assert first_probability(first[0]) != 0.5
    assert json.dumps(local("points").version) == '"points-1"'
