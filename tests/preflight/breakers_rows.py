"""Files of rows from which nothing could be learnt, or whose figures would mislead."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.engine.toy import demonstrations
from tests.preflight.subjects import Method

Row = dict[str, Any]
ROWS = 48
"""More than enough for every share that a check looks at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRows:
    """What is wrong with a file, and who must see it."""

    name: str
    method: Method
    rows: Callable[[], list[Row]]
    fails: frozenset[str]
    says: str
    held_out: Callable[[], list[Row]] | None = None


def turns(role: str, words: str) -> list[dict[str, str]]:
    return [{"role": role, "content": words}]


def pair(prompt: str, chosen: str, rejected: str, **more: Any) -> Row:
    answers = {"chosen": turns("assistant", chosen), "rejected": turns("assistant", rejected)}
    return {"prompt": turns("user", prompt), **answers, **more}


def thumb(prompt: str, said: str, label: bool) -> Row:
    return {"prompt": turns("user", prompt), "completion": turns("assistant", said), "label": label}


def pairs(count: int = ROWS) -> list[Row]:
    """Comparisons with which nothing is wrong: either side is as long as the other."""
    shown = demonstrations(count)
    others = [row["completion"] for row in shown[1:] + shown[:1]]
    return [pair(row["prompt"], row["completion"], other) for row, other in zip(shown, others, strict=True)]


def thumbs(count: int = ROWS) -> list[Row]:
    return [
        thumb(row["prompt"], row["completion"], number % 2 == 0)
        for number, row in enumerate(demonstrations(count))
    ]


def shown(count: int = ROWS) -> list[Row]:
    return [
        {"prompt": turns("user", row["prompt"]), "completion": turns("assistant", row["completion"])}
        for row in demonstrations(count)
    ]


def swapped(rows: Sequence[Row]) -> list[Row]:
    return [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in rows]


def _longer(count: int) -> list[Row]:
    return [pair(row["prompt"], f"{row['completion']} and over.", "a mat.") for row in demonstrations(count)]


def _shouted(rows: Sequence[Row]) -> list[Row]:
    """The same prompts in capitals and with other blanks."""
    return [{**row, "prompt": turns("user", row["prompt"][0]["content"].upper() + " ")} for row in rows]


_LONG = "the {} cat sat on a red mat with old dogs."


def answered(row: Row, said: str) -> Row:
    """The prompt of a demonstration with another answer."""
    return {"prompt": turns("user", row["prompt"]), "completion": turns("assistant", said)}


BROKEN_ROWS = (
    BrokenRows(
        name="one row many times",
        method="sft",
        rows=lambda: shown(4) * 12,
        fails=frozenset({"duplicates"}),
        says="44 of 48 rows are copies; own.jsonl:5 is own.jsonl:1 again",
    ),
    BrokenRows(
        name="held-out rows that are trained",
        method="sft",
        rows=shown,
        held_out=lambda: shown()[:36],
        fails=frozenset({"leaks"}),
        says="36 of 36 held-out rows have a prompt that is trained; held.jsonl:1 asks what own.jsonl:1 asks",
    ),
    BrokenRows(
        name="held-out prompts that are trained, in capitals",
        method="dpo",
        rows=pairs,
        held_out=lambda: _shouted(pairs()[:36]),
        fails=frozenset({"leaks"}),
        says="36 of 36 held-out rows have a prompt that is trained",
    ),
    BrokenRows(
        name="every pair preferred both ways",
        method="dpo",
        rows=lambda: pairs(24) + swapped(pairs(24)),
        fails=frozenset({"contradictions"}),
        says="48 of 48 judgements cancel each other; own.jsonl:1 and own.jsonl:25 say the opposite",
    ),
    BrokenRows(
        name="every answer thumbed both ways",
        method="kto",
        rows=lambda: [{**row, "label": up} for up in (True, False) for row in thumbs(24)],
        fails=frozenset({"contradictions"}),
        says="48 of 48 judgements cancel each other",
    ),
    BrokenRows(
        name="thumbs all up",
        method="kto",
        rows=lambda: [{**row, "label": True} for row in thumbs()],
        fails=frozenset({"balance"}),
        says="48 labels of 1 kinds; the most frequent, 1, is 100%",
    ),
    BrokenRows(
        name="preferred answers always longer",
        method="reward",
        rows=lambda: _longer(100),
        fails=frozenset({"lengths", "giveaway"}),
        says="the preferred answer is longer in 100% (96% to 100%) of 100 pairs",
    ),
    BrokenRows(
        name="preferred answers always shorter",
        method="dpo",
        rows=lambda: swapped(_longer(100)),
        fails=frozenset({"lengths", "giveaway"}),
        says="the preferred answer is longer in 0% (0% to 4%) of 100 pairs",
    ),
    BrokenRows(
        name="hardly anything but ties",
        method="reward",
        rows=lambda: [{**row, "probability": 0.5 if number else 1.0} for number, row in enumerate(pairs())],
        fails=frozenset({"ties", "overfits"}),
        says="47 of 48 rows prefer no answer, own.jsonl:2 for one",
    ),
    BrokenRows(
        name="answers that a limit has cut",
        method="sft",
        rows=lambda: [
            answered(row, f"The cat sat on a mat. Then the {row['completion'].split()[0]} cat went to")
            for row in demonstrations(ROWS)
        ],
        fails=frozenset({"cut-answers"}),
        says="48 of 48 answers with sentences break off in one; own.jsonl:1 ends in",
    ),
    BrokenRows(
        name="answers that stand in the prompt",
        method="sft",
        rows=lambda: [
            {
                **answered(row, _LONG.format(row["completion"].strip())),
                "prompt": turns("user", f"Say: {_LONG.format(row['completion'].strip())} Now."),
            }
            for row in demonstrations(ROWS)
        ],
        fails=frozenset({"answer-in-prompt"}),
        says="48 of 48 answers stand in their prompt, own.jsonl:1 for one",
    ),
    BrokenRows(
        name="a word that gives the preferred side away",
        method="reward",
        rows=lambda: [
            pair(row["prompt"], f"sure {row['completion']}", f"well {row['completion']}")
            for row in demonstrations(100)
        ],
        fails=frozenset({"giveaway"}),
        says="stands in the",
    ),
    BrokenRows(
        name="conversations that went through the template before",
        method="dpo",
        rows=lambda: [
            {**row, "prompt": turns("user", f"<|im_start|>user\n{row['prompt'][0]['content']}<|im_end|>\n")}
            for row in pairs()
        ],
        fails=frozenset({"control-tokens"}),
        says="48 of 48 rows hold the text of a control token; own.jsonl:1 '<|im_start|>': they were through",
    ),
)
