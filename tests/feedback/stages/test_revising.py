"""A stage that revises: rows of either kind, kept until settings, helper or constitution change; its page."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Demonstration
from tests.runs.pipeline.places import go, make_place, seal, stages, states, well, write_config

HELPER = '''
import pathlib

def helper(question):
    """Finds everything rude and says it anew, and keeps count of what it is asked."""
    with pathlib.Path(__file__).with_name("calls").open("a") as calls:
        calls.write("x")
    return "It is rude." if "critique" in question.splitlines()[-1] else "w7 w8 please"
'''
PRINCIPLE = "- {id: one, choose: c, critique: Look for rudeness., revise: Be polite.}\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = make_place(tmp_path / "place")
    (folder / "helper.py").write_text(HELPER)
    (folder / "own.yaml").write_text(PRINCIPLE)
    monkeypatch.chdir(folder)
    return folder


def revising(place: Path, **more: Any) -> dict[str, dict[str, Any]]:
    stage = {"do": "revise", "by": "call:helper.py:helper", "constitution": "own.yaml"}
    return {"revisions": {**stage, "data": str(place / "demos.jsonl"), **more}}


def calls(place: Path) -> int:
    return len((place / "calls").read_text())


def test_revisions_are_rows_that_a_stage_below_learns_from_and_the_page_tells_whose_they_are(place, tmp_path):
    told = revising(place)
    told["sft"] = stages(place)["sft"] | {"data": "$revisions", "allow": ["base-loss"]}
    out = tmp_path / "out"
    well(write_config(place, told, "cai"), out)
    folder = out / "stages" / "revisions"
    rows = [row for row in read_records(folder / "rows.jsonl").records if isinstance(row, Demonstration)]
    assert len(rows) == 16
    assert {row.group for row in rows} == {"ai"}
    pairs = read_records(folder / "pairs.jsonl").records
    assert all(isinstance(pair, Comparison) and pair.chosen != pair.rejected for pair in pairs)
    assert len((folder / "steps.jsonl").read_text().splitlines()) == 16
    assert json.loads((folder / "figures.json").read_text())["outcomes"] == {"revised": 16}
    page = (out / "report.html").read_text("utf-8")
    assert "Of 16 labels: 100.0 % by models." in page
    assert "begin alike" in page
    # The command that is written down makes the same rows, and asks nothing again.
    before = calls(place)
    words = shlex.split(seal(out, "revisions")["command"])
    target = tmp_path / "again.jsonl"
    words[words.index("--out") + 1] = str(target)
    assert main(words[1:]) == 0
    assert target.read_bytes() == (folder / "rows.jsonl").read_bytes()
    assert calls(place) == before


def test_a_stage_that_revises_is_kept_until_its_constitution_or_its_helper_change(place, tmp_path):
    config, out = write_config(place, revising(place), "kept"), tmp_path / "out"
    well(config, out)
    first = calls(place)
    assert states(well(config, out)) == {"revisions": "kept"}
    assert calls(place) == first
    (place / "own.yaml").write_text(PRINCIPLE.replace("polite", "kind"))
    assert "constitution has another content" in well(config, out, "--dry-run").words
    well(config, out)
    assert calls(place) > first
    (place / "helper.py").write_text(f"{HELPER}\n")
    assert "by has another content" in well(config, out, "--dry-run").words


def test_the_rows_may_be_pairs_of_a_models_own_answers(place, tmp_path):
    drawn = {"model": "$model", "prompts": str(place / "prompts.jsonl"), "max-tokens": 24, "give": "pairs"}
    told = revising(place, **drawn, minimal=True)
    del told["revisions"]["data"]
    out = tmp_path / "out"
    well(write_config(place, told, "pairs"), out)
    folder = out / "stages" / "revisions"
    rows = read_records(folder / "rows.jsonl").records
    assert rows
    assert all(isinstance(row, Comparison) for row in rows)
    assert (folder / "demonstrations.jsonl").exists()
    assert "--minimal" in seal(out, "revisions")["command"]
    assert "revise-little-1" in " ".join(seal(out, "revisions")["summary"])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"rounds": 5}, "rounds 5: expected 1 to 4"),
        ({"by": "length:1-20"}, "length:1-20 cannot write"),
        ({"give": "pear"}, "give"),
        ({"model": "$model"}, "say either a model, whose answers are revised, or data"),
        ({"constitution": "none.yaml"}, "none.yaml"),
    ],
)
def test_what_cannot_be_revised_is_refused_before_anything_runs(place, tmp_path, more, words):
    went = go(write_config(place, revising(place, **more), "bad"), tmp_path / "out")
    assert went.code == 2
    assert words in went.words
    assert not (place / "calls").exists()
