"""Rows of a model's own answers: sampled, different, whole, and judged by a pool."""

from collections.abc import Sequence

import pytest

from plaudit.cli.main import main
from plaudit.data.judging import Task
from plaudit.data.read import read_records
from plaudit.data.records import Ranking, Rating, Text
from plaudit.errors import UserError
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.gold import gold_of
from plaudit.lab.world.making import model_answer_tasks
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings


@pytest.fixture(scope="module")
def sampler() -> LocalSampler:
    return LocalSampler(base_model_folder(), device="cpu")


@pytest.fixture(scope="module")
def tasks(sampler: LocalSampler) -> list[Task]:
    return model_answer_tasks(sampler, 12, answers=2, seed=5)


def test_every_task_has_as_many_different_answers_as_were_asked_for(tasks):
    assert len(tasks) == 12
    assert all(len({str(answer) for answer in task.answers}) == 2 for task in tasks)
    assert all(all(task.ended) for task in tasks)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_answers_and_another_one_others(sampler, tasks):
    assert model_answer_tasks(sampler, 12, answers=2, seed=5) == tasks
    assert model_answer_tasks(sampler, 12, answers=2, seed=6) != tasks


def test_no_more_prompts_are_asked_than_are_missing(monkeypatch, sampler):
    asked = list[int]()
    ask = sampler.generate_answers

    def counted(prompts: Sequence[Text], settings: SamplingSettings, *, n: int):
        asked.append(len(prompts))
        return ask(prompts, settings, n=n)

    monkeypatch.setattr(sampler, "generate_answers", counted)
    monkeypatch.setattr("plaudit.lab.world.making.SMALLEST_BATCH", 8)
    rows = model_answer_tasks(sampler, 40, answers=2, seed=5, temperature=0.7)
    assert asked[0] == 40 == len(rows)
    # Some prompts are passed over, and the second forty are not asked as a whole.
    assert len(asked) > 1
    assert sum(asked) < 80


def test_answers_of_a_split_are_to_prompts_of_that_split(sampler, tasks):
    other = model_answer_tasks(sampler, 16, answers=2, split="test", seed=5, categories=("fact",))
    assert {task.category for task in other} == {"fact"}
    assert not {task.prompt for task in other} & {task.prompt for task in tasks}


def test_a_low_temperature_draws_likelier_answers(sampler):
    shares = {}
    for temperature in (0.4, 1.5):
        tasks = model_answer_tasks(
            sampler, 32, answers=2, seed=5, categories=("arithmetic",), temperature=temperature
        )
        answers = [answer for task in tasks for answer in task.answers]
        utilities = [gold_of(task.prompt, answer).utility for task in tasks for answer in task.answers]
        shares[temperature] = sum(utilities) / len(answers)
    # The corpus has more right sums than wrong ones, so what is likelier is right more often.
    assert shares[0.4] > shares[1.5] + 0.1


def test_a_model_that_always_says_the_same_is_told(monkeypatch, sampler):
    monkeypatch.setattr("plaudit.lab.world.making.MAX_ROUNDS", 2)
    with pytest.raises(UserError, match="9 different answers"):
        model_answer_tasks(sampler, 8, answers=9, categories=("arithmetic",))


@pytest.mark.parametrize(("kind", "record"), [("rankings", Ranking), ("thumbs", Rating)])
def test_the_command_has_a_models_answers_judged(kind, record, tmp_path):
    out = tmp_path / "rows.jsonl"
    words = ["world", "make", kind, "--model", str(base_model_folder()), "--n", "8", "--out", str(out)]
    assert main(words) == 0
    records = read_records(out, threshold=0.0).records
    assert len(records) == 8
    assert all(isinstance(one, record) for one in records)
    if kind == "thumbs":
        assert {one.score for one in records if isinstance(one, Rating)} <= {0.0, 1.0}
        assert all(one.thumb for one in records if isinstance(one, Rating))


def test_the_command_draws_at_a_temperature(tmp_path):
    words = ["world", "make", "comparisons", "--model", str(base_model_folder()), "--n", "8", "--out"]
    files = [tmp_path / name for name in ("plain.jsonl", "one.jsonl", "low.jsonl")]
    options: list[list[str]] = [[], ["--temperature", "1"], ["--temperature", "0.5"]]
    for file, added in zip(files, options, strict=True):
        assert main([*words, str(file), *added]) == 0
    plain, one, low = (file.read_text("utf-8") for file in files)
    assert plain == one != low


def test_demonstrations_are_of_no_model(tmp_path, capsys):
    out = str(tmp_path / "rows.jsonl")
    assert main(["world", "make", "demonstrations", "--model", str(base_model_folder()), "--out", out]) == 2
    assert "--model says nothing to demonstrations" in capsys.readouterr().err
