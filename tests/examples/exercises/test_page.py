"""The pages of the lab: what stands on them, and that nothing on them obeys what a model or a config said."""

from dataclasses import replace
from pathlib import Path

import pytest

from examples.exercises.exercise import Exercise
from examples.exercises.page import CaptionedChart, Claim, ExerciseResult, Table, exercise_page, overview_page
from examples.exercises.registry import EXERCISES
from plaudit.runs.report.charts.axes import element
from plaudit.runs.report.pipeline.data import read_pipeline_folder
from tests.runs.report.pipeline.pipelines import write_pipeline
from tests.runs.report.pipeline.test_page_safety import (
    ATTACKS,
    MARKUP,
    harmless,
    hostile,
    poisoned,
)
from tests.runs.report.read_page import read_page

DRAWN = element("figure", {"class": "chart"}, element("h3", {}, "Tokens"))
SEEN = ExerciseResult(
    claims=(
        Claim(statement="Answers grow.", holds=True, evidence="8.1 (7.9 to 8.3) became 48 %"),
        Claim(statement="They become better.", holds=False, evidence="0.7 became 0.2"),
        Claim(statement="Nobody minds.", holds=None, evidence="0.1 (-0.2 to 0.4)"),
    ),
    table=Table(head=("policy", "tokens"), rows=(("sft", "8"), ("ppo", "48")), note="Of 160 prompts."),
    charts=(CaptionedChart(title="How long?", caption="Look at the end.", chart=DRAWN),),
)
EXERCISE = Exercise(
    name="leash",
    title="What does the leash hold?",
    background="Something goes wrong.",
    minutes=1,
    analyse=lambda folder: SEEN,
    next_commands=("python -m examples.exercises leash --seed 1: whether it was luck",),
)
LINKS = ("report.html", "leash/lab.html")
NAMES = ["markup", "style", "arrows", "long", "wide"]


def attacked(seen: ExerciseResult, attack: str) -> ExerciseResult:
    """What was seen, with every text begun by an attack; what was drawn is markup and stays."""
    pictures = tuple(
        replace(one, title=attack + one.title, caption=attack + one.caption) for one in seen.charts
    )
    return replace(poisoned(replace(seen, charts=()), attack), charts=pictures)


def written(folder: Path, attack: str) -> Path:
    exercise = replace(EXERCISE, background=attack, title=attack, next_commands=(f"{attack}: {attack}",))
    text = exercise_page(
        exercise, read_pipeline_folder(hostile(folder / "leash", attack)), attacked(SEEN, attack), (attack,)
    )
    (folder / "lab.html").write_text(text, "utf-8")
    return folder / "lab.html"


def test_claims_tables_and_pictures_stand_on_the_page(tmp_path: Path) -> None:
    write_pipeline(tmp_path / "leash")
    story = read_pipeline_folder(tmp_path / "leash")
    (tmp_path / "lab.html").write_text(exercise_page(EXERCISE, story, SEEN, ("ppo.kl_coef: 0, not 0.1",)))
    page = read_page(tmp_path / "lab.html")
    seen = page.sections["What was seen"]
    for words in ("✓ holds", "✗ does not hold", "? not decided", "became 48\u00a0%"):
        assert words in seen
    assert page.words["td"][:2] == ["8", "48"]
    assert page.sections["Pictures"].split("\n")[0].startswith("How long?Look at the end.")
    assert (
        "Whether it was luck:python -m examples.exercises leash --seed 1" in page.sections["What to try next"]
    )
    assert "ppo.kl_coef: 0, not 0.1" in page.sections["head"]
    assert "1 of 3 claims holds, 1 not decided" in page.sections["head"]


@pytest.mark.parametrize("attack", ATTACKS, ids=NAMES)
def test_words_from_outside_are_shown_and_not_obeyed(attack: str, tmp_path: Path) -> None:
    page = read_page(written(tmp_path, attack))
    harmless(page, *LINKS)
    if attack is MARKUP:
        assert page.sections["What was seen"].count("<script>alert(1)</script>") >= 8
    both = [(EXERCISE, attacked(SEEN, attack)), (replace(EXERCISE, name="collapse"), attack)]
    (tmp_path / "lab.html").write_text(overview_page(both, EXERCISES), "utf-8")
    harmless(read_page(tmp_path / "lab.html"), *LINKS)
