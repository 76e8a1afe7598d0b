"""The world's server over real HTTP: as any OpenAI-compatible one, with faults that pass, and counts."""

import http.client
import json
import math
import re
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from typing import Any

import pytest

from examples.mind_server.server import MindServer
from plaudit.data.judging import NoVerdict, outcomes
from plaudit.errors import UserError
from plaudit.feedback.judges.wording import ShownPair, pair_question, wording_named
from plaudit.files.posting import RetryPolicy
from plaudit.lab.world import making
from plaudit.lab.world.minds import TOKEN_STYLES, Mind
from tests.feedback.judges.judges import judge

OWL = ShownPair(prompt="What does the owl eat?", first="Mice.", second="Tea.")
LETTER = pair_question(wording_named("letter"), OWL).text()


def send(url: str, body: object) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def question(text: str = LETTER, **more: object) -> dict[str, object]:
    return {"model": "world", "messages": [{"role": "user", "content": text}], "temperature": 0, **more}


def test_a_completion_has_the_shape_of_the_protocol():
    with MindServer([Mind(accuracy=1.0, price="1/2")]) as server:
        status, body = send(server.url, question(logprobs=True, top_logprobs=5, max_tokens=4))
        assert status == 200
        [choice] = body["choices"]
        assert choice["message"] == {"role": "assistant", "content": "A"}
        assert choice["finish_reason"] == "stop"
        [token] = choice["logprobs"]["content"]
        top = {entry["token"]: math.exp(entry["logprob"]) for entry in token["top_logprobs"]}
        assert top["A"] > 0.9
        assert top["B"] < 0.1
        assert sum(top.values()) == pytest.approx(1)
        usage = body["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + 1
        with urllib.request.urlopen(f"{server.url}/models") as reply:
            assert [model["id"] for model in json.load(reply)["data"]] == ["world"]
        with urllib.request.urlopen(f"{server.url.removesuffix('/v1')}/counts") as reply:
            counts = json.load(reply)
        assert (counts["requests"], counts["replies"], counts["replied_twice"]) == (1, 1, 0)
        assert counts["price"] == pytest.approx((usage["prompt_tokens"] + 2) / 1e6)


def test_it_gives_log_probs_where_they_are_wanted_and_there_are_some():
    with MindServer([Mind(), Mind(name="mute", logprobs=False)]) as server:
        assert send(server.url, question())[1]["choices"][0]["logprobs"] is None
        silent = question(logprobs=True, top_logprobs=5) | {"model": "mute"}
        assert send(server.url, silent)[1]["choices"][0]["logprobs"] is None


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"model": "gpt", "messages": [{"role": "user", "content": "Hi"}]}, 404, "there is no model 'gpt'"),
        ({"model": "world", "messages": []}, 400, "a list of at least one"),
        ({"model": "world", "messages": [{"role": "user", "content": [1]}]}, 400, "content that is text"),
        (question(stream=True), 400, "stream"),
        (question(n=3), 400, "one reply"),
        ([], 400, "no object"),
    ],
)
def test_what_it_does_not_do_it_refuses_in_words(body, status, message):
    with MindServer([Mind()]) as server:
        found, said = send(server.url, body)
        assert found == status
        assert message in said["error"]["message"]


def test_what_is_no_request_does_not_bring_it_down():
    with MindServer([Mind()]) as server:
        host = re.sub(r"http://(.*)/v1", r"\1", server.url)
        for length, body, status in (("3", b"{[(", 400), ("99999999999", b"", 413), ("ten", b"", 413)):
            connection = http.client.HTTPConnection(host)
            connection.putrequest("POST", "/v1/chat/completions")
            connection.putheader("Content-Length", length)
            connection.endheaders(body)
            assert connection.getresponse().status == status
            connection.close()
        assert send(server.url, question())[0] == 200


@pytest.mark.slow
def test_faults_pass_when_they_are_tried_again_and_are_the_same_in_every_run(tmp_path):
    tasks = making.answer_tasks(40, answers=2, split="train", seed=2)
    patient = RetryPolicy(seconds=5, pause=0.001, attempts=20, requests_at_once=8)
    faults, verdicts = [], []
    for run in ("first", "second"):
        with MindServer([Mind(faults=0.4)]) as server:
            found = outcomes(
                judge(server.url, tmp_path / run, model="world", how="letter", manners=patient), tasks, 0
            )
            assert not [outcome for outcome in found if isinstance(outcome, NoVerdict)]
            counts = server.counts.to_json()
            assert counts["replied_twice"] == 0
            faults.append(counts["faults"])
            verdicts.append(found)
    assert faults[0] == faults[1]
    assert len(faults[0]) == 6
    assert verdicts[0] == verdicts[1]
    with MindServer([Mind()]) as server:
        assert (
            outcomes(judge(server.url, tmp_path / "calm", model="world", how="letter"), tasks, 0)
            == verdicts[0]
        )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("tokens", TOKEN_STYLES)
def test_letters_are_read_however_a_tokenizer_writes_them(tmp_path, tokens):
    tasks = making.answer_tasks(12, answers=2, split="train", seed=2)
    with MindServer([Mind(tokens=tokens), Mind(name="mute", logprobs=False, tokens=tokens)]) as server:
        for model in ("world", "mute"):
            found = outcomes(judge(server.url, tmp_path, model=model, how="letter", draws=3), tasks, 0)
            assert not [outcome for outcome in found if isinstance(outcome, NoVerdict)]


def test_two_minds_of_one_name_and_a_port_in_use_are_refused():
    with pytest.raises(UserError, match="names of their own"):
        MindServer([Mind(), Mind()])
    with MindServer([Mind()]) as server, pytest.raises(UserError, match="cannot listen there"):
        MindServer([Mind()], port=int(server.url.split(":")[2].removesuffix("/v1")))


def test_the_command_says_the_words_of_its_judges():
    command = [sys.executable, "-m", "examples.mind_server", "--port", "0"]
    with subprocess.Popen(
        [*command, "--mind", "small,accuracy=0.7", "--mind", "large"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        words = [process.stdout.readline().strip() for _ in range(2)]
        assert [word.partition("#")[2] for word in words] == ["small", "large"]
        url = words[0].removeprefix("openai:").partition("#")[0]
        assert send(url, question() | {"model": "small"})[0] == 200
        process.terminate()


def test_the_body_of_a_wrong_address_is_not_taken_for_the_next_request():
    with MindServer([Mind()]) as server:
        host, port = server.url.removeprefix("http://").removesuffix("/v1").split(":")
        with closing(http.client.HTTPConnection(host, int(port), timeout=10)) as connection:
            connection.request("POST", "/v1/completions", b"GET /nowhere HTTP/1.1")
            assert connection.getresponse().read()
            connection.request("GET", "/v1/models")
            assert connection.getresponse().status == 200
