"""What one run reports, measured the same way on both sides; needs nothing but torch."""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One thing that was measured, as a line of JSON.

    Example: ``Figure(part="train", name="1.5b, sft, MFU", value=0.42, unit="of 1").line()``
    """

    part: str
    """The part of the benchmark that it is of."""
    name: str
    """Of what."""
    value: float | str | dict[str, float]
    """A number; several by name; or in words why there is none."""
    unit: str = ""
    """What the number counts."""

    def line(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self))


def now(device: str) -> float:
    """The time, once the device has done what it was given."""
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


def median_seconds(call: Callable[[], object], device: str, seconds: float) -> float:
    """The median time of a call that is repeated for some seconds; the first time does not count."""
    call()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while not times or (len(times) < 100 and time.perf_counter() < until):
        started = now(device)
        call()
        times.append(now(device) - started)
    return statistics.median(times)


@dataclass(slots=True)
class Synchronisations:
    """Counts how often the host waits for the GPU, by line; of a CPU there is nothing to count.

    Example: ``with Synchronisations() as waits: step(); waits.by_line``
    """

    by_line: Counter[str] = field(default_factory=Counter[str])
    """File and line, and how often."""
    _caught: Any = None
    _warnings: list[warnings.WarningMessage] = field(default_factory=list[warnings.WarningMessage])

    def __enter__(self) -> Synchronisations:
        """Let torch warn of each."""
        self._caught = warnings.catch_warnings(record=True)
        self._warnings = self._caught.__enter__()
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("warn")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Count what was warned of."""
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("default")
        self._caught.__exit__(kind, error, trace)
        for warning in self._warnings:
            if "synchronizing" in str(warning.message):
                self.by_line[f"{Path(warning.filename).name}:{warning.lineno}"] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """What ran while something was profiled.

    Example: ``profiled(lambda: run.step(9), "cuda").launches``
    """

    launches: int
    """Kernels of a GPU, operations of a CPU."""
    busy: float
    """Milliseconds of all of them."""
    milliseconds: dict[str, float]
    """Of those that took longest, by name."""
    cudnn_attentions: int
    """Calls of cuDNN's attention, which makes a plan for each new length."""


def profiled(call: Callable[[], object], device: str) -> Kernels:
    """Which kernels a call runs."""
    activities = {ProfilerActivity.CPU, ProfilerActivity.CPU if device == "cpu" else ProfilerActivity.CUDA}
    # Without `acc_events` torch 2.11 warns that it forgets what was before: there was nothing.
    with profile(activities=activities, acc_events=True) as profiler:
        call()
        now(device)
    averages: Any = profiler.key_averages()
    where, attribute = (
        ("CPU", "self_cpu_time_total") if device == "cpu" else ("CUDA", "self_device_time_total")
    )
    events = [event for event in averages if event.device_type.name == where]
    milliseconds = Counter[str]()
    for event in events:
        milliseconds[short_name(event.key)] += getattr(event, attribute) / 1e3
    return Kernels(
        launches=sum(event.count for event in events),
        busy=milliseconds.total(),
        milliseconds={name: round(taken, 3) for name, taken in milliseconds.most_common(8)},
        cudnn_attentions=sum(event.count for event in averages if "cudnn_attention" in event.key),
    )


def short_name(kernel: str) -> str:
    """A kernel's name without its return type, namespaces and arguments, but with what it was made for.

    >>> short_name("void at::native::elementwise_kernel<4, at::native::direct_copy_kernel_cuda(int)::f>(int)")
    'elementwise_kernel<direct_copy_kernel_cuda>'
    >>> short_name("nvjet_sm90_tst_256x144_64x4_1x2_h_bz_coopA_TNT")
    'nvjet_sm90_tst_256x144_64x4_1x2_h_bz_coopA_TNT'
    """
    if not kernel.startswith("void "):
        return kernel[:60]
    whole, _, made_for = kernel.removeprefix("void ").replace("(anonymous namespace)::", "").partition("<")
    words = re.findall(r"\w+Functor\w*|\w+_kernel\w*", made_for)
    name = whole.partition("(")[0].rpartition("::")[2]
    return f"{name.strip()}<{words[0]}>" if words else name.strip()[:60]


def typical(values: Sequence[float]) -> float:
    """The median of the second half: what comes first pays for kernels and caches.

    >>> typical([9.0, 3.0, 1.0, 2.0])
    1.5
    """
    return statistics.median(values[len(values) // 2 :])


def compiled_graphs() -> int:
    """How many graphs the compiler of torch has made in this process."""
    module = sys.modules.get("torch._dynamo.utils")
    return 0 if module is None else int(module.counters["stats"]["unique_graphs"])


def stream_rate(device: str) -> float:
    """Bytes a second that are read and written where large tensors are multiplied in place."""
    numbers = torch.ones(2**22 if device == "cpu" else 2**30, device=device)
    return 2 * numbers.nbytes / median_seconds(lambda: numbers.mul_(1.0), device, 1.0)


def attention_seconds(device: str, length: int, masked: bool) -> float:
    """One call forward and backward, twelve heads on two of keys; masked: 200 tokens stand before it."""
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    keys = length + 200 * masked
    query, key = (
        torch.randn(1, heads, tokens, 64, device=device, dtype=dtype, requires_grad=True)
        for heads, tokens in ((12, length), (2, keys))
    )
    ones = torch.ones(length, keys, device=device, dtype=torch.bool)
    mask = ones.tril(keys - length) if masked else None
    started = now(device)
    output = functional.scaled_dot_product_attention(
        query, key, key, attn_mask=mask, is_causal=not masked, enable_gqa=True
    )
    output.sum().backward()
    return now(device) - started


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
        ended, used = now(self.device), _processor_seconds()
        self.seconds.append(round(ended - self._began, 4))
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
