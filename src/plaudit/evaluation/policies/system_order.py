"""Whether judges put policies in the same order: what counts where a judge is to choose between systems.

Judges that often differ on single pairs may still order policies alike (Zheng et al. 2023, arXiv:2306.05685).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations
from statistics import fmean

from plaudit.evaluation.policies.win_rate import DuelsByPair, with_verdict

FEWEST, MOST = 3, 8
"""Policies of which an order says something, and up to which all orders are gone through."""


def order_notes(duels_by_judge: Mapping[str, DuelsByPair], names: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each two judges: Spearman's ρ of their orders, and how often chance reaches it.

    names: what to call each judge.
    """
    shares = {judge: win_shares(duels) for judge, duels in duels_by_judge.items()}
    for first, second in combinations(shares, 2):
        policies = [policy for policy in shares[first] if policy in shares[second]]
        if len(policies) < FEWEST:
            continue
        mine, theirs = ([shares[judge][policy] for policy in policies] for judge in (first, second))
        rho = spearman(mine, theirs)
        both = f"{names[first]} and {names[second]}"
        if rho is None:
            yield f"{both}: one of them likes all {len(policies)} policies alike, and gives no order"
            continue
        reached = share_of_orders(mine, theirs) if len(policies) <= MOST else None
        few = "" if reached is None else f"; orders by chance reach that in {reached:.0%} of cases"
        yield f"{both} order {len(policies)} policies with ρ = {rho:.2f} (Spearman){few}"


def win_shares(duels: DuelsByPair) -> dict[str, float]:
    """How often each policy is preferred to the one that all are compared with, which has one half itself.

    >>> from plaudit.evaluation.policies.win_rate import JudgedPair
    >>> won = [JudgedPair(prompt="q", mine="x", theirs="y", forward=1.0, backward=1.0)]
    >>> win_shares({("ppo", "sft"): won})
    {'sft': 0.5, 'ppo': 1.0}
    """
    baseline = next((other for _, other in duels), "")
    shares = {baseline: 0.5} if duels else {}
    for (policy, other), pairs in duels.items():
        verdicts = [pair.verdict for pair in with_verdict(pairs) if pair.verdict is not None]
        if other == baseline and verdicts:
            shares[policy] = fmean(verdicts)
    return shares


def spearman(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's ρ, equal numbers at their mean rank; None where all of one are equal.

    >>> spearman([0.1, 0.5, 0.9, 0.7], [0.2, 0.4, 0.6, 0.8])
    0.8
    """
    ranks_x, ranks_y = _ranks(x), _ranks(y)
    middle = (len(x) + 1) / 2
    spread_x, spread_y = (sum((rank - middle) ** 2 for rank in ranks) for ranks in (ranks_x, ranks_y))
    if not spread_x or not spread_y:
        return None
    together = sum((a - middle) * (b - middle) for a, b in zip(ranks_x, ranks_y, strict=True))
    return together / (spread_x * spread_y) ** 0.5


def share_of_orders(x: Sequence[float], y: Sequence[float]) -> float:
    """The share of all orders of y that go together with x at least as well as y does.

    >>> share_of_orders([1.0, 2.0, 3.0], [0.1, 0.2, 0.9]) == 1 / 6
    True
    """
    ranks_x, ranks_y = _ranks(x), _ranks(y)

    def together(order: Sequence[float]) -> float:
        return sum(a * b for a, b in zip(ranks_x, order, strict=True))

    reached = together(ranks_y) - 1e-9
    reaches = [together(order) >= reached for order in permutations(ranks_y)]
    return sum(reaches) / len(reaches)


def _ranks(values: Sequence[float]) -> list[float]:
    return [sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values]
