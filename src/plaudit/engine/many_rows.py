"""The order of millions of rows, and which of them are held out, in a few bytes a row."""

from __future__ import annotations

import math
from array import array
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray


def shuffled(rows: int, words: str) -> array[int]:
    """The numbers of the rows in an order that these words alone decide.

    >>> sorted(shuffled(4, "0/1")), shuffled(4, "0/1") == shuffled(4, "0/1")
    ([0, 1, 2, 3], True)
    """
    return array("Q", np.argsort(_luck(rows, words), kind="stable").astype(np.uint64).tobytes())


def separate(prompt_of_row: NDArray[np.uint64], share: float, words: str) -> tuple[array[int], array[int]]:
    """The numbers of the rows that stay, and of a share of the prompts, which these words choose."""
    prompts, place_of_row = np.unique(prompt_of_row, return_inverse=True)
    # One is always left to train on.
    count = min(math.ceil(share * len(prompts)), len(prompts) - 1)
    aside = np.zeros(len(prompts), dtype=bool)
    aside[np.argsort(_luck(len(prompts), words), kind="stable")[:count]] = True
    parts = (np.flatnonzero(aside[place_of_row] == side).astype(np.uint64) for side in (False, True))
    stay, go = (array("Q", part.tobytes()) for part in parts)
    return stay, go


def _luck(count: int, words: str) -> NDArray[np.uint64]:
    key = int.from_bytes(blake2b(words.encode(), digest_size=16).digest())
    # The raw numbers of a counter: the same with every release of numpy.
    return np.random.Philox(key=key).random_raw(count)
