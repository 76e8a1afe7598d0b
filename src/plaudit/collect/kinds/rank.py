"""Three to nine answers in an order, the best first; some may share a place, or have none."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from plaudit.collect.kinds import kind
from plaudit.collect.refusals import FieldError
from plaudit.data.fields import Node
from plaudit.data.records import Ranking, Record


def _check(node: Node, body: kind.Body, settings: kind.Settings) -> dict[str, Any]:
    kind.refuse_unknown(node, ("groups", "none", "flags", "why"))
    count = len(body["candidates"])
    label: dict[str, Any] = {**kind.read_words(node), **kind.read_flags(node, count, settings)}
    if kind.says_none(node):
        kind.refuse_unknown(node, ("none", "flags", "why"))
        return {**label, "none": True}
    groups = [
        [kind.read_whole(place, 0, count - 1) for place in group.items()]
        for group in node.get("groups").items()
    ]
    places = [place for group in groups for place in group]
    if len(places) < 2 or len({*places}) != len(places) or not all(groups):
        raise node.get("groups").wrong_type_error(
            "groups of the places of at least two answers, best first, no place twice and no group empty"
        )
    if not settings.ties and len(groups) < len(places):
        raise node.get("groups").wrong_type_error("one answer in each group, as this project has no ties")
    return {**label, "groups": [sorted(group) for group in groups]}


def _read(shown: kind.Shown, form: kind.Form) -> dict[str, Any]:
    label = {**kind.form_flags(shown, form), **kind.form_texts(form, "why")}
    if kind.form_checked(form, "none"):
        return {**label, "none": True}
    count, groups = len(shown["answers"]), dict[int, list[int]]()
    for place in range(count):
        # An answer without a number is not ranked.
        if kind.form_value(form, f"place-{place}"):
            groups.setdefault(kind.form_whole(form, f"place-{place}", 1, count), []).append(place)
    if sum(map(len, groups.values())) < 2:
        raise FieldError(field="place-0", found="fewer", expected="a number for at least two answers")
    # Numbers may be left out between others: 1, 1, 3 is the same order as 1, 1, 2.
    return {"groups": [groups[number] for number in sorted(groups)], **label}


def _values(shown: kind.Shown, label: kind.Label) -> kind.Values:
    groups = enumerate(label.get("groups", ()), start=1)
    places = {f"place-{place}": [number] for number, group in groups for place in group}
    return {**places, **kind.shared_values(label)}


def _say(shown: kind.Shown, label: kind.Label, voice: kind.Voice) -> str:
    if label.get("none"):
        return voice.speak("history-rank-none")
    groups = [" = ".join(kind.LETTERS[place] for place in group) for group in label["groups"]]
    return voice.speak("history-rank", order=" › ".join(groups))


def _summary(label: kind.Label, order: kind.Order, settings: kind.Settings, voice: kind.Voice) -> str:
    if label.get("none"):
        return voice.speak("manage-no-preference")
    groups = [" = ".join(sorted(kind.LETTERS[order[place]] for place in group)) for group in label["groups"]]
    return voice.put('<bdi dir="ltr">{}</bdi>', " > ".join(groups))


def _known(label: kind.Label, order: kind.Order, settings: kind.Settings) -> dict[str, Any] | None:
    best = label.get("groups", ((),))[0]
    return {"best": order[best[0]]} if len(best) == 1 else None


def _rows(given: kind.Labelled) -> list[Record]:
    task = kind.task_of(given)
    answers, ranks, better = list[int](), list[float](), 0
    for group in given.label["groups"]:
        answers += [given.order[place] for place in group]
        ranks += [float(better + 1)] * len(group)
        # A rank is one more than there are better answers: two that tie move the next one by two.
        better += len(group)
    texts = tuple(task.answers[answer] for answer in answers)
    more = given.shared | given.of_answers(*answers)
    return [Ranking(prompt=task.prompt, completions=texts, ranks=tuple(ranks), **more)]


def _compared(label: kind.Label, order: kind.Order, forward: kind.Order) -> Iterator[tuple[int, int, int]]:
    ranks = {order[place]: rank for rank, group in enumerate(label["groups"]) for place in group}
    for first, other in combinations(sorted(ranks, key=lambda place: forward[place]), 2):
        yield first, other, ranks[first] - ranks[other]


def _valued(
    label: kind.Label, order: kind.Order, forward: kind.Order, settings: kind.Settings
) -> Iterator[tuple[str, Any, int]]:
    for first, other, better in _compared(label, order, forward):
        yield "", (first, other), kind.sign(better) + 1


KIND = kind.Kind(
    name="rank",
    answers=(3, 9),
    check_gold=lambda node, task, settings: kind.known_place(node, "best", task, settings),
    example={"candidates": [{"text": f"Answer {letter} …"} for letter in "ABC"]},
    records=kind.COMPARED,
    usual_of=(Ranking,),
    gold_of_records=lambda records, answers, settings: {"best": kind.best_place(records, answers)},
    drawn=4,
    width="broad",
    scripts=("rank.js",),
    # Places are chosen from lists, which take digits themselves.
    numbers=False,
    question="question-rank",
    solo_question="Which answer is best, and which come next?",
    shown=lambda body, settings: {"ties": settings.ties},
    fields=("place", "none", "flags", "why"),
    read=_read,
    values=_values,
    first_field={"groups": "place-0"},
    faults={"place": "fault-place"},
    check=_check,
    say=_say,
    summary=_summary,
    # Over the best alone: whole orders of nine answers would hardly ever agree.
    majority=lambda label, order: ",".join(map(str, sorted(order[place] for place in label["groups"][0]))),
    # Alone at the top: who calls all answers equal would otherwise always be right.
    is_right=lambda label, gold, order: [order[place] for place in label["groups"][0]] == [gold["best"]],
    known=_known,
    rows=_rows,
    statement=lambda label, order: [sorted(order[place] for place in group) for group in label["groups"]],
    valued=_valued,
    compared=_compared,
    scales=lambda settings: {"": (3, "ordinal")},
    note="Each two answers of a ranking are compared as a pair; intervals resample whole prompts.",
    seconds=600,
)
