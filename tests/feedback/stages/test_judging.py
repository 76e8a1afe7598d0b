"""A stage that judges: rows by a model, of rows or of a policy's answers, by the helper of the pipeline."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, plain_text
from plaudit.feedback.judges.constitution import constitution_named
from plaudit.runs.pipeline.read import read_pipeline
from tests.runs.pipeline.places import go, make_place, seal, stages, states, well, write_config

HELPER = '''
import pathlib

def judge(question, words):
    """Likes longer answers, and keeps count of what it is asked."""
    with pathlib.Path(__file__).with_name("calls").open("a") as calls:
        calls.write("x")
    first, second = question.split("Answer A:")[1].split("Answer B:")
    share = 0.8 if len(first) > len(second.split("Which answer")[0]) else 0.3
    return {"text": "A" if share > 0.5 else "B", "odds": {"A": share, "B": 1 - share}}
'''


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = make_place(tmp_path / "place")
    (folder / "helper.py").write_text(HELPER)
    monkeypatch.chdir(folder)
    return folder


def calls(place: Path) -> int:
    path = place / "calls"
    return len(path.read_text()) if path.exists() else 0


def judged(place: Path, **more: Any) -> dict[str, Any]:
    pairs = str(place / "pairs.jsonl")
    return {"do": "judge", "by": "$helper", "data": pairs, "constitution": "ours", **more}


def config(place: Path, told: dict[str, Any], **head: object) -> Path:
    return write_config(place, told, "judged", helper="call:helper.py:judge", **head)


def rows(path: Path) -> list[Comparison]:
    return [record for record in read_records(path).records if isinstance(record, Comparison)]


def test_labels_of_a_model_train_a_reward_together_with_labels_of_people(place, tmp_path):
    told, out = stages(place), tmp_path / "out"
    people = {"do": "rows", "data": str(place / "more.jsonl")}
    reward = {**told["reward"], "model": "$model", "data": ["$people", "$ai"]}
    path = config(place, {"people": people, "ai": judged(place), "reward": reward})
    well(path, out)
    found = rows(out / "stages" / "ai" / "rows.jsonl")
    assert len(found) == 16
    version = constitution_named("ours").version
    assert {(row.annotator, row.group) for row in found} == {(f"judge@letter-1-c{version}x1", "ai")}
    assert all(row.probability is not None and 0.5 < row.probability < 1 for row in found)
    together = rows(out / "stages" / "reward" / "data.jsonl")
    assert [row.probability for row in together] == [None] * 4 + [row.probability for row in found]
    assert seal(out, "reward")["needs"] == ["people", "ai"]
    assert "no verdict on 0" in " ".join(seal(out, "ai")["summary"])
    assert set(states(well(path, out)).values()) == {"kept"}


def test_the_command_of_its_seal_makes_the_same_rows_and_asks_nothing_again(place, tmp_path):
    out = tmp_path / "out"
    well(config(place, {"ai": judged(place, principles=2, n=5, seed=3)}), out)
    made, before = out / "stages" / "ai" / "rows.jsonl", calls(place)
    command = shlex.split(seal(out, "ai")["command"])
    assert command[:2] == ["plaudit", "judge"]
    assert tuple(command[command.index("--principles") :][:2]) == ("--principles", "2")
    content = made.read_bytes()
    again = [str(tmp_path / "again.jsonl") if word == str(made) else word for word in command[1:]]
    assert main(again) == 0
    assert (tmp_path / "again.jsonl").read_bytes() == content
    assert calls(place) == before


def test_a_cap_that_is_reached_stops_the_stage_and_nothing_is_asked_twice(place, tmp_path):
    out = tmp_path / "out"
    path = config(place, {"ai": judged(place, price="10/10", most_money=0.02)})
    stopped = go(path, out)
    assert stopped.code != 0
    assert "stage ai (judge): the cap of 0.02 is reached" in stopped.words
    assert 0 < calls(place) < 32
    more = ("--set", "ai.most-money=5")
    assert "was stopped; it goes on from where it was" in go(path, out, "--dry-run", *more).words
    well(path, out, *more)
    assert calls(place) == 32
    assert len(rows(out / "stages" / "ai" / "rows.jsonl")) == 16
    # What may be spent changes no label.
    assert states(well(path, out)) == {"ai": "kept"}


@pytest.mark.slow
def test_a_policys_answers_are_judged_and_a_reward_judges_them_too(place, tmp_path):
    told, out = stages(place), tmp_path / "out"
    own = {"do": "judge", "by": "$helper", "model": "$sft", "prompts": str(place / "prompts.jsonl")}
    learnt = {**judged(place), "by": "$reward"} | {"constitution": None}
    names = ("demos", "sft", "pairs", "reward")
    path = config(
        place, {**{name: told[name] for name in names}, "own": {**own, "max-tokens": 8}, "learnt": learnt}
    )
    well(path, out)
    prompts = {plain_text(record.prompt) for record in read_records(place / "prompts.jsonl").records}
    found = rows(out / "stages" / "own" / "rows.jsonl")
    assert {plain_text(row.prompt) for row in found} <= prompts
    assert found
    assert seal(out, "own")["needs"] == ["sft"]
    assert seal(out, "learnt")["needs"] == ["reward"]
    assert len(rows(out / "stages" / "learnt" / "rows.jsonl")) == 16


def test_a_stages_model_is_asked_within_a_word_and_how_is_a_part_of_the_result(place, tmp_path):
    assert main(["world", "make", "comparisons", "--n", "3", "--out", "world.jsonl"]) == 0
    told = {"ai": {"do": "judge", "by": "model:$model,how=points", "data": str(place / "world.jsonl")}}
    out = tmp_path / "out"
    well(write_config(place, told, "own", model="world"), out)
    assert {row.annotator for row in rows(out / "stages" / "ai" / "rows.jsonl")} == {"world@points-1"}
    told["ai"]["by"] = "model:$model,how=points,points=7"
    assert states(well(write_config(place, told, "own", model="world"), out)) == {"ai": "ran"}
    sft = stages(place)["sft"]
    above = {
        "sft": {**sft, "data": str(place / "demos.jsonl")},
        "ai": judged(place, by="model:$sft,how=letter"),
    }
    assert read_pipeline(write_config(place, above, "above")).stage("ai").needs == ("sft",)


def test_another_helper_is_one_word_also_of_the_pipeline_as_it_was_written_down(place, tmp_path, monkeypatch):
    out = tmp_path / "out"
    path = config(place, {"ai": judged(place, by="$helper,draws=2")})
    well(path, out)
    (place / "other.py").write_text(HELPER.replace("0.8", "0.9"))
    assert states(well(path, out, "--helper", "call:other.py:judge")) == {"ai": "ran"}
    monkeypatch.chdir(tmp_path)
    written = yaml.safe_load((out / "pipeline.yaml").read_text())
    assert written["stages"][0]["ai"]["by"] == "$helper,draws=2"
    assert written["helper"] == f"call:{place / 'other.py'}:judge"
    assert states(well(out / "pipeline.yaml", out)) == {"ai": "kept"}
    # Another content of the function's file is another helper.
    (place / "other.py").write_text(HELPER.replace("0.8", "0.7"))
    assert states(well(out / "pipeline.yaml", out)) == {"ai": "ran"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"by": "gold"}, "by gold: name a model"),
        ({"by": "$pairs"}, "by: $pairs gives rows, and this takes reward"),
        ({"by": "$sft"}, "by: $sft gives a model, and this takes reward; as a judge write model:$sft"),
        ({"by": "model:$pairs"}, "by: model:$pairs gives rows, and this takes model"),
        ({"by": "model:$stf"}, "by: there is no stage $stf; did you mean sft?"),
        ({"by": "model:$sft,hwo=letter"}, "nothing is called hwo; did you mean how?"),
        ({"by": "openai:http://127.0.0.1:1/v1"}, "name the model behind a #"),
        ({"data": "$helper"}, "data: $helper is who judges, revises and attacks: by takes it"),
        ({"how": "$helper"}, "how: expected one of verdict, letter, reasons, grade, points, answer or none"),
        ({"price": "$helper"}, "price: takes no stage's result, and $helper stands there"),
        ({"principles": 0}, "principles=0: ours has 16; give 1 to 16, or all"),
        ({"principles": "few"}, "principles: expected a whole number or one of all, got 'few'"),
        ({"constitution": "own.yaml"}, "own.yaml, principle 1 (calm): revise is missing"),
        ({"constitution": "none.yaml"}, "none.yaml: cannot be read as a constitution"),
        ({"rubric": "none.yaml"}, "rubric: none.yaml: there is no such file"),
        ({"model": "$sft"}, "say either a model, whose answers are judged, or data"),
        ({"most_money": -1}, "at most -1.0: expected an amount above 0"),
        ({"constitutoin": "ours"}, "did you mean constitution?"),
    ],
)
def test_a_dry_run_refuses_a_judgement_that_cannot_be(place, tmp_path, more, words):
    (place / "own.yaml").write_text("- {id: calm, choose: a, critique: b}")
    told = {name: stages(place)[name] for name in ("demos", "sft", "pairs")}
    went = go(
        config(place, {**told, "first": judged(place), "ai": judged(place, **more)}),
        tmp_path / "out",
        "--dry-run",
    )
    assert went.code == 2
    assert words in went.words


def test_a_helper_is_named_and_used(place, tmp_path):
    nameless = go(write_config(place, {"ai": judged(place)}), tmp_path / "out", "--dry-run")
    assert "by: $helper is who judges, revises and attacks here, and none is named" in nameless.words
    useless = go(config(place, {"pairs": stages(place)["pairs"]}), tmp_path / "out", "--dry-run")
    assert "no stage has by: $helper, so it would do nothing" in useless.words
    called = go(config(place, {"helper": stages(place)["pairs"]}), tmp_path / "out", "--dry-run")
    assert "stage 'helper': use letters, digits, - and _, and not 'model' or 'helper'" in called.words
