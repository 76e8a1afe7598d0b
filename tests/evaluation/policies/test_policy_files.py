"""What an evaluation of policies leaves behind comes back equal, or is refused before it is written."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from plaudit.errors import UserError
from plaudit.evaluation.policies.over_optimisation import OverOptimisation
from plaudit.evaluation.policies.result import (
    ANSWERS_FILE,
    FIGURES_FILE,
    CategoryFigure,
    Contest,
    Diversity,
    PolicyAnswer,
    PolicyEvaluation,
    PolicyFigures,
    PromptAnswers,
    Rating,
    read_policy_evaluation,
    write_policy_evaluation,
)
from plaudit.evaluation.reward_models.result import BestOfNCurve, BestOfNPoint
from plaudit.evaluation.stats import Estimate

SURE = Estimate(value=1.0, low=None, high=None, n=2, prompts=1)
HALF = Estimate(value=0.5, low=0.25, high=0.75, n=4, prompts=2)
DIVERSITY = Diversity(
    words=3, answers=2, distinct_1=0.5, distinct_2=None, self_bleu=1.5, self_bleu_within=None, unique=1.0,
    unique_within=None,
)  # fmt: skip

FIGURES_OF_ONE = PolicyFigures(
    name="ppo",
    model="runs/ppo",
    gold=HALF,
    by_category=(CategoryFigure(name="fact", value=SURE),),
    reward=None,
    length=HALF,
    finished=SURE,
    kl=HALF,
    kl_token=None,
    entropy=HALF,
    diversity=DIVERSITY,
)
CONTEST = Contest(
    policy="ppo",
    against="sft",
    judge="gold",
    won=1,
    tied=1,
    lost=0,
    unjudged=1,
    reasons={"refused": 1},
    raw=HALF,
    decided=SURE,
    length_controlled=None,
    style_controlled=HALF,
    consistency=None,
    first=None,
    p_value=0.5,
    by_category=(),
)

TURNED = OverOptimisation(
    form="best-of-n",
    alpha=HALF,
    beta=HALF,
    peak=replace(HALF, high=None),
    height=0.25,
    furthest=1.5,
    error=0.0,
    note=None,
)


def said(policy: str, text: str, gold: float | None) -> PolicyAnswer:
    return PolicyAnswer(
        policy=policy, text=text, ended=True, tokens=3, gold=gold, reward=None, logp=-2.5, kl=0.125
    )


def found() -> PolicyEvaluation:
    strange = (said("ppo", "\ud800 <b>[[A]]\u2028\r\n", 0.1), said("sft", "", None))
    plain = (said("ppo", "Again", 1.0), said("sft", "Same", 0.0))
    every = tuple(PromptAnswers(prompt="Hi\nthere", category=None, answers=both) for both in (strange, plain))
    return PolicyEvaluation(
        policies=(FIGURES_OF_ONE, replace(FIGURES_OF_ONE, name="sft", kl=None)),
        reference="sft",
        gold="gold",
        reward=None,
        prompts=1,
        answers=2,
        sampling="temperature 1, at most 64 tokens",
        seeds=(0, 1),
        contests=(CONTEST,),
        ratings=(Rating(name="ppo", elo=1010.0, low=None, high=None),),
        best_of=BestOfNCurve(
            answers=2,
            prompts=1,
            left_out=0,
            points=(BestOfNPoint(n=1, kl=0.0, truth=HALF, proxy=1.0, possible=0.5),),
        ),
        shown=every[:1],
        notes=("few",),
        over_optimisation=TURNED,
        all_answers=every,
    )


def test_what_was_written_is_read_back_equal(tmp_path):
    one, new = found(), tmp_path / "new"
    assert write_policy_evaluation(one, new) == [new / FIGURES_FILE, new / ANSWERS_FILE]
    assert read_policy_evaluation(new) == read_policy_evaluation(new / FIGURES_FILE) == one
    lines = [json.loads(line) for line in (new / ANSWERS_FILE).read_bytes().split(b"\n") if line]
    places = [("ppo", 0), ("sft", 0), ("ppo", 1), ("sft", 1)]
    assert [(line["policy"], line["number"]) for line in lines] == places
    (new / ANSWERS_FILE).unlink()
    assert read_policy_evaluation(new) == replace(one, all_answers=())


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_figure_that_is_no_number_is_named_and_nothing_is_written(tmp_path, number):
    one = found()
    bad = replace(one.policies[0], entropy=replace(HALF, low=number))
    with pytest.raises(UserError, match=r"policies\[0\].entropy.low: (nan|inf) is not a finite number"):
        write_policy_evaluation(replace(one, policies=(bad,)), tmp_path)
    worse = replace(one.all_answers[0], answers=(replace(one.all_answers[0].answers[0], gold=number),))
    with pytest.raises(UserError, match=r"answers.jsonl\[0\].gold"):
        write_policy_evaluation(replace(one, all_answers=(worse,)), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_something_else_is_refused_in_words(tmp_path):
    with pytest.raises(UserError, match="no evaluation of policies can be read there"):
        read_policy_evaluation(tmp_path)
    for content in ("{", "[]", "{}", '{"policies": 3}', '{"policies": [{"name": 3}]}'):
        (tmp_path / FIGURES_FILE).write_text(content)
        with pytest.raises(UserError, match="this is no evaluation of policies"):
            read_policy_evaluation(tmp_path)
    write_policy_evaluation(found(), tmp_path)
    (tmp_path / ANSWERS_FILE).write_text('{"number": 0}\n')
    with pytest.raises(UserError, match="damaged"):
        read_policy_evaluation(tmp_path)
