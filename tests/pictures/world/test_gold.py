"""The truth about answers, against scenes that were written by hand."""

import pytest

from plaudit.pictures.world.gold import chair, judge_answer, says_yes
from plaudit.pictures.world.questions import EVASION, Kind, Question
from plaudit.pictures.world.scenes import Scene, Sign, Thing

RED = Thing(shape="circle", colour="red", size="big", cell=0)
BLUE = Thing(shape="star", colour="blue", size="small", cell=4)
GREEN = Thing(shape="star", colour="green", size="big", cell=8)
SCENE = Scene(things=(RED, BLUE, GREEN), sign=Sign(text="owl", cell=2))
WHOLE = (
    "There is a big red circle at the top left, a small blue star in the middle, a big green star at the "
    "bottom right and the word owl at the top right."
)


def asked(kind: Kind, truth: str = "", *about: str, **more: str) -> Question:
    return Question(kind=kind, words="?", scene=SCENE, about=about, truth=truth, **more)  # pyright: ignore


QUESTIONS = {
    "count": asked("count", "two", "star"),
    "none": asked("count", "no", "heart"),
    "colour": asked("colour", "red", "circle"),
    "shape": asked("shape", "star", "blue thing"),
    "size": asked("size", "small", "blue star"),
    "where": asked("where", "at the top left", "red circle"),
    "what": asked("what", "small blue star", "in the middle"),
    "empty": asked("what", "nothing", "at the left"),
    "side": asked("side", "red circle", "further left", "blue star", "red circle"),
    "bigger": asked("bigger", "red circle", "blue star", "red circle"),
    "same": asked("bigger", "equal", "green star", "red circle"),
    "more": asked("more", "star", "circle", "star"),
    "read": asked("read", "owl"),
    "present": asked("present", "yes", "blue star"),
    "absent": asked("present", "no", "red star", trap="adversarial"),
    "missing": asked("missing", "missing", "red star", trap="adversarial"),
}


@pytest.mark.parametrize(
    ("name", "answer", "aim"),
    [
        ("count", "There are two stars.", 1),
        ("count", "I see 2 stars.", 1),
        ("count", "Two.", 1),
        ("count", "There are three stars.", 0),
        ("count", "One or two.", 0),
        ("none", "There are no hearts.", 1),
        ("none", "None.", 1),
        ("none", "There is one heart.", 0),
        ("colour", "The circle is red.", 1),
        ("colour", "Red. There is also a small blue star in the middle.", 1),
        ("colour", "The circle is green.", 0),
        ("colour", "Let me see. It is red", 1),
        ("shape", "The blue thing is a star.", 1),
        ("shape", "A heart.", 0),
        ("size", "The blue star is small.", 1),
        ("size", "It is big.", 0),
        ("where", "The red circle is at the top left.", 1),
        ("where", "The red circle is at the top.", 0),
        ("what", "There is a small blue star in the middle.", 1),
        ("what", "A blue star.", 1),
        ("what", "A big blue star.", 0),
        ("what", "Nothing.", 0),
        ("empty", "There is nothing at the left.", 1),
        ("side", "The red circle is further left than the blue star.", 1),
        ("side", "The blue star is further left.", 0),
        ("bigger", "The red circle is bigger.", 1),
        ("bigger", "They are equally big.", 0),
        ("same", "Both are the same.", 1),
        ("more", "There are more stars than circles.", 1),
        ("more", "There are as many circles as stars.", 0),
        ("read", "The word owl is written at the top right.", 1),
        ("read", "Nothing is written.", 0),
        ("present", "Yes, there is a blue star in the middle.", 1),
        ("present", "There is a blue star.", 1),
        ("present", "No.", 0),
        ("absent", "No, there is no red star.", 1),
        ("absent", "I do not see a red star.", 1),
        ("absent", "Yes, there is a red star in the middle.", 0),
        ("missing", "There is no red star in the picture.", 1),
        ("missing", "The red star is in the middle.", 0),
        ("missing", "The red star is not there.", 1),
        ("colour", "Bananas are lovely today.", 0),
        ("colour", EVASION, 0),
    ],
)
def test_the_aim_is_what_the_first_telling_sentence_gives(name: str, answer: str, aim: int) -> None:
    assert judge_answer(QUESTIONS[name], answer).aim == aim


@pytest.mark.parametrize(
    ("answer", "right", "wrong", "invented"),
    [
        (WHOLE, 14, 0, 0),
        ("There is a big red circle at the top left.", 4, 0, 0),
        ("There is a small red circle at the bottom.", 2, 2, 0),
        ("A heart and a moon.", 0, 0, 2),
        ("There is a red circle and a blue circle.", 2, 0, 1),  # One circle is all that there is.
        ("There is a circle. The circle is red.", 3, 0, 0),  # The same one again.
        ("The circle is not red.", 1, 1, 0),
        ("The circle is not blue.", 2, 0, 0),
        ("There are two stars and one circle.", 2, 0, 0),
        ("There are three things.", 1, 0, 0),
        ("There are two hearts.", 0, 1, 1),
        ("There is no heart, and no star.", 0, 1, 0),  # A true denial counts for nothing.
        ("There is not a star.", 0, 1, 0),
        ("The circle is red. The circle is red.", 2, 0, 0),
        ("There are more stars than circles.", 0, 0, 0),  # It is judged as an aim.
        ("The digit 7 is written at the bottom.", 0, 2, 0),
        ("There is nothing at the left and nothing at the top left.", 1, 1, 0),
        ("There is a blue thing in the middle.", 2, 0, 0),
        ("The blue thing is not a star.", 1, 1, 0),
        ("What a lovely day.", 0, 0, 0),
    ],
)
def test_claims_are_counted(answer: str, right: int, wrong: int, invented: int) -> None:
    gold = judge_answer(asked("describe"), answer)
    assert (gold.right, gold.wrong, gold.invented) == (right, wrong, invented)


def test_a_sign_that_is_not_there_is_invented() -> None:
    bare = Question(kind="describe", words="?", scene=Scene(things=(RED,)))
    assert judge_answer(bare, "There is the word cat at the top.").invented == 1


def test_worth_falls_with_every_fault() -> None:
    describe, colour = asked("describe"), QUESTIONS["colour"]
    best = judge_answer(describe, WHOLE)
    assert (best.score, best.missed, best.aim) == (1.0, 0, 1.0)
    invented = judge_answer(describe, WHOLE + " There is also a big red heart at the left.")
    # 14 right claims, and one thing that costs four: 0.5 + 0.5 · 14 / 18.
    assert invented.score == pytest.approx(0.5 + 0.5 * 14 / 18, abs=1e-4)
    assert invented.overlooked == 1.0
    assert judge_answer(describe, "There is a red circle.").missed == 2
    assert judge_answer(describe, WHOLE, ended=False).score == 0.5
    worths = [
        judge_answer(colour, answer).score
        for answer in (
            "The circle is red.",
            "The circle is red." + " Well, well." * 15,  # 34 words, ten too many.
            "The circle is red. There is also a heart.",
            EVASION,
            "The circle is green.",
            "Bananas.",
        )
    ]
    assert worths == sorted(worths, reverse=True)
    assert worths[1] == pytest.approx(0.9)


def test_chair_counts_what_is_named_and_not_there() -> None:
    assert chair("There is a red circle, a heart and the word owl.", SCENE) == (1 / 3, 1.0)
    assert chair("There is a blue circle.", SCENE) == (0.0, 0.0)  # Of another colour, and there.
    assert chair("Hello.", SCENE) == (0.0, 0.0)


def test_whatever_is_no_yes_is_a_no() -> None:
    absent = QUESTIONS["absent"]
    answers = ("Yes.", "There is a red star.", "No, there is no red star.", "Who knows?")
    assert [says_yes(absent, answer) for answer in answers] == [True, True, False, False]
