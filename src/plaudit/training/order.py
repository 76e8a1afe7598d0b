"""Which rows make up which step: a pure function of the seed, so that nothing has to be remembered."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Every row once an epoch, shuffled anew each time; the last batch of an epoch may be smaller.

    Example: ``Order(rows=10, batch_size=4, seed=0)`` has three steps an epoch, of 4, 4 and 2 rows.
    """

    rows: int
    """How many there are."""
    batch_size: int
    """How many make up a step, over all ranks."""
    seed: int
    """Which shuffle."""

    @property
    def steps_an_epoch(self) -> int:
        """How many steps see every row once."""
        return -(-self.rows // self.batch_size)

    def steps_in(self, epochs: float) -> int:
        """How many steps make so many epochs, at least one.

        >>> Order(rows=10, batch_size=4, seed=0).steps_in(1.5)
        4
        """
        return max(1, round(epochs * self.steps_an_epoch))

    def batch(self, step: int) -> tuple[int, ...]:
        """The rows of step 1, 2, …

        >>> order = Order(rows=5, batch_size=2, seed=0)
        >>> sorted(row for step in (1, 2, 3) for row in order.batch(step))
        [0, 1, 2, 3, 4]
        """
        epoch, within = divmod(step - 1, self.steps_an_epoch)
        shuffled = _shuffled(self.rows, self.seed, epoch)
        return shuffled[within * self.batch_size : (within + 1) * self.batch_size]

    def epoch_after(self, step: int) -> float:
        """How often the data has been gone through after this step."""
        epoch, within = divmod(step, self.steps_an_epoch)
        return epoch + min(1.0, within * self.batch_size / self.rows)


@lru_cache(maxsize=2)
def _shuffled(rows: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(rows))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return tuple(order)
