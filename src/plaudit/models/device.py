"""Which device a user means."""

from __future__ import annotations

import torch

from plaudit.errors import UserError


def device_of(name: str, *, process: int = 0) -> torch.device:
    """auto takes a GPU where there is one; auto and cuda without a number mean the GPU of this process.

    >>> device_of("cpu")
    device(type='cpu')
    """
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return torch.device("cuda", process) if found else torch.device("cpu")
    try:
        wanted = torch.device(name)
    except RuntimeError as error:
        raise _unknown(name) from error
    if wanted.type not in ("cpu", "cuda"):
        raise _unknown(name)
    if wanted.type == "cpu":
        return torch.device("cpu")
    if not found:
        raise UserError(f"device {name} was asked for, but torch sees no CUDA device: use --device cpu")
    place = torch.device("cuda", process if wanted.index is None else wanted.index)
    if place.index >= found:
        raise UserError(f"there is no {place}: torch sees {found} GPUs. Start at most one process for each")
    return place


def _unknown(name: str) -> UserError:
    return UserError(f"device {name!r}: use auto, cpu, cuda, or one of several as cuda:1")
