from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from plaudit.collect.progress import store_faults
from tests.collect import desks
from tests.collect.offices import Office


@pytest.fixture(scope="session")
def cluster() -> Iterator[desks.Cluster]:
    if desks.postgres_programs() is None:
        pytest.skip("PostgreSQL is not installed here")
    yield from desks.cluster()


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    """Where a store lies: each test that takes it runs on both databases."""
    if request.param == "sqlite":
        return tmp_path / "labels.db"
    return request.getfixturevalue("cluster").database()


@pytest.fixture
def make_desk(tmp_path: Path) -> Iterator[desks.MakeDesk]:
    made = list[desks.Desk]()

    def make(where: str | Path = tmp_path / "labels.db", **settings: Any) -> desks.Desk:
        made.append(desks.Desk(where, **settings))
        return made[-1]

    yield make
    # Whatever was done at a desk, its tables are what its log tells.
    faults = [fault for desk in made if not desk.is_damaged for fault in desk.store.read(store_faults)]
    for desk in made:
        desk.store.close()
    assert faults == []


@pytest.fixture
def on_both(make_desk: desks.MakeDesk, where: str | Path) -> desks.MakeDesk:
    """Makes desks at one place, and each test that takes it runs on both databases."""
    return partial(make_desk, where)


@pytest.fixture
def desk(on_both: desks.MakeDesk) -> desks.Desk:
    return on_both()


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    made = Office(tmp_path / "labels.db")
    yield made
    made.reports.close()
    made.store.close()
