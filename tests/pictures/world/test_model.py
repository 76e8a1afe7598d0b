"""The shipped model that sees."""

from dataclasses import replace
from itertools import islice

import pytest

from examples.make_picture_base import answers_of
from plaudit.cli.main import main
from plaudit.pictures.world import SHIPPED_MODEL_FOLDER
from plaudit.pictures.world.measure import measure
from plaudit.pictures.world.questions import questions
from plaudit.pictures.world.scenes import render


def test_it_is_small_and_plain() -> None:
    assert (SHIPPED_MODEL_FOLDER / "model.safetensors").stat().st_size < 6 * 2**20
    assert {file.suffix for file in SHIPPED_MODEL_FOLDER.iterdir()} == {".json", ".jinja", ".safetensors"}


def test_it_is_asked_about_the_picture_of_a_file(tmp_path, capsys):
    scene = next(question.scene for question in questions("test", kinds=["read"]) if question.scene.sign)
    render(scene).save(tmp_path / "scene.png")
    words = ["sample", "--model", str(SHIPPED_MODEL_FOLDER), "--picture", str(tmp_path / "scene.png")]
    assert main([*words, "--prompt", "What do you read?", "--n", "1", "--temperature", "0"]) == 0
    assert f" {scene.sign.text} is written" in capsys.readouterr().out
    assert main([*words, "--data", "rows.jsonl"]) == 2


@pytest.mark.slow
def test_it_answers_far_above_chance_about_pictures_that_it_has_not_seen() -> None:
    drawn = [*islice(questions("test", seed=5, kinds=["what", "read", "more"]), 30)]
    right = measure(drawn, answers_of(SHIPPED_MODEL_FOLDER, drawn)).right
    assert min(right["what"].value, right["read"].value, right["more"].value) >= 0.9
    # With the picture of another question it cannot know, and does not.
    swapped = [replace(question, scene=drawn[at - 3].scene) for at, question in enumerate(drawn)]
    blind = measure(drawn, answers_of(SHIPPED_MODEL_FOLDER, swapped)).right
    assert max(blind["what"].value, blind["read"].value) <= 0.4


@pytest.mark.slow
def test_it_invents_and_says_yes_too_often() -> None:
    drawn = [*islice(questions("test", seed=6, kinds=["describe", "present"]), 160)]
    measures = measure(drawn, answers_of(SHIPPED_MODEL_FOLDER, drawn, temperature=1.0))
    assert measures.chair_i is not None
    assert 0.08 < measures.chair_i.value < 0.4
    assert measures.pope["adversarial"].yes_share.value > 0.45
