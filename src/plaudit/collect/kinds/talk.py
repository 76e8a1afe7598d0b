"""A conversation of two blind answers to each message, which goes on with the better one."""

from collections.abc import Mapping, Sequence
from typing import Any

from plaudit.collect.kinds import kind
from plaudit.data.fields import Node
from plaudit.data.records import (
    Comparison,
    Message,
    Prompt,
    Record,
    Text,
    assistant_turn,
    turns_of,
    user_turn,
)

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


def _label(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    # A message without a choice ends the talk: its two answers were not compared.
    chosen = [turn for turn in turns if turn["strength"] is not None]
    return {"turns": [{name: turn[name] for name in ("message", "answers", "strength")} for turn in chosen]}


def _messages(opening: Text, turns: Sequence[Mapping[str, Any]], message: str) -> Sequence[Message]:
    # What both answers of a turn reply to: the opening, the better answers so far, and the message.
    before = list[Message](() if opening == "" else turns_of(opening))
    for turn in turns:
        better = turn["answers"][int(turn["strength"] > 0)]
        before += [*user_turn(turn["message"]), *assistant_turn(better)]
    return (*before, *user_turn(message))


def _rows(given: kind.Labelled) -> list[Record]:
    # A comparison a turn, each with the conversation before it; none where both answers read the same.
    rows, turns = list[Record](), given.label["turns"]
    for place, turn in enumerate(turns):
        answers, strength = turn["answers"], turn["strength"]
        better = int(strength > 0)
        if answers[0].strip() == answers[1].strip():
            continue
        rows.append(
            Comparison(
                prompt=tuple(_messages(given.prompt, turns[:place], turn["message"])),
                chosen=assistant_turn(answers[better]),
                rejected=assistant_turn(answers[1 - better]),
                strength=float(abs(strength)),
                probability=0.5 if strength == 0 else None,
                places=(better, 1 - better),
                **given.shared,
            )
        )
    return rows


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
    rows=_rows,
    seconds=900,
)
