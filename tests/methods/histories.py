"""Histories of runs whose figures are made up."""

from collections.abc import Sequence

from plaudit.engine.step_report import StepReport

LONG = 24


def history(steps: int | None = None, /, **series: Sequence[float]) -> list[StepReport]:
    figures = {name.replace("held_", "held_out/"): values for name, values in series.items()}
    length = max((len(values) for values in figures.values()), default=0)
    return [
        StepReport(
            step=n + 1,
            steps=steps or length,
            epoch=0.1,
            values={name: values[n] for name, values in figures.items() if n < len(values)},
            timing={},
        )
        for n in range(length)
    ]


def steadily(first: float, last: float) -> list[float]:
    return [first + (last - first) * n / (LONG - 1) for n in range(LONG)]
