"""Judges of prompts with pictures: what a server is sent of them, what is asked again, and who is refused."""

import base64
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from plaudit.data.judging import outcomes
from plaudit.data.records import (
    Comparison as Pair,
    Message,
    Part,
    Prompt,
    Task,
    assistant_turn,
    pictures,
    record_to_dict,
)
from plaudit.errors import UserError
from plaudit.feedback.asking import ModelJudgeSettings
from plaudit.feedback.attacks.sources import attempts_of, read_templates
from plaudit.feedback.judges.modes import HowToAsk
from plaudit.feedback.judges.wording import LONG_SIDE
from plaudit.rewards.comparing import judge_named
from tests.commands import commands
from tests.engine.toy import make_toy, write_rows
from tests.feedback.judges.judges import completion, delimiters, judge, quoted
from tests.pictures.folders import make_folder, picture
from tests.rewards.server import serving

well, _ = commands("judge")
RED, BLUE = assistant_turn("It is red."), assistant_turn("It is blue.")


def prompt(source: Path) -> tuple[Message, ...]:
    parts = (Part(kind="image", source=str(source)), Part(kind="text", text="Which colour?"))
    return (Message(role="user", content=parts),)


def task(source: Path) -> Task:
    return Task(prompt=prompt(source), answers=(RED, BLUE), ended=(True, True))


def sent(body: dict[str, Any]) -> tuple[bytes, str]:
    [message] = body["messages"]
    seen, words = message["content"]
    head, _, content = seen["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    return base64.b64decode(content), words["text"]


def looking(body: dict[str, Any], _: int) -> tuple[int, bytes]:
    """Likes the answer that names the picture's colour."""
    content, text = sent(body)
    red: Any = Image.open(BytesIO(content)).getpixel((0, 0))
    opened, closed = delimiters(text)
    return completion(f"{opened}{'A' if (red[0] > 0) == ('red' in quoted(text)[0]) else 'B'}{closed}")


def test_a_server_is_sent_the_pixels_alone_and_asked_once_for_the_same_ones(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    large = picture(tmp_path / "one.png", "red", (3000, 20), exif=exif)
    same, blue = (picture(tmp_path / f"{each}.bmp", each, (3000, 20)) for each in ("red", "blue"))
    with serving(looking) as server:
        by = judge(server.url, tmp_path / "cache")
        verdicts = [by.verdicts([task(each)], 0)[0] for each in (large, same, blue)]
        assert [verdict and verdict.probability for verdict in verdicts] == [1.0, 1.0, 0.0]
        assert len(server.asked) == 4
        for content, text in map(sent, server.asked):
            assert b"home" not in content
            assert max(Image.open(BytesIO(content)).size) == LONG_SIDE
            assert "> [picture 1]Which colour?" in text
    assert b"home" in large.read_bytes()


def test_rows_with_pictures_are_judged_by_what_they_show(tmp_path: Path, capsys: Any) -> None:
    shown = [picture(tmp_path / f"{n}.png", "red" if n % 2 else "blue", (20 + n, 20)) for n in range(4)]
    rows = [record_to_dict(Pair(prompt=prompt(each), chosen=RED, rejected=BLUE)) for each in shown]
    data, out = write_rows(tmp_path / "rows.jsonl", rows), tmp_path / "out.jsonl"
    with serving(looking) as server:
        by = f"openai:{server.url}#looking,how=verdict"
        well(capsys, data, "--by", by, "--out", out, "--cache", tmp_path / "cache")
    judged = map(json.loads, out.read_text("utf-8").splitlines())
    red = {row["prompt"][0]["content"][0]["image"]: "red" in row["chosen"][0]["content"] for row in judged}
    assert red == {str(each): n % 2 == 1 for n, each in enumerate(shown)}


def test_what_cannot_be_seen_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    sound, broken = picture(tmp_path / "a.png", "red"), tmp_path / "broken.png"
    broken.write_bytes(sound.read_bytes()[:60])
    behind = Task(prompt="?", answers=((*RED, *prompt(sound), *RED), RED), ended=(True, True))
    with serving(looking) as server:
        for bad, why in ((task(broken), "damaged"), (behind, "turns of an answer")):
            with pytest.raises(UserError, match=why):
                judge(server.url, tmp_path / "cache").verdicts([task(sound), bad], 0)
        assert not server.asked
    (tmp_path / "blind.py").write_text("def blind(question): return 'A'\n")
    with pytest.raises(UserError, match="does not take the pictures"):
        outcomes(judge_named(f"call:{tmp_path / 'blind.py'}:blind"), [task(sound)], 0)


def test_a_local_judge_sees_them_where_its_model_does(tmp_path: Path) -> None:
    red, blue = (task(picture(tmp_path / f"{each}.png", each)) for each in ("red", "blue"))
    settings = ModelJudgeSettings(device="cpu", cache=tmp_path / "cache", soft=True, ask=HowToAsk())
    by = judge_named(f"model:{make_folder('llava', tmp_path / 'seeing')},how=letter", settings)
    first, second = (getattr(found, "orders", None) for found in outcomes(by, [red, blue], 0))
    assert first is not None
    assert first != second
    words = judge_named(f"model:{make_toy(tmp_path / 'toy').model},how=letter", settings)
    with pytest.raises(UserError, match="sees no pictures"):
        outcomes(words, [red], 0)


def test_an_attack_in_other_words_shows_the_picture_too(tmp_path: Path) -> None:
    seen = picture(tmp_path / "a.png", "red")
    [attempt] = attempts_of([Prompt(prompt=prompt(seen))])
    for template in read_templates("ours"):
        assert pictures(template.reworded(attempt).turns) == (str(seen),)
