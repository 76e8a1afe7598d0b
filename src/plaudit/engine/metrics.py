"""What a step reports: sums with their weights, arithmetic per second, and memory.

A mean of means is wrong as soon as two micro-batches differ in size. So nothing is divided until
everything has been added: each micro-batch and each rank hands on a total and its weight, and the quotient is
taken once. What each name means is in `metrics.yaml`.

A total may be a number on the device. It stays there until the step ends, when `read_scalars` fetches all
of them at once: each look at a device's number makes the host wait for everything queued before it.

Model-FLOP utilisation (MFU) = arithmetic needed ÷ seconds ÷ measured rate. Work that an implementation
adds (recomputing activations, padding, logits of prompt tokens) counts as time and not as arithmetic, so a
wasteful step shows a low figure instead of a flattering one.
"""

import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, cast

import torch
from torch import Tensor

from plaudit.engine.step_report import Number
from plaudit.tokens.batch import Example

Scalar = Number | Tensor
"""A figure that has been read, or a tensor of one number that is still on the device."""

Reduction = Literal["mean", "sum", "max"]
"""How parts of one metric are merged: weighted mean, sum or maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One piece of a figure: a total and what it has to be divided by in the end.

    Example: ``Metric(name="loss", total=61.5, weight=24.0)`` is a loss of 2.5625 over 24 tokens.
    """

    name: str
    """What it is called in the report, such as ``held_out/loss``."""
    total: Scalar
    """The sum, the count or the largest value so far."""
    weight: Scalar = 1.0
    """What the sum is over: tokens, rows; for counts and largest values it has no meaning."""
    how: Reduction = "mean"
    """How it is joined with another piece of the same name."""

    def __post_init__(self) -> None:
        # A weight on the device is checked when it is read: comparing it here would wait for the device.
        if not isinstance(self.weight, Tensor) and not self.weight >= 0:
            raise ValueError(f"metric {self.name!r} has the weight {self.weight}; a weight is 0 or more")

    @property
    def value(self) -> Number:
        """The figure itself; a mean over nothing is not a number.

        >>> Metric(name="loss", total=6.0, weight=4.0).value
        1.5
        """
        if isinstance(self.total, Tensor) or isinstance(self.weight, Tensor):
            raise ValueError(f"metric {self.name!r} is still on the device: merge_metrics reads it")
        # A mean over nothing is NaN and not 0: a 0 would look like a perfect loss in a plot.
        if self.how != "mean":
            return self.total
        return self.total / self.weight if self.weight else math.nan


def mean_metric(name: str, total: Scalar, weight: Scalar) -> Metric:
    """A figure that is a sum over tokens or rows, divided by how many there are."""
    return Metric(name=name, total=total, weight=weight)


def sum_metric(name: str, total: Scalar) -> Metric:
    """A figure that adds up: tokens, rows."""
    return Metric(name=name, total=total, how="sum")


def max_metric(name: str, value: Scalar) -> Metric:
    """A figure of which the largest counts: the longest answer."""
    return Metric(name=name, total=value, how="max")


def length_metrics(examples: Sequence[Example]) -> tuple[Metric, Metric]:
    """The mean and the largest number of tokens of a completion; of no example they have no weight."""
    lengths = [len(completion.ids) for example in examples for completion in example.completions]
    return (
        mean_metric("length_mean", float(sum(lengths)), len(lengths)),
        max_metric("length_max", max(lengths, default=0)),
    )


def read_scalars(scalars: Sequence[Scalar]) -> list[Number]:
    """The same figures as plain numbers: those on the device are stacked and fetched in one transfer.

    >>> read_scalars([torch.tensor(1.5), 2, torch.tensor(3)])
    [1.5, 2, 3.0]
    """
    on_device = [scalar.detach() for scalar in scalars if isinstance(scalar, Tensor)]
    # float64 holds every float32 and every count exactly, so nothing is rounded on the way.
    fetched = iter(torch.stack([scalar.double() for scalar in on_device]).tolist() if on_device else ())
    return [next(fetched) if isinstance(scalar, Tensor) else scalar for scalar in scalars]


def read_metrics(metrics: Iterable[Metric], *others: Scalar) -> tuple[list[Metric], list[Number]]:
    """Metrics whose figures are plain numbers, and whatever else is to be read in the same transfer."""
    unread = list(metrics)
    scalars = [scalar for metric in unread for scalar in (metric.total, metric.weight)]
    numbers = read_scalars([*scalars, *others])
    pairs = zip(numbers[: len(scalars) : 2], numbers[1 : len(scalars) : 2], strict=True)
    read = [
        replace(metric, total=total, weight=weight)
        for metric, (total, weight) in zip(unread, pairs, strict=True)
    ]
    return read, numbers[len(scalars) :]


def merge_metrics(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """The pieces of micro-batches or ranks, one for each name, in the order in which names first appear.
    The sums are rounded once, at the end (`math.fsum`), so the order of the pieces does not matter."""
    parts_by_name: dict[str, list[Metric]] = {}
    for metric in read_metrics(metrics)[0]:
        parts_by_name.setdefault(metric.name, []).append(metric)
    return tuple(_merge_parts(parts) for parts in parts_by_name.values())


def values_of(metrics: Iterable[Metric]) -> dict[str, Number]:
    """The figures by name, once everything has been added."""
    return {metric.name: metric.value for metric in merge_metrics(metrics)}


def perplexity(loss: Number) -> float:
    """exp(loss) of a mean loss per token in nats; infinite where a float cannot hold it."""
    # e^709.78 is the largest float64; beyond it `math.exp` raises where a report wants infinity.
    return math.exp(loss) if loss < 709 or math.isnan(loss) else math.inf


def _merge_parts(parts: list[Metric]) -> Metric:
    first = parts[0]
    if any(piece.how != first.how for piece in parts):
        kinds = sorted({piece.how for piece in parts})
        raise ValueError(f"metric {first.name!r} is joined in two ways, {' and '.join(kinds)}; choose one")
    totals = [cast("Number", piece.total) for piece in parts]
    weights = [cast("Number", piece.weight) for piece in parts]
    # The built-in max keeps or drops a NaN depending on where it stands.
    most = math.nan if any(map(math.isnan, totals)) else max(totals)
    total = most if first.how == "max" else _exact_sum(totals)
    return Metric(name=first.name, total=total, weight=_exact_sum(weights), how=first.how)


def _exact_sum(numbers: list[Number]) -> Number:
    # fsum refuses +inf and -inf together, where a report should say "not a number".
    exact = math.fsum(numbers) if all(map(math.isfinite, numbers)) else sum(numbers)
    # fsum answers in floats; counts stay whole.
    return int(exact) if all(isinstance(number, int) for number in numbers) else exact


_MIB = 1024 * 1024


def training_flops(
    parameters_body: int, parameters_head: int, tokens: int, trained_tokens: int, *, frozen: bool = False
) -> float:
    """The floating-point operations of the matrix products of one training step.

    6 · body · tokens + 6 · head · trained tokens: a matrix parameter takes part in one multiplication and
    one addition a token, once forward and twice backward (for the inputs and for the weights). The vocabulary
    head works on trained tokens only. Embedding look-ups, norms and biases are left out; attention's own
    products, which have no parameters, are `attention_flops`. With LoRA the weights are ``frozen`` and need
    no gradient: 4 instead of 6, the small adapters not counted.
    (Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1.)
    """
    return (4.0 if frozen else 6.0) * (parameters_body * tokens + parameters_head * trained_tokens)


def attention_flops(layers: int, width: int, lengths: Iterable[int]) -> float:
    """The operations of causal attention in one training step, over sequences of these lengths.
    6 · layers · width · Σ length²: queries × keys and weights × values, 2 · width operations a pair each, for
    the half of the pairs that a causal mask leaves, three times (forward, and backward for both factors).
    ``width`` is query heads × head size.

    >>> attention_flops(2, 8, [10, 5])
    12000.0
    """
    return 6.0 * layers * width * sum(length * length for length in lengths)


@cache
def matmul_rate(device: str, dtype: torch.dtype) -> float:
    """The floating-point operations a second of a large matrix product here, now; measured once a process.
    The best of the rounds that fit in 0.2 s: another program's share of the machine is not its limit."""
    # A GPU gets eight products in a row, so that launching them does not count as their time.
    size, products = (1024, 1) if torch.device(device).type == "cpu" else (4096, 8)
    # A generator of its own: a run's random numbers do not depend on whether its speed is shown.
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator).to(device, dtype) for _ in range(2))
    out = torch.empty_like(left)
    _matmul_seconds(left, right, out, products)  # The first round pays for threads, caches and kernel choice.
    fastest, until = float("inf"), time.perf_counter() + 0.2
    while time.perf_counter() < until:
        # The minimum and not the mean: noise from other programs only ever adds.
        fastest = min(fastest, _matmul_seconds(left, right, out, products))
    return 2.0 * size**3 * products / fastest


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """How much memory this process holds, in MiB."""

    now: float | None
    """Resident now; None where the system does not say (only Linux does)."""
    peak: float
    device_peak: float | None
    """The most that was allocated on the GPU at once; None on a CPU."""

    @property
    def reported(self) -> float:
        """What the metric ``measure_memory`` shows: the GPU's peak where there is one, else the process's.

        >>> MemoryUse(now=812.0, peak=1204.5, device_peak=None).reported
        1204.5
        """
        return self.peak if self.device_peak is None else self.device_peak


def measure_memory(device: str = "cpu") -> MemoryUse:
    on_gpu = torch.device(device).type == "cuda"
    device_peak = torch.cuda.max_memory_allocated(device) / _MIB if on_gpu else None
    now, peak = _resident_mib()
    return MemoryUse(now=now, peak=peak, device_peak=device_peak)


def _matmul_seconds(left: Tensor, right: Tensor, out: Tensor, products: int) -> float:
    _synchronize(left.device)
    started = time.perf_counter()
    for _ in range(products):
        torch.mm(left, right, out=out)
    _synchronize(left.device)
    return time.perf_counter() - started


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _resident_mib() -> tuple[float | None, float]:
    status = Path("/proc/self/status")
    if status.exists():
        # Not getrusage: there a process starts with the peak of the one that launched it.
        lines = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
        now, peak = (int(lines[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
        return now, peak
    import resource

    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return None, largest / (_MIB if sys.platform == "darwin" else 1024)
