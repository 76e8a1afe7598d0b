"""The machine that a run is planned for: how much memory it has, and numbers of bytes in words."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from plaudit.errors import UserError
from plaudit.models.device import device_of

UNITS = {
    "B": 1,
    **{f"{letter}B": 1000**power for power, letter in enumerate("KMGT", start=1)},
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", start=1)},
}
"""What a number of bytes may be written in."""
Where = Literal["cpu", "cuda"]
"""What a run computes on."""
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One process's share of a machine.

    Example: ``Machine(memory=24 * 2**30, where="cuda", ranks=8)``
    """

    memory: int
    """Bytes that a process may use: those of its GPU, or of the machine."""
    where: Where
    """What it computes on."""
    ranks: int = 1
    """How many processes share the work."""

    def __post_init__(self) -> None:
        """Refuse a run by nobody."""
        if self.ranks < 1:
            raise UserError(f"--ranks is 1 or more, not {self.ranks}")

    @property
    def device(self) -> torch.device:
        """The device that torch is asked about; without a GPU that of no GPU in particular."""
        return torch.device(self.where)


def bytes_in(words: str, setting: str = "--machine-memory") -> int:
    """A number of bytes as people write it.

    >>> bytes_in("24GiB") == 24 * 1024**3, bytes_in("80 GB") == 80 * 1000**3
    (True, True)
    """
    found = re.fullmatch(r"\s*(-?[\d.]+)\s*([A-Za-z]*)\s*", words)
    units = {unit.lower(): size for unit, size in UNITS.items()}
    if found is None or found[2].lower() not in units:
        raise UserError(f"{setting} {words}: write a number and one of {', '.join(UNITS)}, as in 24GiB")
    try:
        size = float(found[1]) * units[found[2].lower()]
    except ValueError:
        raise UserError(f"{setting} {words}: {found[1]} is no number") from None
    if not 1 <= size < math.inf:
        raise UserError(f"{setting} {words}: a machine has more than no memory")
    return int(size)


def in_words(size: int | float) -> str:
    """Bytes for eyes.

    >>> in_words(1536), in_words(24 * 1024**3)
    ('1.50 KiB', '24.0 GiB')
    """
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size >= UNITS[unit]:
            value = size / UNITS[unit]
            return f"{value:.{max(0, 2 - int(math.log10(value)))}f} {unit}"
    return f"{size:.0f} B"


def this_machine(device: str, *, where: Where | None, memory: int | None, ranks: int) -> Machine:
    """The machine of this process, but for what is said of another one."""
    own = device_of(device)
    kind: Where = where or ("cuda" if own.type == "cuda" else "cpu")
    if memory is None and kind != own.type:
        raise UserError(f"--on {kind}: this process computes on {own.type}; say --machine-memory too")
    return Machine(memory=memory or _memory_of(own), where=kind, ranks=ranks)


def _memory_of(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[1]
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [path.read_text(encoding="utf-8").strip() for path in _LIMITS if path.exists()]
    return min([whole, *(int(limit) for limit in limits if limit.isdigit())])
