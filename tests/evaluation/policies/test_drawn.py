"""Answers are drawn with the same numbers for every policy, and kept as they were drawn."""

import shutil
from dataclasses import replace

import pytest

from plaudit.data.records import Comparison, Prompt, user_turn
from plaudit.errors import UserError
from plaudit.evaluation.policies.generate import GenerationSettings, evaluation_prompts, generate_completions
from plaudit.evaluation.policies.scores import why_no_kl
from plaudit.rollouts.sampler import SamplingSettings
from tests.evaluation.policies.tiny import ASKED, policy

SHORT = SamplingSettings(max_tokens=5)


def test_the_same_model_says_the_same_whoever_else_is_asked(tmp_path):
    folder = policy(tmp_path, 0)
    twin = shutil.copytree(folder, tmp_path / "twin")
    drawing = GenerationSettings(sampling=SHORT, answers=2, seeds=(4, 9), device="cpu")
    one = generate_completions("one", folder, ASKED, drawing)
    other = generate_completions("other", twin, ASKED[:1], drawing)
    assert [len(group) for group in one.rollouts] == [4, 4]
    assert [a.ids for a in other.rollouts[0]] == [a.ids for a in one.rollouts[0]]
    alone = generate_completions("alone", folder, ASKED, replace(drawing, seeds=(9,)))
    for whole, second in zip(one.rollouts, alone.rollouts, strict=True):
        assert [a.ids for a in whole[2:]] == [a.ids for a in second]
    for group, thought in zip(one.rollouts, one.scores, strict=True):
        known = [sum(one.whole_logp) for one in group]
        assert [one.logp for one in thought] == pytest.approx(known, abs=1e-4)


def test_where_kl_cannot_be_measured_it_is_said_why(tmp_path):
    short = GenerationSettings(sampling=SHORT)
    one, other = (generate_completions(str(n), policy(tmp_path, n), ASKED, short) for n in (0, 1))
    assert why_no_kl(one, other, short) is None
    cut = GenerationSettings(sampling=SamplingSettings(top_p=0.9, max_tokens=5))
    assert "top-p 0.9, at most 5 tokens" in str(why_no_kl(one, other, cut))
    likeliest = GenerationSettings(sampling=SamplingSettings(temperature=0))
    assert "the likeliest token each time" in str(why_no_kl(one, other, likeliest))
    folder = policy(tmp_path, 2)
    template = (folder / "chat_template.jinja").read_text("utf-8")
    (folder / "chat_template.jinja").write_text(template.replace("}} <|end|>", "}} w5 <|end|>"), "utf-8")
    told = generate_completions("told", folder, ASKED, short)
    assert "chat templates differ" in str(why_no_kl(told, other, short))


def test_prompts_of_any_rows_are_asked_once_with_what_is_known_of_them():
    rows = [
        Prompt(prompt="2 + 2?", answer="4", metadata={"category": "sums", "level": 1}),
        Comparison(prompt=user_turn("Hi"), chosen=(), rejected=(), category="talk"),
        Prompt(prompt="2 + 2?", answer="5"),
    ]
    first, second = evaluation_prompts(rows)
    assert (first.category, first.reference_answer, first.metadata["level"]) == ("sums", "4", 1)
    assert (second.category, second.reference_answer) == ("talk", None)
    assert first.task([("4", True)]).answers == ("4",)
    assert second.task([("Hello", False)]).ended == (False,)
    assert not isinstance(second.task([("Hello", False)]).answers[0], str)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sampling": SamplingSettings(temperature=0), "seeds": (0, 1)}, "all 2 answers to a prompt are the"),
        ({"seeds": (1, 1)}, "all of them different"),
        ({"answers": 0}, "answers 0"),
        ({"dtype": "int8"}, "dtype"),
    ],
)
def test_what_draws_nothing_is_refused(settings, says):
    with pytest.raises(UserError, match=says):
        GenerationSettings(**settings)
