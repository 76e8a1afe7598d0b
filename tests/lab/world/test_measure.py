"""What a model is worth in the world: the base model has something to learn, and demonstrations teach it."""

import json

import pytest

from plaudit.cli.main import main
from plaudit.errors import UserError
from plaudit.lab.verbs.world import print_standings
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.exam import ScoredAnswer, compare_models, mean_utilities, score_model_answers
from plaudit.lab.world.gold import gold_of, judge_answer
from plaudit.lab.world.prompts import questions
from plaudit.lab.world.questions import CATEGORIES
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import Answer, SamplingSettings
from tests.engine.toy_command import finish, plaudit


@pytest.fixture(scope="module")
def base() -> LocalSampler:
    return LocalSampler(base_model_folder())


@pytest.fixture(scope="module")
def scored(base: LocalSampler) -> list[ScoredAnswer]:
    return score_model_answers(base, SamplingSettings(seed=3), n=60)


def test_each_category_is_asked_alike_and_every_answer_is_scored(scored):
    assert [one.question.category for one in scored] == [c for c in CATEGORIES for _ in range(5)]
    for one in scored:
        assert gold_of(one.question.messages, one.answer.text, ended=one.answer.ended) == one.gold
    found = mean_utilities(scored)
    assert [*found] == [*CATEGORIES, "all"]
    assert found["all"].mean == pytest.approx(sum(found[c].mean for c in CATEGORIES) / len(CATEGORIES))


def test_the_error_is_that_of_prompts_not_of_answers(scored):
    """A prompt that is asked again and again says nothing new: ten copies must not make the error smaller."""
    one, ten = mean_utilities(scored), mean_utilities(scored * 10)
    for category in [*CATEGORIES, "all"]:
        assert ten[category].error == pytest.approx(one[category].error)
        assert ten[category].mean == pytest.approx(one[category].mean)


@pytest.mark.slow
def test_the_base_model_knows_much_and_speaks_in_mixed_styles(base):
    greedy, drawn = (
        mean_utilities(score_model_answers(base, SamplingSettings(temperature=t), n=144))["all"].mean
        for t in (0.0, 1.0)
    )
    assert greedy > 0.7
    assert 0.4 < drawn < 0.75


@pytest.mark.slow
def test_demonstrations_make_it_better_on_subjects_that_they_never_mention(tmp_path):
    rows, run = tmp_path / "rows.jsonl", tmp_path / "run"
    assert plaudit("world", "make", "demonstrations", "--n", 1000, "--out", rows).code == 0
    words = ("train", "sft", "--model", base_model_folder(), "--data", rows, "--out", run)
    finish(*words, "--epochs", 1, "--learning-rate", 5e-4, "--sample.rows", 0)
    settings = SamplingSettings(seed=1)
    before, after = (
        mean_utilities(score_model_answers(LocalSampler(folder), settings, n=360))["all"]
        for folder in (base_model_folder(), run / "model")
    )
    assert after.mean - before.mean > 3 * (before.error + after.error)


def test_the_command_prints_a_table_and_writes_every_answer(tmp_path, capsys):
    out = tmp_path / "answers.jsonl"
    assert main(["world", "score", "--n", "24", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert all(category in printed for category in CATEGORIES)
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert len(rows) == 24
    assert rows[0].keys() >= {"prompt", "completion", "utility", "helpful", "honest", "ended"}
    assert all(0 <= row["utility"] <= 1 for row in rows)


def test_too_few_answers_and_a_model_that_is_given_twice_are_refused(base, capsys):
    with pytest.raises(UserError, match="11 answers cannot cover the 12 categories"):
        score_model_answers(base, SamplingSettings(), n=11)
    assert main(["world", "score", "--n", "16", *["--model", str(base_model_folder())] * 2]) == 2
    assert "is given 2 times; name each model once" in capsys.readouterr().err


def test_more_models_than_fit_beside_each_other_stand_below(scored, capsys):
    names = [f"model-{number}" for number in range(5)]
    print_standings(dict.fromkeys(names, mean_utilities(scored)), split="test", temperature=1.0)
    heads = [line for line in capsys.readouterr().out.splitlines() if "category" in line]
    shown = [[name in head for name in names] for head in heads]
    assert shown == [[True] * 4 + [False], [False] * 4 + [True]]


def said(*how: str) -> list[ScoredAnswer]:
    """The best answer to a prompt, the same with a doubt, or nonsense."""
    made: list[ScoredAnswer] = []
    for question, manner in zip(questions("test", "fact"), how, strict=False):
        text = {"best": question.best, "doubt": f"Perhaps {question.best}", "nonsense": "Bark bark."}[manner]
        answer = Answer(text=text, tokens=1, ended=True)
        made.append(ScoredAnswer(question=question, answer=answer, gold=judge_answer(question, text)))
    return made


def test_a_duel_counts_what_is_better_worse_and_of_equal_worth_over_the_same_prompts():
    found = compare_models(
        said("best", "best", "doubt", "doubt"), said("nonsense", "best", "best", "nonsense")
    )
    assert (found.won, found.lost, found.tied) == (2, 1, 1)
    assert found.win_share == pytest.approx(2 / 3)
    assert found.win_share_with_ties == pytest.approx(2.5 / 4)
    same = said("best", "nonsense")
    assert compare_models(same, same).win_share == 0.5
    with pytest.raises(UserError, match="other prompts"):
        compare_models(said("best", "best"), said("best", "best")[::-1])
