"""What every test relies on: no network, one thread a process, no waiting for the disk; skips are named."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.peer import PEER

if TYPE_CHECKING:
    import torch

    from tests.engine.toy import Toy

# Read by the libraries when they are imported, so set before any test module is.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")


# A busy machine is slow to draw an example and to try it, and no test is about how fast either is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def _no_fsync(descriptor: int) -> None:
    """No test can take the power away, and a toy's run would wait for the disk for half of its time."""
    os.fstat(descriptor)


# Of this process alone: a command that a test starts forces its bytes to the disk as it does for a user.
os.fsync = _no_fsync


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What plaudit keeps for another time goes into a folder of the tests, never into the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Where a test computes: everywhere on the CPU, and where there is a GPU there too, as a run does.

    A GPU adds up in other orders, so a test that asks for this has bounds of its own for it; and no model of
    float64 computes in float32 between, which a GPU rounds otherwise.
    """
    import torch

    if request.param == "cpu":
        yield torch.device("cpu")
        return
    from plaudit.models.load import device_of
    from tests.models.digits import every_digit

    with every_digit():
        yield device_of(request.param)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """A model that takes no time, and rows for it."""
    from tests.engine.toy import make_toy

    return make_toy(tmp_path_factory.mktemp("toy"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _mark_slow_cases(items, whole=not any("::" in word for word in config.args))
    for item in items:
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
        peer = item.get_closest_marker("peer")
        # The environment is TRL's, unless the mark names another one.
        if peer is not None and not (peer.args[0] if peer.args else PEER).exists():
            item.add_marker(pytest.mark.skip(reason="needs the peer environment: make bench-peer"))


def _mark_slow_cases(items: list[pytest.Item], *, whole: bool) -> None:
    """By the mark `cases`, which names no case that is not there where files are collected as a ``whole``.

    And by the mark `one_in`: of so many cases the first is quick.
    """
    unknown: dict[str, set[str]] = {}
    places: Counter[str] = Counter()
    for item in items:
        sampled = item.get_closest_marker("one_in")
        if sampled is not None:
            test = item.nodeid.partition("[")[0]
            if places[test] % sampled.args[0]:
                item.add_marker(pytest.mark.slow)
            places[test] += 1
        mark = item.get_closest_marker("cases")
        if mark is None:
            continue
        case = item.nodeid.partition("[")[2].removesuffix("]")
        quick, slow = mark.kwargs.get("quick"), mark.kwargs.get("slow", ())
        if case in slow or (quick is not None and case not in quick):
            item.add_marker(pytest.mark.slow)
        unknown.setdefault(item.nodeid.partition("[")[0], {*(quick or ()), *slow}).discard(case)
    if whole and (named := {test: cases for test, cases in unknown.items() if cases}):
        raise pytest.UsageError(f"the mark `cases` names what is no case: {named}")


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
