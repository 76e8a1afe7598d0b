"""Two answers: which is better, and how much."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from plaudit.collect.kinds import kind
from plaudit.data.fields import Node
from plaudit.data.judging import Mark, Verdict, to_comparison
from plaudit.data.records import Comparison, Record, pictures, plain_text


def _check(node: Node, body: kind.Body, settings: kind.Settings) -> dict[str, Any]:
    kind.refuse_unknown(node, ("strength", "none", "both_bad", "points", "flags", "why"))
    label: dict[str, Any] = {**kind.read_words(node), **kind.read_flags(node, 2, settings)}
    bad = node.optional("both_bad")
    if bad is not None:
        # Strictly: `boolean` would take 1 for true, as files of rows do.
        if not isinstance(bad.value, bool):
            raise bad.wrong_type_error("true or false")
        label["both_bad"] = bad.value
    points = node.optional("points")
    if points is not None:
        label["points"] = kind.read_points(points, 2, settings, settings.aspects)
    if kind.says_none(node):
        # Who says that nothing can be said cannot say how much better one is.
        kind.refuse_unknown(node, ("none", "both_bad", "points", "flags", "why"))
        return {**label, "none": True}
    return {**label, "strength": kind.read_strength(node.get("strength"), settings)}


def _shown(body: kind.Body, settings: kind.Settings) -> dict[str, Any]:
    # Of projects without aspects the task stays as it was.
    aspects = kind.shown_aspects(settings, settings.aspects) if settings.aspects else {}
    return {"scale": list(settings.scale), "ties": settings.ties, **aspects}


def preferred_place(label: kind.Label, order: kind.Order) -> int | None:
    """The place in the task of the answer that a label prefers; None for a tie or no answer.

    >>> preferred_place({"strength": -2}, [1, 0])
    1
    """
    strength = label.get("strength")
    return None if not strength else order[int(strength > 0)]


def _strength(label: kind.Label, order: kind.Order) -> int:
    return label["strength"] if order[0] == 0 else -label["strength"]


def _texts(shown: kind.Shown, form: kind.Form) -> tuple[str, str] | None:
    first, second = texts = [kind.text_of(answer) for answer in shown["answers"]]
    # Words with marks would stand in place of the pictures.
    return None if any(map(pictures, texts)) else (plain_text(first), plain_text(second))


def _read(shown: kind.Shown, form: kind.Form) -> dict[str, Any]:
    label = {**kind.form_points(shown, form), **kind.form_flags(shown, form), **kind.form_texts(form, "why")}
    if kind.form_checked(form, "both_bad"):
        label["both_bad"] = True
    if kind.form_value(form, "strength") == "none":
        return {**label, "none": True}
    most = len(shown["scale"])
    return {"strength": kind.form_whole(form, "strength", -most, most), **label}


def _values(shown: kind.Shown, label: kind.Label) -> kind.Values:
    chosen = "none" if label.get("none") else label.get("strength", "")
    bad = ["yes"] if label.get("both_bad") else []
    shared = {name: value for name, value in kind.shared_values(label).items() if name != "none"}
    return {"strength": [chosen], "both_bad": bad, **kind.points_values(shown, label), **shared}


def _say(shown: kind.Shown, label: kind.Label, voice: kind.Voice) -> str:
    if label.get("none"):
        return voice.speak("pair-none")
    strength = label["strength"]
    if strength == 0:
        return voice.speak("pair-equal")
    degree = shown["scale"][min(abs(strength), len(shown["scale"])) - 1]
    return voice.speak("pair-better", answer=kind.LETTERS[strength > 0], how=voice.own(degree))


def _summary(label: kind.Label, order: kind.Order, settings: kind.Settings, voice: kind.Voice) -> str:
    both = [voice.speak("manage-both-bad")] if label.get("both_bad") else []
    for place, at in sorted(zip(order, range(2), strict=True)):
        if given := kind.points_words(label, at, voice):
            both.append(voice.put("{}: {}", kind.LETTERS[place], voice.join(", ", given)))
    if label.get("none"):
        return voice.join(" · ", (voice.speak("manage-no-preference"), *both))
    return voice.join(" · ", (_degree(label["strength"], order, settings, voice), *both))


def _degree(strength: int, order: kind.Order, settings: kind.Settings, voice: kind.Voice) -> str:
    if strength == 0:
        return voice.speak("manage-equal")
    # Settings may have had another word of that degree; its number is what the label means.
    known = abs(strength) <= len(settings.scale)
    how = voice.own(settings.scale[abs(strength) - 1]) if known else abs(strength)
    better = voice.speak("manage-better", answer=kind.LETTERS[order[int(strength > 0)]])
    return voice.put("{}: {}", better, how)


def _majority(label: kind.Label, order: kind.Order) -> str:
    place = preferred_place(label, order)
    return "tie" if place is None else str(place)


def _known(label: kind.Label, order: kind.Order, settings: kind.Settings) -> dict[str, Any] | None:
    place = preferred_place(label, order)
    return None if place is None else {"better": place}


def _rows(given: kind.Labelled) -> list[Record]:
    better = preferred_place(given.label, given.order)
    ranks = (1, 1) if better is None else (1, 2) if better == 0 else (2, 1)
    share = given.label.get("probability")
    verdict = Verdict(
        marks=tuple(Mark(rank=rank) for rank in ranks),
        annotator=given.who["annotator"],
        # A judge's chance is of the answer that it was shown first, a verdict's of the task's first.
        probability=share if share is None or given.order[0] == 0 else 1 - share,
    )
    more = given.shared | given.of_answers(better or 0, 1 - (better or 0))
    more["both_bad"] = given.label.get("both_bad", False)
    row = replace(to_comparison(kind.task_of(given), verdict), **more)
    # A model says how sure it is, and not by how many degrees.
    if better is None or share is not None:
        return [row]
    strength = abs(given.label["strength"])
    # Llama 2's table: the clearest preference asks for the whole margin, the others for their share of it.
    return [replace(row, strength=float(strength), margin=round(strength / len(given.settings.scale), 6))]


def _valued(
    label: kind.Label, order: kind.Order, forward: kind.Order, settings: kind.Settings
) -> Iterator[tuple[str, Any, int]]:
    strength = _strength(label, order)
    value, most = strength if forward[1] == 1 else -strength, len(settings.scale)
    # Without ties no label is 0, and no number is left for it.
    yield "", 0, value + most if settings.ties or value < 0 else value + most - 1
    yield from kind.valued_points(label, order)


def _compared(label: kind.Label, order: kind.Order, forward: kind.Order) -> Iterator[tuple[int, int, int]]:
    first, strength = forward[0], _strength(label, order)
    yield first, 1 - first, strength if first == 0 else -strength


KIND = kind.Kind(
    name="pair",
    answers=(2, 2),
    check_gold=lambda node, task, settings: kind.known_place(node, "better", task, settings),
    example={"candidates": [{"text": "Answer A …"}, {"text": "Answer B …"}]},
    records=kind.COMPARED,
    usual_of=(Comparison,),
    gold_of_records=lambda records, answers, settings: {"better": kind.best_place(records, answers)},
    drawn=2,
    width="wide",
    question="default: Which answer is better?",
    aspects=True,
    shown=_shown,
    compared_texts=_texts,
    fields=("strength", "both_bad", "points", "flags", "why"),
    read=_read,
    values=_values,
    faults={"strength": "fault-strength"},
    check=_check,
    say=_say,
    summary=_summary,
    majority=_majority,
    is_right=lambda label, gold, order: preferred_place(label, order) == gold["better"],
    known=_known,
    rows=_rows,
    statement=lambda label, order: kind.sign(_strength(label, order)),
    valued=_valued,
    compared=_compared,
    scales=lambda settings: {
        "": (2 * len(settings.scale) + settings.ties, "ordinal"),
        **{name: (settings.levels(name), "ordinal") for name in settings.aspects},
    },
    seconds=300,
)
