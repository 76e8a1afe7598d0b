"""Servers that ask to be left alone are, and requests whose replies were lost count against the cap."""

import threading
import time
from email.utils import formatdate
from typing import Any

import pytest

from plaudit.data.judging import UNREACHABLE, NoVerdict, Verdict, outcomes
from plaudit.errors import UserError
from plaudit.feedback.judges.money import CapReachedError, Prices, Purse
from plaudit.files.posting import (
    MAX_WAIT,
    RetryPolicy,
    TransientError,
    UnreachableError,
    retry_after,
    with_retries,
)
from tests.feedback.judges.judges import completion, honest, judge, pair
from tests.rewards.server import serving

OWL = pair("Mice.", "Tea.")
PRICES = Prices(prompt=10.0, reply=30.0)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0.0),
        ("", 0.0),
        ("2", 2.0),
        (" 0.25 ", 0.25),
        ("86400", MAX_WAIT),
        ("-3", 0.0),
        ("soon", 0.0),
        ("nan", 0.0),
        ("٣", 0.0),
        (formatdate(1_000_030, usegmt=True), 30.0),
        (formatdate(999_000, usegmt=True), 0.0),
        (formatdate(9_000_000, usegmt=True), MAX_WAIT),
        ("Sun, 99 Nov 1994 08:49:37 GMT", 0.0),
    ],
)
def test_a_server_says_how_long_it_wants_to_be_left_alone(header, seconds):
    assert retry_after(header, now=1_000_000.0) == seconds


def test_the_wait_is_the_longer_of_the_servers_and_our_own():
    waits = list[float]()
    faults = [TransientError("429", wait=7.0), TransientError("429", wait=0.1), OSError("gone")]

    def call() -> str:
        if faults:
            raise faults.pop(0)
        return "there"

    policy = RetryPolicy(attempts=4, pause=0.5)
    assert with_retries("it", policy, call, waits.append) == "there"
    assert waits == [7.0, 1.0, 2.0]
    faults = [TransientError("429")] * 4
    with pytest.raises(UnreachableError, match="it failed 4 times"):
        with_retries("it", policy, call, waits.append)


@pytest.mark.parametrize("status", [429, 503])
def test_a_limited_server_is_asked_again_when_it_said(tmp_path, status):
    times = list[float]()

    def reply(body: dict[str, Any], before: int) -> Any:
        times.append(time.monotonic())
        return (status, b"", {"Retry-After": "0.3"}) if before == 0 else completion("A")

    policy = RetryPolicy(seconds=5, pause=0.001, attempts=2, requests_at_once=1)
    with serving(reply) as server:
        asked = judge(server.url, tmp_path, how="letter", draws=1, manners=policy)
        assert isinstance(outcomes(asked, [OWL], 0)[0], Verdict)
    assert times[1] - times[0] >= 0.3


def test_who_waits_for_a_server_wakes_up_when_the_run_ends(tmp_path):
    """Two requests wait for a minute, and a third finds a server of another language, which ends the run."""
    waiting = threading.Semaphore(0)

    def reply(body: dict[str, Any], before: int) -> Any:
        if before < 2:
            waiting.release()
            return 429, b"", {"Retry-After": "60"}
        waiting.acquire()
        return 200, b"<html>"

    policy = RetryPolicy(seconds=5, attempts=3, requests_at_once=3)
    begun = time.monotonic()
    with serving(reply) as server:
        asked = judge(server.url, tmp_path, how="verdict", manners=policy)
        with pytest.raises(UserError, match="expected the JSON"):
            outcomes(asked, [OWL, pair("Mice.", "Bark.")], 0)
    assert time.monotonic() - begun < MAX_WAIT / 2


def test_a_try_that_timed_out_counts_at_its_most_and_stays_counted(tmp_path):
    """The provider may charge for it: its most is held against the cap, in the next run as well."""
    slow = threading.Event()

    def reply(body: dict[str, Any], before: int) -> tuple[int, bytes]:
        if before < 2:
            slow.wait(5)
        return honest(body, before)

    policy = RetryPolicy(seconds=0.2, pause=0.001, attempts=2, requests_at_once=1)
    with serving(reply) as server:
        first, again = Purse(), Purse()
        asked = judge(server.url, tmp_path, max_tokens=64, manners=policy, prices=PRICES, purse=first)
        [found] = outcomes(asked, [OWL], 0)
        slow.set()
        assert isinstance(found, NoVerdict)
        assert found.reason == UNREACHABLE
        assert sum(len(path.read_bytes()) for path in tmp_path.rglob("*.lost")) == 2
        # Two tries at 64 tokens of reply each, beside what was asked and the other order's reply.
        assert first.spent > 2 * PRICES.cost(0, 64)
        before = asked.estimate([OWL])
        later = judge(server.url, tmp_path, max_tokens=64, prices=PRICES, purse=again)
        assert isinstance(outcomes(later, [OWL], 0)[0], Verdict)
        assert before.cost is not None
        assert first.spent < again.spent <= before.cost
        assert asked.estimate([OWL]).cost == pytest.approx(again.spent)


def test_lost_tries_reach_the_cap_and_a_refused_connection_costs_nothing(tmp_path):
    slow = threading.Event()

    def reply(body: dict[str, Any], before: int) -> tuple[int, bytes]:
        slow.wait(5)
        return completion("A")

    policy = RetryPolicy(seconds=0.1, pause=0.001, attempts=2, requests_at_once=1)
    with serving(reply) as server:
        purse = Purse(0.01)
        asked = judge(server.url, tmp_path, how="letter", manners=policy, prices=PRICES, purse=purse)
        with pytest.raises(CapReachedError):
            outcomes(asked, [pair("Mice.", f"Tea {n}.") for n in range(9)], 0)
        assert 0.005 < purse.spent <= 0.01
        slow.set()
        url = server.url
    free = Purse(1.0)
    gone = judge(url, tmp_path / "gone", how="letter", manners=policy, prices=PRICES, purse=free)
    [found] = outcomes(gone, [OWL], 0)
    assert isinstance(found, NoVerdict)
    assert found.reason == UNREACHABLE
    assert free.spent == 0.0
