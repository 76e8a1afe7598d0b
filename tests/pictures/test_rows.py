"""Rows with pictures, in every layout; pictures that cannot be shown are refused in words."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.data.records import pictures
from plaudit.errors import UserError
from plaudit.files import pictures as home
from plaudit.files.pictures import data_url, open_picture, part_of, picture_id
from tests.pictures.folders import COLOURS, pair, write_pictures
from tests.runs.report.read_page import stands_alone

CHAT = {"conversations": [{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A cat."}]}
TALK = [
    {"role": "user", "content": "<image>Which?"},
    {"role": "assistant", "content": "This."},
    {"role": "user", "content": "And <image> here?"},
    {"role": "assistant", "content": "No."},
]
ANSWERS = {"chosen": "a cat", "rejected": "two dogs"}
BARE = pair("red.png")
BARE["prompt"][0]["content"][0] = {"type": "image"}
LAYOUTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "llava": ({**CHAT, "image": "red.png"}, ["red.png"]),
    "sharegpt": ({"messages": TALK, "images": ["red.png", "blue.png"]}, ["red.png", "blue.png"]),
    "alpaca": (
        {"instruction": "<image>Name it.", "input": "", "output": "A cat.", "images": ["red.png"]},
        ["red.png"],
    ),
    "trl": ({**BARE, "images": ["red.png"]}, ["red.png"]),
    "trl, no place": ({**pair(), "images": ["red.png"]}, ["red.png"]),
    "rlaif-v": ({"question": "What?", **ANSWERS, "image": "red.png"}, ["red.png"]),
    "parts": (pair("red.png", "blue.png"), ["red.png", "blue.png"]),
    "an object": ({"question": "What?", **ANSWERS, "image": {"path": "red.png"}}, ["red.png"]),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_layout_shows_its_pictures_in_their_places(name, tmp_path):
    row, names = LAYOUTS[name]
    write_pictures(tmp_path)
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    [record] = read_records(tmp_path / "rows.jsonl").records
    answer = getattr(record, "completion", ())
    assert [*pictures(record.prompt), *pictures(answer)] == [str(tmp_path / each) for each in names]
    words = [part.text for turn in record.prompt for part in turn.content if part.kind == "text"]
    assert "<image>" not in str(words)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (
            {**CHAT, "images": ["red.png", "blue.png"]},
            "expected 1 pictures, as the words have places, found 2",
        ),
        (BARE, "expected a picture for each part of the type image, found none"),
        ({**CHAT, "image": 3}, "expected a picture: a path, a data URL"),
        ({**pair("red.png"), "image": "red.png"}, "and not in both without a place, found both"),
    ],
)
def test_pictures_and_places_that_differ_make_a_bad_row(row, complaint, tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    with pytest.raises(UserError, match=complaint):
        read_records(tmp_path / "rows.jsonl")


def test_tables_hold_pictures_as_bytes(tmp_path):
    from datasets import Dataset, Image as Feature

    paths = write_pictures(tmp_path)
    rows = {
        "image": list(map(str, paths)),
        "question": list(COLOURS),
        "chosen": ["a"] * 4,
        "rejected": ["b"] * 4,
    }
    table = Dataset.from_dict(rows).cast_column("image", Feature())
    table.save_to_disk(tmp_path / "table")
    content = [{"bytes": path.read_bytes(), "path": None} for path in paths]
    Dataset.from_dict({**rows, "image": content}).to_parquet(tmp_path / "rows.parquet")
    for source in (tmp_path / "table", tmp_path / "rows.parquet", table, list(table)):
        found = [picture_id(pictures(record.prompt)[0]) for record in read_records(source).records]
        assert found == [picture_id(str(path)) for path in paths]


def _bytes(picture: Image.Image, kind: str, **how: Any) -> bytes:
    stream = BytesIO()
    picture.save(stream, format=kind, **how)
    return stream.getvalue()


RED = Image.new("RGB", (6, 4), "red")
PNG = _bytes(RED, "PNG")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (PNG[:40], "is damaged, or none of PNG"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is damaged, or none of PNG"),
        (_bytes(RED, "GIF", save_all=True, append_images=[Image.new("RGB", (6, 4))]), r"moves \(2 frames\)"),
        (_bytes(Image.new("I;16", (3, 3)), "PNG"), "is in I;16; save it in RGB"),
        (_bytes(Image.new("CMYK", (3, 3)), "JPEG"), "is in CMYK"),
        (_bytes(Image.new("L", (200, 100)), "PNG"), "has 200 × 100 pixels, more than"),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(content, complaint, tmp_path, monkeypatch):
    monkeypatch.setattr(home, "MOST_PIXELS", 10_000)
    (tmp_path / "one.png").write_bytes(content)
    for source in (str(tmp_path / "one.png"), data_url(content)):
        with pytest.raises(UserError, match=complaint):
            open_picture(source)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("nowhere.png", "cannot be read: No such file"),
        ("https://example.org/a.png", "download it first"),
        ("data:text/plain;base64,AA==", "should be data:image"),
        ("data:image/png;base64,!", "is no base64"),
    ],
)
def test_other_places_are_refused(source, complaint):
    with pytest.raises(UserError, match=complaint):
        open_picture(source)


def test_pictures_are_upright_in_rgb_and_known_by_their_pixels(tmp_path):
    turned = Image.Exif()
    turned[0x0112] = 6
    wide = Image.new("RGB", (6, 4), "white")
    wide.putpixel((0, 0), (255, 0, 0))
    upright = open_picture(data_url(_bytes(wide, "PNG", exif=turned)))
    assert upright.size == (4, 6)
    assert upright.getpixel((3, 0)) == (255, 0, 0)
    clear = open_picture(data_url(_bytes(Image.new("RGBA", (2, 2), (255, 0, 0, 0)), "PNG")))
    assert clear.getpixel((0, 0)) == (255, 255, 255)
    (tmp_path / "one.bmp").write_bytes(_bytes(RED, "BMP"))
    assert picture_id(str(tmp_path / "one.bmp")) == picture_id(data_url(PNG))
    assert picture_id(data_url(_bytes(wide, "PNG"))) != picture_id(data_url(PNG))
    part = open_picture(part_of(data_url(PNG), 0.25, "key"))
    assert part.size == (3, 2)


def test_inspect_says_what_rows_show_and_counts_copies_by_pixels(tmp_path, capsys):
    write_pictures(tmp_path)
    (tmp_path / "copy.bmp").write_bytes(_bytes(Image.open(tmp_path / "red.png"), "BMP"))
    rows = [pair("red.png"), pair("copy.bmp"), pair("blue.png", chosen="<b>blue</b>"), pair("gone.png")]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["data", "inspect", str(tmp_path / "rows.jsonl"), "--page", str(tmp_path / "rows.html")]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "duplicates  1" in said
    assert "pictures    4, 3 different; 2 of 40 × 40, 1 of 60 × 40" in said
    assert "1 cannot be shown to a model" in said
    assert "user: [picture 40 × 40, " in said
    page = stands_alone(tmp_path / "rows.html")
    drawn = [picture_id(url) for url in page.values("img", "src")]
    assert drawn == [picture_id(str(tmp_path / f"{name}.png")) for name in ("red", "red", "blue")]
    assert page.tags["b"] == 0
    assert "gone.png cannot be read: No such file" in page.sections["Rows"]
    assert main([*words[:-1], "rows.txt"]) == 2


def test_converted_rows_keep_their_pictures(tmp_path):
    write_pictures(tmp_path)
    (tmp_path / "rows.jsonl").write_text(json.dumps(LAYOUTS["rlaif-v"][0]))
    for kind in ("plaudit", "trl"):
        out = Path(tmp_path / "elsewhere" / f"{kind}.jsonl")
        out.parent.mkdir(exist_ok=True)
        assert main(["data", "convert", str(tmp_path / "rows.jsonl"), str(out), "--to", kind]) == 0
        [record] = read_records(out).records
        assert pictures(record.prompt) == (str(tmp_path / "red.png"),)
