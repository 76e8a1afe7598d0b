"""The server is killed while people label, and its database too: what was acknowledged is there once."""

from pathlib import Path

import pytest

from benchmarks.annotators import (
    Load,
    Observed,
    figures,
    load_store,
    load_under_kills,
    percentile,
    refuse_losses,
)
from plaudit.collect.store import open_store
from tests.collect.desks import Cluster

pytestmark = pytest.mark.slow

SHORT = Load(people=20, labels=600, overlap=3, most_seconds=240)


@pytest.mark.parametrize("gently", [False, True])
def test_a_server_that_ends_loses_and_doubles_nothing(tmp_path: Path, gently: bool) -> None:
    observed = load_under_kills(str(tmp_path / "labels.db"), SHORT, 4, gently=gently)
    assert len(observed.receipts) == SHORT.labels
    # Told to end it answers whoever it took on, and hangs up on nobody half-way.
    assert not gently or observed.torn == 0
    # The kills were felt: somebody got no answer, and sent again.
    assert observed.failures > 0


def test_a_killed_server_and_a_restarted_database_lose_nothing(cluster: Cluster) -> None:
    restarts = list[int]()

    def restart(number: int) -> None:
        cluster.stop("immediate")
        cluster.start()
        restarts.append(number)

    observed = load_under_kills(cluster.database(), Load(people=10, labels=180, most_seconds=240), 2, restart)
    assert len(observed.receipts) == 180
    assert restarts == [0, 1]


def test_fifty_kills(tmp_path: Path) -> None:
    load = Load(people=100, labels=9_000, most_seconds=290)
    assert len(load_under_kills(str(tmp_path / "labels.db"), load, 50).receipts) == 9_000


def test_a_lost_label_and_a_wrong_receipt_are_found(tmp_path: Path) -> None:
    """What the kills are judged by sees a loss."""
    where = str(tmp_path / "labels.db")
    observed = load_store(where, Load(people=6, labels=60, most_seconds=120), servers=2)
    assert (len(observed.receipts), observed.failures) == (60, 0)
    assert figures(observed)["labels"] == "60"
    store = open_store(where)
    try:
        key, receipt = next(iter(observed.receipts.items()))
        for receipts, says in (
            ({**observed.receipts, "a1/never": 5}, "61 labels were acknowledged"),
            ({**observed.receipts, key: receipt + 1}, f"acknowledged as event {receipt + 1}"),
        ):
            with pytest.raises(RuntimeError, match=says):
                refuse_losses(store, Observed(receipts=receipts))
    finally:
        store.close()
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.95) == 4.0
