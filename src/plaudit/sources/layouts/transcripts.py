"""Layouts whose conversations are one long string: ``Human: … Assistant: …``.

HH-RLHF (Bai et al. 2022, https://arxiv.org/abs/2204.05862) and Nectar (Zhu et al. 2023). The transcripts
become messages: Human is the user, Assistant the assistant.
"""

from __future__ import annotations

import re

from plaudit.records.feedback import Comparison, Ranking, Record
from plaudit.records.messages import Message
from plaudit.sources.conversation import Turns, differ, not_empty, shared_turns
from plaudit.sources.layouts.layout import OBJECTS, TRANSCRIPT, Layout, ReadOptions
from plaudit.sources.node import Node, optional_category
from plaudit.sources.problems import BadRowError, shown

_TURN = re.compile(r"(?:\A|\n\n)(Human|Assistant):")
_ROLES = {"Human": "user", "Assistant": "assistant"}


def transcript(node: Node) -> Turns:
    """A transcript as messages.

    >>> transcript(Node(value="\\n\\nHuman: Hi\\n\\nAssistant: Hello"))[1].content
    'Hello'
    """
    before, *rest = _TURN.split(node.text())
    if before.strip() or not rest:
        raise BadRowError(
            "wrong value", node.path, expected='a transcript that begins "Human:"', found=shown(node.value)
        )
    pairs = zip(rest[::2], rest[1::2], strict=True)
    return tuple(Message(role=_ROLES[speaker], content=content.strip()) for speaker, content in pairs)


def _hh(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    chosen, rejected = transcript(row.get("chosen")), transcript(row.get("rejected"))
    differ(chosen, rejected, "chosen, rejected")
    prompt, better, worse = shared_turns(chosen, rejected)
    not_empty(better, "chosen")
    not_empty(worse, "rejected")
    return (Comparison(prompt=prompt, chosen=better, rejected=worse, origin=origin),)


def _nectar(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    prompt = transcript(row.get("prompt"))
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
    not_empty(turn, node.path)
    return turn


TRANSCRIPT_LAYOUTS = (
    Layout(
        name="hh-rlhf",
        title="HH-RLHF transcripts",
        schema={"chosen": TRANSCRIPT, "rejected": TRANSCRIPT},
        without=frozenset(["prompt"]),
        parse=_hh,
        gives="comparison of conversations; the prompt is the turns that both share",
        aliases=("hh",),
    ),
    Layout(
        name="nectar",
        title="Nectar",
        schema={"prompt": TRANSCRIPT, "answers": OBJECTS},
        also=frozenset(["source"]),
        parse=_nectar,
        gives="ranking, usually of seven; `category` is the source",
    ),
)
"""HH-RLHF and Nectar."""
