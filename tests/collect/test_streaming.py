"""Answers of a server as they are written: at one pace, whatever the server does half-way."""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, strategies as st

from plaudit.collect.conversation import in_step, words_of_stream
from plaudit.errors import UserError
from plaudit.files.posting import RetryPolicy, TransientError, post_in_pieces
from tests.feedback.judges.judges import completion
from tests.rewards.server import serving


def event(words: str | None = None, finish: str | None = None) -> bytes:
    choice = {"delta": {} if words is None else {"content": words}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice]}, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def streamed(*pieces: bytes) -> str:
    return "".join(words_of_stream("http://m", iter(pieces)))


@given(st.lists(st.text(max_size=5), max_size=6), st.lists(st.integers(1, 400), max_size=8))
def test_words_arrive_whole_however_the_network_cuts_them(words: list[str], cuts: list[int]) -> None:
    content = b": ping\n\nevent: m\n" + event() + b"".join(map(event, words)) + DONE
    ends = sorted({min(cut, len(content)) for cut in cuts} | {0, len(content)})
    assert streamed(*(content[a:b] for a, b in pairwise(ends))) == "".join(words)


def test_a_server_that_does_not_stream_answers_at_once_and_what_is_cut_off_is_no_answer() -> None:
    whole = completion("All of it.")[1]
    assert streamed(whole[:20], whole[20:]) == "All of it."
    with pytest.raises(TransientError, match="cut off"):
        streamed(event("half"))
    assert streamed(event("whole"), event(finish="stop")) == "whole"
    assert streamed(event("whole"), b'data: {"choices": [], "usage": {}}\n\n', DONE) == "whole"


@pytest.mark.parametrize(
    "line",
    [b"data: nonsense\n", b'data: {"choices": [{"delta": {"content": 7}}]}\n', b'data: {"error": "x"}\n'],
)
def test_a_stream_of_something_else_is_refused(line: bytes) -> None:
    with pytest.raises(UserError, match="expected events of a chat completion"):
        streamed(line)


def test_answers_go_in_step_and_none_is_shown_before_all_have_begun() -> None:
    seen = list[str]()

    def answer(name: str, count: int) -> Iterator[str]:
        for n in range(count):
            seen.append(f"{name}{n}")
            yield f"{name}{n}"

    steps = in_step([answer("a", 3), answer("b", 1)])
    assert next(steps) == (0, "a0")
    assert seen == ["a0", "b0"]
    assert [*steps] == [(1, "b0"), (0, "a1"), (0, "a2")]


def test_pieces_of_a_real_connection_and_its_errors() -> None:
    def reply(body: dict[str, Any], _: int) -> tuple[int, bytes]:
        return body["status"], event("Hello") + DONE

    with serving(reply) as server:

        def pieces(status: int) -> Iterator[bytes]:
            return post_in_pieces(
                server.url, RetryPolicy(seconds=20), json.dumps({"status": status}).encode()
            )

        assert b"".join(pieces(200)) == event("Hello") + DONE
        with pytest.raises(TransientError, match="503"):
            next(pieces(503))
        with pytest.raises(UserError, match="404"):
            next(pieces(404))
        # Left half-way, nothing waits for the rest.
        next(left := pieces(200))
        left.close()  # type: ignore[attr-defined]
