"""Any judge asked twice, once in each order of the answers, so that the place of an answer sways nothing.

The mean of both orders: Wang et al. 2023, arXiv:2305.17926.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plaudit.data.judging import (
    Judge,
    NoVerdict,
    Orders,
    Task,
    Verdict,
    first_probability,
    outcomes,
    probable_verdict,
    swapped,
    verdicts_only,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BothWays:
    """A judge that is shown each pair in both orders.

    Example: ``BothWays(judge=judge_named("mine.py:terser"))``
    """

    judge: Judge

    @property
    def name(self) -> str:
        return self.judge.name

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """The mean of both orders; a tie where they contradict each other, None where either is missing."""
        return verdicts_only(self.outcomes(tasks, seed))

    def outcomes(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | NoVerdict]:
        """As ``verdicts``, with why there is none."""
        # The same seed in both orders: what then differs is the order, and not the judge's luck.
        forward = outcomes(self.judge, tasks, seed)
        backward = outcomes(self.judge, [swapped(task) for task in tasks], seed)
        return [self._joined(*both) for both in zip(forward, backward, strict=True)]

    def _joined(self, forward: Verdict | NoVerdict, backward: Verdict | NoVerdict) -> Verdict | NoVerdict:
        first, second = (
            None if isinstance(o, NoVerdict) else first_probability(o) for o in (forward, backward)
        )
        # Backward, the other answer stood first: turned round, both chances speak of the same one.
        orders = Orders(forward=first, backward=None if second is None else 1 - second)
        reason = next((o.reason for o in (forward, backward) if isinstance(o, NoVerdict)), None)
        return verdict_of_orders(orders, reason, annotator=self.name)


def both_ways(judge: Judge) -> BothWays:
    """A judge that is asked in both orders.

    >>> from plaudit.rewards.comparing import judge_named
    >>> task = Task(prompt="?", answers=("a b", "a b c"), ended=(True, True))
    >>> [verdict.orders for verdict in both_ways(judge_named("length:1-2")).verdicts([task], 0)]
    [Orders(forward=1.0, backward=1.0)]
    """
    return BothWays(judge=judge)


def verdict_of_orders(orders: Orders, reason: str | None, *, annotator: str) -> Verdict | NoVerdict:
    """The verdict that both orders make together, or why they make none."""
    if orders.mean is None:
        assert reason is not None, "a missing order has a reason"
        return NoVerdict(reason=reason, orders=orders)
    return probable_verdict(orders.mean, annotator=annotator, orders=orders)
