"""Effective training time: the share of a run's time that its weights are the result of.

A failure stops the run. It begins again from the last checkpoint, restarts may fail too, and what was done
since is done again; where answers were written down before they were used, it is learnt again and not drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

LLAMA_GPUS, LLAMA_DAYS, LLAMA_FAILURES = 16384, 54, 419
"""Published (Llama 3, arXiv 2407.21783): unexpected interruptions of a run that was over 90 % effective."""
GPU_HOURS = LLAMA_DAYS * 24 * LLAMA_GPUS / LLAMA_FAILURES
"""Of one GPU between two failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """How often a run fails, and what that costs it.

    Example: ``FaultPlan(mean_seconds=36000, stall=30, restart=600, interval=1200)``
    """

    mean_seconds: float
    """Between two failures of the run; infinite where nothing fails."""
    interval: float
    """Seconds of work between two checkpoints."""
    stall: float
    """Seconds in which work stands still for a checkpoint."""
    restart: float
    """Seconds from a failure to the first step."""
    repeated: float = 1.0
    """Seconds that a lost second takes again: 1, or learning's share of it where answers are on disk."""


def run_hours(gpus: int, gpu_hours: float = GPU_HOURS) -> float:
    """Hours between two failures of a run on so many GPUs."""
    return gpu_hours / gpus if gpus else math.inf


def young(plan: FaultPlan) -> float:
    """The best interval to first order: √(2 · stall · mean)."""
    return math.sqrt(2 * plan.stall * plan.mean_seconds)


def daly(plan: FaultPlan) -> float:
    """The best interval to higher order (Daly 2006); the mean where a checkpoint takes twice as long."""
    ratio = plan.stall / (2 * plan.mean_seconds)
    if ratio >= 1:
        return plan.mean_seconds
    return young(plan) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - plan.stall


def expected_share(plan: FaultPlan) -> float:
    """Daly's complete model: work ÷ time, all lost work done again at its own speed."""
    if math.isinf(plan.mean_seconds):
        return plan.interval / (plan.interval + plan.stall)
    mean = plan.mean_seconds
    attempt = mean * math.exp(plan.restart / mean) * math.expm1((plan.interval + plan.stall) / mean)
    return plan.interval / attempt


def simulated_share(plan: FaultPlan, days: float, seed: int) -> float:
    """Work ÷ time of one run with failures at random moments, to the checkpoint behind so many days."""
    generator = np.random.default_rng(seed)
    clock = work = lost = 0.0
    failure = _next_failure(generator, plan)
    while clock < days * 86400:
        # What was lost goes at another pace, then follows what is new, then the checkpoint.
        seconds = lost * plan.repeated + (plan.interval - lost) + plan.stall
        if clock + seconds <= failure:
            clock, work, lost = clock + seconds, work + plan.interval, 0.0
            continue
        lost = max(lost, _progress(failure - clock, lost, plan))
        clock = failure + plan.restart
        failure += _next_failure(generator, plan)
        while failure < clock:
            clock = failure + plan.restart
            failure += _next_failure(generator, plan)
    return work / clock


def _progress(seconds: float, lost: float, plan: FaultPlan) -> float:
    """Work since the checkpoint, so many seconds behind it."""
    again = lost * plan.repeated
    if seconds < again:
        return seconds / plan.repeated
    return min(plan.interval, lost + seconds - again)


def _next_failure(generator: np.random.Generator, plan: FaultPlan) -> float:
    return math.inf if math.isinf(plan.mean_seconds) else float(generator.exponential(plan.mean_seconds))


def mean_share(plan: FaultPlan, days: float = 54, runs: int = 10) -> float:
    """Of several runs."""
    return float(np.mean([simulated_share(plan, days, seed) for seed in range(runs)]))
