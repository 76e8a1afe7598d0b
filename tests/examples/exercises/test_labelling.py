"""The exercise labelling: what it says of labels whose habits are known, from files and from a store."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from examples.exercises.labelling import EXERCISE
from examples.exercises.page import ExerciseResult
from plaudit.data.records import Comparison
from plaudit.data.write import write_records
from plaudit.lab.world.annotators import TRUE_ANNOTATOR
from plaudit.lab.world.making import comparisons
from plaudit.runs.pipeline.store import MANIFEST_FILE, PipelineFolder

PAIRS = comparisons(20, [TRUE_ANNOTATOR], split="test", seed=0)


def folder_of(path: Path, own: Sequence[Comparison], data: str = "$stand-in") -> PipelineFolder:
    """What the stages leave: the pairs, a crowd that is right, and somebody's own labels."""
    folder = PipelineFolder(path=path)
    crowd = [replace(row, annotator=f"a{number}") for row in PAIRS for number in range(3)]
    for name, rows in (("pairs", PAIRS), ("crowd", crowd), ("own", own)):
        folder.stage(name).mkdir(parents=True)
        write_records(rows, folder.stage(name) / "rows.jsonl")
        manifest = {"do": "rows" if name == "own" else "collect", "settings": {"data": data}}
        (folder.stage(name) / MANIFEST_FILE).write_text(json.dumps(manifest), "utf-8")
    return folder


def cells(found: ExerciseResult, who: str) -> list[str]:
    assert found.table is not None
    (row,) = [row for row in found.table.rows if row[0] == who]
    return [cell.partition(" (")[0] for cell in row[1:]]


def test_who_is_right_agrees_with_a_crowd_that_is_and_every_claim_holds(tmp_path: Path) -> None:
    found = EXERCISE.analyse(folder_of(tmp_path, [replace(row, annotator="me") for row in PAIRS]))
    assert all(claim.holds for claim in found.claims)
    told = cells(found, "own labels")
    assert told[1:3] == ["100.0 %", "100.0 %"]
    # Whoever is always right likes length as much as the truth does.
    assert told[3] == cells(found, "the truth")[3]
    assert told[4] == "–"
    assert len(found.charts) == 1
