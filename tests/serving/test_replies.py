"""Replies that no policy may learn from, fleets that do without a server, and the journal of answers."""

import json
import random
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from plaudit.errors import UserError
from plaudit.serving.fleet import TRIES, Fleet
from plaudit.serving.journal import Journal, key_of, packed, unpacked
from plaudit.serving.server import DrawnTokens, GoneError, Question, Server, UselessReplyError
from tests.serving.servers import saying

QUESTION = Question(prompt=(1, 5), answers=1, seed=7, max_tokens=3, temperature=1.0, stop_ids=(2,))
WHOLE: dict[str, Any] = {
    "index": 0,
    "finish_reason": "stop",
    "token_ids": [9, 4, 2],
    "logprobs": {"content": [{"token_id": 9, "logprob": -1.0}, {"logprob": -2.0}, {"logprob": -0.5}]},
    "weight_versions": [{"version": "run-3", "start": 0, "end": 3}],
}


def send(handler: BaseHTTPRequestHandler, content: bytes, status: int = 200) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def send_choice(handler: BaseHTTPRequestHandler, **changes: object) -> None:
    """A whole reply but for some things; at the other routes, what a healthy server says."""
    if "generate" in handler.path:
        send(handler, json.dumps({"choices": [{**WHOLE, **changes}]}).encode())
    else:
        send(handler, json.dumps({"weight_version": "run-3"}).encode())


def spans(*versions: tuple[str, int, int]) -> list[dict[str, object]]:
    return [{"version": version, "start": start, "end": end} for version, start, end in versions]


USELESS: dict[str, Mapping[str, object]] = {
    "aborted": {"finish_reason": "abort"},
    "drawn with other weights": {"weight_versions": spans(("run-2", 0, 3))},
    "drawn with other weights ": {"weight_versions": spans(("run-2", 0, 1), ("run-3", 1, 3))},
    "no word of the weights": {"weight_versions": None},
    "no word of the weights ": {"weight_versions": spans(("run-3", 0, 2))},
    "cut short of its room": {"finish_reason": "length", "token_ids": [9, 4], **{}},
    "cut short of its room ": {"token_ids": [9, 4, 5]},
    "log-probs that are none": {"logprobs": {"content": [{"logprob": 0.1}] * 3}},
    "log-probs that are none ": {"logprobs": {"content": [{"logprob": float("nan")}] * 3}},
    "log-probs of other tokens": {"logprobs": {"content": [{"token_id": 8, "logprob": -1.0}] * 3}},
    "not as many answers": {"index": 1},
}


@pytest.mark.parametrize("reason", USELESS)
def test_a_reply_is_never_learnt_from_that_is(reason: str):
    changes = dict(USELESS[reason])
    if changes.get("token_ids") == [9, 4]:
        changes["logprobs"] = {"content": [{"logprob": -1.0}] * 2}
        changes["weight_versions"] = spans(("run-3", 0, 2))
    with saying(lambda handler: send_choice(handler, **changes)) as url:
        with pytest.raises(UselessReplyError, match=reason.strip()):
            Server(url).draw(QUESTION, "run-3")
        fleet = Fleet([Server(url)])
        fleet.version = "run-3"
        with pytest.raises(UserError, match=f"{TRIES} replies in a row that cannot be learnt from"):
            list(fleet.draw([QUESTION]))
        assert fleet.useless.total() == TRIES


def test_a_whole_reply_is_taken_as_it_is():
    with saying(send_choice) as url:
        [drawn] = Server(url).draw(QUESTION, "run-3")
    assert (drawn.ids, drawn.logp, drawn.ended) == ((9, 4, 2), (-1.0, -2.0, -0.5), True)


def test_a_server_of_text_alone_cannot_be_learnt_from():
    with (
        saying(lambda handler: send_choice(handler, token_ids=None, text="Mice.")) as url,
        pytest.raises(UserError, match="gives no token ids with their log-probs: a policy cannot learn"),
    ):
        Server(url).draw(QUESTION, "run-3")


def drip(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    for _ in range(40):
        handler.wfile.write(b" ")
        time.sleep(0.05)


GONE = {
    "hangs": lambda handler: time.sleep(2),
    "drips": drip,
    "is broken": lambda handler: send(handler, b"EngineDeadError", 500),
    "hangs up": lambda handler: handler.connection.close(),
}


@pytest.mark.parametrize("kind", GONE)
def test_a_question_goes_to_another_server_where_one(kind: str):
    with saying(GONE[kind]) as url, saying(send_choice) as honest:
        with pytest.raises(GoneError):
            Server(url, seconds=0.3).draw(QUESTION, "run-3")
        fleet = Fleet([Server(url, seconds=0.3), Server(honest)])
        fleet.version = "run-3"
        assert [drawn.ids for [drawn] in fleet.draw([QUESTION] * 5)] == [(9, 4, 2)] * 5
        [sentence] = fleet.news()
        assert "a server is gone, 1 left" in sentence
        assert [server.url for server in fleet.gone()] == [url]


def test_nonsense_is_asked_again_and_no_server_at_all_is_waited_for_and_then_said():
    with (
        saying(lambda handler: send(handler, b"<html>hello")) as url,
        pytest.raises(UselessReplyError, match=r"no JSON \(b'<html>hello'\)"),
    ):
        Server(url).draw(QUESTION, "run-3")
    fleet = Fleet([Server("http://127.0.0.1:9")], patience=0.3)
    with pytest.raises(UserError, match=r"no sampling server is left \(http://127.0.0.1:9/inference"):
        list(fleet.draw([QUESTION]))
    with saying(send_choice) as url:
        fleet = Fleet([Server(url)], patience=20)
        fleet.version = "run-3"
        fleet.lose(fleet.servers[0], "it was away")
        # It says that it has the weights, so it is asked again.
        assert len(list(fleet.draw([QUESTION]))) == 1
        assert fleet.news()[-1] == f"a server is back: {url}"


def test_a_server_that_looks_well_and_answers_nothing_ends_the_run(monkeypatch):
    monkeypatch.setattr("plaudit.serving.fleet.LOOK_SECONDS", 0.01)

    def mute(handler: BaseHTTPRequestHandler) -> None:
        send(handler, b"", 500) if "generate" in handler.path else send_choice(handler)

    with saying(mute) as url:
        fleet = Fleet([Server(url)], patience=0.2)
        fleet.version = "run-3"
        with pytest.raises(UserError, match=rf"look well lost a question \d+ times: {url}"):
            list(fleet.draw([QUESTION]))


def test_the_least_busy_server_is_asked():
    asked: list[int] = []
    all_asked = threading.Event()

    def slowly(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.connection.getsockname()[1])
        if len(asked) == 20:
            all_asked.set()
        all_asked.wait(60)
        send_choice(handler)

    with saying(slowly) as one, saying(slowly) as two:
        fleet = Fleet([Server(one), Server(two)])
        fleet.version = "run-3"
        list(fleet.draw([QUESTION] * 20))
    assert sorted(asked.count(port) for port in {*asked}) == [10, 10]


def question(seed: int) -> Question:
    return Question(prompt=(1, 5), answers=2, seed=seed, max_tokens=9, temperature=1.0, stop_ids=(2,))


def answers(seed: int, *, tokens: int = 40, wide: bool = False) -> list[DrawnTokens]:
    generator = random.Random(seed)
    largest = 200_000 if wide else 60_000

    def number() -> float:
        value = -generator.random() * 9
        # As a server of float32 says it, or with all digits.
        return value if wide else float.fromhex(value.hex()[:10] + "p" + value.hex().split("p")[1])

    return [
        DrawnTokens(
            ids=tuple(generator.randrange(largest) for _ in range(tokens)),
            logp=tuple(number() for _ in range(tokens)),
            ended=generator.random() < 0.5,
        )
        for _ in range(2)
    ]


@pytest.mark.parametrize(("wide", "most"), [(False, 6.5), (True, 12.5)])
def test_answers_come_back_to_the_bit_in_few_bytes_a_token(wide: bool, most: float):
    drawn = answers(3, wide=wide)
    content = packed(drawn)
    assert unpacked(content) == drawn
    assert len(content) / 80 < most
    assert unpacked(packed([DrawnTokens(ids=(70_000,), logp=(-0.0,), ended=True)]))[0].ids == (70_000,)


def test_a_torn_file_gives_what_was_whole_and_is_written_on_in_another(tmp_path: Path):
    journal = Journal(tmp_path, 0)
    journal.begin("root")
    keys = [key_of("root", question(seed)) for seed in range(5)]
    for seed, key in enumerate(keys):
        journal.write(key, answers(seed))
    journal.sync()
    journal.close()
    [path] = tmp_path.iterdir()
    content = path.read_bytes()
    size = len(content) // 5
    for cut in (0, 1, size - 1, size, size + 3, 3 * size + 10, 5 * size):
        path.write_bytes(content[:cut])
        torn = Journal(tmp_path, 0)
        found = [torn.answers_to(key) for key in keys]
        assert found == [answers(seed) if seed < cut // size else None for seed in range(5)]
    path.write_bytes(content[: 3 * size + 10])
    again = Journal(tmp_path, 0)
    again.begin("root")
    again.write(keys[4], answers(4))
    again.close()
    kept = [Journal(tmp_path, 1).answers_to(key) is not None for key in keys]
    assert kept == [True, True, True, False, True]
    # A byte that has turned over hides itself and what is behind it, and nothing else.
    path.write_bytes(content[: 2 * size + 40] + b"\xff" + content[2 * size + 41 :])
    hidden = Journal(tmp_path, 0)
    assert [hidden.answers_to(key) is not None for key in keys] == [True, True, False, False, True]


def test_an_answer_belongs_to_its_weights_and_its_question():
    assert len({key_of(root, question(seed)) for root in ("a", "b") for seed in (1, 2)}) == 4


def test_what_two_checkpoints_are_behind_is_removed(tmp_path: Path):
    journal = Journal(tmp_path, 0)
    there: list[int] = []
    for version in range(6):
        journal.begin(f"root{version}")
        journal.write(key_of(f"root{version}", question(0)), answers(version))
        if version % 2:
            journal.checkpoint()
        there.append(len(list(tmp_path.iterdir())))
    journal.close()
    # At a checkpoint: those since the one before, and the one that is written to.
    assert there == [1, 2, 3, 3, 4, 3]
