"""What annotators answer: checked, from a page's form and back, against what is right, and as rows.

Nothing here asks a store, and what differs from kind to kind is in the kind's own file.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from plaudit.collect.kinds import KINDS
from plaudit.collect.kinds.kind import Body, Form, Label, Labelled, Order, Shown
from plaudit.collect.project import Project
from plaudit.collect.refusals import MOST_CHARACTERS, FieldError
from plaudit.config import did_you_mean
from plaudit.data.fields import BadRowError, Node, describe_value
from plaudit.data.records import Record

_SAVED = "form"


def check_label(label: object, body: Body, project: Project) -> dict[str, Any]:
    """A label as the store holds it, in the order shown; a refusal names its field."""
    if not isinstance(label, dict):
        raise FieldError(field="label", found=describe_value(label), expected="an object")
    try:
        checked = KINDS[body["kind"]].check(Node(value=label), body, project)
    except BadRowError as error:
        raise FieldError(field=error.field or "label", found=error.found, expected=error.expected) from error
    # Each of its texts may be short, and a conversation of thousands of them long.
    size = len(json.dumps(checked, ensure_ascii=False))
    if size > MOST_CHARACTERS:
        raise FieldError(field="label", found=f"{size} characters", expected=f"at most {MOST_CHARACTERS}")
    return checked


def whole_label(kind: str, label: object, turns: Sequence[Mapping[str, Any]]) -> object:
    """A label of a conversation: what was sent of it, with the turns that the store has kept.

    >>> whole_label("attack", {"success": 0}, [{"message": "Hi", "answers": ["Hello"]}])["messages"][1]
    {'role': 'assistant', 'content': 'Hello'}
    """
    conversation = KINDS[kind].conversation
    if conversation is None or not isinstance(label, dict) or not turns:
        return label
    for name in label:
        if name not in conversation.sent:
            hint = did_you_mean(str(name), conversation.sent)
            raise FieldError(
                field=str(name),
                found=f"an unknown field of a label{hint}",
                expected=f"one of {', '.join(conversation.sent)}: the conversation is kept by the server",
            )
    return {**label, **conversation.label(turns)}


def side(label: Label, kind: str, order: Order) -> str | None:
    """What a majority is counted over, in the task's own order; None where a kind knows no majority.

    >>> side({"strength": 1}, "pair", [1, 0]), side({"strength": 0}, "pair", [1, 0])
    ('0', 'tie')
    """
    majority = KINDS[kind].majority
    return None if label.get("none") or majority is None else majority(label, order)


def agrees_with_gold(label: Label, body: Body, order: Order) -> bool | None:
    """Whether a label says what is known to be right; None where nothing is known, or nothing was said."""
    gold, is_right = body.get("gold"), KINDS[body["kind"]].is_right
    return None if gold is None or label.get("none") or is_right is None else is_right(label, gold, order)


def known_answer(label: Label, body: Body, order: Order, project: Project) -> dict[str, Any] | None:
    """What a label makes known for a gold item; None where it leaves open what would be right.

    >>> known_answer({"strength": 2}, {"kind": "pair"}, [0, 1], Project(name="p"))
    {'better': 1}
    """
    settled = KINDS[body["kind"]].known
    return None if settled is None else settled(label, order, project)


def agreed_flags(label: Label, body: Body, order: Order) -> tuple[int, int] | None:
    """How many answers a label reports for exactly what they are known to deserve, and of how many.

    None where it is not known. Nothing reported is an answer too: most texts deserve no flag.

    >>> known = {"gold": {"better": 0, "flags": [[], ["harmful"]]}}
    >>> agreed_flags({"flags": [["harmful"], []]}, known, [1, 0]), agreed_flags({}, known, [0, 1])
    ((2, 2), (1, 2))
    """
    settled = (body.get("gold") or {}).get("flags")
    if settled is None:
        return None
    given = label.get("flags", [[]] * len(settled))
    agreed = [{*flags} == {*settled[order[place]]} for place, flags in enumerate(given)]
    return sum(agreed), len(agreed)


def without_free_text(label: Label) -> dict[str, Any] | None:
    """A label without what a person wrote; None where the label is nothing else.

    >>> without_free_text({"strength": 1, "why": "I know her"})
    {'strength': 1}
    """
    if any(kind.essence in label for kind in KINDS.values() if kind.essence is not None):
        return None
    return {name: value for name, value in label.items() if name not in free_texts()}


def free_texts() -> list[str]:
    """The fields of labels, of whatever kind, that hold what somebody wrote."""
    return sorted({name for kind in KINDS.values() for name in kind.texts})


def rows_of(row: Any, group: str | None, project: Project) -> list[Record]:
    """The rows that a label of the store becomes, which its ``body`` of the task stands beside."""
    body, label, order = (json.loads(text) for text in (row.body, row.label, row.shown))
    if label.get("none"):
        return []
    who = {"annotator": row.annotator, "group": group, "seconds": row.seconds}
    who["guidelines"] = row.guidelines or None
    who |= drawn_by(body)
    given = Labelled(body=body, label=label, order=order, who=who, settings=project)
    origin = body.get("metadata", {}).get("origin")
    rows = KINDS[body["kind"]].rows(given)
    return [replace(row, origin=origin) for row in rows] if isinstance(origin, str) else rows


def drawn_by(body: Body) -> dict[str, Any]:
    """What rows say of how their task was chosen."""
    share = body.get("metadata", {}).get("chance")
    # Metadata is the owner's own, and may hold anything under this name.
    is_share = "method" in body and type(share) in (int, float) and 0 < share <= 1
    return {"method": body.get("method"), "propensity": float(share) if is_share else None}


def label_from_form(shown: Shown, form: Form) -> dict[str, Any]:
    """The label that a filled-in form says, in the order shown; a refusal names the form's field.

    >>> shown = {"kind": "pair", "answers": ["a", "b"], "scale": ["slightly", "clearly"]}
    >>> label_from_form(shown, {"strength": ["-2"], "why": [" "]})
    {'strength': -2}
    """
    return KINDS[shown["kind"]].read(shown, form)


def values_of(shown: Shown, label: Label) -> dict[str, list[str]]:
    """What the form's fields hold for a label, or for what `draft_of` kept of a half-filled form.

    >>> values_of({"kind": "pair", "answers": ["a", "b"]}, {"strength": 0, "why": "Same."})
    {'strength': ['0'], 'why': ['Same.']}
    """
    if _SAVED in label:
        saved = label[_SAVED]
        # Drafts come over the API too: what is no form is left out, and the page is shown without it.
        fields = saved.items() if isinstance(saved, dict) else ()
        return {
            name: [value for value in values if isinstance(value, str)]
            for name, values in fields
            if isinstance(values, list) and is_answer_field(name)
        }
    values = KINDS[shown["kind"]].values(shown, label)
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
    return any(name.partition("-")[0] in kind.fields for kind in KINDS.values())


def field_of_form(fault: FieldError) -> FieldError:
    """A refusal of a label with the name of the form's field in place of the label's.

    >>> field_of_form(FieldError(field="groups", found="[]", expected="two groups")).field
    'place-0'
    """
    name = fault.field.partition("[")[0].partition(".")[0]
    names = {"flags": "flags-0"}
    for kind in KINDS.values():
        names |= kind.first_field
    return fault.under(names.get(name, name))
