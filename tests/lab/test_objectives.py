"""The exercise objectives: what it says of answers whose parts are known, and of a small real run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plaudit.evaluation.policies.files import read_results, write_results
from plaudit.evaluation.policies.result import Said, Shown
from plaudit.lab.left import evaluated
from plaudit.lab.measured import mean_of, worth
from plaudit.lab.objectives import EXERCISE, in_part
from plaudit.pipeline.folder import Folder
from plaudit.pipeline.reading import read_pipeline
from plaudit.pipeline.running import run_pipeline
from plaudit.records.messages import words
from plaudit.world.gold import gold_of
from plaudit.world.prompts import questions
from tests.lab.made import Habit, holds, made

NAMES = ("base", "follows-help", "follows-both")
WORDY = "There is much to say about this. {} I hope that this answer helps you."


def folder_of(path: Path, **says: str) -> Folder:
    """An evaluation on facts; {} in what a policy says is the best answer."""
    folder = made(path, {name: Habit() for name in NAMES}, {})
    place = folder.stage("evaluation")
    every = []
    for question in questions("test", "fact")[:30]:
        texts = {name: says[name.replace("-", "_")].format(question.best) for name in NAMES}
        said = tuple(
            Said(
                policy=name,
                text=text,
                ended=True,
                tokens=len(text.split()),
                gold=gold_of(question.messages, text).utility,
                reward=None,
            )
            for name, text in texts.items()
        )
        every.append(Shown(prompt=words(question.messages), category="fact", said=said))
    write_results(replace(read_results(place), every=tuple(every)), place)
    return folder


def test_where_help_alone_grows_wordy_every_claim_holds(tmp_path: Path) -> None:
    seen = EXERCISE.look(folder_of(tmp_path, base="{}", follows_help=WORDY, follows_both="{}"))
    assert set(holds(seen).values()) == {True}
    assert seen.table is not None
    assert [row[0] for row in seen.table.rows] == ["at the start", "help alone", "help and brevity"]
    assert "There is much to say" in seen.pictures[1].drawn


def test_where_nobody_grows_wordy_it_is_said(tmp_path: Path) -> None:
    found = holds(EXERCISE.look(folder_of(tmp_path, base="{}", follows_help="{}", follows_both=WORDY)))
    assert found["It wastes words."] is False
    assert found["They waste fewer words."] is False
    assert found["They are worth more."] is False


def test_brevity_that_costs_help_is_said(tmp_path: Path) -> None:
    found = holds(
        EXERCISE.look(folder_of(tmp_path, base="{}", follows_help=WORDY, follows_both="I do not know."))
    )
    assert found["They waste fewer words."] is True
    assert found["They keep four fifths of the help."] is False


def test_a_part_of_the_worth_is_that_of_the_very_answers(tmp_path: Path) -> None:
    found = evaluated(folder_of(tmp_path, base="{}", follows_help=WORDY, follows_both="{}"), "evaluation")
    concise = mean_of(in_part(found, "concise"), "follows-help", worth)
    shown = found.every[0]
    one = gold_of(shown.prompt, shown.said[1].text)
    assert concise is not None
    assert concise.value == pytest.approx(
        sum(gold_of(one.prompt, one.said[1].text).concise for one in found.every) / len(found.every)
    )
    assert in_part(found, "helpful").every[0].said[1].gold == one.helpful


@pytest.mark.slow
def test_a_small_real_run_is_seen_as_it_was_measured(tmp_path: Path) -> None:
    policies = ("follows-help", "follows-both")
    small = [f"{name}.{what}" for name in policies for what in ("rounds=1", "batch_size=2", "check=false")]
    small += [f"{name}.draw.max_tokens=8" for name in policies]
    small += [f"{name}.{what}" for name in ("helpful", "concise") for what in ("held_out=0", "check=false")]
    small += [
        "prompts.n=24",
        "asked-help.n=24",
        "asked-brevity.n=24",
        "evaluation.n=6",
        "evaluation.max_tokens=8",
        "jobs=1",
    ]
    seen = EXERCISE.look(run_pipeline(read_pipeline(EXERCISE.config, changes=small), tmp_path))
    assert len(seen.claims) == 6
    assert len(seen.pictures) == 2
