"""Whether judges put policies in the same order, and how much of that luck would do."""

import numpy as np
import pytest
from scipy.stats import rankdata

from plaudit.evaluation.policies.judge import order_notes, share_of_orders, spearman, win_shares
from plaudit.evaluation.policies.win_rate import JudgedPair


def duels(**won: float) -> dict[tuple[str, str], list[JudgedPair]]:
    """Against sft, each policy with its share of ten prompts."""
    return {
        (policy, "sft"): [
            JudgedPair(prompt=f"q{n}", mine="a", theirs="b", forward=verdict, backward=verdict)
            for n in range(10)
            for verdict in [float(n < 10 * share)]
        ]
        for policy, share in won.items()
    }


NAMES = {"one": "one", "two": "two"}


def test_judges_that_differ_on_pairs_may_order_policies_alike() -> None:
    lenient, strict = duels(dpo=0.6, ppo=0.9, bad=0.2), duels(dpo=0.7, ppo=0.8, bad=0.4)
    assert win_shares(lenient) == {"sft": 0.5, "dpo": 0.6, "ppo": 0.9, "bad": 0.2}
    [note] = order_notes({"one": lenient, "two": strict}, NAMES)
    assert note == (
        "one and two order 4 policies with ρ = 1.00 (Spearman); orders by chance reach that in 4% of cases"
    )
    [note] = order_notes({"one": lenient, "two": duels(dpo=0.4, ppo=0.1, bad=0.8)}, NAMES)
    assert "ρ = -1.00" in note
    assert "in 100% of cases" in note


def test_two_policies_are_no_order_and_one_liked_like_the_other_is_none() -> None:
    assert not [*order_notes({"one": duels(dpo=0.6), "two": duels(dpo=0.7)}, NAMES)]
    assert not [*order_notes({"one": duels(dpo=0.6, ppo=0.9)}, NAMES)]
    [note] = order_notes({"one": duels(dpo=0.5, ppo=0.5), "two": duels(dpo=0.7, ppo=0.2)}, NAMES)
    assert note == "one and two: one of them likes all 3 policies alike, and gives no order"
    silent = duels(dpo=0.6, ppo=0.9)
    silent["dpo", "sft"] = [JudgedPair(prompt="q", mine="a", theirs="b", forward=None, backward=None)]
    assert "dpo" not in win_shares(silent)


def test_rho_is_the_correlation_of_ranks_with_ties_too() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = rng.integers(0, 4, size=(2, 7)).astype(float).tolist()
        assert spearman(x, y) == pytest.approx(float(np.corrcoef(rankdata(x), rankdata(y))[0, 1]))
    assert share_of_orders([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == 1.0
