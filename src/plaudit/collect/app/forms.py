"""A label as the fields of a form and back: the names and values that a page's fields have, for each kind.

Nothing here asks a store. A form is a mapping from the name of a field to all values that were sent for it;
what does not fit is a `FieldError` that names the field of the form, so that the page can say it there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plaudit.collect.answers import CONVERSATIONS
from plaudit.collect.refusals import FieldError
from plaudit.data.fields import shorten
from plaudit.data.labels import MOST_SUCCESS, STEP_SCORES

Form = Mapping[str, Sequence[str]]
"""The fields of a form, each with all the values that were sent for it."""
Shown = Mapping[str, Any]
"""What an annotator is shown of a task, as `kinds.shown_task` makes it."""
GAVE_UP = ("bad-problem", "gave-up")
"""The ends of a solution that a person states; error and solved follow from the labels."""
_THUMBS = {"up": True, "down": False}
_SAVED = "form"


def label_from_form(shown: Shown, form: Form) -> dict[str, Any]:
    """The label that a filled-in form says, in the order shown; a refusal names the form's field.

    >>> shown = {"kind": "pair", "answers": ["a", "b"], "scale": ["slightly", "clearly"]}
    >>> label_from_form(shown, {"strength": ["-2"], "why": [" "]})
    {'strength': -2}
    """
    return _READERS[shown["kind"]](shown, form)


def values_of(shown: Shown, label: Mapping[str, Any]) -> dict[str, list[str]]:
    """What the form's fields hold for a label, or for what `draft_of` kept of a half-filled form.

    >>> values_of({"kind": "pair", "answers": ["a", "b"]}, {"strength": 0, "why": "Same."})
    {'strength': ['0'], 'why': ['Same.']}
    """
    if _SAVED in label:
        return _saved_values(label[_SAVED])
    values = _WRITERS[shown["kind"]](shown, label)
    # In a form nothing and an empty text are the same.
    return {name: [*map(str, given)] for name, given in values.items() if any(str(value) for value in given)}


def draft_of(form: Form) -> dict[str, Any]:
    """What is kept of a form that is not sent yet: its fields as they are, whether or not they make a label.

    >>> draft_of({"why": ["Since"], "key": ["k1"], "form_token": ["f"]})
    {'form': {'why': ['Since']}}
    """
    return {_SAVED: {name: [*values] for name, values in form.items() if is_answer_field(name)}}


def is_answer_field(name: str) -> bool:
    """Whether a field of the form is part of the answer, and not of its sending."""
    return name.partition("-")[0] in _ANSWER_FIELDS


def field_of_form(fault: FieldError) -> FieldError:
    """A refusal of a label with the name of the form's field in place of the label's.

    >>> field_of_form(FieldError(field="groups", found="[]", expected="two groups")).field
    'place-0'
    """
    name = fault.field.partition("[")[0].partition(".")[0]
    names = {"groups": "place-0", "points": "points-0-0", "labels": "step-0", "flags": "flags-0"}
    return FieldError(field=names.get(name, name), found=fault.found, expected=fault.expected)


def _saved_values(saved: object) -> dict[str, list[str]]:
    # Drafts come over the API too: what is no form is left out, and the page is shown without it.
    fields = saved.items() if isinstance(saved, dict) else ()
    return {
        name: [value for value in values if isinstance(value, str)]
        for name, values in fields
        if isinstance(values, list) and is_answer_field(name)
    }


# Reading.


def _value(form: Form, name: str) -> str:
    """The value of a field that may be sent once; nothing is an empty text."""
    values = form.get(name, ())
    if len(values) > 1:
        raise FieldError(field=name, found=f"{len(values)} values", expected="one")
    return values[0] if values else ""


def written(form: Form, name: str) -> str:
    """A text as its writer meant it: browsers send every line's end as two characters."""
    return _value(form, name).replace("\r\n", "\n").replace("\r", "\n")


def _texts(form: Form, *names: str) -> dict[str, Any]:
    """The texts that hold words."""
    return {name: text for name in names if (text := written(form, name)).strip()}


def whole_number(form: Form, name: str, low: int, high: int) -> int:
    """The number that was chosen; a refusal names the field."""
    value = _value(form, name)
    numbers = {str(number): number for number in range(low, high + 1)}
    # Looked up and not parsed: to int() "1_0", " 1" and Arabic digits are numbers too.
    if value not in numbers:
        raise FieldError(field=name, found=_found(value), expected=f"a whole number from {low} to {high}")
    return numbers[value]


def _one_of(form: Form, name: str, known: Sequence[str]) -> str:
    """The word that was chosen, or an empty one."""
    value = _value(form, name)
    if value and value not in known:
        raise FieldError(field=name, found=_found(value), expected=f"one of {', '.join(known)}")
    return value


def _is_checked(form: Form, name: str) -> bool:
    return _one_of(form, name, ("yes",)) == "yes"


def _found(value: str) -> str:
    return repr(shorten(value)) if value else "nothing"


def _count(shown: Shown) -> int:
    return len(shown["answers"])


def _flags(shown: Shown, form: Form) -> dict[str, Any]:
    flags = [[*form.get(f"flags-{place}", ())] for place in range(_count(shown))]
    for place, given in enumerate(flags):
        for flag in given:
            if flag not in shown.get("flags", ()):
                known = ", ".join(shown.get("flags", ()))
                raise FieldError(
                    field=f"flags-{place}",
                    found=_found(flag),
                    expected=f"one of {known or 'no flags at all'}",
                )
    return {"flags": [sorted({*given}) for given in flags]} if any(flags) else {}


def _read_pair(shown: Shown, form: Form) -> dict[str, Any]:
    label = {**_flags(shown, form), **_texts(form, "why")}
    if _is_checked(form, "both_bad"):
        label["both_bad"] = True
    if _value(form, "strength") == "none":
        return {**label, "none": True}
    most = len(shown["scale"])
    return {"strength": whole_number(form, "strength", -most, most), **label}


def _read_rank(shown: Shown, form: Form) -> dict[str, Any]:
    label = {**_flags(shown, form), **_texts(form, "why")}
    if _is_checked(form, "none"):
        return {**label, "none": True}
    count, groups = _count(shown), dict[int, list[int]]()
    for place in range(count):
        # An answer without a number is not ranked.
        if _value(form, f"place-{place}"):
            groups.setdefault(whole_number(form, f"place-{place}", 1, count), []).append(place)
    if sum(map(len, groups.values())) < 2:
        raise FieldError(field="place-0", found="fewer", expected="a number for at least two answers")
    # Numbers may be left out between others: 1, 1, 3 is the same order as 1, 1, 2.
    return {"groups": [groups[number] for number in sorted(groups)], **label}


def _read_rate(shown: Shown, form: Form) -> dict[str, Any]:
    places, points = range(_count(shown)), dict[str, list[int | None]]()
    for number, aspect in enumerate(shown["aspects"]):
        names = [f"points-{number}-{place}" for place in places]
        most = most_points(shown, aspect)
        given = [whole_number(form, n, 1, most) if _value(form, n) else None for n in names]
        if _is_any_given(given):
            points[aspect] = given
    thumbs = [_THUMBS.get(_one_of(form, f"thumb-{place}", tuple(_THUMBS))) for place in places]
    label = {
        **({"points": points} if points else {}),
        **({"thumbs": thumbs} if _is_any_given(thumbs) else {}),
    }
    if not label:
        raise FieldError(field="points-0-0", found="nothing", expected="points or a thumb of an answer")
    return {**label, **_flags(shown, form), **_texts(form, "why")}


def most_points(shown: Shown, aspect: str) -> int:
    """The most points of an aspect: its levels where they have words, else those of the project."""
    return len(shown.get("anchors", {}).get(aspect, ())) or shown["points"]


def _is_any_given(values: Sequence[object]) -> bool:
    return any(value is not None for value in values)


def _read_write(shown: Shown, form: Form) -> dict[str, Any]:
    del shown
    answer = written(form, "answer")
    if not answer.strip():
        raise FieldError(field="answer", found="an empty text", expected="words")
    return {"answer": answer, **_texts(form, "why")}


def _read_steps(shown: Shown, form: Form) -> dict[str, Any]:
    ended = _one_of(form, "ended", GAVE_UP)
    given = [_one_of(form, f"step-{at}", tuple(STEP_SCORES)) for at in range(len(shown["steps"]))]
    # Without a script the steps behind the first error can be filled in too; they mean nothing.
    if "wrong" in given:
        given = given[: given.index("wrong") + 1]
    labels = [*given]
    while labels and not labels[-1]:
        labels.pop()
    if "" in labels:
        at = labels.index("")
        raise FieldError(field=f"step-{at}", found="nothing", expected="a label, as later steps have one")
    if not ended and len(labels) < len(shown["steps"]) and "wrong" not in labels:
        raise FieldError(
            field=f"step-{len(labels)}",
            found="nothing",
            expected="a label of each step up to the first error",
        )
    rule = "error" if labels[-1:] == ["wrong"] else "solved"
    return {"labels": labels, "ended": ended or rule, **_texts(form, "why")}


def _read_talk(shown: Shown, form: Form) -> dict[str, Any]:
    del shown
    return _texts(form, *CONVERSATIONS["talk"])


def _read_attack(shown: Shown, form: Form) -> dict[str, Any]:
    del shown
    return {
        "success": whole_number(form, "success", 0, MOST_SUCCESS),
        **_texts(form, "category", "worked", "why"),
    }


# Writing.


Values = Mapping[str, Sequence[object]]
"""The values of fields, not yet as texts."""


def _shared_values(label: Mapping[str, Any]) -> Values:
    flags = {f"flags-{place}": given for place, given in enumerate(label.get("flags", ()))}
    none = {"none": ["yes"]} if label.get("none") else {}
    return {**flags, **none, "why": [label.get("why", "")]}


def _pair_values(shown: Shown, label: Mapping[str, Any]) -> Values:
    del shown
    chosen = "none" if label.get("none") else label.get("strength", "")
    bad = ["yes"] if label.get("both_bad") else []
    shared = {name: value for name, value in _shared_values(label).items() if name != "none"}
    return {"strength": [chosen], "both_bad": bad, **shared}


def _rank_values(shown: Shown, label: Mapping[str, Any]) -> Values:
    del shown
    groups = enumerate(label.get("groups", ()), start=1)
    places = {f"place-{place}": [number] for number, group in groups for place in group}
    return {**places, **_shared_values(label)}


def _rate_values(shown: Shown, label: Mapping[str, Any]) -> Values:
    points = {
        f"points-{shown['aspects'].index(aspect)}-{place}": ["" if value is None else value]
        for aspect, given in label.get("points", {}).items()
        if aspect in shown["aspects"]
        for place, value in enumerate(given)
    }
    words = {True: "up", False: "down", None: ""}
    thumbs = {f"thumb-{place}": [words[thumb]] for place, thumb in enumerate(label.get("thumbs", ()))}
    return {**points, **thumbs, **_shared_values(label)}


def _write_values(shown: Shown, label: Mapping[str, Any]) -> Values:
    del shown
    return {"answer": [label.get("answer", "")], **_shared_values(label)}


def _steps_values(shown: Shown, label: Mapping[str, Any]) -> Values:
    del shown
    steps = {f"step-{at}": [given] for at, given in enumerate(label.get("labels", ()))}
    ended = label.get("ended", "")
    return {**steps, "ended": [ended if ended in GAVE_UP else ""], **_shared_values(label)}


def _conversation_values(shown: Shown, label: Mapping[str, Any]) -> Values:
    return {name: [label.get(name, "")] for name in CONVERSATIONS[shown["kind"]]}


_READERS: Mapping[str, Callable[[Shown, Form], dict[str, Any]]] = {
    "pair": _read_pair,
    "rank": _read_rank,
    "rate": _read_rate,
    "write": _read_write,
    "steps": _read_steps,
    "talk": _read_talk,
    "attack": _read_attack,
}
_WRITERS: Mapping[str, Callable[[Shown, Mapping[str, Any]], Values]] = {
    "pair": _pair_values,
    "rank": _rank_values,
    "rate": _rate_values,
    "write": _write_values,
    "steps": _steps_values,
    "talk": _conversation_values,
    "attack": _conversation_values,
}
_ANSWER_FIELDS = {
    *("strength", "both_bad", "flags", "none", "why", "place", "points", "thumb", "answer", "step", "ended"),
    *("success", "category", "worked", "message"),
}
