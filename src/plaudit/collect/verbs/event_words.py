"""What an event of the log says, in words for a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from plaudit.data.fields import shorten

if TYPE_CHECKING:
    from plaudit.collect.log import Event


def event_words(event: Event) -> str:
    """What happened, in words; texts of others without what a terminal would obey."""
    if event.body is None:
        return f"{event.kind} {event.subject} (what it said was erased)"
    write = _EVENTS.get(event.kind)
    return f"{event.kind} {event.subject}" if write is None else write(event.subject, event.body)


def _project_words(subject: str, body: Mapping[str, Any]) -> str:
    settings, version = body["settings"], body["guidelines"]
    guidelines = f"guidelines {version}" if version else "no guidelines"
    return f"set project {subject}: {settings['ask']}, overlap {settings['overlap']}, {guidelines}"


def _task_words(subject: str, body: Mapping[str, Any]) -> str:
    from plaudit.collect.kinds.kind import text_of
    from plaudit.data.records import plain_text

    prompt = shorten(plain_text(text_of(body["prompt"])))
    answers = len(body["candidates"])
    return f"added task {subject}: {prompt!r}" + (f" with {answers} answers" if answers else "")


def _lease_words(subject: str, body: Mapping[str, Any]) -> str:
    places = ", ".join(str(place + 1) for place in body["order"])
    order = f", the answers in the order {places}" if places else ""
    if "taken_in" in body:
        return f"had it in {shorten(body['taken_in']['from'])}, now {subject}{order}"
    return f"was given it as {subject}{order}, until {body['until'][:19].replace('T', ' ')}"


def _answer_words(subject: str, body: Mapping[str, Any]) -> str:
    seconds = "" if body.get("seconds") is None else f", after {body['seconds']:g} s"
    return f"answered {subject}: {_label_words(body['label'])}{seconds}{', surplus' * body['surplus']}"


def _revision_words(subject: str, body: Mapping[str, Any]) -> str:
    if body["label"] is None:
        return f"took back the answer to {subject} (event {body['replaces']})"
    return f"answered {subject} anew, in place of event {body['replaces']}: {_label_words(body['label'])}"


def _label_words(label: Mapping[str, Any]) -> str:
    """A label; whatever is in it stands as JSON, with the side of a pair in words."""
    text = shorten(json.dumps(label, ensure_ascii=False), 300)
    strength = label.get("strength")
    if strength is None:
        return text
    better = (
        "equally good" if strength == 0 else f"the {'second' if strength > 0 else 'first'} shown is better"
    )
    return f"{better} {text}"


_EVENTS: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "project-set": _project_words,
    "task-added": _task_words,
    "task-closed": lambda subject, body: f"closed task {subject}: {shorten(body['reason'])}",
    "leased": _lease_words,
    "released": lambda subject, body: (
        f"the time of {subject} ended"
        if body["reason"] == "ended"
        else f"gave {subject} back: {body['reason']}"
    ),
    "prolonged": lambda subject, body: (
        f"went on with {subject}, until {body['until'][:19].replace('T', ' ')}"
    ),
    "answered": _answer_words,
    "revised": _revision_words,
    "judged": lambda subject, body: f"judged {subject}: {_label_words(body['label'])}",
    "adjudicated": lambda subject, body: (
        f"decided {subject} ({body['reason']}): {_label_words(body['label'])}"
    ),
    "exported": lambda _, body: f"exported {body['rows']} rows as of event {body['seq']}",
    "noted": lambda subject, body: f"noted on {subject}: {shorten(body['text'], 300)}",
    "flagged": lambda subject, body: f"reported {subject} as {body['reason']}: {shorten(body['text'], 300)}",
}
