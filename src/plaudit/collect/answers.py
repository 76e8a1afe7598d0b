"""What annotators answer: each kind's label checked by field, and what it says of the answers.

Labels come in the order in which the answers were shown, and are stored so, with that order: who clicks the
left answer whatever stands there can be found only in the order that was shown.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plaudit.collect.project import Project
from plaudit.collect.refusals import MOST_CHARACTERS, FieldError, checked_text
from plaudit.config import did_you_mean
from plaudit.data.fields import BadRowError, Node, describe_value
from plaudit.data.labels import MOST_SUCCESS, STEP_SCORES

Body = Mapping[str, Any]
"""A task as the store holds it."""
STEPS_ENDED = ("error", "solved", "bad-problem", "gave-up")
"""Why the labels of a solution end where they do."""
CONVERSATIONS = {"talk": ("why",), "attack": ("success", "category", "worked", "why")}
"""The kinds that are held with a server, and what a person sends of a conversation that is over."""
_FREE_TEXT = ("why", "worked")
_WRITTEN_KINDS = ("answer", "turns", "messages")


def check_label(label: object, body: Body, project: Project) -> dict[str, Any]:
    """A label as the store holds it, in the order shown; a refusal names its field."""
    if not isinstance(label, dict):
        raise FieldError(field="label", found=describe_value(label), expected="an object")
    try:
        checked = _CHECKS[body["kind"]](Node(value=label), body, project)
    except BadRowError as error:
        raise FieldError(field=error.field or "label", found=error.found, expected=error.expected) from error
    # Each of its texts may be short, and a conversation of thousands of them long.
    size = len(json.dumps(checked, ensure_ascii=False))
    if size > MOST_CHARACTERS:
        raise FieldError(field="label", found=f"{size} characters", expected=f"at most {MOST_CHARACTERS}")
    return checked


def _refuse_unknown(node: Node, *known: str) -> None:
    for name in node.fields():
        if name not in known:
            raise FieldError(
                field=f"{node.path}.{name}" if node.path else name,
                found=f"an unknown field of a label{did_you_mean(name, known)}",
                expected=f"one of {', '.join(known)}",
            )


def _why(node: Node, name: str = "why") -> dict[str, str]:
    words = node.optional(name)
    return {} if words is None else {name: checked_text(name, words.value)}


def _whole(node: Node, low: int, high: int) -> int:
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise node.wrong_type_error(f"a whole number from {low} to {high}")
    return value


def _is_none(node: Node) -> bool:
    """Whether the label says that nothing can be said."""
    none = node.optional("none")
    if none is not None and none.value is not True:
        raise none.wrong_type_error("true, or leave it out")
    return none is not None


def read_flags(node: Node, count: int, project: Project) -> dict[str, list[list[str]]]:
    """The field ``flags`` of a label or of a known answer: what each answer is reported for."""
    listed = node.optional("flags")
    if listed is None:
        return {}
    items = listed.items()
    if len(items) != count:
        raise listed.wrong_type_error(f"a list of flags for each of the {count} answers")
    for item in items:
        for flag in item.items():
            if flag.value not in project.flags:
                raise flag.wrong_type_error(f"one of {', '.join(project.flags) or 'no flags at all'}")
    # As a set in order: the same reports are the same label, however they were clicked.
    return {"flags": [sorted({str(flag.value) for flag in item.items()}) for item in items]}


def _check_pair(node: Node, body: Body, project: Project) -> dict[str, Any]:
    del body
    _refuse_unknown(node, "strength", "none", "both_bad", "flags", "why")
    label: dict[str, Any] = {**_why(node), **read_flags(node, 2, project)}
    bad = node.optional("both_bad")
    if bad is not None:
        if not isinstance(bad.value, bool):
            raise bad.wrong_type_error("true or false")
        label["both_bad"] = bad.value
    if _is_none(node):
        # Who says that nothing can be said cannot say how much better one is.
        _refuse_unknown(node, "none", "both_bad", "flags", "why")
        return {**label, "none": True}
    return {**label, "strength": _strength(node.get("strength"), project)}


def _strength(node: Node, project: Project) -> int:
    most = len(project.scale)
    strength = _whole(node, -most, most)
    if strength == 0 and not project.ties:
        raise node.wrong_type_error("one of the two, as this project has no ties")
    return strength


def check_strength(field: str, value: object, project: Project) -> int:
    """How far the second of two answers is better, on the project's scale; a refusal names its field."""
    try:
        return _strength(Node(value=value, path=field), project)
    except BadRowError as error:
        raise FieldError(field=field, found=error.found, expected=error.expected) from error


def _check_rank(node: Node, body: Body, project: Project) -> dict[str, Any]:
    _refuse_unknown(node, "groups", "none", "flags", "why")
    count = len(body["candidates"])
    label: dict[str, Any] = {**_why(node), **read_flags(node, count, project)}
    if _is_none(node):
        _refuse_unknown(node, "none", "flags", "why")
        return {**label, "none": True}
    groups = [
        [_whole(place, 0, count - 1) for place in group.items()] for group in node.get("groups").items()
    ]
    places = [place for group in groups for place in group]
    if len(places) < 2 or len({*places}) != len(places) or not all(groups):
        raise node.get("groups").wrong_type_error(
            "groups of the places of at least two answers, best first, no place twice and no group empty"
        )
    if not project.ties and len(groups) < len(places):
        raise node.get("groups").wrong_type_error("one answer in each group, as this project has no ties")
    return {**label, "groups": [sorted(group) for group in groups]}


def _check_rate(node: Node, body: Body, project: Project) -> dict[str, Any]:
    _refuse_unknown(node, "points", "thumbs", "flags", "why")
    count = len(body["candidates"])
    label: dict[str, Any] = {**_why(node), **read_flags(node, count, project)}
    points, thumbs = node.optional("points"), node.optional("thumbs")
    if points is None and thumbs is None:
        raise FieldError(field="points", found="nothing", expected="points of each answer, or thumbs")
    if points is not None:
        label["points"] = _points(points, count, project)
    if thumbs is not None:
        items = thumbs.items() if isinstance(thumbs.value, list) else ()
        values = [item.value for item in items]
        # 1 and 0 pass, as they equal True and False to Python; they are stored as these.
        if len(values) != count or any(value not in (None, True, False) for value in values):
            raise thumbs.wrong_type_error(f"true, false or null for each of the {count} answers")
        label["thumbs"] = [None if value is None else bool(value) for value in values]
    given = [value for scores in label.get("points", {}).values() for value in scores]
    if all(value is None for value in (*given, *label.get("thumbs", ()))):
        raise FieldError(field="points", found="nothing but null", expected="points or a thumb of an answer")
    return label


def _points(node: Node, count: int, project: Project) -> dict[str, list[int | None]]:
    aspects = project.aspects or ("overall",)
    if {*node.fields()} - {*aspects} or not node.fields():
        raise node.wrong_type_error(f"points by aspect: {', '.join(aspects)}")
    points = dict[str, list[int | None]]()
    for name in node.fields():
        items, most = node.get(name).items(), project.levels(name)
        if len(items) != count:
            raise node.get(name).wrong_type_error(f"1 to {most} or null for each of the {count} answers")
        points[name] = [None if item.value is None else _whole(item, 1, most) for item in items]
    return points


def _check_write(node: Node, body: Body, project: Project) -> dict[str, Any]:
    del body, project
    _refuse_unknown(node, "answer", "why")
    return {**_why(node), "answer": _words(node.get("answer"))}


def _words(node: Node) -> str:
    return checked_text(node.path, node.value, most=MOST_CHARACTERS, empty=False)


def _check_steps(node: Node, body: Body, project: Project) -> dict[str, Any]:
    del project
    _refuse_unknown(node, "labels", "ended", "why")
    ended = node.get("ended")
    if ended.value not in STEPS_ENDED:
        raise ended.wrong_type_error(f"one of {', '.join(STEPS_ENDED)}")
    labels = [item.value for item in node.get("labels").items()]
    listed = node.get("labels")
    if any(not isinstance(label, str) or label not in STEP_SCORES for label in labels) or len(labels) > len(
        body["steps"]
    ):
        raise listed.wrong_type_error(f"right, neutral or wrong for at most {len(body['steps'])} steps")
    # Every later step may rest on the first error, so what is said of those means nothing.
    if "wrong" in labels[:-1]:
        raise listed.wrong_type_error("labels up to the first wrong step and no further")
    complete = {"error": labels[-1:] == ["wrong"], "solved": _solved(labels, body)}
    if not complete.get(str(ended.value), True):
        raise ended.wrong_type_error(
            "error where the last label is wrong, solved where all steps are labelled and none is wrong"
        )
    return {**_why(node), "labels": labels, "ended": ended.value}


def _solved(labels: Sequence[object], body: Body) -> bool:
    return len(labels) == len(body["steps"]) and "wrong" not in labels


def _check_talk(node: Node, body: Body, project: Project) -> dict[str, Any]:
    del body
    _refuse_unknown(node, "turns", "why")
    turns = list[dict[str, Any]]()
    for item in node.get("turns").items():
        _refuse_unknown(item, "message", "answers", "strength")
        answers = [_words(answer) for answer in item.get("answers").items()]
        if len(answers) != 2:
            raise item.get("answers").wrong_type_error("two answers")
        strength = _strength(item.get("strength"), project)
        turns.append({"message": _words(item.get("message")), "answers": answers, "strength": strength})
    if not turns:
        raise node.get("turns").wrong_type_error("at least one turn")
    return {**_why(node), "turns": turns}


def _check_attack(node: Node, body: Body, project: Project) -> dict[str, Any]:
    del body, project
    _refuse_unknown(node, "messages", "success", "category", "worked", "why")
    messages = list[dict[str, str]]()
    for place, item in enumerate(node.get("messages").items()):
        _refuse_unknown(item, "role", "content")
        role = ("user", "assistant")[place % 2]
        if item.get("role").value != role:
            raise item.get("role").wrong_type_error(role)
        messages.append({"role": role, "content": _words(item.get("content"))})
    if not messages or len(messages) % 2:
        raise node.get("messages").wrong_type_error("turns of a user, each with the model's answer")
    label: dict[str, Any] = {**_why(node), **_why(node, "worked"), "messages": messages}
    category = node.optional("category")
    if category is not None:
        label["category"] = checked_text("category", category.value, most=200, empty=False)
    return {**label, "success": _whole(node.get("success"), 0, MOST_SUCCESS)}


_CHECKS: Mapping[str, Callable[[Node, Body, Project], dict[str, Any]]] = {
    "pair": _check_pair,
    "rank": _check_rank,
    "rate": _check_rate,
    "write": _check_write,
    "steps": _check_steps,
    "talk": _check_talk,
    "attack": _check_attack,
}


def whole_label(kind: str, label: object, turns: Sequence[Mapping[str, Any]]) -> object:
    """A label of a conversation: what was sent of it, with the turns that the store has kept.

    >>> whole_label("attack", {"success": 0}, [{"message": "Hi", "answers": ["Hello"]}])["messages"][1]
    {'role': 'assistant', 'content': 'Hello'}
    """
    known = CONVERSATIONS.get(kind)
    if known is None or not isinstance(label, dict) or not turns:
        return label
    for name in label:
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise FieldError(
                field=str(name),
                found=f"an unknown field of a label{hint}",
                expected=f"one of {', '.join(known)}: the conversation itself is kept by the server",
            )
    if kind == "attack":
        return {**label, "messages": attack_messages(turns)}
    # A message without a choice ends the talk: its two answers were not compared.
    chosen = [turn for turn in turns if turn["strength"] is not None]
    names = ("message", "answers", "strength")
    return {**label, "turns": [{name: turn[name] for name in names} for turn in chosen]}


def attack_messages(turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The turns of an attack as messages.

    >>> [turn["role"] for turn in attack_messages([{"message": "Hi", "answers": ["Hello"]}])]
    ['user', 'assistant']
    """
    return [
        {"role": role, "content": text}
        for turn in turns
        for role, text in (("user", turn["message"]), ("assistant", turn["answers"][0]))
    ]


def reverse(order: Sequence[int]) -> list[int]:
    """The order that the next person sees.

    >>> reverse([2, 0, 1])
    [1, 0, 2]
    """
    return [*reversed(order)]


def preferred_place(label: Mapping[str, Any], order: Sequence[int]) -> int | None:
    """The place in the task of the answer that a pair's label prefers; None for a tie or no answer.

    >>> preferred_place({"strength": -2}, [1, 0])
    1
    """
    strength = label.get("strength")
    return None if not strength else order[int(strength > 0)]


def side(label: Mapping[str, Any], kind: str, order: Sequence[int]) -> str | None:
    """What a majority is counted over, in the task's own order; None where a kind knows no majority.

    >>> side({"strength": 1}, "pair", [1, 0]), side({"strength": 0}, "pair", [1, 0])
    ('0', 'tie')
    """
    if label.get("none"):
        return None
    if kind == "pair":
        place = preferred_place(label, order)
        return "tie" if place is None else str(place)
    if kind == "rank":
        # Over the best alone: whole orders of nine answers would hardly ever agree.
        return ",".join(map(str, sorted(order[place] for place in label["groups"][0])))
    if kind == "steps":
        return str(label["labels"].index("wrong")) if "wrong" in label["labels"] else label["ended"]
    return None


def agrees_with_gold(label: Mapping[str, Any], body: Body, order: Sequence[int]) -> bool | None:
    """Whether a label says what is known to be right; None where nothing is known, or nothing was said."""
    gold = body.get("gold")
    if gold is None or label.get("none"):
        return None
    if body["kind"] == "pair":
        return preferred_place(label, order) == gold["better"]
    if body["kind"] == "rank":
        # Alone at the top: who calls all answers equal would otherwise always be right.
        return [order[place] for place in label["groups"][0]] == [gold["best"]]
    if body["kind"] == "rate":
        points = label.get("points", {})
        known = gold.keys() - {"flags"}
        given = [_in_ranges(points[aspect], gold[aspect], order) for aspect in known if aspect in points]
        return all(given) if given else None
    return list(label["labels"]) == up_to_first_error(gold["labels"])


def known_answer(
    label: Mapping[str, Any], body: Body, order: Sequence[int], project: Project
) -> dict[str, Any] | None:
    """What a label makes known for a gold item; None where it leaves open what would be right.

    >>> known_answer({"strength": 2}, {"kind": "pair"}, [0, 1], Project(name="p"))
    {'better': 1}
    """
    if body["kind"] == "pair":
        place = preferred_place(label, order)
        return None if place is None else {"better": place}
    if body["kind"] == "rank" and "groups" in label:
        best = label["groups"][0]
        return {"best": order[best[0]]} if len(best) == 1 else None
    if body["kind"] == "rate":
        return _known_ranges(label.get("points", {}), order, project)
    if body["kind"] == "steps":
        return {"labels": [*label["labels"]]} if label["ended"] in ("error", "solved") else None
    return None


def _known_ranges(
    points: Mapping[str, Sequence[int | None]], order: Sequence[int], project: Project
) -> dict[str, Any] | None:
    """The points that were given, one more or less: two careful people are often as far from each other."""
    ranges = dict[str, Any]()
    for aspect, given in points.items():
        by_place = dict(zip(order, given, strict=True))
        if None not in given:
            ends = [(point - 1, point + 1) for _, point in sorted(by_place.items()) if point is not None]
            ranges[aspect] = [[max(low, 1), min(high, project.levels(aspect))] for low, high in ends]
    return ranges or None


def agreed_flags(label: Mapping[str, Any], body: Body, order: Sequence[int]) -> tuple[int, int] | None:
    """How many answers a label reports for exactly what they are known to deserve, and of how many.

    None where it is not known. Nothing reported is an answer too: most texts deserve no flag.

    >>> known = {"gold": {"better": 0, "flags": [[], ["harmful"]]}}
    >>> agreed_flags({"flags": [["harmful"], []]}, known, [1, 0]), agreed_flags({}, known, [0, 1])
    ((2, 2), (1, 2))
    """
    known = (body.get("gold") or {}).get("flags")
    if known is None:
        return None
    given = label.get("flags", [[]] * len(known))
    agreed = [{*flags} == {*known[order[place]]} for place, flags in enumerate(given)]
    return sum(agreed), len(agreed)


def up_to_first_error(labels: Sequence[str]) -> list[str]:
    """What is asked of a solution's steps: the labels of all of them, or those up to the first wrong one.

    >>> up_to_first_error(["right", "wrong", "right"])
    ['right', 'wrong']
    """
    return [*labels[: labels.index("wrong") + 1]] if "wrong" in labels else [*labels]


def _in_ranges(points: Sequence[int | None], ranges: Sequence[Sequence[float]], order: Sequence[int]) -> bool:
    given = [(point, ranges[order[place]]) for place, point in enumerate(points) if point is not None]
    # Without the first half no points at all would be within every range.
    return bool(given) and all(low <= point <= high for point, (low, high) in given)


def without_free_text(label: Mapping[str, Any]) -> dict[str, Any] | None:
    """A label without what a person wrote; None where the label is nothing else.

    >>> without_free_text({"strength": 1, "why": "I know her"})
    {'strength': 1}
    """
    if any(name in label for name in _WRITTEN_KINDS):
        return None
    return {name: value for name, value in label.items() if name not in _FREE_TEXT}
