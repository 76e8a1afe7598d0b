"""Chats with a served model: whole answers and pieces, pictures as data URLs, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from plaudit.files.pictures import data_url
from tests.engine.toy import make_toy
from tests.pictures.folders import make_folder, picture
from tests.serving.servers import serving


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(make_folder("llava", tmp_path_factory.mktemp("seeing"))) as url:
        yield url


def reply(url: str, source: str, **more: object) -> str:
    parts = [{"type": "text", "text": "the mat"}, {"type": "image_url", "image_url": {"url": source}}]
    content = parts if source else "the mat"
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 6, "seed": 3, **more}
    with urlopen(f"{url}/v1/chat/completions", json.dumps(body).encode()) as answer:
        return answer.read().decode()


def texts(url: str, source: str, **more: object) -> list[str]:
    choices: list[Any] = json.loads(reply(url, source, **more))["choices"]
    return [choice["message"]["content"] for choice in choices]


def refusal(url: str, source: str, **more: object) -> str:
    with pytest.raises(HTTPError) as caught:
        reply(url, source, **more)
    assert caught.value.code == 400
    return json.loads(caught.value.read())["error"]


def test_answers_hang_on_the_picture_and_pieces_are_the_same_answers(seeing: str, tmp_path: Path) -> None:
    red, blue = (data_url(picture(tmp_path / "a.png", each).read_bytes()) for each in ("red", "blue"))
    whole = texts(seeing, red, n=2)
    assert whole == texts(seeing, red, n=2) != texts(seeing, blue, n=2)
    assert len({*whole, *texts(seeing, "", n=2)}) == 4
    *lines, done = reply(seeing, red, n=2, stream=True).strip().split("\n\n")
    assert done == "data: [DONE]"
    joined = ["", ""]
    for line in lines:
        [choice] = json.loads(line.removeprefix("data: "))["choices"]
        joined[choice["index"]] += choice["delta"].get("content", "")
    assert joined == whole


BROKEN = "data:image/png;base64,AAAA"


@pytest.mark.parametrize(
    "source", ["http://127.0.0.1/a.png", "/etc/hostname", "file:///etc/hostname", BROKEN]
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_no_picture_within_a_request_is_refused(seeing: str, source: str, stream: bool) -> None:
    why = refusal(seeing, source, stream=stream)
    assert ("damaged" if source == BROKEN else "nothing is fetched and no file opened") in why


def test_a_model_of_words_answers_these_and_refuses_pictures(tmp_path: Path) -> None:
    with serving(make_toy(tmp_path / "toy").model) as url:
        seen = data_url(picture(tmp_path / "a.png", "red").read_bytes())
        assert "words alone" in refusal(url, seen)
        assert "logprobs" in refusal(url, "", logprobs=True)
        assert len(set(texts(url, "", n=2, temperature=0, stop="zz"))) == 1
