"""Layouts of instructions and their answers: Alpaca's, Dolly's, Orca's pairs and GSM8K.

Each becomes a conversation: who asks and who answers is known, so the model's own template says how it is
written. (Taori et al. 2023, Stanford Alpaca; Conover et al. 2023, Dolly; Cobbe et al. 2021,
https://arxiv.org/abs/2110.14168.)
"""

from __future__ import annotations

from collections.abc import Iterable

from plaudit.data.fields import BadRowError, Node, optional_items
from plaudit.data.formats.layout import (
    TEXT,
    FieldType,
    ReadOptions,
    RowFormat,
    optional_category,
    read_response,
    require_different,
)
from plaudit.data.records import Comparison, Demonstration, Record, assistant_turn, user_turn
from plaudit.data.turns import Turns

_FINAL = "####"


def question(row: Node, field: str) -> str:
    words = row.get(field).text()
    if not words.strip():
        raise row.get(field).error("empty side", "a question")
    return words


def question_turns(row: Node, field: str, more: str = "") -> Turns:
    """The question, with the text of a further field under it, behind the turns of ``history``."""
    words = question(row, field)
    context = row.optional(more) if more else None
    if context is not None and context.text().strip():
        words = f"{words}\n\n{context.text()}"
    turns: list[Turns] = []
    for pair in optional_items(row, "history"):
        sides = pair.items()
        if len(sides) != 2:
            raise pair.wrong_type_error("a question and its answer")
        turns += [user_turn(sides[0].text()), assistant_turn(sides[1].text())]
    return (*tuple(message for turn in turns for message in turn), *user_turn(words))


def _alpaca(row: Node, options: ReadOptions) -> Iterable[Record]:
    prompt = question_turns(row, "instruction", "input")
    completion, category = read_response(row.get("output"), prompt), optional_category(row, "category")
    return (Demonstration(prompt=prompt, completion=completion, category=category),)


def _alpaca_pair(row: Node, options: ReadOptions) -> Iterable[Record]:
    prompt, category = question_turns(row, "instruction", "input"), optional_category(row, "category")
    chosen, rejected = (read_response(row.get(side), prompt) for side in ("chosen", "rejected"))
    require_different(chosen, rejected, "chosen, rejected")
    return (Comparison(prompt=prompt, chosen=chosen, rejected=rejected, category=category),)


def _gsm8k(row: Node, options: ReadOptions) -> Iterable[Record]:
    prompt = question_turns(row, "question")
    completion = read_response(row.get("answer"), prompt)
    final = row.get("answer").text().rpartition(_FINAL)[2].strip()
    if not final:
        raise BadRowError("empty side", "answer", expected=f"a result behind {_FINAL}", found="none")
    return (Demonstration(prompt=prompt, completion=completion, answer=final),)


SOLUTION = FieldType(
    name=f"a text with {_FINAL} before its result",
    matches=lambda node: isinstance(node.value, str) and _FINAL in node.value,
    special_case_of="a text",
)

INSTRUCTION_FORMATS = (
    RowFormat(
        name="alpaca",
        title="Alpaca instructions",
        schema={"instruction": TEXT, "output": TEXT},
        optional_fields=frozenset(["input", "history", "category"]),
        excluded_fields=frozenset(["chosen", "rejected", "completions"]),
        parse=_alpaca,
        produces="demonstration; `input` stands under the instruction, `history` before it",
        is_generic=True,
        takes_label=True,
    ),
    RowFormat(
        name="alpaca-preference",
        title="Alpaca instructions with two answers",
        schema={"instruction": TEXT, "chosen": TEXT, "rejected": TEXT},
        optional_fields=frozenset(["input", "history", "category"]),
        parse=_alpaca_pair,
        produces="comparison",
        is_generic=True,
    ),
    RowFormat(
        name="gsm8k",
        title="GSM8K",
        schema={"question": TEXT, "answer": SOLUTION},
        parse=_gsm8k,
        produces="demonstration; what stands behind the last #### is its reference answer",
        is_generic=True,
        takes_label=True,
    ),
)
