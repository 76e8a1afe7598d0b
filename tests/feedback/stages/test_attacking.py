"""The stage that attacks policies: sealed, found again, a part of the page; what it takes is checked."""

from pathlib import Path

import pytest

from plaudit.errors import UserError
from plaudit.feedback.attack_page import attack_sentences
from plaudit.feedback.attacks.attempt import read_archive
from plaudit.feedback.attacks.summary import read_attack
from plaudit.runs.pipeline.read import read_pipeline
from plaudit.runs.pipeline.run import StageSelection, dry_run, run_pipeline, validate_pipeline
from plaudit.runs.report.pipeline.data import read_pipeline_folder
from plaudit.runs.report.pipeline.page import write_report

STAGES = """\
model: world
stages:
  - red: {do: world-rows, make: red-team, split: test, n: 9}
  - twins: {do: world-rows, make: twins, split: test, n: 12}
  - attack:
      do: attack
      targets: [$model]
      prompts: $red
      twins: $twins
      judge: plaudit.lab.world.attacks:did_harm
      refusal: plaudit.lab.world.attacks:declined
      archive: found.jsonl
"""


def written(text: str) -> Path:
    path = Path("attacked.yaml")
    path.write_text(text, "utf-8")
    return path


def test_a_stage_attacks_once_and_its_figures_stand_on_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pipeline = read_pipeline(written(STAGES))
    run_pipeline(pipeline, Path("run"))
    stage = Path("run/stages/attack")
    found = read_attack(stage / "attack.json")
    [policy] = found.policies
    assert policy.policy == "base"
    assert policy.success.attempts == 9
    assert policy.refusal is not None
    worked = read_archive(Path("found.jsonl"))
    assert [entry.attempt.key for entry in worked] == [
        entry.attempt.key for entry in read_archive(stage / "archive.jsonl")
    ]
    assert worked
    # What it has added to the archive makes it no other stage.
    lines = list(dry_run(read_pipeline(written(STAGES)), Path("run"), StageSelection()))
    assert "kept" in lines[2]
    data = read_pipeline_folder(Path("run"))
    assert data.stages[2].findings["attacks"].sentences == attack_sentences(found)
    page = write_report(Path("run")).read_text("utf-8")
    assert "base falls for" in page
    assert "Harmless prompts that are refused, by what they look like" in page
    assert data.stages[2].command.startswith("plaudit attack ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("targets: [$model]", "targets: [$red]"), r"targets: \$red gives rows, and this takes model"),
        (("targets: [$model]", "targets: [nowhere]"), "there is no such folder"),
        (("refusal: plaudit.lab.world.attacks:declined", "turns: 0"), "turns 0: expected 1 or more"),
        (
            ("refusal: plaudit.lab.world.attacks:declined", ""),
            "--refusal: plaudit.lab.world.attacks:did_harm says",
        ),
        (("did_harm", "no_such"), "no_such"),
        (("archive: found.jsonl", "templates: none.yaml"), "cannot be read as a file of templates"),
    ],
)
def test_what_would_fail_in_an_hour_fails_now(tmp_path, monkeypatch, change, message):
    monkeypatch.chdir(tmp_path)
    text = STAGES.replace(*change)
    assert text != STAGES
    with pytest.raises(UserError, match=message):
        validate_pipeline(read_pipeline(written(text)))
