"""Layouts whose conversations are one long string: ``Human: … Assistant: …``.

HH-RLHF (Bai et al. 2022, https://arxiv.org/abs/2204.05862) and Nectar (Zhu et al. 2023). The transcripts
become messages: Human is the user, Assistant the assistant.
"""

from __future__ import annotations

import re

from plaudit.data.fields import (
    BadRowError,
    Node,
    Turns,
    describe_value,
    optional_category,
    require_different,
    require_not_empty,
    split_shared_turns,
)
from plaudit.data.formats.layout import OBJECTS, TRANSCRIPT, ReadOptions, RowFormat
from plaudit.data.records import Comparison, Message, Ranking, Record

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
        raise BadRowError(
            "wrong value",
            node.path,
            expected='a transcript that begins "Human:"',
            found=describe_value(node.value),
        )
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


TRANSCRIPT_FORMATS = (
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
"""The formats of HH-RLHF and Nectar."""
