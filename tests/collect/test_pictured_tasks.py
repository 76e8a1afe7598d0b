"""Tasks with pictures: taken in by their pixels or refused by row, shown to their project alone, exported."""

import json
import re
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw
from sqlalchemy import delete, select
from starlette.testclient import TestClient

from plaudit.collect import tables
from plaudit.collect.adding import set_project
from plaudit.collect.answering import take_in
from plaudit.collect.app.server import make_app, site_of
from plaudit.collect.asking import People
from plaudit.collect.intake import read_intake
from plaudit.collect.people import issue_token
from plaudit.collect.pictures import MOST_SIDE, parse_name, picture_faults, pictures_of, stored_bodies
from plaudit.collect.privacy import erase_person
from plaudit.collect.progress import project_tasks
from plaudit.collect.project import Project
from plaudit.collect.refusals import FieldError
from plaudit.collect.sessions import open_session
from plaudit.collect.store import copy_store, open_store
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, pictures
from plaudit.errors import UserError
from plaudit.files.pictures import data_url, open_picture, picture_id
from tests.collect.desks import Desk, MakeDesk
from tests.collect.test_intake import written

EXIF = b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"


def draw(path: Path, color: str, size: tuple[int, int] = (60, 40), **how: Any) -> Path:
    image = Image.new("RGB", size, color)
    ImageDraw.Draw(image).ellipse((5, 5, size[0] // 2, size[1] // 2), fill="white")
    image.save(path, **how)
    return path


def answers(*names: str) -> dict[str, Any]:
    return {"prompt": "An owl at night", "candidates": [{"picture": name} for name in names]}


def about(first: str, *others: str) -> dict[str, Any]:
    parts = [{"type": "image", "image": first, "alt": "A <red> card"}]
    parts += [{"type": "image", "image": other} for other in others]
    said = [{"text": [{"role": "assistant", "content": word}]} for word in ("One", "Two")]
    return {"prompt": [{"role": "user", "content": parts}], "candidates": said}


def add(desk: Desk, rows: Path) -> tuple[int, int]:
    intake = read_intake(rows, desk.store.project("p"))
    intake.pictures.keep(desk.store, "p")
    added, _ = desk.store.write(take_in, "p", intake.bodies, (), actor="o1")
    return added.added, added.repeated


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    draw(tmp_path / "in/red.png", "red")
    draw(tmp_path / "in/blue.jpg", "blue", exif=EXIF, icc_profile=b"my profile", quality=90)
    draw(tmp_path / "in/wide.png", "green", (3 * MOST_SIDE, 300))
    return tmp_path


@pytest.fixture
def asked(on_both: MakeDesk, folder: Path) -> Desk:
    desk = on_both(tasks=0)
    rows = [about("in/red.png", "in/wide.png"), answers("in/red.png", "in/blue.jpg")]
    assert add(desk, written(folder, rows)) == (2, 0)
    for person in desk.people(1) * 2:
        desk.answer(person)
    return desk


def signed_in(desk: Desk, project: str = "p") -> TestClient:
    client = TestClient(make_app(desk.store, site_of(8080)), base_url="http://127.0.0.1:8080")
    person = desk.store.write(issue_token, project, "owner", name="Olga").pseudonym
    client.cookies.set("plaudit-8080", desk.store.write(open_session, project, person).secret)
    return client


def test_pictures_are_made_anew_and_known_by_their_pixels(asked, folder):
    # The same under other names and in another format without loss is the same task.
    draw(folder / "in/other.webp", "red", lossless=True)
    (folder / "in/blue.jpg").rename(folder / "in/renamed.jpg")
    assert add(asked, written(folder, [answers("in/other.webp", "in/renamed.jpg")])) == (0, 1)
    bodies = [task["body"] for task in asked.store.read(project_tasks, "p")]
    assert "in/" not in json.dumps(bodies)
    names = [parse_name(name) or ("", 0, 0) for body in bodies for name in pictures_of(body)]
    assert (MOST_SIDE, 100) in [name[1:] for name in names]
    assert picture_id(str(folder / "in/red.png")) in [name[0] for name in names]
    with asked.store.looking() as look:
        rows = look.connection.execute(select(tables.picture)).all()
    images = [Image.open(BytesIO(row.content)) for row in rows]
    assert [image.format for image in images] == ["WEBP"] * 3
    assert not any({*image.info} & {"exif", "icc_profile", "xmp"} for image in images)
    assert asked.store.read(picture_faults) == []
    asked.store.write(lambda change: change.connection.execute(delete(tables.picture)))
    assert {fault.split(" is ")[1] for fault in asked.store.read(picture_faults)} == {"missing"}


@pytest.mark.parametrize(
    ("name", "why"),
    [("moves.gif", "moves"), ("damaged.png", "damaged"), ("absent.png", "No such"), ("red.png", "the same")],
)
def test_a_row_with_a_picture_that_cannot_be_shown_refuses_its_file(make_desk, folder, name, why):
    frame = Image.new("RGB", (9, 9))
    frame.save(folder / "in/moves.gif", save_all=True, append_images=[Image.new("RGB", (9, 9), "red")])
    (folder / "in/damaged.png").write_bytes((folder / "in/red.png").read_bytes()[:-40])
    desk = make_desk(tasks=0)
    with pytest.raises(UserError, match="1 of 2 rows") as refused:
        add(desk, written(folder, [answers("in/red.png", f"in/{other}") for other in ("blue.jpg", name)]))
    assert re.search(rf"rows.jsonl:2: field candidates\[1\].*{why}", str(refused.value))
    assert desk.store.read(project_tasks, "p") == []


def test_what_is_sent_opens_no_file(make_desk, folder):
    desk, red = make_desk(tasks=0), folder / "in/red.png"
    client, blue = TestClient(make_app(desk.store)), draw(folder / "in/new.png", "navy").read_bytes()
    token = desk.store.write(issue_token, "p", "owner", name="O").token
    client.headers["Authorization"] = f"Bearer {token}"
    good, unknown = data_url(red.read_bytes()), f"pictures/{'0' * 32}-9x9.webp"
    for path in (str(red), red.as_uri(), "in/red.png", unknown, "https://e.org/x.png", good):
        sent = client.post("/api/v1/tasks", content=json.dumps(answers(path, data_url(blue))))
        assert (sent.status_code, "candidates[0].text" in sent.text) == (422, True) or path == good
    assert sent.json()["added"] == 1
    seen = client.get(f"/api/v1/pictures/{picture_id(str(red))}")
    assert (seen.headers["content-type"], seen.status_code) == ("image/webp", 200)
    with pytest.raises(FieldError, match="a picture at"):
        desk.add([about(str(red))])
    talks = make_desk(folder / "talks.db", tasks=0, ask="talk", talks_to="http://127.0.0.1:1/v1#m")
    with pytest.raises(FieldError, match="words alone"):
        talks.add(stored_bodies(talks.store, "p", [{"prompt": about(good)["prompt"]}]))


def test_a_picture_is_served_and_shown_to_those_of_its_project_alone(asked, folder):
    asked.store.write(set_project, Project(name="q"), actor="o1")
    mine, address = signed_in(asked), f"/pictures/{picture_id(str(folder / 'in/red.png'))}"
    assert signed_in(asked, "q").get(address).status_code == 404
    assert TestClient(make_app(asked.store)).get(address).status_code == 401
    for wrong in ("..%2flabels.db", "%2e%2e%2fin%2fred.png", "in/red.png", "0"):
        assert mine.get(f"/pictures/{wrong}").status_code == 404
    headers = mine.get(address).headers
    assert headers["content-type"] == "image/webp"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "default-src 'none'; img-src 'self'; sandbox"
    assert headers["cache-control"].startswith("private")
    ids = [task["id"] for task in asked.store.read(project_tasks, "p")]
    for language, words in (("en", "Answer A&#39;s picture"), ("de", "Bild 2"), ("ar", "صورة الإجابة")):
        paths = ("/manage/tasks", *(f"/manage/tasks/{wanted}" for wanted in ids))
        page = "".join(mine.get(path, headers={"Accept-Language": language}).text for path in paths)
        assert all(word in page for word in ('alt="A &lt;red&gt; card"', words))
        assert str(folder) not in page
        assert all(re.fullmatch("[0-9a-f]{32}", name) for name in re.findall('src="/pictures/(.*?)"', page))


def test_rows_come_out_with_their_pictures_and_go_in_again(asked, folder):
    copy_store(asked.store, folder / "copy.db")
    ids, out = [task["id"] for task in asked.store.read(project_tasks, "p")], folder / "out/rows.jsonl"
    first = People(store=asked.store, project="p").export(ids, out)
    rows = [record for record in read_records(out).records if isinstance(record, Comparison)]
    texts = [text for row in rows for text in (row.prompt, row.chosen, row.rejected)]
    files = {f"pictures/{path.name}": path.read_bytes() for path in folder.glob("out/pictures/*")}
    named = {name.removeprefix(f"{out.parent}/") for text in texts for name in pictures(text)}
    assert (named, len(named)) == ({*files}, 3)
    assert all(open_picture(str(out.parent / name)).size == (parse_name(name) or ())[1:] for name in files)
    assert add(asked, out) == (0, 2)
    # Of a copy the same, with the same pictures; and people who are erased take none with them.
    with closing(open_store(folder / "copy.db")) as copy:
        erase_person(copy, "p", "a1", actor="o1")
        second = People(store=copy, project="p").export(ids, folder / "copy/rows.jsonl")
    assert first.sha256 == second.sha256
    assert files == {f"pictures/{path.name}": path.read_bytes() for path in folder.glob("copy/pictures/*")}
