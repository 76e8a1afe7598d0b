"""How long a pipeline still takes, from earlier runs of its stages or from their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plaudit.pipeline.stage import Stage

PRIOR = 60.0
"""Seconds for which a weight is believed to be seconds, beside what was measured."""


def expected(
    stages: Sequence[Stage], before: Mapping[str, int | float], now: Mapping[str, int | float]
) -> dict[str, float]:
    """Seconds of each stage: as measured before, or by its weight at the pace of those that ended ``now``.

    What little was seen at first, with all that is loaded once, says little of the pace.
    """
    done = [stage for stage in stages if stage.name in now]
    took, weight = sum(now[stage.name] for stage in done), sum(stage.weight for stage in done)
    pace = (took + PRIOR) / (weight + PRIOR)
    return {stage.name: float(before.get(stage.name) or pace * stage.weight) for stage in stages}


def seconds_left(
    stages: Sequence[Stage],
    done: set[str],
    running: Mapping[str, int | float],
    expected_of: Mapping[str, int | float],
    jobs: int,
) -> float:
    """Until the last of the stages ends, when each takes what is expected; ``running`` has elapsed seconds.

    Each stage takes the lane that is free first, as soon as those that it needs have ended.
    """
    ends = dict.fromkeys(done, 0.0)
    lanes = [0.0] * jobs
    for place, (name, elapsed) in enumerate(running.items()):
        ends[name] = max(0.0, expected_of[name] - elapsed)
        lanes[place % jobs] = ends[name]
    for stage in stages:
        if stage.name in ends:
            continue
        lane = min(range(jobs), key=lambda place: lanes[place])
        begins = max([lanes[lane], *(ends.get(name, 0.0) for name in stage.needs)])
        lanes[lane] = ends[stage.name] = begins + expected_of[stage.name]
    return max(ends.values(), default=0.0)
