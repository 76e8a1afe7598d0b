"""Scenes are the same on every machine, and no scene is in two splits."""

from collections.abc import Callable
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

COLOURS = ("red", "blue", "yellow", "green", "orange", "purple", "black")
THINGS = tuple(
    Thing(shape=shape, colour=colour, size="big" if at % 2 else "small", cell=at)
    for at, (shape, colour) in enumerate(zip(SHAPES, COLOURS, strict=True))
)
EVERYTHING = Scene(things=THINGS, sign=Sign(text="fox", cell=8))


@pytest.mark.parametrize(("size", "digest"), [(48, "c6a326dbe4e2e0d8"), (32, "0812466ad0643213")])
def test_a_picture_has_the_same_pixels_everywhere(size: int, digest: str) -> None:
    picture = render(EVERYTHING, size)
    assert (picture.mode, picture.size) == ("RGB", (size, size))
    assert sha256(picture.tobytes()).hexdigest()[:16] == digest


def test_scenes_look_different_none_is_in_two_splits_and_a_seed_draws_the_same_ones() -> None:
    train, test = (first_scenes(300, split, seed=2) for split in ("train", "test"))
    assert len({render(scene).tobytes() for scene in train}) == len({*map(caption, train)}) == 300
    assert not {scene.name for scene in train} & {scene.name for scene in test}
    assert first_scenes(20, seed=2) == train[:20] != first_scenes(20, seed=4)


REFUSED: dict[str, Callable[[], object]] = {
    r"test split has no more scenes.*ask for fewer": lambda: list(scenes("test", most=1, signs=0)),
    "no scene of the picture world": lambda: scene_of('{"things": [{"shape": "star"}]}'),
    "no scene of the picture world in its metadata": lambda: question_of({"category": "count"}),
    "expected some of count": lambda: next(questions(kinds=["smell"])),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_no_scene_and_no_question_is_refused(why: str) -> None:
    with pytest.raises(UserError, match=why):
        REFUSED[why]()


def test_questions_take_turns_and_come_back_from_their_metadata() -> None:
    drawn = [*islice(questions("test", seed=1), 2 * len(KINDS))]
    assert [question.kind for question in drawn] == [*KINDS, *KINDS]
    assert [question_of(question.metadata) for question in drawn] == drawn
    assert {question.scene.split for question in drawn} == {"test"}
    assert scene_of(EVERYTHING.text) == EVERYTHING
