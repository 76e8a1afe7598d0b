"""The steps of a solution, each right, neutral or wrong, up to the first error."""

from collections.abc import Iterator, Sequence
from typing import Any

from plaudit.collect.kinds import kind
from plaudit.collect.refusals import FieldError
from plaudit.data.fields import Node, describe_value
from plaudit.data.records import Record, Steps, Text

STEP_SCORES = {"right": 1.0, "neutral": 0.5, "wrong": 0.0}
"""The label of each step as a number."""
ENDS = ("error", "solved", "bad-problem", "gave-up")
"""Why the labels of a solution end where they do."""
_GAVE_UP = ENDS[2:]
"""The ends that a person states; error and solved follow from the labels."""
_WORDS = tuple(sorted(STEP_SCORES, key=lambda word: STEP_SCORES[word]))
_LABELS = {score: label for label, score in STEP_SCORES.items()}


def _check_own(node: Node, prompt: Text) -> dict[str, Any]:
    steps = [item.text() for item in node.get("steps").items()]
    if not steps or not all(step.strip() for step in steps):
        raise FieldError(field="steps", found=describe_value(steps), expected="at least one step, none empty")
    return {"steps": steps}


def _check(node: Node, body: kind.Body, settings: kind.Settings) -> dict[str, Any]:
    kind.refuse_unknown(node, ("labels", "ended", "why"))
    ended = node.get("ended")
    if ended.value not in ENDS:
        raise ended.wrong_type_error(f"one of {', '.join(ENDS)}")
    listed, most = node.get("labels"), len(body["steps"])
    labels = [item.value for item in listed.items()]
    if len(labels) > most or not _are_known(labels):
        raise listed.wrong_type_error(f"right, neutral or wrong for at most {most} steps")
    # Every later step may rest on the first error, so what is said of those means nothing.
    if "wrong" in labels[:-1]:
        raise listed.wrong_type_error("labels up to the first wrong step and no further")
    solved = len(labels) == most and "wrong" not in labels
    complete = {"error": labels[-1:] == ["wrong"], "solved": solved}
    if not complete.get(str(ended.value), True):
        raise ended.wrong_type_error(
            "error where the last label is wrong, solved where all steps are labelled and none is wrong"
        )
    return {**kind.read_words(node), "labels": labels, "ended": ended.value}


def _are_known(labels: Sequence[object]) -> bool:
    return all(isinstance(label, str) and label in STEP_SCORES for label in labels)


def _check_gold(node: Node, task: kind.Body, settings: kind.Settings) -> dict[str, Any]:
    kind.refuse_unknown(node, ("labels",), "known answer")
    listed = node.get("labels")
    labels = [item.value for item in listed.items()]
    count = len(task["steps"])
    # Too few would be met by whoever gives up at once.
    is_whole = len(labels) == count or ("wrong" in labels and len(labels) < count)
    if not _are_known(labels) or not is_whole:
        raise listed.wrong_type_error(
            f"right, neutral or wrong for each of the {count} steps, or up to the first wrong one"
        )
    return {"labels": labels}


def _gold_of_records(
    records: Sequence[Record], answers: Sequence[kind.Words], settings: kind.Settings
) -> dict[str, Any]:
    record = records[0]
    assert isinstance(record, Steps)
    for place, score in enumerate(record.labels):
        if score not in _LABELS:
            raise FieldError(
                field=f"labels[{place}]", found=f"{score:g}", expected="1 (right), 0.5 (neutral) or 0 (wrong)"
            )
    return {"labels": [_LABELS[score] for score in record.labels]}


def _is_right(label: kind.Label, gold: kind.Body, order: kind.Order) -> bool:
    known = gold["labels"]
    # Nothing is asked of what stands behind the first error.
    wanted = known[: known.index("wrong") + 1] if "wrong" in known else known
    return [*label["labels"]] == [*wanted]


def _known(label: kind.Label, order: kind.Order, settings: kind.Settings) -> dict[str, Any] | None:
    return {"labels": [*label["labels"]]} if label["ended"] in ("error", "solved") else None


def _read(shown: kind.Shown, form: kind.Form) -> dict[str, Any]:
    ended = kind.form_choice(form, "ended", _GAVE_UP)
    given = [kind.form_choice(form, f"step-{at}", tuple(STEP_SCORES)) for at in range(len(shown["steps"]))]
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
    return {"labels": labels, "ended": ended or rule, **kind.form_texts(form, "why")}


def _values(shown: kind.Shown, label: kind.Label) -> kind.Values:
    steps = {f"step-{at}": [given] for at, given in enumerate(label.get("labels", ()))}
    ended = label.get("ended", "")
    return {**steps, "ended": [ended if ended in _GAVE_UP else ""], **kind.shared_values(label)}


def _summary(label: kind.Label, order: kind.Order, settings: kind.Settings, voice: kind.Voice) -> str:
    if "wrong" in label["labels"]:
        return voice.speak("manage-wrong-step", step=label["labels"].index("wrong") + 1)
    return voice.speak(f"manage-ended-{label['ended']}")


def _majority(label: kind.Label, order: kind.Order) -> str:
    return str(label["labels"].index("wrong")) if "wrong" in label["labels"] else label["ended"]


def _rows(given: kind.Labelled) -> list[Record]:
    labels = tuple(STEP_SCORES[label] for label in given.label["labels"])
    # Without the steps behind the first error, which nobody labelled.
    steps = tuple(given.body["steps"][: len(labels)])
    return [Steps(prompt=given.prompt, steps=steps, labels=labels, **given.shared)] if labels else []


def _valued(
    label: kind.Label, order: kind.Order, forward: kind.Order, settings: kind.Settings
) -> Iterator[tuple[str, Any, int]]:
    yield from (("", place, _WORDS.index(word)) for place, word in enumerate(label["labels"]))


KIND = kind.Kind(
    name="steps",
    own=("steps",),
    check_own=_check_own,
    check_gold=_check_gold,
    example={"steps": ["Light meets air.", "Air scatters blue light most."]},
    records=(Steps,),
    usual_of=(Steps,),
    own_of_record=lambda record: {"steps": [*record.steps]} if isinstance(record, Steps) else {},
    gold_of_records=_gold_of_records,
    question="question-steps",
    solo_question="Where is the first mistake?",
    prompt="prompt-steps",
    shown=lambda body, settings: {"steps": body["steps"]},
    fields=("step", "ended", "why"),
    read=_read,
    values=_values,
    first_field={"labels": "step-0"},
    faults={"step": "fault-step"},
    check=_check,
    say=lambda shown, label, voice: voice.speak("history-steps", n=len(label["labels"])),
    summary=_summary,
    majority=_majority,
    is_right=_is_right,
    known=_known,
    rows=_rows,
    statement=lambda label, order: label["labels"],
    valued=_valued,
    scales=lambda settings: {"": (len(_WORDS), "ordinal")},
    seconds=300,
)
