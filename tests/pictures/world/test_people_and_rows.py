"""People with habits that are known, and rows that carry what gold needs."""

import json
import random
import shlex
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Prompt, Task
from plaudit.errors import UserError
from plaudit.files.pictures import open_picture
from plaudit.pictures.world.crowd import people, soft_truth
from plaudit.pictures.world.making import PictureRows, rows, task_of, write_rows
from plaudit.pictures.world.measure import measure, picture_gold
from plaudit.pictures.world.questions import Question, Style, answer_in_style, question_of, questions
from plaudit.pictures.world.scenes import Scene, Thing
from plaudit.rewards.registry import resolve_reward
from tests.runs.report.read_page import stands_alone

ASKED = tuple(islice(questions("train", seed=9), 260))


def share_for(pool: str, other: Style) -> float:
    """How often the pool prefers an answer of another style to the right one."""
    rng, shares = random.Random(0), list[float]()
    for question in ASKED:
        pair = [answer_in_style(question, style, rng) for style in ("right", other)]
        if pair[0] != pair[1]:
            shares.append(1 - soft_truth(people(pool), task_of(question, pair)))
    return fmean(shares)


def test_the_crowd_likes_detail_even_where_it_is_invented_and_is_right_mostly() -> None:
    assert share_for("crowd", "wrong") < 0.1
    assert share_for("crowd", "detailed") > 0.6
    assert 0.25 < share_for("crowd", "invented") < 0.5
    assert share_for("experts", "invented") < 0.03
    assert share_for("dazzled", "invented") > 0.7


def test_people_choose_as_often_as_their_chance_says() -> None:
    (question,) = islice(questions("train", seed=2, kinds=["describe"]), 1)
    rng = random.Random(0)
    task = task_of(question, [answer_in_style(question, style, rng) for style in ("right", "invented")])
    person = people("crowd")[1]
    verdicts = person.verdicts([task] * 2000, 0)
    first = fmean(verdict is not None and verdict.marks[0].rank == 1 for verdict in verdicts)
    assert first == pytest.approx(person.probability(task), abs=0.04)
    assert {verdict.annotator for verdict in verdicts if verdict} == {"crowd-2"}
    assert person.verdicts([task], 5) == person.verdicts([task], 5)


def presence(trap: str, truth: str) -> Question:
    scene = Scene(things=(Thing(shape="star", colour="red", size="big", cell=4),))
    about = ("red star",) if truth == "yes" else ("blue star",)
    return Question(kind="present", words="?", scene=scene, about=about, truth=truth, trap=trap)  # pyright: ignore


def test_pope_and_chair_are_those_worked_by_hand() -> None:
    there, absent = presence("", "yes"), presence("adversarial", "no")
    describe = Question(kind="describe", words="?", scene=there.scene)
    # 3 hits, a miss, 2 false alarms and 2 that are no yes, of which the last is no answer either.
    answers = ["Yes."] * 3 + ["No."] + ["Yes."] * 2 + ["No.", "I cannot tell."]
    answers += ["There is a red star.", "There is a red star, a heart and a moon."]
    measures = measure([*[there] * 4, *[absent] * 4, describe, describe], answers)
    assert set(measures.pope) == {"adversarial"}
    pope = asdict(measures.pope["adversarial"])
    values = {name: estimate["value"] for name, estimate in pope.items()}
    f1 = pytest.approx(2 * 3 / (2 * 3 + 2 + 1))
    assert values == {"accuracy": 5 / 8, "precision": 3 / 5, "recall": 3 / 4, "f1": f1, "yes_share": 5 / 8}
    assert all(estimate["low"] <= estimate["value"] <= estimate["high"] for estimate in pope.values())
    assert measures.chair_i is not None
    assert measures.chair_s is not None
    assert (measures.chair_i.value, measures.chair_s.value) == (2 / 4, 1 / 2)
    assert measures.right["present"].value == 4 / 8
    assert measure([describe], [""]).chair_i is None
    assert measure([there] * 2, ["Yes.", "No."], against=["No.", "No."]).wins.value == 3 / 4


def test_a_row_carries_the_truth_of_its_picture(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    sentence = write_rows(PictureRows(make="prompts", n=26, split="test", seed=3), path)
    assert sentence == "26 rows of prompts about pictures, test split, seed 3"
    first = json.loads(path.read_text("utf-8").splitlines()[0])
    assert [part["type"] for part in first["prompt"][0]["content"]] == ["image", "text"]
    assert open_picture(str(tmp_path / first["prompt"][0]["content"][0]["image"])).size == (48, 48)
    for row in read_records(path).records:
        assert isinstance(row, Prompt)
        task = task_of(question_of(row.metadata), [row.answer or ""])
        assert resolve_reward("picture-gold:score").scores([task]) == ((1.0,),)


def test_pairs_are_judged_by_people_with_names_and_the_same_seed_gives_the_same(tmp_path: Path) -> None:
    request = PictureRows(make="comparisons", n=40, seed=1)
    files = [tmp_path / name / "rows.jsonl" for name in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        assert "by the crowd pool" in write_rows(request, file)
    assert files[0].read_bytes() == files[1].read_bytes()
    pairs = [record for record in read_records(files[0]).records if isinstance(record, Comparison)]
    assert len(pairs) == 40
    assert all(row.annotator and row.annotator.startswith("crowd-") and row.category for row in pairs)
    assert all(row.chosen != row.rejected for row in pairs)


def test_demonstrations_are_right_unless_errors_are_wanted(tmp_path: Path) -> None:
    for errors in (False, True):
        made = list(rows(PictureRows(make="demonstrations", n=130, errors=errors)))
        tasks = [task_of(question, [str(record.completion[0].content)]) for question, record in made]  # pyright: ignore
        worth = fmean(score or 0.0 for (score,) in picture_gold("picture-gold:score").scores(tasks))
        assert (worth == 1.0) is not errors
        assert worth > 0.7


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"make": "prompts", "annotators": "crowd"}, "annotators says nothing to prompts"),
        ({"make": "comparisons", "annotators": "cats"}, "no pool 'cats'; choose from crowd"),
        ({"make": "cakes"}, "expected one of demonstrations"),
        ({"make": "prompts", "n": 0}, "n must be at least 1"),
    ],
)
def test_what_cannot_be_made_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        PictureRows(**settings)


def test_a_reward_without_its_scene_or_of_no_part_is_refused() -> None:
    with pytest.raises(UserError, match="there is score, aim"):
        resolve_reward("picture-gold:taste")
    with pytest.raises(UserError, match="no scene of the picture world"):
        picture_gold("picture-gold:score").scores([Task(prompt="Hi", answers=("Ho",), ended=(True,))])


def test_a_pipeline_makes_rows_and_holds_an_exam(tmp_path):
    from plaudit.cli.main import main

    stages = "  - rows: {do: picture-rows, make: prompts, n: 4}\n"
    stages += "  - exam: {do: picture-exam, policies: [$model], n: 13, max-tokens: 4}\n"
    (tmp_path / "p.yaml").write_text(f"model: pictures\nstages:\n{stages}")
    assert main(["run", str(tmp_path / "p.yaml"), "--out", str(tmp_path / "out")]) == 0
    page = stands_alone(tmp_path / "out" / "report.html")
    assert (page.tags["img"], page.tags["article"]) == (13, 13)
    assert "What policies say of pictures" in page.sections
    command = json.loads((tmp_path / "out" / "stages" / "exam" / "stage.json").read_text())["command"]
    assert main(shlex.split(command)[1:]) == 0
