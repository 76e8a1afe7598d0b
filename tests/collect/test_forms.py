"""A label as the fields of a form and back, for every kind: nothing that may be said is lost on the way."""

from collections import ChainMap
from typing import Any

import pytest
from hypothesis import given, strategies as st

from plaudit.collect.answers import (
    check_label,
    draft_of,
    field_of_form,
    is_answer_field,
    label_from_form,
    values_of,
)
from plaudit.collect.kinds import KINDS
from plaudit.collect.project import Project
from plaudit.collect.refusals import FieldError
from plaudit.collect.tasks import check_task, shown_task

FLAGS = ("harmful", "false")
ASPECTS = ("helpful", "true: or not?")


def project(kind: Any, **more: Any) -> Project:
    server = {"talks_to": "http://127.0.0.1:1/v1#m"} if kind in ("talk", "attack") else {}
    aspects = ASPECTS if kind == "rate" else ()
    return Project(name="p", ask=kind, flags=FLAGS, aspects=aspects, **server, **more)


def body(kind: str, count: int = 3) -> dict[str, Any]:
    own: dict[str, Any] = {"steps": {"steps": ["One.", "Two.", "Three."]}}.get(kind, {})
    answers = {"pair": 2, "rank": count, "rate": count}.get(kind, 0)
    candidates = {"candidates": [{"text": f"Answer {n}"} for n in range(answers)]} if answers else {}
    return check_task({"kind": kind, "prompt": "Why?", **candidates, **own}, project(kind))


def shown(kind: str, count: int = 3) -> dict[str, Any]:
    task = body(kind, count)
    return shown_task(task, range(len(task["candidates"])), project(kind))


def refused(kind: str, form: dict[str, list[str]]) -> FieldError:
    with pytest.raises(FieldError) as caught:
        label_from_form(shown(kind), form)
    return caught.value


# Words that a form can hold: a browser makes every line's end one kind, and no text has a NUL.
WORDS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\0"), max_size=40)
SAID = WORDS.filter(str.strip)
WHY = st.fixed_dictionaries({}, optional={"why": WORDS})


def flags(count: int) -> st.SearchStrategy[Any]:
    one = st.lists(st.sampled_from(FLAGS), max_size=3)
    return st.fixed_dictionaries({}, optional={"flags": st.lists(one, min_size=count, max_size=count)})


def both(*parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(*parts).map(lambda found: dict(ChainMap(*found)))


NONE = st.just({"none": True})
BAD = st.fixed_dictionaries({}, optional={"both_bad": st.booleans()})
PAIRS = both(st.one_of(st.integers(-3, 3).map(lambda n: {"strength": n}), NONE), BAD, flags(2), WHY)


@st.composite
def groups(draw: st.DrawFn) -> dict[str, Any]:
    ranked = draw(st.lists(st.integers(0, 2), unique=True, min_size=2))
    cuts = [draw(st.booleans()) for _ in ranked[1:]]
    found = [[ranked[0]]]
    for place, cut in zip(ranked[1:], cuts, strict=True):
        found += [[]] if cut else []
        found[-1].append(place)
    return {"groups": found}


RANKS = both(st.one_of(groups(), NONE), flags(3), WHY)
POINTS = st.lists(st.one_of(st.none(), st.integers(1, 5)), min_size=3, max_size=3)
THUMBS = st.lists(st.sampled_from([True, False, None]), min_size=3, max_size=3)
BY_ASPECT = st.dictionaries(st.sampled_from(ASPECTS), POINTS, min_size=1)
RATES = both(st.fixed_dictionaries({}, optional={"points": BY_ASPECT, "thumbs": THUMBS}), flags(3), WHY)


@st.composite
def steps(draw: st.DrawFn) -> dict[str, Any]:
    labels = draw(st.lists(st.sampled_from(["right", "neutral"]), max_size=3))
    wrong = ["wrong"] if len(labels) < 3 and draw(st.booleans()) else []
    ended = draw(st.sampled_from(["error", "solved", "bad-problem", "gave-up"]))
    return {"labels": labels + wrong, "ended": ended}


TURNS = st.fixed_dictionaries(
    {"message": SAID, "answers": st.tuples(SAID, SAID).map(list), "strength": st.integers(-3, 3)}
)
TALKS = both(st.fixed_dictionaries({"turns": st.lists(TURNS, min_size=1, max_size=2)}), WHY)
MESSAGES = st.just([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
GONE = st.fixed_dictionaries({"messages": MESSAGES, "success": st.integers(0, 4)})
ATTACKS = both(GONE, st.fixed_dictionaries({}, optional={"category": SAID, "worked": WORDS}), WHY)
LABELS = {
    "pair": PAIRS,
    "rank": RANKS,
    "rate": RATES,
    "write": both(st.fixed_dictionaries({"answer": SAID}), WHY),
    "steps": both(steps(), WHY),
    "talk": TALKS,
    "attack": ATTACKS,
}


def said(label: dict[str, Any]) -> dict[str, Any]:
    """A label without fields that say nothing, as a form has no place for them."""
    found = {name: value for name, value in label.items() if name not in ("why", "worked") or value.strip()}
    if not any(found.get("flags", ())):
        found.pop("flags", None)
    if found.get("both_bad") is False:
        del found["both_bad"]
    if "points" in found:
        points = {aspect: given for aspect, given in found["points"].items() if given != [None] * len(given)}
        found = {**found, "points": points}
        if not points:
            del found["points"]
    if found.get("thumbs") == [None] * 3:
        del found["thumbs"]
    return found


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", LABELS)
@given(data=st.data())
def test_every_label_that_is_taken_survives_the_form(kind, data):
    drawn = data.draw(LABELS[kind])
    try:
        label = check_label(drawn, body(kind), project(kind))
    except FieldError:
        return
    values = values_of(shown(kind), label)
    assert all(isinstance(value, str) for given in values.values() for value in given)
    again = label_from_form(shown(kind), values)
    conversation = KINDS[kind].conversation
    if conversation is not None:
        # The turns stay with the store, and no form has them.
        label = {name: label[name] for name in conversation.sent if name in label}
        assert again == said(label)
    else:
        assert check_label(again, body(kind), project(kind)) == said(label)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("kind", LABELS)
@given(
    form=st.dictionaries(
        st.sampled_from(
            [
                *("strength", "none", "both_bad", "why", "place-0", "place-1", "points-0-0", "thumb-0"),
                *("flags-0", "step-0", "step-1", "ended", "answer", "success", "category", "worked"),
            ]
        ),
        st.lists(WORDS | st.sampled_from(["1", "-1", "yes", "up", "right", "wrong", "gave-up"]), max_size=3),
    )
)
def test_any_form_is_a_label_or_a_refusal_that_names_a_field_of_it(kind, form):
    try:
        label_from_form(shown(kind), form)
        return
    except FieldError as fault:
        field = fault.field
    assert is_answer_field(field)


@pytest.mark.parametrize("kind", LABELS)
def test_a_half_filled_form_is_kept_as_it_is(kind):
    form = {"why": ["Since"], "place-1": ["2"], "key": ["k"], "form_token": ["t"], "strength": ["9"]}
    assert values_of(shown(kind), draft_of(form)) == {"why": ["Since"], "place-1": ["2"], "strength": ["9"]}


def test_a_draft_that_is_no_form_fills_in_nothing():
    assert values_of(shown("pair"), {"form": 7}) == {}
    form = {"why": "text", "key": ["k"], "strength": [3, "1"]}
    assert values_of(shown("pair"), {"form": form}) == {"strength": ["1"]}


def test_a_pair_is_a_choice_and_what_goes_with_it():
    form = {"strength": ["2"], "both_bad": ["yes"], "flags-1": ["false", "harmful"], "why": ["a\r\nb"]}
    assert label_from_form(shown("pair"), form) == {
        "strength": 2,
        "both_bad": True,
        "flags": [[], ["false", "harmful"]],
        "why": "a\nb",
    }
    assert label_from_form(shown("pair"), {"strength": ["none"]}) == {"none": True}


@pytest.mark.parametrize(
    ("kind", "form", "field", "expected"),
    [
        ("pair", {}, "strength", "from -3 to 3"),
        ("pair", {"strength": ["4"]}, "strength", "from -3 to 3"),
        ("pair", {"strength": ["1", "2"]}, "strength", "one"),
        ("pair", {"strength": ["١"]}, "strength", "a whole number"),
        ("pair", {"strength": ["1"], "flags-0": ["rude"]}, "flags-0", "one of harmful, false"),
        ("pair", {"strength": ["1"], "both_bad": ["no"]}, "both_bad", "one of yes"),
        ("rank", {}, "place-0", "at least two answers"),
        ("rank", {"place-1": ["1"]}, "place-0", "at least two answers"),
        ("rank", {"place-0": ["1"], "place-1": ["4"]}, "place-1", "from 1 to 3"),
        ("rate", {}, "points-0-0", "points or a thumb"),
        ("rate", {"points-1-2": ["6"]}, "points-1-2", "from 1 to 5"),
        ("rate", {"thumb-0": ["sideways"]}, "thumb-0", "one of up, down"),
        ("write", {"answer": [" \n"]}, "answer", "words"),
        ("steps", {"step-1": ["right"]}, "step-0", "a label"),
        ("steps", {"step-0": ["right"]}, "step-1", "up to the first error"),
        ("steps", {"ended": ["solved"]}, "ended", "one of bad-problem, gave-up"),
        ("attack", {"success": [""]}, "success", "from 0 to 4"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field(kind, form, field, expected):
    fault = refused(kind, form)
    assert fault.field == field
    assert expected in fault.expected


def test_numbers_of_a_ranking_may_have_gaps_and_ties():
    form = {"place-0": ["3"], "place-1": ["1"], "place-2": ["1"]}
    assert label_from_form(shown("rank"), form) == {"groups": [[1, 2], [0]]}
    assert label_from_form(shown("rank"), {"place-2": ["1"], "place-0": ["2"]}) == {"groups": [[2], [0]]}
    assert label_from_form(shown("rank"), {"none": ["yes"], "place-0": ["1"]}) == {"none": True}


def test_steps_behind_the_first_error_are_left_out():
    form = {"step-0": ["right"], "step-1": ["wrong"], "step-2": ["right"]}
    assert label_from_form(shown("steps"), form) == {"labels": ["right", "wrong"], "ended": "error"}
    form = {f"step-{at}": ["right"] for at in range(3)}
    assert label_from_form(shown("steps"), form) == {"labels": ["right"] * 3, "ended": "solved"}
    assert label_from_form(shown("steps"), {"ended": ["gave-up"]}) == {"labels": [], "ended": "gave-up"}


def test_a_refusal_of_the_label_is_said_at_the_field_of_the_form():
    for field, named in {"flags[1][0]": "flags-0", "why": "why", "points.overall": "points-0-0"}.items():
        assert field_of_form(FieldError(field=field, found="x", expected="y")).field == named
