"""Benchmarks of reward models: RewardBench (https://arxiv.org/abs/2403.13787) and its second edition
(https://arxiv.org/abs/2506.01937).
"""

from __future__ import annotations

from plaudit.data.fields import BadRowError, Node, optional_name, read_completion, read_prompt
from plaudit.data.formats.layout import (
    TEXT,
    TEXT_OR_MESSAGES,
    TEXTS,
    ReadOptions,
    RowFormat,
    require_different,
)
from plaudit.data.records import Comparison, Ranking, Record


def _rewardbench(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    prompt = read_prompt(row.get("prompt"))
    chosen, rejected = (read_completion(row.get(side), prompt) for side in ("chosen", "rejected"))
    require_different(chosen, rejected, "chosen, rejected")
    return (
        Comparison(
            prompt=prompt,
            chosen=chosen,
            rejected=rejected,
            category=optional_name(row, "subset"),
            origin=origin,
        ),
    )


def _rewardbench2(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    """All right answers share rank 1 and all wrong ones the rank after them, so ties stay ties."""
    prompt = read_prompt(row.get("prompt"))
    right, wrong = (
        tuple(read_completion(item, prompt) for item in row.get(side).items())
        for side in ("chosen", "rejected")
    )
    if not right or not wrong:
        raise BadRowError(
            "too few answers",
            "rejected" if right else "chosen",
            expected="one answer or more on each side",
            found="none",
        )
    return (
        Ranking(
            prompt=prompt,
            completions=right + wrong,
            ranks=(1.0,) * len(right) + (1.0 + len(right),) * len(wrong),
            category=optional_name(row, "subset"),
            origin=origin,
        ),
    )


BENCHMARK_FORMATS = (
    RowFormat(
        name="rewardbench",
        title="RewardBench",
        schema={
            "prompt": TEXT_OR_MESSAGES,
            "chosen": TEXT_OR_MESSAGES,
            "rejected": TEXT_OR_MESSAGES,
            "chosen_model": TEXT,
            "subset": TEXT,
        },
        parse=_rewardbench,
        produces="comparison; `category` is the subset",
    ),
    RowFormat(
        name="rewardbench2",
        title="RewardBench 2",
        schema={"prompt": TEXT_OR_MESSAGES, "chosen": TEXTS, "rejected": TEXTS},
        optional_fields=frozenset(["subset"]),
        parse=_rewardbench2,
        produces="ranking in which all right answers share rank 1; `category` is the subset",
    ),
)
