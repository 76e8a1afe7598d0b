"""A conversation of two blind answers to each message, which goes on with the better one."""

from collections.abc import Mapping, Sequence
from typing import Any

from plaudit.collect.kinds import kind
from plaudit.data.fields import Node
from plaudit.data.labels import ComparedTurn, conversation_before, talk_rows
from plaudit.data.records import Message, Prompt, Text

_SENT = ("why",)


def _check(node: Node, body: kind.Body, settings: kind.Settings) -> dict[str, Any]:
    kind.refuse_unknown(node, ("turns", "why"))
    turns = list[dict[str, Any]]()
    for item in node.get("turns").items():
        kind.refuse_unknown(item, ("message", "answers", "strength"))
        answers = [kind.needed_words(answer) for answer in item.get("answers").items()]
        if len(answers) != 2:
            raise item.get("answers").wrong_type_error("two answers")
        strength = kind.read_strength(item.get("strength"), settings)
        turns.append(
            {"message": kind.needed_words(item.get("message")), "answers": answers, "strength": strength}
        )
    if not turns:
        raise node.get("turns").wrong_type_error("at least one turn")
    return {**kind.read_words(node), "turns": turns}


def _compared(turns: Sequence[Mapping[str, Any]]) -> tuple[ComparedTurn, ...]:
    return tuple(
        ComparedTurn(message=turn["message"], answers=tuple(turn["answers"]), strength=turn["strength"])
        for turn in turns
    )


def _label(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # A message without a choice ends the talk: its two answers were not compared.
    chosen = [turn for turn in turns if turn["strength"] is not None]
    return {"turns": [{name: turn[name] for name in ("message", "answers", "strength")} for turn in chosen]}


def _messages(opening: Text, turns: Sequence[Mapping[str, Any]], message: str) -> Sequence[Message]:
    return conversation_before(opening, _compared(turns), message)


KIND = kind.Kind(
    name="talk",
    empty_prompt=True,
    records=(Prompt,),
    width="wide",
    scripts=("talk.js",),
    question="question-talk",
    prompt="prompt-talk",
    shown=lambda body, settings: {"scale": list(settings.scale), "ties": settings.ties},
    conversation=kind.Conversation(answers=2, sent=_SENT, label=_label, messages=_messages),
    fields=("strength", "message", *_SENT),
    read=lambda shown, form: kind.form_texts(form, *_SENT),
    values=lambda shown, label: {name: [label.get(name, "")] for name in _SENT},
    faults={"turns": "fault-turns", "message": "fault-message"},
    check=_check,
    say=lambda shown, label, voice: voice.speak("history-talk", n=len(label.get("turns", ()))),
    summary=lambda label, order, settings, voice: voice.speak("manage-turns", n=len(label["turns"])),
    essence="turns",
    rows=lambda given: [*talk_rows(given.prompt, _compared(given.label["turns"]), **given.shared)],
    seconds=900,
)
