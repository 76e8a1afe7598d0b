"""What ranks do together: compare their machines, share rows, and order millions in a few bytes a row."""

from __future__ import annotations

import math
import platform
import random
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from plaudit.config import to_plain_data
from plaudit.errors import UserError
from plaudit.files import exact_json
from plaudit.files.restored import restore
from plaudit.files.stored import LazyRows
from plaudit.releases import TRIED, installed_version

if TYPE_CHECKING:
    from plaudit.engine.distributed import Ranks

Row = TypeVar("Row")
Result = TypeVar("Result")
_RANKS_OF_ROWS: list[Ranks] = []
"""The ranks over which rows are divided now; none where one process does all."""


@contextmanager
def rows_divided(ranks: Ranks) -> Iterator[None]:
    """Within the block all ranks come to the same results, and `divide_rows` shares the work."""
    _RANKS_OF_ROWS.append(ranks)
    try:
        yield
    finally:
        _RANKS_OF_ROWS.pop()


def divide_rows(
    rows: Sequence[Row], work: Callable[[Sequence[Row], int], Sequence[Result]], kind: Any
) -> list[Result]:
    """The result of each row, of a ``kind``; each rank works on the rows that begin at some place."""
    rank, world = (_RANKS_OF_ROWS[-1].rank, _RANKS_OF_ROWS[-1].world_size) if _RANKS_OF_ROWS else (0, 1)
    begin, end = (len(rows) * at // world for at in (rank, rank + 1))
    return of_all_ranks(work(rows[begin:end], begin), kind)


def of_all_ranks(results: Sequence[Result], kind: Any) -> list[Result]:
    """What each rank has found where rows are divided, in the order of ranks, to the bit."""
    if not _RANKS_OF_ROWS or _RANKS_OF_ROWS[-1].world_size == 1:
        return [*results]
    text = exact_json.dumps([to_plain_data(item) for item in results])
    parts = map(exact_json.loads, _RANKS_OF_ROWS[-1].all_gather_strings([text]))
    return [restore(kind, item) for part in parts for item in part]


def weighted(rows: Sequence[int], weights: Sequence[float], seed: int) -> Sequence[int]:
    """Each row's number as often as its weight says: of 1.5 once or twice, by chance.

    >>> list(weighted([0, 2], [2.0, 1.0, 1.0], seed=0))
    [0, 0, 2]
    """
    generator = random.Random(f"{seed}/weights")
    times = (int(weights[row]) + (generator.random() < weights[row] % 1) for row in rows)
    return array("Q", (row for row, count in zip(rows, times, strict=True) for _ in range(count)))


def leak_notes(train: Sequence[Any], held_out: Sequence[Any], name: str) -> Iterator[str]:
    """A note on held-out prompts that are also trained: what is measured on them is memory."""
    # The smaller set in memory: of millions of rows the other one would not fit.
    wanted = {example.prompt_id for example in held_out}
    trained = {prompt_id for example in train if (prompt_id := example.prompt_id) in wanted}
    count = sum(example.prompt_id in trained for example in held_out)
    if count:
        yield f"{count} of {len(held_out)} rows in {name} have a prompt that is also trained"


def compare_machines(ranks: Ranks) -> None:
    """Refuse ranks with other releases, which compute otherwise; say of clocks that are far apart."""
    releases = ", ".join(f"{name} {installed_version(name)}" for name in ("plaudit", *TRIED))
    facts = ranks.all_gather_strings([releases, platform.node()])
    clocks = [clock for [clock] in ranks.all_gather([time.time()])]
    for rank, (other, machine) in enumerate(zip(facts[::2], facts[1::2], strict=True)):
        if other != facts[0]:
            raise UserError(
                f"rank {rank} on {machine} has {other}, and rank 0 on {facts[1]} has {facts[0]}: install the "
                "same on all machines"
            )
        if ranks.is_first and abs(difference := clocks[rank] - clocks[0]) > 60:
            note = f"{machine}'s clock is {difference:+.0f} s from {facts[1]}'s: set both by a time server"
            print(f"plaudit: note: {note}", file=sys.stderr)


def share_rows(ranks: Ranks, size: int, timeout: timedelta) -> Ranks:
    """The same ranks, of which each ``size`` neighbours share their rows' tokens; all of them come."""
    if ranks.world_size % size:
        raise UserError(
            f"--sequence-ranks {size}: {ranks.world_size} processes are no multiple of it; start as many, or "
            "leave it out"
        )
    if size == 1:
        return ranks
    import torch.distributed as dist

    from plaudit.models.sequence import SequenceRanks

    everyone, subgroups = range(ranks.world_size), dist.new_subgroups_by_enumeration
    neighbours, _ = subgroups([[*everyone[n : n + size]] for n in everyone[::size]], timeout=timeout)
    peers, _ = subgroups([[*everyone[place::size]] for place in range(size)], timeout=timeout)
    assert isinstance(neighbours, dist.ProcessGroup)
    groups = ranks.world_size // size
    sequence = SequenceRanks(place=ranks.rank % size, size=size, group=neighbours)
    same_place = replace(ranks, rank=ranks.rank // size, world_size=groups, group=peers)
    return replace(ranks, sequence=sequence, same_place=same_place)


def shuffled(rows: int, words: str) -> array[int]:
    """The numbers of the rows in an order that these words alone decide."""
    return array("Q", np.argsort(_luck(rows, words), kind="stable").astype(np.uint64).tobytes())


def separate(rows: Sequence[Any], share: float, words: str) -> tuple[array[int], array[int]]:
    """The numbers of the rows that stay, and of those of a share of the prompts, which these words choose."""
    hashes = rows.prompts() if isinstance(rows, LazyRows) else None
    if hashes is None:
        # As a file of rows has them: eight bytes of each hash.
        eight = (int.from_bytes(bytes.fromhex(row.prompt_id[:16]), "little") for row in rows)
        hashes = np.fromiter(eight, dtype=np.uint64)
    prompts, place_of_row = np.unique(hashes, return_inverse=True)
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
