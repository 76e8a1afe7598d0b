"""Layouts of whole conversations: one long string (HH-RLHF, Nectar), turns (ShareGPT), or a tree (OASST).

HH-RLHF (Bai et al. 2022, https://arxiv.org/abs/2204.05862) and Nectar (Zhu et al. 2023) are transcripts,
``Human: … Assistant: …``, which become messages: Human is the user, Assistant the assistant. In OASST's trees
people ranked the replies (Köpf et al. 2023, https://arxiv.org/abs/2304.07327).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from plaudit.data.fields import (
    BadRowError,
    LeftOutError,
    Node,
    Turns,
    describe_value,
    read_json,
    read_messages,
    read_tool_calls,
    require_not_empty,
)
from plaudit.data.formats.layout import (
    NUMBER,
    OBJECT,
    OBJECTS,
    TEXT,
    TRANSCRIPT,
    ReadOptions,
    RowFormat,
    optional_category,
    require_different,
    split_prompt,
    split_shared_turns,
)
from plaudit.data.records import Comparison, Demonstration, Message, Ranking, Rating, Record

# Only behind an empty line: a text may well have "Human:" in the middle of a sentence.
_TURN = re.compile(r"(?:\A|\n\n)(Human|Assistant):")
_ROLES = {"Human": "user", "Assistant": "assistant"}


def parse_transcript(node: Node) -> Turns:
    """A transcript as messages.

    >>> parse_transcript(Node(value="\\n\\nHuman: Hi\\n\\nAssistant: Hello"))[1].content
    'Hello'
    """
    before, *rest = _TURN.split(node.text())
    if before.strip() or not rest:
        raise node.error("wrong value", 'a transcript that begins "Human:"')
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return tuple(Message(role=_ROLES[speaker], content=content.strip()) for speaker, content in pairs)


def _hh(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    chosen, rejected = parse_transcript(row.get("chosen")), parse_transcript(row.get("rejected"))
    require_different(chosen, rejected, "chosen, rejected")
    prompt, better, worse = split_shared_turns(chosen, rejected)
    require_not_empty(better, "chosen")
    require_not_empty(worse, "rejected")
    return (Comparison(prompt=prompt, chosen=better, rejected=worse, origin=origin),)


def _nectar(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    prompt = parse_transcript(row.get("prompt"))
    if prompt[-1] == Message(role="assistant", content=""):
        prompt = prompt[:-1]
    answers = row.get("answers").items()
    if len(answers) < 2:
        raise BadRowError(
            "too few answers", "answers", expected="two answers or more", found=str(len(answers))
        )
    return (
        Ranking(
            prompt=prompt,
            completions=tuple(_assistant_turn(item.get("answer")) for item in answers),
            ranks=tuple(item.get("rank").number() for item in answers),
            category=optional_category(row, "source"),
            origin=origin,
        ),
    )


def _assistant_turn(node: Node) -> Turns:
    turn = (Message(role="assistant", content=node.text().strip()),)
    require_not_empty(turn, node.path)
    return turn


def _red_team(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    """The attacker's rating is how well the attack went, from 0 to 4: harmlessness is what is left of it."""
    prompt, completion = split_prompt(parse_transcript(row.get("transcript")), "transcript")
    return (
        Rating(
            prompt=prompt,
            completion=completion,
            score=_MOST_HARM - row.get("rating").number_between(0, _MOST_HARM),
            aspect="harmlessness",
            category=optional_category(row, "task_description_harm_type"),
            origin=origin,
        ),
    )


_MOST_HARM = 4
_SPEAKERS = {
    **{name: "user" for name in ("human", "user", "prompter")},
    **{name: "assistant" for name in ("gpt", "assistant", "chatgpt", "bing", "bard", "model")},
    **{name: "tool" for name in ("tool", "observation", "function_response")},
    **{name: "call" for name in ("function_call", "tool_call")},
    "system": "system",
}


def _sharegpt_messages(node: Node) -> Turns:
    """Turns of ``from`` and ``value``, or of ``role`` and ``content``, whichever they have."""
    return read_messages(Node(value=[_sharegpt_turn(item) for item in node.items()], path=node.path))


def _sharegpt_turn(item: Node) -> dict[str, object]:
    speaker = item.optional("from") or item.get("role")
    if speaker.text() not in _SPEAKERS:
        raise speaker.error("unknown role", f"one of {', '.join(_SPEAKERS)}")
    words = item.optional("value") or item.optional("content")
    rest = {name: item.get(name).value for name in item.fields() if item.optional(name) is not None}
    others = {name: value for name, value in rest.items() if name not in ("from", "value")}
    role = _SPEAKERS[speaker.text()]
    if role == "call":
        return {
            **others,
            "role": "assistant",
            "content": "",
            "tool_calls": _called(words or item.get("value")),
        }
    return {**others, "role": role, **({} if words is None else {"content": words.value})}


def _called(words: Node) -> list[object]:
    """The call that a turn consists of, or several in a list, as objects or their JSON."""
    calls = read_json(words, 'a call as JSON: {"name": "weather", "arguments": {"city": "Oslo"}}')
    if not isinstance(calls.value, list):
        calls = Node(value=[calls.value], path=calls.path)
    # Read here for the sake of the path, which names the field that the row has.
    read_tool_calls(calls)
    return [call.value for call in calls.items()]


def _sharegpt(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    prompt, completion = split_prompt(_sharegpt_messages(row.get("conversations")), "conversations")
    return (Demonstration(prompt=prompt, completion=completion, origin=origin),)


def _sharegpt_pair(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    prompt = _sharegpt_messages(row.get("conversations"))
    chosen, rejected = (
        _sharegpt_messages(Node(value=[row.get(side).value], path=side)) for side in ("chosen", "rejected")
    )
    require_not_empty(chosen, "chosen")
    require_not_empty(rejected, "rejected")
    require_different(chosen, rejected, "chosen, rejected")
    return (Comparison(prompt=prompt, chosen=chosen, rejected=rejected, origin=origin),)


TRANSCRIPT_FORMATS = (
    RowFormat(
        name="sharegpt",
        title="ShareGPT conversations",
        schema={"conversations": OBJECTS},
        excluded_fields=frozenset(["chosen", "rejected"]),
        parse=_sharegpt,
        produces="demonstration; turns of `from` and `value`, or of `role` and `content`",
        is_generic=True,
    ),
    RowFormat(
        name="sharegpt-preference",
        title="ShareGPT conversations with two answers",
        schema={"conversations": OBJECTS, "chosen": OBJECT, "rejected": OBJECT},
        parse=_sharegpt_pair,
        produces="comparison",
        is_generic=True,
    ),
    RowFormat(
        name="hh-red-team",
        title="HH-RLHF red-team transcripts",
        schema={"transcript": TRANSCRIPT, "rating": NUMBER},
        optional_fields=frozenset(["task_description_harm_type"]),
        parse=_red_team,
        produces="rating of harmlessness: 4 less the attacker's rating of success",
    ),
    RowFormat(
        name="hh-rlhf",
        title="HH-RLHF transcripts",
        schema={"chosen": TRANSCRIPT, "rejected": TRANSCRIPT},
        excluded_fields=frozenset(["prompt"]),
        parse=_hh,
        produces="comparison of conversations; the prompt is the turns that both share",
        aliases=("hh",),
    ),
    RowFormat(
        name="nectar",
        title="Nectar",
        schema={"prompt": TRANSCRIPT, "answers": OBJECTS},
        optional_fields=frozenset(["source"]),
        parse=_nectar,
        produces="ranking, usually of seven; `category` is the source",
    ),
)


_TREE_ROLES = {"prompter": "user", "assistant": "assistant"}


def _oasst(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    rankings = tuple(_rankings(row.get("prompt"), origin))
    if not rankings:
        raise LeftOutError("trees in which no turn has two ranked answers")
    return rankings


def _rankings(root: Node, origin: str) -> Iterator[Ranking]:
    """One ranking for each user's turn with two ranked answers or more; deleted messages are passed over."""
    queue: list[tuple[Node, Turns]] = [(root, ())]
    while queue:
        node, context = queue.pop(0)
        turns = (*context, _turn(node))
        replies = [reply for reply in _replies(node) if not _is_deleted(reply)]
        ranked = [reply for reply in replies if reply.optional("rank") is not None]
        if turns[-1].role == "user" and len(ranked) > 1:
            yield Ranking(
                prompt=turns,
                completions=tuple(_reply_turn(reply) for reply in ranked),
                # OASST counts ranks from 0.
                ranks=tuple(reply.get("rank").number() + 1 for reply in ranked),
                origin=origin,
            )
        queue.extend((reply, turns) for reply in replies)


def _turn(node: Node) -> Message:
    role = node.get("role").text()
    if role not in _TREE_ROLES:
        raise BadRowError(
            "unknown role", f"{node.path}.role", expected="prompter or assistant", found=describe_value(role)
        )
    return Message(role=_TREE_ROLES[role], content=node.get("text").text())


def _reply_turn(reply: Node) -> Turns:
    turn = (_turn(reply),)
    require_not_empty(turn, f"{reply.path}.text")
    return turn


def _replies(node: Node) -> tuple[Node, ...]:
    replies = node.optional("replies")
    return () if replies is None else replies.items()


def _is_deleted(node: Node) -> bool:
    deleted = node.optional("deleted")
    return deleted is not None and deleted.boolean()


TREE_FORMATS = (
    RowFormat(
        name="oasst",
        title="OASST trees",
        schema={"message_tree_id": TEXT, "prompt": OBJECT},
        parse=_oasst,
        produces="one ranking for each turn with two ranked answers or more",
    ),
)
