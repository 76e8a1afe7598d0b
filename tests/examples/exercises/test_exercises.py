"""Every exercise on the shelf: its config reads, its words are whole, and in full its claims hold."""

from pathlib import Path

import pytest

from examples.exercises.exercise import Exercise
from examples.exercises.registry import EXERCISES, analyse_exercise
from plaudit.runs.pipeline.read import read_pipeline
from plaudit.runs.pipeline.run import run_pipeline, validate_pipeline
from plaudit.runs.pipeline.store import PipelineFolder

every = pytest.mark.parametrize("exercise", EXERCISES, ids=[one.name for one in EXERCISES])


@pytest.mark.one_in(2)
@every
def test_its_config_is_an_ordinary_pipeline_that_reads(exercise: Exercise) -> None:
    pipeline = read_pipeline(exercise.config)
    validate_pipeline(pipeline)
    assert (pipeline.name, pipeline.seed, pipeline.model) == (exercise.name, 0, "world")
    assert (pipeline.jobs, pipeline.threads) == (2, 1)
    assert exercise.config.read_text("utf-8").startswith("# ")


UNDECIDED = {
    ("leash", "With β 0.1 answers stay below 1.5 times their length at the start."),
    ("objectives", "They are worth more."),
}
"""What docs/lab.md says is not decided on the base that ships."""


@every
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_in_full_all_its_claims_hold(exercise: Exercise, tmp_path: Path) -> None:
    run_pipeline(read_pipeline(exercise.config), tmp_path / exercise.name)
    seen = analyse_exercise(exercise, PipelineFolder(path=tmp_path / exercise.name))
    assert seen.claims
    assert seen.charts
    for claim in seen.claims:
        assert claim.statement.endswith(".")
        assert claim.evidence
        known = claim.holds is None and (exercise.name, claim.statement) in UNDECIDED
        assert claim.holds or known, f"{claim.verdict}: {claim.statement} {claim.evidence}"
    if seen.table is not None:
        assert {len(row) for row in seen.table.rows} == {len(seen.table.head)}
