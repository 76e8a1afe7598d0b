"""A reward over HTTP, from a real server: well, slow, failing, flaky, and talking nonsense."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from plaudit.data.judging import Task
from plaudit.data.records import assistant_turn, user_turn
from plaudit.errors import UserError
from plaudit.files.posting import MAX_RESPONSE_BYTES, RetryPolicy
from plaudit.rewards.base import Reward, refusal_counts
from plaudit.rewards.http import EndpointReward
from tests.rewards.asked import asked
from tests.rewards.server import lengths, scores, serving


def at(url: str, **manners: Any) -> EndpointReward:
    """A reward that is asked again at once."""
    return EndpointReward(url=url, retry_policy=RetryPolicy(**{"seconds": 5, "pause": 0.01, **manners}))


def gives_up(url: str, **manners: Any) -> str:
    """Why there is no verdict on an answer."""
    reward = at(url, **manners)
    assert reward.scores([asked("a")]) == ((None,),)
    return next(iter(refusal_counts(reward)))


def test_scores_come_back_in_order_and_null_is_no_verdict() -> None:
    def reply(body: dict[str, Any], _: int) -> tuple[int, bytes]:
        return 200, scores(*(None if answer == "-" else len(answer) for answer in body["answers"]))

    with serving(reply) as server:
        reward = at(server.url)
        assert isinstance(reward, Reward)
        tasks = [asked(*("x" * (n + 1) for n in range(k)), truth=str(k)) for k in range(1, 12)]
        rows = reward.scores([*tasks, asked("-", "xx")])
        assert rows == (*(tuple(float(n + 1) for n in range(k)) for k in range(1, 12)), (None, 2.0))
        assert refusal_counts(reward) == {}
        assert {"prompt": "?", "answers": ["x"], "reference_answer": "1"} in server.asked
        assert {"prompt": "?", "answers": ["-", "xx"]} in server.asked
        assert reward.scores([]) == ()


def test_conversations_are_sent_as_roles_and_words() -> None:
    task = Task(prompt=user_turn("Hi"), answers=(assistant_turn("Hello"),), ended=(True,))
    with serving(lengths) as server:
        assert at(server.url).scores([task]) == ((5.0,),)
        assert server.asked == [{"prompt": [{"role": "user", "content": "Hi"}], "answers": ["Hello"]}]


def test_many_answers_are_asked_about_in_pieces() -> None:
    with serving(lengths) as server:
        reward = at(server.url, pause=0, answers_at_once=3)
        assert reward.scores([asked(*("x" * n for n in range(8)))]) == (tuple(float(n) for n in range(8)),)
        assert sorted(len(body["answers"]) for body in server.asked) == [2, 3, 3]


def test_a_failing_server_is_no_verdict_and_never_0() -> None:
    with serving(lambda body, n: (503, b"busy")) as server:
        reward = at(server.url, seconds=5, attempts=3, pause=0.01)
        assert reward.scores([asked("a", "b"), asked("c")]) == ((None, None), (None,))
        assert len(server.asked) == 6
    [(why, count)] = refusal_counts(reward).items()
    assert count == 3
    assert "failed 3 times" in why
    assert "503" in why


@pytest.mark.parametrize("status", [429, 500, 502, 0])
def test_a_flaky_server_is_asked_again(status: int) -> None:
    def reply(body: dict[str, Any], before: int) -> tuple[int, bytes]:
        return lengths(body, 0) if before == 2 else (status, b"")

    with serving(reply) as server:
        assert at(server.url).scores([asked("abc")]) == ((3.0,),)
        assert len(server.asked) == 3


def test_waits_grow() -> None:
    with serving(lambda body, n: (500, b"")) as server:
        begun = time.perf_counter()
        at(server.url, attempts=4, pause=0.1).scores([asked("a")])
        assert time.perf_counter() - begun > 0.1 + 0.2 + 0.4


def test_a_slow_server_is_not_waited_for() -> None:
    def reply(body: dict[str, Any], _: int) -> tuple[int, bytes]:
        time.sleep(1.5)
        return lengths(body, 0)

    with serving(reply) as server:
        assert "timed out" in gives_up(server.url, seconds=0.3, attempts=2, pause=0)


HEAD = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("whole", "piece", "pause"),
    [
        (b"", b"H", 0.05),
        (b"HTTP/1.1 200 ", b"O", 0.05),
        (HEAD + b"X: ", b"y", 0.05),
        (HEAD, b"X: y\r\n", 0.05),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05),
        (b"HTTP/1.1 100 Continue\r\n", b"X: y\r\n", 0.05),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0", 0.05),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x", 0.05),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", 0.05),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"y", 0.05),
        (HEAD + b"Content-Length: 1000\r\n\r\n", b" ", 0.05),
        (HEAD + b"\r\n", b" ", 0.05),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 0),
    ],
)
def test_a_server_that_drips_is_not_waited_for_wherever_it_drips(whole, piece, pause):
    with dripping(whole, piece, pause) as url:
        begun = time.perf_counter()
        why = gives_up(url, seconds=0.4, attempts=1)
        assert time.perf_counter() - begun < 3
    assert "timed out: no whole answer within 0.4 seconds" in why


def test_neither_a_silent_listener_nor_an_unfinished_handshake_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        for scheme in ("http", "https"):
            url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/"
            assert "timed out" in gives_up(url, seconds=0.3, attempts=1)


def test_a_name_that_is_looked_up_for_ever_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver of the system is the one thing here that a test cannot have in truth."""
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [over.wait(30)][:0])
    assert "timed out" in gives_up("http://judge.example/", seconds=0.3, attempts=1)
    over.set()


@contextmanager
def dripping(whole: bytes, piece: bytes, pause: float = 0.05) -> Iterator[str]:
    """The address of a server that says the first and then the second, again and again."""
    over = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(whole)
            while not over.wait(pause):
                connection.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=[listener])
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            over.set()
            thread.join()


def test_nobody_there_is_no_verdict() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "refused" in gives_up(f"http://127.0.0.1:{port}/", attempts=2, pause=0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "not JSON"),
        (b"[1]", "expected"),
        (b'{"score": [1]}', "expected"),
        (scores(1.0), "1 scores"),
        (scores(1, 2, 3), "3 scores"),
        (b'{"scores": [NaN, 1]}', "nan"),
        (b'{"scores": [Infinity, 1]}', "inf"),
        (b'{"scores": [1e999, 1]}', "inf"),
        (b'{"scores": [' + b"7" * 400 + b", 1]}", "gives the score 7777"),
        (b'{"scores": [' + b"7" * 5000 + b", 1]}", "not JSON"),
        (b'{"scores": [' + b"7" * 400 + b".5, 1]}", "inf"),
        (b'{"scores": [1, 2], "scores": [2, 1]}', "the key 'scores' is there twice"),
        (b'{"scores": [1, 2], "more": {"a": 1, "a": 1}}', "the key 'a' is there twice"),
        (b'{"scores": [1, 2], "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"scores": [1, 2]} {}', "not JSON"),
        (b'{"scores": "12"}', "expected"),
        (b'{"scores": {"0": 1, "1": 2}}', "expected"),
        (b"\xff\xfe{", "not JSON"),
        (b"", "not JSON"),
        (scores([1], 2), r"\[1\]"),
        (scores({"score": 1}, 2), "'score'"),
        (scores("1", 2), "'1'"),
        (scores(True, 2), "True"),
        (b"[" * 100_000, "not JSON"),
        (b'{"scores": [1, 2], "x": "' + b"x" * MAX_RESPONSE_BYTES + b'"}', "more than"),
    ],
)
def test_nonsense_ends_the_run(body: bytes, said: str) -> None:
    with serving(lambda asked, n: (200, body)) as server:
        with pytest.raises(UserError, match=said):
            at(server.url).scores([asked("a", "b")])
        assert len(server.asked) == 1


def test_a_redirect_is_not_followed_and_says_where_it_points() -> None:
    answer = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\x1b[2J\r\nContent-Length: 0\r\n\r\n"
    with (
        dripping(answer, b"") as url,
        pytest.raises(UserError, match="redirects are not followed") as refused,
    ):
        at(url).scores([asked("a")])
    assert "http://127.0.0.1:1/" in str(refused.value)
    assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize("status", [400, 401, 404, 422, 301, 201])
def test_what_no_repetition_mends_is_not_repeated(status: int) -> None:
    with serving(lambda body, n: (status, b"no such thing")) as server:
        with pytest.raises(UserError, match=rf"{status}.*no such thing"):
            at(server.url).scores([asked("a")])
        assert len(server.asked) == 1


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    manners = RetryPolicy(token_from="PLAUDIT_TEST_TOKEN")
    monkeypatch.delenv("PLAUDIT_TEST_TOKEN", raising=False)
    with pytest.raises(UserError, match="PLAUDIT_TEST_TOKEN"):
        EndpointReward(url="http://127.0.0.1:1/", retry_policy=manners)
    monkeypatch.setenv("PLAUDIT_TEST_TOKEN", "abc\n")
    with serving(lengths) as server:
        reward = EndpointReward(url=server.url, retry_policy=manners)
        reward.scores([asked("a")])
        assert server.headers[0]["Authorization"] == "Bearer abc"
    assert "abc" not in repr(reward)
    for token in ("a\nX-Other: b", "schlüssel"):
        monkeypatch.setenv("PLAUDIT_TEST_TOKEN", token)
        with pytest.raises(UserError, match="holds no token"):
            EndpointReward(url=server.url, retry_policy=manners)


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://x/", "file:///etc/passwd", "http://", "http://a:b@c/", "http://x:99999/", "x"),
        *("http://x/\r\nA: b", "http://x/wörter", "http://jüdge/"),
    ],
)
def test_only_addresses_of_the_web(url: str) -> None:
    with pytest.raises(UserError, match="no endpoint"):
        EndpointReward(url=url)


@pytest.mark.parametrize("host", ["x" * 64 + ".example", "judge..example"])
def test_a_host_that_cannot_be_one_is_said(host: str) -> None:
    with pytest.raises(UserError, match=f"http://{host}/ is no endpoint"):
        at(f"http://{host}/").scores([asked("a")])


def test_the_name_keeps_the_query_to_itself() -> None:
    assert EndpointReward(url="https://judge.example/score?key=secret").name == "judge.example/score"


def test_manners_make_sense() -> None:
    with pytest.raises(UserError, match="cannot be asked"):
        RetryPolicy(attempts=0)
