"""A pipeline's evaluation asks what policies know: one's own questions, by a file whose content counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plaudit.evaluation.policies.result import CHOICES_FILE, read_policy_evaluation
from tests.pipeline.places import go, make_place, seal, stages, states, well, write_config


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_place(tmp_path_factory.mktemp("place"))


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


def test_questions_of_ones_own_are_asked_and_their_content_is_part_of_the_result(
    place: Path, tmp_path: Path
) -> None:
    rows = [{"prompt": f"w2{n}", "choices": ["w3", "w4 w5"], "right": 0} for n in range(3)]
    out = tmp_path / "out"
    well(asking(place, *rows), out)
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


def test_a_bad_question_is_named_and_what_is_done_is_kept(place: Path, tmp_path: Path) -> None:
    config = asking(place, {"prompt": "w2", "choices": ["w3"], "right": 0})
    went = go(config, tmp_path / "out")
    assert went.code != 0
    assert "questions.jsonl:1: field choices: expected 2 answers or more" in went.words
    assert seal(tmp_path / "out", "sft")
