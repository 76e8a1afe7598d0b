"""A conversation in which a person tries to make the model say what it should not."""

from collections.abc import Mapping, Sequence
from typing import Any

from plaudit.collect.kinds import kind
from plaudit.collect.refusals import checked_text
from plaudit.data.fields import Node
from plaudit.data.records import Message, Prompt, Rating, Record, Text, turns_of

MOST_SUCCESS = 4
"""How bad the answer to an attack can be; 0 is harmless."""
_SENT = ("success", "category", "worked", "why")


def _check(node: Node, body: kind.Body, settings: kind.Settings) -> dict[str, Any]:
    kind.refuse_unknown(node, ("messages", *_SENT))
    messages = list[dict[str, str]]()
    for place, item in enumerate(node.get("messages").items()):
        kind.refuse_unknown(item, ("role", "content"))
        role = ("user", "assistant")[place % 2]
        if item.get("role").value != role:
            raise item.get("role").wrong_type_error(role)
        messages.append({"role": role, "content": kind.needed_words(item.get("content"))})
    if not messages or len(messages) % 2:
        raise node.get("messages").wrong_type_error("turns of a user, each with the model's answer")
    label: dict[str, Any] = {**kind.read_words(node), **kind.read_words(node, "worked"), "messages": messages}
    category = node.optional("category")
    if category is not None:
        label["category"] = checked_text("category", category.value, most=200, empty=False)
    return {**label, "success": kind.read_whole(node.get("success"), 0, MOST_SUCCESS)}


def _label(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "messages": [
            {"role": role, "content": text}
            for turn in turns
            for role, text in (("user", turn["message"]), ("assistant", turn["answers"][0]))
        ]
    }


def _messages(opening: Text, turns: Sequence[Mapping[str, Any]], message: str) -> Sequence[Message]:
    begin = () if opening == "" else turns_of(opening)
    before = [Message(**turn) for turn in _label(turns)["messages"]]
    return (*begin, *before, Message(role="user", content=message))


def _summary(label: kind.Label, order: kind.Order, settings: kind.Settings, voice: kind.Voice) -> str:
    category = (voice.written(label["category"]),) if label.get("category") else ()
    return voice.join(" · ", (voice.speak("manage-success", success=label["success"]), *category))


def _rows(given: kind.Labelled) -> list[Record]:
    # How harmless the last answer was, and the attack as a prompt for every later policy.
    opening = () if given.prompt == "" else turns_of(given.prompt)
    *turns, answer = (Message(role=turn["role"], content=turn["content"]) for turn in given.label["messages"])
    success, before = given.label["success"], (*opening, *turns)
    category = given.label.get("category", given.body.get("category"))
    rating = Rating(
        prompt=before,
        completion=(answer,),
        # Turned round, since a success of the attack is a failure of the answer.
        score=float(MOST_SUCCESS - success),
        aspect="harmlessness",
        **{**given.shared, "category": category},
    )
    facts = {"attack_success": success, "category": category, "worked": given.label.get("worked")}
    metadata = {name: value for name, value in facts.items() if value is not None}
    return [rating, Prompt(prompt=before, metadata=metadata)]


KIND = kind.Kind(
    name="attack",
    empty_prompt=True,
    records=(Prompt,),
    scripts=("talk.js",),
    question="question-attack",
    prompt="prompt-attack",
    conversation=kind.Conversation(answers=1, sent=_SENT, label=_label, messages=_messages),
    fields=("message", *_SENT),
    read=lambda shown, form: {
        "success": kind.form_whole(form, "success", 0, MOST_SUCCESS),
        **kind.form_texts(form, "category", "worked", "why"),
    },
    values=lambda shown, label: {name: [label.get(name, "")] for name in _SENT},
    faults={"messages": "fault-turns", "message": "fault-message", "success": "fault-success"},
    check=_check,
    say=lambda shown, label, voice: voice.speak(f"attack-success-{label['success']}"),
    summary=_summary,
    texts=("why", "worked"),
    essence="messages",
    rows=_rows,
    seconds=900,
)
