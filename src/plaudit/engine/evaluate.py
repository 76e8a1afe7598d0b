"""Evaluate an objective on held-out rows, as metrics of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from plaudit.engine.distributed import Ranks
from plaudit.engine.loop import InterruptCheck
from plaudit.engine.metrics import Metric
from plaudit.engine.step import ObjectiveResult, merge_over_ranks
from plaudit.tokens.microbatch import MicrobatchT


def held_out_evaluator(
    objective: Callable[[MicrobatchT], ObjectiveResult],
    microbatches: Sequence[MicrobatchT],
    ranks: Ranks,
    renamed: Mapping[str, str],
) -> Callable[[InterruptCheck], tuple[Metric, ...]]:
    """The objective's figures over all micro-batches and ranks; ``renamed`` says which, and their names."""

    def evaluate(check_interrupt: InterruptCheck) -> tuple[Metric, ...]:
        metrics: list[Metric] = []
        with torch.no_grad():
            for microbatch in microbatches:
                check_interrupt()
                metrics += objective(microbatch).metrics
        merged = merge_over_ranks(metrics, ranks)
        return tuple(
            replace(metric, name=renamed[metric.name]) for metric in merged if metric.name in renamed
        )

    return evaluate
