"""An answer that a person writes, or makes of a draft."""

from typing import Any

from plaudit.collect.kinds import kind
from plaudit.collect.refusals import FieldError
from plaudit.data.fields import Node
from plaudit.data.records import (
    Comparison,
    Demonstration,
    Prompt,
    Record,
    Text,
    answer_to,
    plain_text,
    text_to_json,
)
from plaudit.data.turns import read_completion


def _check_own(node: Node, prompt: Text) -> dict[str, Any]:
    draft = node.optional("draft")
    if draft is None:
        return {}
    # For its refusal alone: the store keeps what was sent.
    read_completion(draft, prompt)
    return {"draft": draft.value}


def _own_of_record(record: Record) -> dict[str, Any]:
    return {"draft": text_to_json(record.completion)} if isinstance(record, Demonstration) else {}


def _check(node: Node, body: kind.Body, settings: kind.Settings) -> dict[str, Any]:
    kind.refuse_unknown(node, ("answer", "why"))
    return {**kind.read_words(node), "answer": kind.needed_words(node.get("answer"))}


def _texts(shown: kind.Shown, form: kind.Form) -> tuple[str, str] | None:
    if not shown.get("draft"):
        return None
    draft = plain_text(kind.text_of(shown["draft"]))
    return draft, (*form.get("answer", ()), draft)[0]


def _read(shown: kind.Shown, form: kind.Form) -> dict[str, Any]:
    answer = kind.form_text(form, "answer")
    if not answer.strip():
        raise FieldError(field="answer", found="an empty text", expected="words")
    return {"answer": answer, **kind.form_texts(form, "why")}


def _rows(given: kind.Labelled) -> list[Record]:
    # A demonstration; of an edit that changed something also a pair, edited above draft.
    words, draft = given.label["answer"], given.body.get("draft")
    answer = answer_to(given.prompt, words)
    rows: list[Record] = [Demonstration(prompt=given.prompt, completion=answer, **given.shared)]
    if draft is not None and plain_text(before := kind.text_of(draft)).strip() != words.strip():
        rows.append(Comparison(prompt=given.prompt, chosen=answer, rejected=before, **given.shared))
    return rows


KIND = kind.Kind(
    name="write",
    own=("draft",),
    check_own=_check_own,
    records=(Prompt, Demonstration),
    usual_of=(Prompt, Demonstration),
    own_of_record=_own_of_record,
    question="question-write",
    solo_question="What would a good answer be?",
    shown=lambda body, settings: {"draft": body["draft"]} if "draft" in body else {},
    compared_texts=_texts,
    fields=("answer", "why"),
    read=_read,
    values=lambda shown, label: {"answer": [label.get("answer", "")], **kind.shared_values(label)},
    faults={"answer": "fault-answer"},
    check=_check,
    say=lambda shown, label, voice: kind.in_a_line(label["answer"]),
    summary=lambda label, order, settings, voice: voice.speak(
        "manage-wrote", n=len(str(label["answer"]).split())
    ),
    texts=("answer", "why"),
    essence="answer",
    rows=_rows,
    seconds=900,
)
