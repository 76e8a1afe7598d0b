"""The machine that a run is planned for, and byte counts as people read and write them."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from plaudit.errors import UserError
from plaudit.models.load import device_of

UNITS = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", start=1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", start=1)},
}
DeviceKind = Literal["cpu", "cuda"]
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    title: str
    memory: int
    """Bytes that a process finds there, less than the sheet's."""
    rate: float
    """Operations a second in products of bfloat16, without sparsity."""
    bandwidth: float
    """Bytes a second that its memory gives."""
    link: float
    """Bytes a second that it is sent by others of its machine (NVLink, else PCIe)."""


def _gpu(title: str, gib: float, teraflops: float, terabytes: float, link: float) -> Gpu:
    rates = {"rate": teraflops * 1e12, "bandwidth": terabytes * 1e12, "link": link * 1e9}
    return Gpu(title=title, memory=int(gib * 1024**3), **rates)


GPUS = {
    "a100-40": _gpu("A100 40 GB", 39.4, 312, 1.56, 300),
    "a100-80": _gpu("A100 80 GB", 79.2, 312, 2.04, 300),
    "b200": _gpu("B200", 178, 2250, 8.0, 900),
    "h100": _gpu("H100", 79.2, 989, 3.35, 450),
    "h200": _gpu("H200", 139.8, 989, 4.8, 450),
    "l40s": _gpu("L40S", 44.4, 362, 0.86, 32),
    "rtx4090": _gpu("RTX 4090", 23.5, 165, 1.01, 32),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One process's share of a machine."""

    memory: int
    """Bytes that a process may use: those of its GPU, or of the machine."""
    device_kind: DeviceKind
    ranks: int = 1
    gpu: Gpu | None = None
    disk_rate: float = 1e9
    """Bytes a second that a process reads or writes, with their hashes (--disk-rate)."""

    def __post_init__(self) -> None:
        if self.ranks < 1:
            raise UserError(f"--ranks is 1 or more, not {self.ranks}")

    @property
    def device(self) -> torch.device:
        """The device that torch is asked about; without a GPU that of no GPU in particular."""
        return torch.device(self.device_kind)


def parse_bytes(text: str, setting: str = "--machine-memory") -> int:
    """A number of bytes as people write it.

    >>> parse_bytes("24GiB") == 24 * 1024**3, parse_bytes("80 GB") == 80 * 1000**3
    (True, True)
    """
    match = re.fullmatch(r"\s*(-?[\d.]+)\s*([A-Za-z]*)\s*", text)
    units = {unit.lower(): size for unit, size in UNITS.items()}
    if match is None or match[2].lower() not in units:
        raise UserError(f"{setting} {text}: write a number and one of {', '.join(UNITS)}, as in 24GiB")
    try:
        size = float(match[1]) * units[match[2].lower()]
    except ValueError:
        raise UserError(f"{setting} {text}: {match[1]} is no number") from None
    if not 1 <= size < math.inf:
        raise UserError(f"{setting} {text}: a machine has more than no memory")
    return int(size)


def format_bytes(size: int | float) -> str:
    """Bytes as people read them.

    >>> format_bytes(1536), format_bytes(24 * 1024**3)
    ('1.50 KiB', '24.0 GiB')
    """
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= UNITS[unit]:
            value = size / UNITS[unit]
            return f"{value:.{max(0, 2 - int(math.log10(value)))}f} {unit}"
    return f"{size:.0f} B"


def this_machine(
    device: str, *, device_kind: DeviceKind | None, memory: int | None, ranks: int, gpu: str | None = None
) -> Machine:
    """This process's machine, with what the user says of another one in its place."""
    if gpu is not None:
        if device_kind == "cpu":
            raise UserError(f"--gpu {gpu} --on cpu: say one of them")
        named = GPUS[gpu]
        return Machine(memory=memory or named.memory, device_kind="cuda", ranks=ranks, gpu=named)
    device_here = device_of(device)
    kind: DeviceKind = device_kind or ("cuda" if device_here.type == "cuda" else "cpu")
    if memory is None and kind != device_here.type:
        raise UserError(f"--on {kind}: this process computes on {device_here.type}; say --machine-memory too")
    return Machine(memory=memory or _memory_of(device_here), device_kind=kind, ranks=ranks)


def _memory_of(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [path.read_text(encoding="utf-8").strip() for path in _CGROUP_LIMITS if path.exists()]
    return min([whole, *(int(limit) for limit in limits if limit.isdigit())])
