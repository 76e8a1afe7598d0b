"""Scenes are the same on every machine, and no scene is in two splits."""

from hashlib import sha256
from itertools import islice

import pytest

from plaudit.errors import UserError
from plaudit.pictures.world.questions import KINDS, question_of, questions
from plaudit.pictures.world.scenes import (
    SHAPES,
    Scene,
    Sign,
    Thing,
    caption,
    first_scenes,
    render,
    scene_of,
    scenes,
)

EVERYTHING = Scene(
    things=tuple(
        Thing(shape=shape, colour=colour, size="big" if at % 2 else "small", cell=at)
        for at, (shape, colour) in enumerate(
            zip(SHAPES, ("red", "blue", "yellow", "green", "orange", "purple", "black"), strict=True)
        )
    ),
    sign=Sign(text="fox", cell=8),
)


@pytest.mark.parametrize(("size", "digest"), [(48, "c6a326dbe4e2e0d8"), (32, "0812466ad0643213")])
def test_a_picture_has_the_same_pixels_everywhere(size: int, digest: str) -> None:
    picture = render(EVERYTHING, size)
    assert (picture.mode, picture.size) == ("RGB", (size, size))
    assert sha256(picture.tobytes()).hexdigest()[:16] == digest


def test_different_scenes_look_different() -> None:
    drawn = first_scenes(300, seed=2)
    assert (
        len({render(scene).tobytes() for scene in drawn}) == len({caption(scene) for scene in drawn}) == 300
    )


def test_no_scene_is_in_two_splits_and_a_seed_draws_the_same_ones() -> None:
    train, test = ({scene.name for scene in first_scenes(400, split)} for split in ("train", "test"))
    assert not train & test
    assert first_scenes(20, seed=3) == first_scenes(40, seed=3)[:20] != first_scenes(20, seed=4)


def test_a_split_that_is_used_up_says_so() -> None:
    with pytest.raises(UserError, match=r"test split has no more scenes.*ask for fewer"):
        list(scenes("test", most=1, signs=0))


def test_a_scene_comes_back_from_its_graph_and_what_is_none_is_refused() -> None:
    assert scene_of(EVERYTHING.text) == EVERYTHING
    with pytest.raises(UserError, match="no scene of the picture world"):
        scene_of('{"things": [{"shape": "star"}]}')


def test_questions_take_turns_and_come_back_from_their_metadata() -> None:
    drawn = [*islice(questions("test", seed=1), 2 * len(KINDS))]
    assert [question.kind for question in drawn] == [*KINDS, *KINDS]
    assert [question_of(question.metadata) for question in drawn] == drawn
    assert {question.scene.split for question in drawn} == {"test"}
    with pytest.raises(UserError, match="no scene of the picture world in its metadata"):
        question_of({"category": "count"})
    with pytest.raises(UserError, match="expected some of count"):
        next(questions(kinds=["smell"]))  # pyright: ignore[reportArgumentType]
