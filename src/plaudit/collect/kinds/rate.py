"""One to nine answers, each with points as a whole or by aspect, or with a thumb."""

from collections.abc import Iterator, Sequence
from typing import Any

from plaudit.collect.kinds import kind
from plaudit.collect.refusals import FieldError
from plaudit.data.fields import Node
from plaudit.data.judging import Task
from plaudit.data.records import Demonstration, Rating, Record

_WHOLE = "overall"
"""The aspect of projects that name none."""
_THUMBS = {"up": True, "down": False}


def _aspects(settings: kind.Settings) -> tuple[str, ...]:
    return settings.aspects or (_WHOLE,)


def _check(node: Node, body: kind.Body, settings: kind.Settings) -> dict[str, Any]:
    kind.refuse_unknown(node, ("points", "thumbs", "flags", "why"))
    count = len(body["candidates"])
    label: dict[str, Any] = {**kind.read_words(node), **kind.read_flags(node, count, settings)}
    points, thumbs = node.optional("points"), node.optional("thumbs")
    if points is None and thumbs is None:
        raise FieldError(field="points", found="nothing", expected="points of each answer, or thumbs")
    if points is not None:
        label["points"] = kind.read_points(points, count, settings, _aspects(settings))
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


def _check_gold(node: Node, task: kind.Body, settings: kind.Settings) -> dict[str, Any]:
    """From and to how many points each answer may be given, as a whole or by aspect; flags too, or alone."""
    kind.refuse_unknown(node, (*_aspects(settings), "flags"), "known answer")
    count = len(task["candidates"])
    aspects = [name for name in node.fields() if name != "flags"]
    # By flags alone nobody qualifies: that is decided by what people prefer.
    if not aspects and (node.optional("flags") is None or task.get("qualify")):
        raise node.wrong_type_error("points of an aspect, from and to, for each answer")
    ranges = {name: _ranges(node.get(name), count, settings.levels(name)) for name in aspects}
    return {**ranges, **kind.read_flags(node, count, settings)}


def _ranges(node: Node, count: int, most: int) -> list[list[float]]:
    ranges = [[end.number_between(1, most) for end in item.items()] for item in node.items()]
    if len(ranges) != count or any(len(both) != 2 or both[0] > both[1] for both in ranges):
        raise node.wrong_type_error(f"[low, high] for each of the {count} answers")
    return ranges


def _gold_of_records(
    records: Sequence[Record], answers: Sequence[kind.Words], settings: kind.Settings
) -> dict[str, Any]:
    """Points that count as right: a quarter of the scale around those that the row gives."""
    ratings, most = [record for record in records if isinstance(record, Rating)], settings.levels(_WHOLE)
    for rating in ratings:
        # Single aspects may be on any scale: nothing is made of them here.
        if rating.thumb or (rating.aspect is None and not 1 <= rating.score <= most):
            raise FieldError(
                field="score",
                found="a thumb" if rating.thumb else f"{rating.score:g}",
                expected=f"points from 1 to {most}, as the project has them (or add the row {kind.UNKNOWN})",
            )
    spread = most // 4
    return {
        _WHOLE: [
            [max(1, min(scores) - spread), min(most, max(scores) + spread)]
            for scores in kind.scores_of(ratings, answers)
        ]
    }


def _is_right(label: kind.Label, gold: kind.Body, order: kind.Order) -> bool | None:
    points = label.get("points", {})
    known = gold.keys() - {"flags"}
    given = [_in_ranges(points[aspect], gold[aspect], order) for aspect in known if aspect in points]
    return all(given) if given else None


def _in_ranges(points: Sequence[int | None], ranges: Sequence[Sequence[float]], order: kind.Order) -> bool:
    given = [(point, ranges[order[place]]) for place, point in enumerate(points) if point is not None]
    # Without the first half no points at all would be within every range.
    return bool(given) and all(low <= point <= high for point, (low, high) in given)


def _known(label: kind.Label, order: kind.Order, settings: kind.Settings) -> dict[str, Any] | None:
    """The points that were given, one more or less: two careful people are often as far from each other."""
    ranges = dict[str, Any]()
    for aspect, given in label.get("points", {}).items():
        by_place = dict(zip(order, given, strict=True))
        if None not in given:
            ends = [(point - 1, point + 1) for _, point in sorted(by_place.items())]
            ranges[aspect] = [[max(low, 1), min(high, settings.levels(aspect))] for low, high in ends]
    return ranges or None


def _shown(body: kind.Body, settings: kind.Settings) -> dict[str, Any]:
    return kind.shown_aspects(settings, _aspects(settings))


def _read(shown: kind.Shown, form: kind.Form) -> dict[str, Any]:
    places = range(len(shown["answers"]))
    thumbs = [_THUMBS.get(kind.form_choice(form, f"thumb-{place}", tuple(_THUMBS))) for place in places]
    label = {
        **kind.form_points(shown, form),
        **({"thumbs": thumbs} if any(thumb is not None for thumb in thumbs) else {}),
    }
    if not label:
        raise FieldError(field="points-0-0", found="nothing", expected="points or a thumb of an answer")
    return {**label, **kind.form_flags(shown, form), **kind.form_texts(form, "why")}


def _values(shown: kind.Shown, label: kind.Label) -> kind.Values:
    words = {True: "up", False: "down", None: ""}
    thumbs = {f"thumb-{place}": [words[thumb]] for place, thumb in enumerate(label.get("thumbs", ()))}
    return {**kind.points_values(shown, label), **thumbs, **kind.shared_values(label)}


def _say(shown: kind.Shown, label: kind.Label, voice: kind.Voice) -> str:
    columns = [*label.get("points", {}).values(), label.get("thumbs", ())]
    rated = {place for column in columns for place, value in enumerate(column) if value is not None}
    return voice.speak("history-rate", n=len(rated))


def _summary(label: kind.Label, order: kind.Order, settings: kind.Settings, voice: kind.Voice) -> str:
    parts = list[tuple[int, str]]()
    for at, place in enumerate(order):
        given = kind.points_words(label, at, voice)
        thumb = label["thumbs"][at] if "thumbs" in label else None
        if thumb is not None:
            given.append(voice.speak("manage-thumb-up" if thumb else "manage-thumb-down"))
        if given:
            parts.append((place, voice.put("{}: {}", kind.LETTERS[place], voice.join(", ", given))))
    return voice.join(" · ", (part for _, part in sorted(parts)))


def _rows(given: kind.Labelled) -> list[Record]:
    task, rows = kind.task_of(given), list[Record]()
    for aspect, points in given.label.get("points", {}).items():
        named, words = None if aspect == _WHOLE else aspect, given.settings.words_of(aspect)
        rows += _ratings(given, task, points, aspect=named, words=words)
    return rows + _ratings(given, task, given.label.get("thumbs", ()), aspect=None, thumb=True)


def _ratings(
    given: kind.Labelled,
    task: Task,
    scores: Sequence[int | None],
    *,
    aspect: str | None,
    words: Sequence[str] = (),
    thumb: bool = False,
) -> list[Record]:
    # Each aspect has a row of its own, and one answer alone has no place.
    other: dict[str, Any] = {"aspects": None} | ({"places": ()} if len(given.order) == 1 else {})
    return [
        Rating(
            prompt=task.prompt,
            completion=task.answers[given.order[place]],
            score=float(score),
            aspect=aspect,
            level=words[score - 1] if words else None,
            thumb=thumb,
            **(given.shared | given.of_answers(given.order[place]) | other),
        )
        for place, score in enumerate(scores)
        if score is not None
    ]


def _statement(label: kind.Label, order: kind.Order) -> Any:
    scores = {**label.get("points", {}), "thumbs": label.get("thumbs", ())}
    return {name: sorted(zip(order, values, strict=False)) for name, values in scores.items()}


def _valued(
    label: kind.Label, order: kind.Order, forward: kind.Order, settings: kind.Settings
) -> Iterator[tuple[str, Any, int]]:
    for aspect, place, value in kind.valued_points(label, order):
        yield "" if aspect == _WHOLE else aspect, place, value
    thumbs = enumerate(label.get("thumbs", ()))
    yield from (("thumbs", order[place], int(thumb)) for place, thumb in thumbs if thumb is not None)


def _scales(settings: kind.Settings) -> dict[str, tuple[int, str]]:
    # An aspect whose levels have words has as many values as words.
    aspects = {
        "" if name == _WHOLE else name: (settings.levels(name), "ordinal") for name in settings.aspects
    }
    return {"": (settings.points, "ordinal"), **aspects, "thumbs": (2, "nominal")}


KIND = kind.Kind(
    name="rate",
    answers=(1, 9),
    check_gold=_check_gold,
    example={"candidates": [{"text": "Answer A …"}, {"text": "Answer B …"}]},
    records=(*kind.COMPARED, Demonstration),
    usual_of=(Rating,),
    gold_of_records=_gold_of_records,
    drawn=1,
    width="wide",
    aspects=True,
    question="question-rate",
    solo_question="How good is each answer?",
    shown=_shown,
    fields=("points", "thumb", "flags", "why"),
    read=_read,
    values=_values,
    first_field={"points": "points-0-0"},
    faults={"points": "fault-points"},
    check=_check,
    say=_say,
    summary=_summary,
    is_right=_is_right,
    known=_known,
    rows=_rows,
    statement=_statement,
    valued=_valued,
    scales=_scales,
    marks=lambda label, place, settings: [
        (points[place], settings.levels(aspect))
        for aspect, points in label.get("points", {}).items()
        if points[place] is not None
    ],
    seconds=180,
)
