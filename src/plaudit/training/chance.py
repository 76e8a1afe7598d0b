"""The state of every random generator, so that a run that goes on draws what it would have drawn."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """The generators of one process at one moment.

    Example: ``Chance(torch_cpu=…, torch_gpu=None, numpy_words=…, numpy_facts=(624, 0, 0.0), python=…)``
    """

    torch_cpu: Tensor
    """torch's generator."""
    torch_gpu: Tensor | None
    """The GPU's, where there is one."""
    numpy_words: Tensor
    """numpy's global generator: its words."""
    numpy_facts: tuple[int, int, float]
    """Its position, and the Gaussian it may hold back."""
    python: tuple[int, ...]
    """Python's global generator, without its Gaussian (plaudit draws none)."""


def seed_everything(seed: int, rank: int) -> None:
    """Start every generator; ranks draw different numbers."""
    mixed = random.Random(f"{seed}/{rank}").getrandbits(32)
    torch.manual_seed(mixed)
    np.random.seed(mixed)
    random.seed(mixed)


def capture() -> Chance:
    """The generators as they are now."""
    _, words, position, has_gauss, gauss = np.random.get_state()
    return Chance(
        torch_cpu=torch.get_rng_state(),
        torch_gpu=torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
        numpy_words=torch.from_numpy(np.asarray(words).astype(np.int64)),
        numpy_facts=(int(position), int(has_gauss), float(gauss)),
        python=random.getstate()[1],
    )


def restore(chance: Chance) -> None:
    """Put the generators back."""
    torch.set_rng_state(chance.torch_cpu)
    if chance.torch_gpu is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(chance.torch_gpu)
    position, has_gauss, gauss = chance.numpy_facts
    np.random.set_state(("MT19937", chance.numpy_words.numpy().astype(np.uint32), position, has_gauss, gauss))
    random.setstate((3, chance.python, None))
