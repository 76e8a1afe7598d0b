"""Benchmarks of reward models: RewardBench (https://arxiv.org/abs/2403.13787) and its second edition
(https://arxiv.org/abs/2506.01937).
"""

from __future__ import annotations

from plaudit.records.feedback import Comparison, Ranking, Record
from plaudit.sources.conversation import answer, differ, question
from plaudit.sources.layouts.layout import SAID, TEXT, TEXTS, Layout, ReadOptions
from plaudit.sources.node import Node, optional_name
from plaudit.sources.problems import BadRowError


def _rewardbench(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    prompt = question(row.get("prompt"))
    chosen, rejected = (answer(row.get(side), prompt) for side in ("chosen", "rejected"))
    differ(chosen, rejected, "chosen, rejected")
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
    prompt = question(row.get("prompt"))
    right, wrong = (
        tuple(answer(item, prompt) for item in row.get(side).items()) for side in ("chosen", "rejected")
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


BENCHMARK_LAYOUTS = (
    Layout(
        name="rewardbench",
        title="RewardBench",
        schema={"prompt": SAID, "chosen": SAID, "rejected": SAID, "chosen_model": TEXT, "subset": TEXT},
        parse=_rewardbench,
        gives="comparison; `category` is the subset",
    ),
    Layout(
        name="rewardbench2",
        title="RewardBench 2",
        schema={"prompt": SAID, "chosen": TEXTS, "rejected": TEXTS},
        also=frozenset(["subset"]),
        parse=_rewardbench2,
        gives="ranking in which all right answers share rank 1; `category` is the subset",
    ),
)
"""RewardBench, old and new."""
