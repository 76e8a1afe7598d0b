"""The exercise objectives: what it says of answers whose parts are known."""

from dataclasses import replace
from pathlib import Path

import pytest

from examples.exercises.measure import mean_gold, mean_over_prompts, read_policy_results
from examples.exercises.objectives import EXERCISE, with_partial_gold
from plaudit.data.records import plain_text
from plaudit.evaluation.policies.result import (
    PolicyAnswer,
    PromptAnswers,
    read_policy_evaluation,
    write_policy_evaluation,
)
from plaudit.lab.world.gold import gold_of
from plaudit.lab.world.prompts import questions
from plaudit.runs.pipeline.store import PipelineFolder
from tests.examples.exercises.made import Habit, holds, made

NAMES = ("base", "follows-help", "follows-both")
WORDY = "There is much to say about this. {} I hope that this answer helps you."


def folder_of(path: Path, **says: str) -> PipelineFolder:
    """An evaluation on facts; {} in what a policy says is the best answer."""
    folder = made(path, {name: Habit() for name in NAMES}, {})
    place = folder.stage("evaluation")
    every = []
    for question in questions("test", "fact")[:30]:
        texts = {name: says[name.replace("-", "_")].format(question.best) for name in NAMES}
        said = tuple(
            PolicyAnswer(
                policy=name,
                text=text,
                ended=True,
                tokens=len(text.split()),
                gold=gold_of(question.messages, text).utility,
                reward=None,
            )
            for name, text in texts.items()
        )
        every.append(PromptAnswers(prompt=plain_text(question.messages), category="fact", answers=said))
    write_policy_evaluation(replace(read_policy_evaluation(place), all_answers=tuple(every)), place)
    return folder


def test_where_help_alone_grows_wordy_every_claim_holds(tmp_path: Path) -> None:
    seen = EXERCISE.analyse(folder_of(tmp_path, base="{}", follows_help=WORDY, follows_both="{}"))
    assert set(holds(seen).values()) == {True}
    assert seen.table is not None
    assert [row[0] for row in seen.table.rows] == ["at the start", "help alone", "help and brevity"]
    assert "There is much to say" in seen.charts[1].chart


def test_a_part_of_the_worth_is_that_of_the_very_answers(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, base="{}", follows_help=WORDY, follows_both="{}")
    found = read_policy_results(folder, "evaluation")
    concise = mean_over_prompts(with_partial_gold(found, "concise"), "follows-help", mean_gold)
    shown = found.all_answers[0]
    one = gold_of(shown.prompt, shown.answers[1].text)
    assert concise is not None
    every = [gold_of(row.prompt, row.answers[1].text).concise for row in found.all_answers]
    assert concise.value == pytest.approx(sum(every) / len(every))
    assert with_partial_gold(found, "helpful").all_answers[0].answers[1].gold == one.helpful
