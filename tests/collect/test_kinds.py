"""Each kind's tasks and labels, and what of them is refused: by its field, with what was found."""

import json
import math
from typing import Any

import pytest

from plaudit.collect.answering import save_draft
from plaudit.collect.answers import agreed_flags, agrees_with_gold, check_label, side, without_free_text
from plaudit.collect.desk import next_task
from plaudit.collect.kinds import KINDS
from plaudit.collect.project import Project
from plaudit.collect.refusals import FieldError
from plaudit.collect.tasks import check_task, shown_task

TEXTS = ("Pear.", "Fig.", "Oak.", "Car.")


def answers(count: int) -> list[dict[str, Any]]:
    return [{"text": text} for text in (*TEXTS, *(f"Number {n}." for n in range(count - 4)))][:count]


def second(**more: Any) -> dict[str, Any]:
    """A task of two answers, of which the second is so."""
    return {"candidates": [{"text": "a"}, more]}


TASKS: dict[str, dict[str, Any]] = {
    "pair": {"prompt": "?", "candidates": answers(2)},
    "rank": {"prompt": "?", "candidates": answers(3)},
    "rate": {"prompt": "?", "candidates": answers(2)},
    "write": {"prompt": "?", "draft": "Yo"},
    "steps": {"prompt": "?", "steps": ["a", "b", "c"]},
    "talk": {"prompt": ""},
    "attack": {},
}


def turn(**more: Any) -> dict[str, Any]:
    return {"message": "Hi", "answers": ["Hello!", "What?"], "strength": -2, **more}


def said(role: str, content: Any = "words") -> dict[str, Any]:
    return {"role": role, "content": content}


def spoken(words: str) -> dict[str, Any]:
    return {"messages": [said("user", words), said("assistant")], "success": 1}


LABELS: dict[str, dict[str, Any]] = {
    "pair": {"strength": -2, "why": "shorter", "flags": [[], ["harmful"]], "both_bad": False},
    "rank": {"groups": [[2, 0], [1]]},
    "rate": {"points": {"overall": [5, None]}, "thumbs": [True, None]},
    "write": {"answer": "Good morning"},
    "steps": {"labels": ["right", "neutral", "wrong"], "ended": "error"},
    "talk": {"turns": [turn(), turn(strength=0)]},
    "attack": {"messages": [said("user"), said("assistant")], "success": 4, "worked": "asking kindly"},
}


def project(kind: str, **settings: Any) -> Project:
    server = {"talks_to": "http://127.0.0.1:1/v1#m"} if kind in ("talk", "attack") else {}
    return Project(name="p", ask=kind, **{**server, **settings})  # type: ignore[arg-type]


def test_every_kind_is_here():
    assert {*TASKS} == {*LABELS} == {*KINDS}
    assert len(KINDS) == 7


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_task_and_a_whole_label_are_taken(kind):
    asked = project(kind)
    task = check_task({**TASKS[kind], "category": "sums", "metadata": {"n": [1, {"a": None}]}}, asked)
    assert task["kind"] == kind
    assert check_task(task, asked) == task
    label = check_label(LABELS[kind], task, asked)
    assert check_label(label, task, asked) == label
    order = list(range(len(task["candidates"])))
    shown = shown_task(task, order[::-1], asked)
    assert shown["answers"] == [c["text"] for c in task["candidates"]][::-1]
    assert json.loads(json.dumps(shown)) == shown
    side(label, kind, order)


LONG = "x" * 10_000_000
DEEP: Any = {"a": 1}
for _ in range(2_000):
    DEEP = {"a": DEEP}

# A kind, what of its task is otherwise, the field that is refused, and words of the refusal.
BAD_TASKS: list[tuple[str, dict[str, Any] | object, str, str]] = [
    *((kind, {"kind": "essay"}, "kind", f"{kind}, as the project asks") for kind in KINDS),
    ("pair", [1, 2], "task", "an object"),
    ("pair", None, "task", "an object"),
    # Unknown fields, with the nearest that is known.
    ("pair", {"promt": "?"}, "promt", "did you mean prompt?"),
    ("pair", {"candidate": []}, "candidate", "did you mean candidates?"),
    ("pair", {"steps": ["a"]}, "steps", "one of kind, prompt"),
    ("steps", {"draft": "x"}, "draft", "one of kind, prompt"),
    ("pair", second(txt="b"), "candidates[1].txt", "did you mean text?"),
    ("pair", second(text="b", model="m"), "candidates[1].model", "text, ended, source"),
    # Counts.
    ("pair", {"candidates": answers(1)}, "candidates", "2 of them, found 1 answers"),
    ("pair", {"candidates": answers(3)}, "candidates", "2 of them, found 3 answers"),
    ("pair", {"candidates": None}, "candidates", "2 of them, found 0 answers"),
    ("rank", {"candidates": answers(2)}, "candidates", "3 to 9 of them, found 2 answers"),
    ("rank", {"candidates": answers(10)}, "candidates", "3 to 9 of them, found 10 answers"),
    ("rate", {"candidates": []}, "candidates", "1 to 9 of them"),
    ("rate", {"candidates": answers(10)}, "candidates", "1 to 9 of them"),
    *(
        (kind, {"candidates": answers(2)}, "candidates", "0 of them")
        for kind in KINDS
        if not KINDS[kind].answers[1]
    ),
    ("steps", {"steps": []}, "steps", "at least one step"),
    ("steps", {"steps": ["a", "  "]}, "steps", "none empty"),
    ("steps", {"steps": None}, "steps", "a value"),
    ("steps", {"steps": "a"}, "steps", "a list"),
    # Texts.
    ("pair", {"prompt": None}, "prompt", "a value"),
    ("pair", {"prompt": 3}, "prompt", "a text"),
    ("pair", {"prompt": ""}, "prompt", "a prompt"),
    ("pair", {"prompt": "a\0b"}, "prompt", "NUL"),
    ("pair", {"prompt": "\ud800"}, "prompt", "UTF-8"),
    ("pair", {"prompt": LONG}, "task", "at most 1000000"),
    ("pair", {"prompt": [{"role": "usr", "content": "x"}]}, "prompt[0].role", "user"),
    ("pair", second(text=""), "candidates[1].text", ""),
    ("pair", {"candidates": [{"text": "a"}, {}]}, "candidates[1].text", "a value"),
    ("pair", {"candidates": [{"text": "a\0"}, {"text": "b"}]}, "candidates[0].text", "NUL"),
    ("pair", second(text="\udfff"), "candidates[1].text", "UTF-8"),
    ("pair", second(text="b", ended=2), "candidates[1].ended", "true or false"),
    ("pair", {"candidates": ["a", "b"]}, "candidates[0]", "an object"),
    ("write", {"draft": 3}, "draft", "a text"),
    ("write", {"draft": "a\0"}, "draft", "NUL"),
    ("steps", {"steps": ["a", "b\0"]}, "steps[1]", "NUL"),
    ("steps", {"steps": ["a", 3]}, "steps[1]", "a text"),
    # Answers that are the same words.
    ("pair", second(text=" a\n"), "candidates[1].text", "the same words"),
    ("rank", {"candidates": [*answers(3), {"text": "Fig."}]}, "candidates[3].text", "candidates[1]"),
    ("rate", second(text="a"), "candidates[1].text", "answers that differ"),
    # What else a task says.
    ("pair", {"category": 3}, "category", "a text"),
    ("pair", {"language": ["en"]}, "language", "a text"),
    ("pair", {"priority": "high"}, "priority", "a number"),
    ("pair", {"priority": float("nan")}, "priority", "finite"),
    ("pair", {"priority": True}, "priority", "a number"),
    ("pair", {"score": float("inf")}, "score", "finite"),
    ("pair", {"probability": 1.5}, "probability", "from 0 to 1"),
    ("pair", {"metadata": [1]}, "metadata", "an object"),
    ("pair", {"metadata": {"a": "b\0"}}, "metadata", "NUL"),
    ("pair", {"metadata": {"a\0": 1}}, "metadata", "NUL"),
    ("pair", {"metadata": {"a": ["\ud800"]}}, "metadata", "UTF-8"),
    ("pair", {"metadata": {"a": float("nan")}}, "metadata", "plain JSON"),
    ("pair", {"metadata": {"a": {1, 2}}}, "metadata", "plain JSON"),
    ("pair", {"metadata": DEEP}, "metadata", "at most 16 levels"),
    ("pair", second(text="b", source="m"), "candidates[1].source", "an object"),
    ("pair", second(text="b", source=DEEP), "candidates[1].source", "levels"),
    # Known answers.
    ("pair", {"qualify": True}, "gold", "as the task qualifies people"),
    ("pair", {"qualify": "yes"}, "qualify", "true or false"),
    ("pair", {"gold": {"best": 0}}, "gold.best", "did you mean better?"),
    ("pair", {"gold": {"better": 2}}, "gold.better", "from 0 to 1"),
    ("pair", {"gold": {"better": True}}, "gold.better", "from 0 to 1"),
    ("pair", {"gold": {"better": 0.0}}, "gold.better", "from 0 to 1"),
    ("pair", {"gold": 1}, "gold", "an object"),
    ("rank", {"gold": {"best": 3}}, "gold.best", "from 0 to 2"),
    ("rate", {"gold": {}}, "gold", "points of an aspect"),
    ("rate", {"gold": {"clear": [[1, 2], [1, 2]]}}, "gold.clear", "one of overall"),
    ("rate", {"gold": {"overall": [[1, 2]]}}, "gold.overall", "each of the 2 answers"),
    ("rate", {"gold": {"overall": [[3, 2], [1, 1]]}}, "gold.overall", "[low, high]"),
    ("rate", {"gold": {"overall": [[1, 9], [1, 1]]}}, "gold.overall[0][1]", "from 1 to 5"),
    ("steps", {"gold": {"labels": []}}, "gold.labels", "each of the 3 steps"),
    ("steps", {"gold": {"labels": ["right", "right"]}}, "gold.labels", "up to the first wrong one"),
    ("steps", {"gold": {"labels": ["right", "bad", "wrong"]}}, "gold.labels", "right, neutral or wrong"),
    ("steps", {"gold": {"labels": ["wrong"] * 4}}, "gold.labels", "each of the 3 steps"),
    ("pair", {"gold": {"flags": [[], []]}}, "gold.better", "a value"),
    ("pair", {"gold": {"better": 0, "flags": [[]]}}, "gold.flags", "each of the 2 answers"),
    ("rank", {"gold": {"best": 0, "flags": [[], ["rude"], []]}}, "gold.flags[1][0]", "one of harmful"),
    ("rate", {"qualify": True, "gold": {"flags": [[], []]}}, "gold", "points of an aspect"),
    ("steps", {"gold": {"labels": ["right"] * 3, "flags": []}}, "gold.flags", "one of labels"),
    *((kind, {"gold": {"better": 0}}, "gold", "no right one") for kind in ("write", "talk", "attack")),
]


@pytest.mark.parametrize(
    ("kind", "change", "field", "words"),
    BAD_TASKS,
    ids=[f"{n}-{row[0]}-{row[2]}" for n, row in enumerate(BAD_TASKS)],
)
def test_a_wrong_task_is_refused_by_its_field(kind, change, field, words):
    body = {**TASKS[kind], **change} if isinstance(change, dict) else change
    with pytest.raises(FieldError) as refused:
        check_task(body, project(kind))
    assert refused.value.field == field
    assert words in str(refused.value)
    assert len(str(refused.value)) < 600


# A kind, a label, the field that is refused, words of the refusal, and settings where others are needed.
BAD_LABELS: list[tuple[str, object, str, str, dict[str, Any]]] = [
    *((kind, label, "label", "an object", {}) for kind in KINDS for label in (None, [], "left", 3)),
    ("pair", {}, "strength", "a value", {}),
    ("pair", {"streng": 1}, "streng", "did you mean strength?", {}),
    ("pair", {"strength": 4}, "strength", "from -3 to 3", {}),
    ("pair", {"strength": 2}, "strength", "from -1 to 1", {"scale": ("better",)}),
    ("pair", {"strength": True}, "strength", "a whole number", {}),
    ("pair", {"strength": 1.0}, "strength", "a whole number", {}),
    ("pair", {"strength": float("nan")}, "strength", "a whole number", {}),
    ("pair", {"strength": 10**400}, "strength", "a whole number", {}),
    ("pair", {"strength": 0}, "strength", "no ties", {"ties": False}),
    ("pair", {"none": True, "strength": 1}, "strength", "one of none", {}),
    ("pair", {"none": False}, "none", "true, or leave it out", {}),
    ("pair", {"none": 1}, "none", "true, or leave it out", {}),
    ("pair", {"strength": 1, "both_bad": 1}, "both_bad", "true or false", {}),
    ("pair", {"strength": 1, "why": 3}, "why", "a text", {}),
    ("pair", {"strength": 1, "why": "a\0"}, "why", "NUL", {}),
    ("pair", {"strength": 1, "why": "\ud800"}, "why", "surrogate", {}),
    ("pair", {"strength": 1, "why": LONG}, "why", "at most 10000", {}),
    ("pair", {"strength": 1, "flags": [[]]}, "flags", "each of the 2 answers", {}),
    ("pair", {"strength": 1, "flags": "harmful"}, "flags", "a list", {}),
    ("pair", {"strength": 1, "flags": [[], ["rude"]]}, "flags[1][0]", "one of harmful, false", {}),
    ("pair", {"strength": 1, "flags": [[], [["harmful"]]]}, "flags[1][0]", "one of harmful", {}),
    ("pair", {"strength": 1, "flags": [[], ["harmful"]]}, "flags[1][0]", "no flags at all", {"flags": ()}),
    ("pair", DEEP, "a", "an unknown field", {}),
    ("rank", {}, "groups", "a value", {}),
    ("rank", {"group": []}, "group", "did you mean groups?", {}),
    ("rank", {"groups": [[0]]}, "groups", "at least two answers", {}),
    ("rank", {"groups": [[0], [0]]}, "groups", "no place twice", {}),
    ("rank", {"groups": [[0], [], [1]]}, "groups", "no group empty", {}),
    ("rank", {"groups": [[0], [3]]}, "groups[1][0]", "from 0 to 2", {}),
    ("rank", {"groups": [[0], [-1]]}, "groups[1][0]", "from 0 to 2", {}),
    ("rank", {"groups": [0, 1, 2]}, "groups[0]", "a list", {}),
    ("rank", {"groups": [[0, 1], [2]]}, "groups", "no ties", {"ties": False}),
    ("rate", {}, "points", "or thumbs", {}),
    ("rate", {"points": {"overall": [None, None]}}, "points", "or a thumb of an answer", {}),
    ("rate", {"points": {"overall": [6, 1]}}, "points.overall[0]", "from 1 to 5", {}),
    ("rate", {"points": {"overall": [0, 1]}}, "points.overall[0]", "from 1 to 5", {}),
    ("rate", {"points": {"overall": [2.5, 1]}}, "points.overall[0]", "a whole number", {}),
    ("rate", {"points": {"overall": [1]}}, "points.overall", "each of the 2 answers", {}),
    ("rate", {"points": {"kind": [1, 1]}}, "points", "overall", {}),
    ("rate", {"points": {"overall": [1, 1]}}, "points", "clear, kind", {"aspects": ("clear", "kind")}),
    ("rate", {"points": {}}, "points", "points by aspect", {}),
    ("rate", {"thumbs": [True]}, "thumbs", "each of the 2 answers", {}),
    ("rate", {"thumbs": True}, "thumbs", "true, false or null", {}),
    ("rate", {"thumbs": [2, True]}, "thumbs", "true, false or null", {}),
    ("write", {}, "answer", "a value", {}),
    ("write", {"answer": "  "}, "answer", "words", {}),
    ("write", {"answer": 3}, "answer", "a text", {}),
    ("write", {"answer": "a\0"}, "answer", "NUL", {}),
    ("write", {"answer": LONG}, "answer", "at most 1000000", {}),
    ("write", {"text": "x", "answer": "x"}, "text", "one of answer, why", {}),
    ("steps", {}, "ended", "a value", {}),
    ("steps", {"labels": ["right"], "ended": "bored"}, "ended", "error, solved", {}),
    ("steps", {"labels": ["right"], "ended": ["error"]}, "ended", "error, solved", {}),
    ("steps", {"labels": ["right"] * 4, "ended": "gave-up"}, "labels", "at most 3 steps", {}),
    ("steps", {"labels": ["good"], "ended": "gave-up"}, "labels", "right, neutral or wrong", {}),
    ("steps", {"labels": [["right"]], "ended": "gave-up"}, "labels", "right, neutral or wrong", {}),
    ("steps", {"labels": ["wrong", "right"], "ended": "error"}, "labels", "no further", {}),
    ("steps", {"labels": ["right"], "ended": "error"}, "ended", "error where the last label is wrong", {}),
    ("steps", {"labels": ["right"], "ended": "solved"}, "ended", "solved where all steps", {}),
    ("steps", {"labels": ["right", "right", "wrong"], "ended": "solved"}, "ended", "none is wrong", {}),
    ("talk", {}, "turns", "a value", {}),
    ("talk", {"turns": []}, "turns", "at least one turn", {}),
    ("talk", {"turns": [turn(answers=["a"])]}, "turns[0].answers", "two answers", {}),
    ("talk", {"turns": [turn(), turn(message="")]}, "turns[1].message", "words", {}),
    ("talk", {"turns": [turn(strength=9)]}, "turns[0].strength", "from -3 to 3", {}),
    ("talk", {"turns": [turn(mesage="x")]}, "turns[0].mesage", "did you mean message?", {}),
    ("talk", {"turns": [turn(answers=["a", "b\0"])]}, "turns[0].answers[1]", "NUL", {}),
    ("talk", {"turns": [turn(message="x" * 600_000)] * 2}, "label", "at most 1000000", {}),
    ("talk", {"turns": ["Hi"]}, "turns[0]", "an object", {}),
    ("attack", {"success": 1}, "messages", "a value", {}),
    ("attack", {"messages": [], "success": 1}, "messages", "turns of a user", {}),
    ("attack", {"messages": [said("user")], "success": 1}, "messages", "each with the model's answer", {}),
    ("attack", {"messages": [said("assistant")] * 2, "success": 1}, "messages[0].role", "user", {}),
    ("attack", {"messages": [said("user")] * 2, "success": 1}, "messages[1].role", "assistant", {}),
    ("attack", {**LABELS["attack"], "success": 5}, "success", "from 0 to 4", {}),
    ("attack", {**LABELS["attack"], "sucess": 1}, "sucess", "did you mean success?", {}),
    ("attack", {**LABELS["attack"], "category": ""}, "category", "words", {}),
    ("attack", {**LABELS["attack"], "worked": "\0"}, "worked", "NUL", {}),
    ("attack", spoken("\ud800"), "messages[0].content", "surrogate", {}),
    ("attack", spoken(LONG), "messages[0].content", "at most", {}),
]


@pytest.mark.parametrize(
    ("kind", "label", "field", "words", "settings"),
    BAD_LABELS,
    ids=[f"{n}-{row[0]}-{row[2]}" for n, row in enumerate(BAD_LABELS)],
)
def test_a_wrong_label_is_refused_by_its_field(kind, label, field, words, settings):
    asked = project(kind, **settings)
    with pytest.raises(FieldError) as refused:
        check_label(label, check_task(TASKS[kind], project(kind)), asked)
    assert refused.value.field == field
    assert words in str(refused.value)
    assert len(str(refused.value)) < 600


def test_a_backslash_before_u0000_is_no_nul():
    metadata = {"code": r"print('\u0000')"}
    assert check_task({**TASKS["pair"], "metadata": metadata}, project("pair"))["metadata"] == metadata


# A kind, a known answer, a label in the order shown, that order, and whether it says what is right.
KNOWN: list[tuple[str, dict[str, Any], dict[str, Any], list[int], bool | None]] = [
    ("pair", {"better": 0}, {"strength": -1}, [0, 1], True),
    ("pair", {"better": 0}, {"strength": -1}, [1, 0], False),
    ("pair", {"better": 1}, {"strength": 3}, [0, 1], True),
    ("pair", {"better": 0}, {"strength": 0}, [0, 1], False),
    ("pair", {"better": 0}, {"none": True}, [0, 1], None),
    ("rank", {"best": 2}, {"groups": [[0], [1, 2]]}, [2, 1, 0], True),
    ("rank", {"best": 2}, {"groups": [[0, 1], [2]]}, [2, 1, 0], False),
    ("rate", {"overall": [[4, 5], [1, 2]]}, {"points": {"overall": [2, 4]}}, [1, 0], True),
    ("rate", {"overall": [[4, 5], [1, 2]]}, {"points": {"overall": [4, 3]}}, [0, 1], False),
    ("rate", {"overall": [[4, 5], [1, 2]]}, {"thumbs": [True, False]}, [0, 1], None),
    ("steps", {"labels": ["right", "wrong", "right"]}, {"labels": ["right", "wrong"]}, [], True),
    ("steps", {"labels": ["right", "wrong"]}, {"labels": ["right", "right", "wrong"]}, [], False),
    ("steps", {"labels": ["right"] * 3}, {"labels": ["right"] * 3}, [], True),
    # Whoever gives up says nothing that is right.
    ("steps", {"labels": ["right"] * 3}, {"labels": []}, [], False),
    ("steps", {"labels": ["right", "right", "wrong"]}, {"labels": ["right"]}, [], False),
]


@pytest.mark.parametrize(("kind", "gold", "label", "order", "expected"), KNOWN)
def test_what_is_known_to_be_right(kind, gold, label, order, expected):
    body = check_task({**TASKS[kind], "gold": gold}, project(kind))
    assert agrees_with_gold(label, body, order) is expected
    assert agrees_with_gold(label, {**body, "gold": None}, order) is None


HARMFUL, PRIVATE = ["harmful"], ["private", "harmful"]
# A kind, a known answer, a label in the order shown, that order, and how many flags of how many are right.
KNOWN_FLAGS: list[tuple[str, dict[str, Any], dict[str, Any], list[int], tuple[int, int]]] = [
    ("pair", {"better": 0}, {"strength": -1, "flags": [[], HARMFUL]}, [0, 1], (2, 2)),
    ("pair", {"better": 0}, {"strength": -1, "flags": [HARMFUL, []]}, [1, 0], (2, 2)),
    ("pair", {"better": 0}, {"none": True, "flags": [HARMFUL, []]}, [0, 1], (0, 2)),
    ("pair", {"better": 0}, {"strength": 1, "flags": [[], PRIVATE]}, [0, 1], (1, 2)),
    ("pair", {"better": 0}, {"strength": 1}, [0, 1], (1, 2)),
    ("rate", {}, {"points": {"overall": [1, 2]}, "flags": [[], HARMFUL]}, [0, 1], (2, 2)),
]


@pytest.mark.parametrize(("kind", "gold", "label", "order", "expected"), KNOWN_FLAGS)
def test_what_answers_are_known_to_deserve_is_counted_by_answer(kind, gold, label, order, expected):
    asked = project(kind)
    body = check_task({**TASKS[kind], "gold": {**gold, "flags": [[], HARMFUL]}}, asked)
    assert agreed_flags(check_label(label, body, asked), body, order) == expected
    assert (
        agreed_flags(label, {**body, "gold": gold}, order) is agreed_flags(label, TASKS[kind], order) is None
    )


def test_known_flags_change_nothing_of_what_is_preferred():
    flags = {"flags": [[], HARMFUL]}
    pair = check_task({**TASKS["pair"], "gold": {"better": 0, **flags}}, project("pair"))
    assert agrees_with_gold({"strength": -1}, pair, [0, 1]) is True
    rate = check_task({**TASKS["rate"], "gold": flags}, project("rate"))
    assert agrees_with_gold({"points": {"overall": [1, 1]}}, rate, [0, 1]) is None


def test_aspects_have_known_answers_of_their_own_within_their_levels():
    asked = project("rate", aspects=("clear", "kind"))
    body = check_task({**TASKS["rate"], "gold": {"clear": [[4, 5], [1, 2]]}}, asked)
    assert agrees_with_gold({"points": {"clear": [5, 1], "kind": [1, 1]}}, body, [0, 1]) is True
    assert agrees_with_gold({"points": {"clear": [1, 5]}}, body, [0, 1]) is False
    assert agrees_with_gold({"points": {"kind": [1, 1]}}, body, [0, 1]) is None
    asked = project("rate", **LAYOUT)
    body = check_task({**TASKS["rate"], "gold": {"layout": [[3, 3], [1, 2]]}}, asked)
    assert agrees_with_gold({"points": {"layout": [3, 1]}}, body, [0, 1]) is True
    with pytest.raises(FieldError) as refused:
        check_task({**TASKS["rate"], "gold": {"layout": [[3, 4], [1, 2]]}}, asked)
    assert (refused.value.field, refused.value.expected) == ("gold.layout[0][1]", "a number from 1 to 3")


LAYOUT: dict[str, Any] = {
    "aspects": ("helpfulness", "layout"),
    "anchors": ((), ("Poor", "Adequate", "Excellent")),
}


def test_an_aspect_with_words_has_as_many_points_as_words():
    asked = project("rate", **LAYOUT)
    body = check_task(TASKS["rate"], asked)
    shown = shown_task(body, [0, 1], asked)
    assert shown["anchors"] == {"layout": ["Poor", "Adequate", "Excellent"]}
    assert (shown["aspects"], shown["points"]) == (["helpfulness", "layout"], 5)
    label = {"points": {"helpfulness": [5, 1], "layout": [3, None]}}
    assert check_label(label, body, asked) == label
    for scores, field, words in (
        ([4, 1], "points.layout[0]", "a whole number from 1 to 3"),
        ([1], "points.layout", "1 to 3 or null"),
    ):
        with pytest.raises(FieldError) as refused:
            check_label({"points": {"layout": scores}}, body, asked)
        assert (refused.value.field, words in str(refused.value)) == (field, True)


# What a majority is counted over, in the task's own order.
SIDES: list[tuple[str, dict[str, Any], list[int], str | None]] = [
    ("pair", {"strength": -2}, [1, 0], "1"),
    ("pair", {"strength": 2}, [1, 0], "0"),
    ("pair", {"strength": 0}, [1, 0], "tie"),
    ("pair", {"none": True}, [1, 0], None),
    ("rank", {"groups": [[2, 0], [1]]}, [2, 1, 0], "0,2"),
    ("steps", {"labels": ["right", "wrong"], "ended": "error"}, [], "1"),
    ("steps", {"labels": ["right"], "ended": "gave-up"}, [], "gave-up"),
    ("rate", {"points": {"overall": [1, 2]}}, [0, 1], None),
    ("write", {"answer": "x"}, [], None),
]


@pytest.mark.parametrize(("kind", "label", "order", "expected"), SIDES)
def test_what_people_are_divided_over(kind, label, order, expected):
    assert side(label, kind, order) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_clicks_outlive_words(kind):
    label = {**LABELS[kind], "why": "my cousin"}
    rest = without_free_text(label)
    assert (rest is None) == (kind in ("write", "talk", "attack"))
    assert "cousin" not in str(rest)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_what_is_to_be_judged_is_shown(kind):
    hidden = {"metadata": {"x": "hidden"}, "method": "hidden", "score": 0.125, "probability": 0.125}
    body = {**TASKS[kind], **hidden, "reference_answer": "hidden", "priority": 0.125}
    if "candidates" in body:
        body["candidates"] = [{**c, "source": {"model": "hidden"}} for c in body["candidates"]]
    if kind == "pair":
        body["gold"] = {"better": 0}
    task = check_task(body, project(kind))
    words = json.dumps(shown_task(task, list(range(len(task["candidates"]))), project(kind)))
    assert not any(hint in words for hint in ("hidden", "0.125", "gold", 'better":'))


def test_half_an_answer_is_plain_json_too(make_desk):
    """A draft is shown again with its task: one that no answer can be written with would block the person."""
    desk = make_desk(tasks=1)
    (one,) = desk.people(1)
    lease = desk.lease(one)
    texts = [{"why": word} for word in ("\ud800", "\0", LONG)]
    for draft in (*texts, {"n": math.nan}, {"a": DEEP}, [1], "x"):
        with pytest.raises(FieldError, match="label"):
            desk.store.write(save_draft, "p", one, lease.assignment, draft)
    desk.store.write(save_draft, "p", one, lease.assignment, {"why": "Größe 東京 😀"})
    again = desk.store.write(next_task, "p", one)
    assert again.draft == {"why": "Größe 東京 😀"}  # type: ignore[union-attr]


def test_what_may_upset_is_shown_with_its_category_and_nothing_else_is():
    asked = Project(name="p", upsetting=("war",), text="markdown")
    shown = {
        category: shown_task(check_task({**TASKS["pair"], "category": category}, asked), [0, 1], asked)
        for category in ("war", "peace")
    }
    assert shown["war"]["blurred"] is True
    assert shown["war"]["category"] == "war"
    assert not {"blurred", "category"} & shown["peace"].keys()
    assert shown["peace"]["markdown"] is True
