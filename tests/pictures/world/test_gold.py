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
    ("name", "right", "wrong"),
    [
        ("count", "There are two stars.|I see 2 stars.|Two.", "There are three stars.|One or two."),
        ("none", "There are no hearts.|None.", "There is one heart."),
        ("colour", "The circle is red.|Red. A star.|Let me see. It is red", "The circle is green.|Bananas."),
        ("shape", "The blue thing is a star.|Star.", "A heart."),
        ("size", "The blue star is small.", "It is big."),
        ("where", "The red circle is at the top left.", "The red circle is at the top."),
        ("what", "There is a small blue star in the middle.|A blue star.", "A big blue star.|Nothing."),
        ("empty", "There is nothing at the left.", f"There is a blue star at the left.|{EVASION}"),
        ("side", "The red circle is further left than the blue star.", "The blue star is further left."),
        ("bigger", "The red circle is bigger.", "They are equally big.|The blue star is."),
        ("same", "Both are the same.", "The green star is bigger."),
        ("more", "There are more stars than circles.", "There are as many circles as stars."),
        ("read", "The word owl is written at the top right.", "Nothing is written.|Fox."),
        (
            "present",
            "Yes, there is a blue star in the middle.|There is a blue star.",
            "No.|There is no star.",
        ),
        ("absent", "No, there is no red star.|I do not see a red star.", "Yes, there is a red star.|Yes."),
        (
            "missing",
            "There is no red star.|The red star is not there.",
            "The red star is in the middle.|Big.",
        ),
    ],
)
def test_the_aim_is_what_the_first_telling_sentence_gives(name: str, right: str, wrong: str) -> None:
    for aim, answers in ((1, right), (0, wrong)):
        for answer in answers.split("|"):
            assert judge_answer(QUESTIONS[name], answer).aim == aim, answer


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


def test_worth_falls_with_every_fault() -> None:
    describe = asked("describe")
    best = judge_answer(describe, WHOLE)
    assert (best.score, best.missed, best.aim) == (1.0, 0, 1.0)
    invented = judge_answer(describe, WHOLE + " There is also a big red heart at the left.")
    # 14 right claims, and one thing that costs four: 0.5 + 0.5 · 14 / 18.
    assert invented.score == pytest.approx(0.5 + 0.5 * 14 / 18, abs=1e-4)
    assert invented.overlooked == 1.0
    assert judge_answer(describe, "There is a red circle.").missed == 2
    assert judge_answer(describe, WHOLE, ended=False).score == 0.5
    answers = ["The circle is red.", "The circle is red." + " Well, well." * 15]  # Ten words too many.
    answers += ["The circle is red. There is also a heart.", EVASION, "The circle is green.", "Bananas."]
    worths = [judge_answer(QUESTIONS["colour"], answer).score for answer in answers]
    assert worths == sorted(worths, reverse=True)
    assert worths[1] == pytest.approx(0.9)


def test_chair_counts_what_is_named_and_not_there() -> None:
    assert chair("There is a red circle, a heart and the word owl.", SCENE) == (1 / 3, 1.0)
    assert chair("There is a blue circle.", SCENE) == (0.0, 0.0)  # Of another colour, and there.
    assert chair("Hello.", SCENE) == (0.0, 0.0)
    assert chair("There is the word cat at the top.", Scene(things=(RED,))) == (1.0, 1.0)


def test_whatever_is_no_yes_is_a_no() -> None:
    absent = QUESTIONS["absent"]
    answers = ("Yes.", "There is a red star.", "No, there is no red star.", "Who knows?")
    assert [says_yes(absent, answer) for answer in answers] == [True, True, False, False]
