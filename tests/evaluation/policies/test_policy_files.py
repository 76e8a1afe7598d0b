"""What an evaluation of policies leaves behind comes back equal, or is refused before it is written."""

import json
from dataclasses import replace

import pytest

from plaudit.errors import UserError
from plaudit.evaluation.policies import result
from plaudit.evaluation.policies.over_optimisation import OverOptimisation
from plaudit.evaluation.stats import Estimate
from tests.runs.report.pipeline.pipelines import FOUND, contest, policy

SURE = Estimate(value=1.0, low=None, high=None, n=2, prompts=1)
HALF = Estimate(value=0.5, low=0.25, high=0.75, n=4, prompts=2)
FIGURES_OF_ONE = replace(
    policy("ppo", 0.8, 0.33),
    by_category=(result.CategoryFigure(name="fact", value=SURE),),
    reward=None,
    finished=SURE,
    kl_token=None,
)
CONTEST = contest("ppo", 0.6, unjudged=1, reasons={"refused": 1}, decided=SURE, style_controlled=HALF)
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


def said(policy: str, text: str, gold: float | None) -> result.PolicyAnswer:
    return result.PolicyAnswer(
        policy=policy, text=text, ended=True, tokens=3, gold=gold, reward=None, logp=-2.5, kl=0.125
    )


def found() -> result.PolicyEvaluation:
    strange = (said("ppo", "\ud800 <b>[[A]]\u2028\r\n", 0.1), said("sft", "", None))
    plain = (said("ppo", "Again", 1.0), said("sft", "Same", 0.0))
    every = tuple(
        result.PromptAnswers(prompt="Hi\nthere", category=None, answers=both) for both in (strange, plain)
    )
    return replace(
        FOUND,
        policies=(FIGURES_OF_ONE, replace(FIGURES_OF_ONE, name="sft", kl=None)),
        reward=None,
        prompts=1,
        answers=2,
        seeds=(0, 1),
        contests=(CONTEST,),
        ratings=(result.Rating(name="ppo", elo=1010.0, low=None, high=None),),
        shown=every[:1],
        over_optimisation=TURNED,
        all_answers=every,
    )


def test_what_was_written_is_read_back_equal(tmp_path):
    one, new = found(), tmp_path / "new"
    assert result.write_policy_evaluation(one, new) == [new / result.FIGURES_FILE, new / result.ANSWERS_FILE]
    assert (
        result.read_policy_evaluation(new) == result.read_policy_evaluation(new / result.FIGURES_FILE) == one
    )
    lines = [json.loads(line) for line in (new / result.ANSWERS_FILE).read_bytes().split(b"\n") if line]
    places = [("ppo", 0), ("sft", 0), ("ppo", 1), ("sft", 1)]
    assert [(line["policy"], line["number"]) for line in lines] == places
    (new / result.ANSWERS_FILE).unlink()
    assert result.read_policy_evaluation(new) == replace(one, all_answers=())


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_figure_that_is_no_number_is_named_and_nothing_is_written(tmp_path, number):
    one = found()
    bad = replace(one.policies[0], entropy=replace(HALF, low=number))
    with pytest.raises(UserError, match=r"policies\[0\].entropy.low: (nan|inf) is not a finite number"):
        result.write_policy_evaluation(replace(one, policies=(bad,)), tmp_path)
    worse = replace(one.all_answers[0], answers=(replace(one.all_answers[0].answers[0], gold=number),))
    with pytest.raises(UserError, match=r"answers.jsonl\[0\].gold"):
        result.write_policy_evaluation(replace(one, all_answers=(worse,)), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_something_else_is_refused_in_words(tmp_path):
    with pytest.raises(UserError, match="no evaluation of policies can be read there"):
        result.read_policy_evaluation(tmp_path)
    for content in ("{", "[]", "{}", '{"policies": 3}', '{"policies": [{"name": 3}]}'):
        (tmp_path / result.FIGURES_FILE).write_text(content)
        with pytest.raises(UserError, match="this is no evaluation of policies"):
            result.read_policy_evaluation(tmp_path)
    result.write_policy_evaluation(found(), tmp_path)
    (tmp_path / result.ANSWERS_FILE).write_text('{"number": 0}\n')
    with pytest.raises(UserError, match="damaged"):
        result.read_policy_evaluation(tmp_path)
