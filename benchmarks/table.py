"""Reports as tables of Markdown, and the page that keeps the last of them."""

from __future__ import annotations

import platform
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from benchmarks.measure import Report

RESULTS = Path(__file__).with_name("RESULTS.md")
"""The page of the last results."""
HEAD = "# Results\n\nWritten by the commands that stand under each heading; see [README.md](README.md).\n"
"""How the page begins."""
AGREEMENT = 1e-4
"""First losses further apart than this are of different work: the timing does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """All runs of one side on one work folder.

    Example: ``Side(name="plaudit, float32", reports=(…, …), failure=None)``
    """

    name: str
    """What the table calls it."""
    reports: tuple[Report, ...]
    """One for each process."""
    failure: str | None = None
    """Why it did not run."""
    objection: str | None = None
    """Why it did other work, so that its timing does not count."""

    @property
    def seconds(self) -> float:
        """The median over all steps of all runs, without each run's first."""
        return statistics.median(s for report in self.reports for s in report.seconds[1:])

    @property
    def cpu_seconds(self) -> float:
        """The smallest processor time of a step: what is left when nothing else disturbs it."""
        return min(s for report in self.reports for s in report.cpu_seconds[1:])

    @property
    def above_base_mib(self) -> float:
        """The median over runs of what training takes above process, weights and optimiser."""
        return statistics.median(report.above_base_mib for report in self.reports)

    @property
    def first_loss(self) -> float:
        """The same in every run."""
        return self.reports[0].first_loss


COLUMNS = (
    "side",
    "s / step",
    "{unit} / s",
    "slower than ours",
    "CPU s / step",
    "MiB above base",
    "ours ÷ this",
    "of matmul rate",
    "first loss",
)
"""Of the table of a work folder."""


def side_by_side(
    sides: Sequence[Side], *, exact: int, unit: str = "rows", agreement: float = AGREEMENT
) -> str:
    """The table of one work folder: ours first, then the others against it.

    The first ``exact`` sides compute in float32 and have to agree on the first loss.
    """
    head = [column.format(unit=unit) for column in COLUMNS]
    rows: list[list[str]] = []
    for s, side in enumerate(sides):
        reason = _reason_against(side, sides[0], agreement if s < exact else None)
        cells = [reason, *[""] * (len(COLUMNS) - 2)] if reason else _cells(side, sides[0], s < exact)
        rows.append([side.name, *cells])
    return _markdown(head, rows)


def _reason_against(side: Side, ours: Side, agreement: float | None) -> str | None:
    """Why a side has no figures: it or ours did not run, or they did other work."""
    if side.failure is not None:
        return f"did not run: {side.failure}"
    if ours.failure is not None:
        return "nothing to compare with"
    if side.objection is not None:
        return f"does not count: {side.objection}"
    if agreement is not None and abs(side.first_loss - ours.first_loss) > agreement:
        return f"does not count: first loss {side.first_loss:.5f}, ours {ours.first_loss:.5f}"
    return None


def _cells(side: Side, ours: Side, exact: bool) -> list[str]:
    rated = ours if exact else side
    rate = max(report.matmul_flops for report in rated.reports)
    return [
        f"{side.seconds:.2f}",
        f"{side.reports[0].batch / side.seconds:.2f}",
        f"{side.seconds / ours.seconds:.2f} ×",
        f"{side.cpu_seconds:.2f}",
        f"{side.above_base_mib:.0f}",
        f"{ours.above_base_mib / side.above_base_mib:.2f}",
        f"{ours.reports[0].flops / side.seconds / rate:.0%}" if rate and ours.reports[0].flops else "",
        f"{side.first_loss:.5f}",
    ]


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of Markdown, numbers on the right.

    >>> print(markdown(["shape", "s"], [["mid", 1]]))
    | shape | s |
    | --- | ---: |
    | mid | 1 |
    """
    return _markdown(head, [[str(cell) for cell in row] for row in rows])


def machine(device: str = "cpu") -> str:
    """This machine and this day, in a line, with the GPU that was computed on."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    names = re.findall(r"^model name\s*: (.*)$", cpuinfo, re.M) or [platform.machine()]
    memory = re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(encoding="utf-8"), re.M)
    gigabytes = f", {int(memory[1]) / 1024**2:.0f} GiB" if memory else ""
    today = datetime.now(UTC).date().isoformat()
    gpu = "" if device == "cpu" else f"{torch.cuda.get_device_name(device)}, "
    return f"{today}: {gpu}{len(names)} cores of {names[0]}{gigabytes}, Python {platform.python_version()}"


def save_section(title: str, text: str, page: Path = RESULTS) -> None:
    """Put a section on the page in the place of the one with the same title, or at its end."""
    old = page.read_text(encoding="utf-8") if page.exists() else HEAD
    head, *sections = re.split(r"^(?=## )", old, flags=re.M)
    new = f"## {title}\n\n{text.strip()}\n"
    sections_now = [
        new if section.startswith(f"## {title}\n") else section.strip() + "\n" for section in sections
    ]
    sections_now += [] if new in sections_now else [new]
    page.write_text("\n".join([head.strip() + "\n", *sections_now]), encoding="utf-8")
