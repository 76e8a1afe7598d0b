"""What one run reports, measured the same way on both sides; needs nothing but torch."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

MIB = 1024 * 1024
"""Bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One run in one process.

    Example: ``Report(who="plaudit 0.1.0", setting="float32", first_loss=10.37, seconds=(1.2, 0.9), …)``
    """

    who: str
    """Library and version."""
    setting: str
    """How it was run."""
    versions: dict[str, str]
    """The libraries under it."""
    batch: int
    """Rows of a step; of rankings, the comparisons in them."""
    first_loss: float
    """The loss of the first step, before anything moved."""
    seconds: tuple[float, ...]
    """Each step, its batch included: from the end of the one before."""
    cpu_seconds: tuple[float, ...]
    """The processor time of each step, over all threads."""
    base_mib: float
    """Process (not on a GPU), weights and optimiser: what was taken before the first step, plus its state."""
    peak_mib: float
    """The most that was resident during the steps."""
    flops: float = 0.0
    """Floating-point operations that a step needs, the median of the steps; 0 where it was not counted."""
    matmul_flops: float = 0.0
    """Floating-point operations a second of a large product in the same process and dtype; 0 likewise."""
    tokens: int = 0
    """Tokens of all steps, each prompt once."""

    @property
    def above_base_mib(self) -> float:
        """What training itself takes, gradients included."""
        return self.peak_mib - self.base_mib

    def line(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self))


def read_all(weights: Iterable[Any]) -> None:
    """Before the watch starts: weights in a mapped file are not resident until someone has read them."""
    for weight in weights:
        weight.sum()


def report_from(output: str) -> Report:
    """The report in what a run printed: its last line."""
    lines = output.strip().splitlines()
    fields = json.loads(lines[-1])
    return Report(**{**fields, **{name: tuple(fields[name]) for name in ("seconds", "cpu_seconds")}})


@dataclass
class Watch:
    """Times steps and follows the memory of this process, or its share of a GPU.

    Example: ``watch = Watch(); watch.start(); ...; watch.step_done()``
    """

    device: str = "cpu"
    """Where steps are computed, and whose memory is followed."""
    seconds: list[float] = field(default_factory=list)
    """Of the steps so far."""
    cpu_seconds: list[float] = field(default_factory=list)
    """Likewise."""
    resident_mib: float = 0.0
    """What was resident at the start."""

    def start(self) -> None:
        """Before the first step: from here on, the peak counts."""
        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats()
            self.resident_mib = torch.cuda.memory_allocated() / MIB
        else:
            Path("/proc/self/clear_refs").write_text("5")  # Sets the peak back to what is resident now.
            self.resident_mib = _status("VmRSS")
        self._mark()

    def step_done(self) -> None:
        """After each step, once a GPU has done all of it."""
        if self._on_gpu:
            torch.cuda.synchronize()
        now, used = time.perf_counter(), _processor_seconds()
        self.seconds.append(round(now - self._began, 4))
        self.cpu_seconds.append(round(used - self._used, 4))
        self._mark()

    @property
    def peak_mib(self) -> float:
        """The most that was resident since the start."""
        return torch.cuda.max_memory_allocated() / MIB if self._on_gpu else _status("VmHWM")

    @property
    def _on_gpu(self) -> bool:
        return self.device != "cpu"

    def _mark(self) -> None:
        self._began, self._used = time.perf_counter(), _processor_seconds()


def _processor_seconds() -> float:
    used = os.times()
    return used.user + used.system


def _status(name: str) -> float:
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    value = next(line for line in text.splitlines() if line.startswith(f"{name}:"))
    return int(value.split()[1]) / 1024
