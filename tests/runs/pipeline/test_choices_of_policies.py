"""A pipeline's evaluation takes what the command does: questions of one's own, prompted policies, pass@k."""

import json
from pathlib import Path
from shutil import copytree

import pytest

from plaudit.evaluation.policies.result import CHOICES_FILE, read_agreements, read_policy_evaluation
from tests.engine.toy import write_rows
from tests.runs.pipeline.places import go, seal, stages, states, well, write_config


def asking(place: Path, *rows: dict[str, object]) -> Path:
    """The config of an evaluation with these questions."""
    path = place / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = {
        "do": "evaluate",
        "policies": ["$model", "$sft"],
        "judge": ["length:1-3"],
        "prompts": str(place / "prompts.jsonl"),
        "choices": str(path),
        "max-tokens": 4,
        "bootstrap": 20,
    }
    told = stages(place)
    return write_config(place, {"demos": told["demos"], "sft": told["sft"], "evaluation": judged}, "asking")


@pytest.mark.slow
def test_questions_of_ones_own_are_asked_and_their_content_is_part_of_the_result(place, tmp_path):
    rows = [{"prompt": f"w2{n}", "choices": ["w3", "w4 w5"], "right": 0} for n in range(3)]
    out = tmp_path / "out"
    went = well(asking(place, *rows), out)
    assert "After training with 16 demonstrations, " in went.words
    assert "its win rate by the judge “length:1-3” is" in went.words
    found = read_policy_evaluation(out / "stages" / "evaluation")
    first, second = (one.calibration for one in found.policies)
    assert first is not None
    assert second is not None
    assert (first.accuracy.n, first.ece_change) == (3, None)
    assert second.ece_change is not None
    assert CHOICES_FILE in seal(out, "evaluation")["outputs"]
    assert "--choices" in seal(out, "evaluation")["command"]
    again = asking(place, *({**row, "right": 1} for row in rows))
    assert states(well(again, out)) == {"demos": "kept", "sft": "kept", "evaluation": "ran"}


def test_a_bad_question_is_named_and_what_is_done_is_kept(place, tmp_path):
    went = go(asking(place, {"prompt": "w2", "choices": ["w3"], "right": 0}), tmp_path / "out")
    assert went.code != 0
    assert "questions.jsonl:1: field choices: expected 2 answers or more" in went.words
    assert seal(tmp_path / "out", "sft")


def test_folders_of_one_name_are_told_apart(place, tmp_path):
    runs = [tmp_path / run / "run" / "model" for run in ("one", "two")]
    for run in runs:
        copytree(place / "model", run)
    asked = {"prompts": str(place / "prompts.jsonl"), "max-tokens": 4, "right": "length:1-3"}
    judged = {"do": "evaluate", "policies": ["$model", *map(str, runs)], **asked}
    well(write_config(place, {"compared": judged}, "apart"), tmp_path / "out")
    found = read_policy_evaluation(tmp_path / "out" / "stages" / "compared")
    assert [one.name for one in found.policies] == ["base", "one/run/model", "two/run/model"]
    prompted = {**judged, "policy": [f"base={runs[0]}"]}
    assert "base is there already" in go(write_config(place, {"c": prompted}, "both"), tmp_path / "c").words


def prompted(place: Path, system: str, **more: object) -> Path:
    """The config of an evaluation of prompted policies and written answers."""
    told = stages(place)
    judged = {
        "do": "evaluate",
        "policies": ["$sft", "written"],
        "policy": [f"brief=$sft,system={system},shots=$few", "plain=$model,system=w7, w8"],
        "judge": ["length:1-3"],
        "prompts": str(place / "asked.jsonl"),
        **{"right": "length:1-3", "answers": 4, "pass-at": [1, 4], "max-tokens": 4, "bootstrap": 20},
        **more,
    }
    rows = [{"prompt": [{"role": "user", "content": f"w2{n}"}], "answer": "w3"} for n in range(4)]
    write_rows(place / "asked.jsonl", rows)
    few = {"do": "rows", "data": str(place / "demos.jsonl"), "n": 2}
    return write_config(
        place, {"demos": told["demos"], "few": few, "sft": told["sft"], "evaluation": judged}, "prompted"
    )


@pytest.mark.slow
def test_prompted_policies_stand_on_stages_and_pass_at_k_is_told(place, tmp_path):
    system, out = place / "system.txt", tmp_path / "out"
    system.write_text("w9")
    well(prompted(place, str(system), against="brief"), out)
    found = read_policy_evaluation(out / "stages" / "evaluation")
    assert [policy.name for policy in found.policies] == ["sft", "written", "brief", "plain"]
    assert found.reference == "brief"
    assert [point.k for point in found.policies[0].passes] == [1, 4]
    assert any(" with a system turn and 2 examples before every prompt" in note for note in found.notes)
    told = seal(out, "evaluation")
    assert (told["needs"], f"system={system},shots=" in told["command"]) == (["sft", "few"], True)
    assert set(states(well(prompted(place, str(system), against="brief"), out)).values()) == {"kept"}
    # The words of the file count, and not its name alone.
    system.write_text("w10")
    assert states(well(prompted(place, str(system), against="brief"), out))["evaluation"] == "ran"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"pass-at": [8]}, "pass_at 8: from 1 to the 4 answers to every prompt"),
        ({"right": None}, "pass_at needs a rule that says which answers are right"),
        ({"judge": ["openai:http://127.0.0.1:1/v1"]}, "name the model behind a #"),
        ({"policy": ["brief=$stf,system=w7"]}, "there is no stage $stf; did you mean sft?"),
        ({"policy": ["brief=$demos,system=w7"]}, "$demos gives rows, and this takes model"),
        ({"policy": ["brief=$sft,system=nowhere.txt"]}, "nowhere.txt: no such file"),
        ({"policy": ["brief=$sft,shots=nowhere.jsonl"]}, "nowhere.jsonl: there is no such file"),
        ({"policy": ["sft"]}, "expected NAME=DIR, then ,system=TEXT or FILE"),
        ({"prompts": None, "choices": None}, "the world's prompts have none"),
    ],
)
def test_a_dry_run_refuses_an_evaluation_that_cannot_be(place, tmp_path, more, words):
    went = go(prompted(place, "w9", **more), tmp_path / "out", "--dry-run")
    assert went.code == 2
    assert words in went.words


def test_judges_are_held_against_people_and_their_figures_stand_on_the_page(place, tmp_path):
    out, judge = tmp_path / "out", "tests.evaluation.test_eval_command:terser"
    told = {
        "judged": {"do": "judge-reward", "models": [judge, "length:1-1"], "data": str(place / "pairs.jsonl")}
    }
    well(write_config(place, told, "judged"), out)
    assert {"judges.json", "verdicts.jsonl", "summary.json"} <= set(seal(out, "judged")["outputs"])
    [found] = read_agreements(out / "stages" / "judged")
    # Of each pair the rejected answer is the shorter one.
    assert (found.won, found.lost) == (0, 16)
    assert any("agrees with people in 0.0%" in line for line in seal(out, "judged")["summary"])
    assert "Judges beside people" in (out / "report.html").read_text("utf-8")
    told["judged"]["models"] = ["openai:http://127.0.0.1:1/v1"]
    assert (
        "models: openai:http://127.0.0.1:1/v1"
        in go(write_config(place, told, "judged"), out, "--dry-run").words
    )
