"""The data of a run in parts: by prompt, in the order in which the file has them."""

from __future__ import annotations

from collections.abc import Sequence

from plaudit.errors import UserError
from plaudit.recipes.preference_config import StageSettings
from plaudit.recipes.rows import Row


def part_of(rows: Sequence[Row], stages: StageSettings) -> tuple[Row, ...]:
    """The rows of one part; those with the same prompt stay together.

    >>> from plaudit.batches.tokens import Example
    >>> rows = [Example(prompt=(n,), completions=()) for n in (5, 6, 5)]
    >>> [row.prompt for row in part_of(rows, StageSettings(parts=2, part=0))]
    [(5,), (5,)]
    """
    if stages.part is None:
        return tuple(rows)
    prompts = list(dict.fromkeys(row.prompt for row in rows))
    if len(prompts) < stages.parts:
        raise UserError(f"stages.parts: {stages.parts} parts of {len(prompts)} prompts leave some empty")
    first, end = (round(len(prompts) * n / stages.parts) for n in (stages.part, stages.part + 1))
    own = set(prompts[first:end])
    return tuple(row for row in rows if row.prompt in own)
