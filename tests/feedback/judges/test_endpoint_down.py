"""What a judge said is kept: nothing is asked twice, and servers that go down, or take nothing, are told."""

import socket
import threading
from typing import Any

import pytest

from plaudit.data.judging import UNREACHABLE
from plaudit.errors import UserError
from plaudit.feedback.judges.cache import Reply, ReplyCache, cache_key
from plaudit.feedback.judges.chat import TOO_LONG
from plaudit.files.posting import RetryPolicy
from tests.feedback.judges.judges import InOrders, both_orders, honest, judge, pair, question, quoted
from tests.rewards.server import serving


def test_a_reply_is_asked_for_once_and_a_damaged_file_again(tmp_path):
    with serving(honest) as server:
        tasks = [pair("Mice.", "Tea."), pair("Mice.", "Bark.")]
        first = both_orders(judge(server.url, tmp_path), tasks)
        assert both_orders(judge(server.url, tmp_path), tasks) == first
        assert len(server.asked) == 4
        kept = sorted(tmp_path.rglob("*.json"))
        assert len(kept) == 4
        kept[0].write_text(kept[0].read_text("utf-8")[:-9], "utf-8")
        kept[1].write_text("[]", "utf-8")
        assert both_orders(judge(server.url, tmp_path), tasks) == first
        assert len(server.asked) == 6
        # Whatever a reply depends on makes it another one.
        for other in ({"temperature": 0.5}, {"max_tokens": 9}):
            both_orders(judge(server.url, tmp_path, **other), tasks[:1])
        assert len(server.asked) == 10


def test_a_judge_that_goes_down_keeps_what_it_said_and_goes_on(tmp_path):
    up = threading.Event()

    def reply(body: dict[str, Any], before: int) -> tuple[int, bytes]:
        return honest(body, before) if up.is_set() or before < 7 else (503, b"")

    tasks = [pair("Mice.", f"Tea {n}.") for n in range(40)]
    manners = RetryPolicy(seconds=5, pause=0.001, attempts=2, requests_at_once=2)
    with serving(reply) as server:
        with pytest.raises(UserError, match=r"judge is down: .*503.* 7 of 80 replies .* goes on"):
            both_orders(judge(server.url, tmp_path, manners=manners), tasks)
        # It is not asked eighty times more, each time in vain.
        assert len(server.asked) < 20
        up.set()
        asked = len(server.asked)
        found = both_orders(judge(server.url, tmp_path, manners=manners), tasks)
        assert found == [InOrders(forward=1.0, backward=1.0)] * 40
        assert len(server.asked) - asked == 73


def test_one_question_that_always_fails_is_no_verdict_and_asked_again_next_time(tmp_path):
    def reply(body: dict[str, Any], before: int) -> tuple[int, bytes]:
        return (500, b"") if quoted(question(body))[0] == "poison" else honest(body, before)

    manners = RetryPolicy(seconds=5, pause=0.001, attempts=2, requests_at_once=1)
    with serving(reply) as server:
        tasks = [pair("Mice.", "Tea."), pair("poison", "Mice."), pair("Mice.", "Bark.")]
        found = both_orders(judge(server.url, tmp_path, manners=manners), tasks)
        assert found[1] == InOrders(forward=None, backward=0.0, reason=UNREACHABLE)
        assert [found[0], found[2]] == [InOrders(forward=1.0, backward=1.0)] * 2
        asked = len(server.asked)
        both_orders(judge(server.url, tmp_path, manners=manners), tasks)
        assert len(server.asked) - asked == 2


def test_what_the_server_does_not_take_is_no_verdict_unless_it_takes_nothing(tmp_path):
    def reply(body: dict[str, Any], before: int) -> tuple[int, bytes]:
        return (400, b"too long") if "endless" in question(body) else honest(body, before)

    manners = RetryPolicy(seconds=5, requests_at_once=1)
    with serving(reply) as server:
        endless = [pair("Mice.", f"endless {n}") for n in range(6)]
        found = both_orders(judge(server.url, tmp_path, manners=manners), [pair("Mice.", "Tea."), *endless])
        assert found[0] == InOrders(forward=1.0, backward=1.0)
        assert [one.reason for one in found[1:]] == [TOO_LONG] * 6
        asked = len(server.asked)
        with pytest.raises(UserError, match=r"400.*too long"):
            both_orders(judge(server.url, tmp_path, manners=manners), endless)
        assert len(server.asked) - asked == 3


def test_nobody_there_is_said_at_once(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    gone = judge(f"http://127.0.0.1:{port}/score", tmp_path, manners=RetryPolicy(attempts=1, pause=0))
    with pytest.raises(UserError, match=r"judge is down: .*refused.* 0 of 80 replies"):
        both_orders(gone, [pair("Mice.", f"Tea {n}.") for n in range(40)])


def test_a_place_where_nothing_can_be_kept_is_refused_before_anything_is_asked(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be kept there"):
        ReplyCache(folder=tmp_path / "file" / "cache")
    cache = ReplyCache(folder=tmp_path / "cache")
    reply = Reply(text="half \ud800 of a sign", number="7f", refused=False, cut=True)
    cache.store(cache_key({}), reply)
    assert cache.find(cache_key({})) == reply
