"""How much arithmetic a step needs, how fast this machine does arithmetic, and how much memory is held.

Model-FLOP utilisation (MFU) = arithmetic needed ÷ seconds ÷ measured rate. Work that an implementation
adds (recomputing activations, padding, logits of prompt tokens) counts as time and not as arithmetic, so a
wasteful step shows a low figure instead of a flattering one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

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

    >>> training_flops(1000, 500, tokens=10, trained_tokens=4)
    72000.0
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

    The best of the rounds that fit in 0.2 s: another program's share of the machine is not its limit.
    """
    size, products = (1024, 1) if torch.device(device).type == "cpu" else (4096, 8)
    # A generator of its own: a run's random numbers do not depend on whether its speed is shown.
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator).to(device, dtype) for _ in range(2))
    out = torch.empty_like(left)
    _matmul_seconds(left, right, out, products)  # The first round pays for threads, caches and kernel choice.
    fastest, until = float("inf"), time.perf_counter() + 0.2
    while time.perf_counter() < until:
        fastest = min(fastest, _matmul_seconds(left, right, out, products))
    return 2.0 * size**3 * products / fastest


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """How much memory this process holds, in MiB.

    Example: ``MemoryUse(now=812.0, peak=1204.5, device_peak=None)``
    """

    now: float | None
    """Resident now; None where the system does not say (only Linux does)."""
    peak: float
    """The most that was resident at once."""
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
    """The memory of this process, and of its share of the device."""
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
