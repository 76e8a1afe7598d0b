"""Tasks with pictures: taken in by their pixels or refused by row, shown to their project alone, exported."""

import base64
import json
import re
from collections.abc import Sequence
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw
from sqlalchemy import func, select
from starlette.testclient import TestClient

from plaudit.collect import tables
from plaudit.collect.adding import add_tasks, set_project
from plaudit.collect.app.server import make_app, site_of
from plaudit.collect.asking import People
from plaudit.collect.intake import read_intake
from plaudit.collect.people import issue_token
from plaudit.collect.pictures import MOST_SIDE, parse_name, pictures_of, stored_bodies
from plaudit.collect.privacy import erase_person
from plaudit.collect.progress import project_tasks
from plaudit.collect.project import Project
from plaudit.collect.quality.report import quality
from plaudit.collect.refusals import FieldError
from plaudit.collect.sessions import open_session
from plaudit.collect.store import LabelStore, copy_store, open_store
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, pictures
from plaudit.errors import UserError
from plaudit.files.pictures import open_picture, picture_id
from tests.collect.desks import Desk, MakeDesk

PROMPT = "An owl at night"
SAID = [{"text": [{"role": "assistant", "content": word}]} for word in ("One", "Two")]


def draw(path: Path, color: str, size: tuple[int, int] = (60, 40), **how: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", size, color)
    ImageDraw.Draw(image).ellipse((5, 5, size[0] // 2, size[1] // 2), fill="white")
    image.save(path, **how)
    return path


def written(folder: Path, rows: Sequence[object]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def answers(*names: str, **more: Any) -> dict[str, Any]:
    return {"prompt": PROMPT, "candidates": [{"picture": name} for name in names], **more}


def part(name: str, **more: str) -> dict[str, str]:
    return {"type": "image", "image": name, **more}


def data_url(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def stored(store: LabelStore) -> int:
    with store.looking() as look:
        return look.connection.execute(select(func.count()).select_from(tables.picture)).scalar_one()


def add(desk: Desk, rows: Path) -> Any:
    intake = read_intake(rows, desk.store.project("p"))
    intake.pictures.keep(desk.store, "p")
    return desk.add(intake.bodies)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    secret = Image.Exif()
    secret[0x010E] = "where I live"
    draw(tmp_path / "in/red.png", "red")
    draw(tmp_path / "in/blue.jpg", "blue", exif=secret, icc_profile=b"my profile", quality=90)
    draw(tmp_path / "in/wide.png", "green", (3 * MOST_SIDE, 300))
    return tmp_path


@pytest.fixture
def asked(on_both: MakeDesk, folder: Path) -> Desk:
    """One task about pictures and one of them, labelled by one person."""
    parts = [part("in/red.png", alt="A <red> card"), part("in/wide.png"), {"type": "text", "text": "Which?"}]
    about = {"prompt": [{"role": "user", "content": parts}], "candidates": SAID}
    desk = on_both(tasks=0)
    add(desk, written(folder, [about, answers("in/red.png", "in/blue.jpg")]))
    (person,) = desk.people(1)
    for _ in range(2):
        desk.answer(person)
    return desk


def test_pictures_are_made_anew_and_known_by_their_pixels(asked, folder):
    assert stored(asked.store) == 3
    # The same under other names and in another format without loss is the same task.
    draw(folder / "in/other.webp", "red", lossless=True)
    (folder / "in/blue.jpg").rename(folder / "in/renamed.jpg")
    again = add(asked, written(folder, [answers("in/other.webp", "in/renamed.jpg")]))
    assert (again.added, again.repeated, stored(asked.store)) == (0, 1, 3)
    bodies = [task["body"] for task in asked.store.read(project_tasks, "p")]
    assert "in/" not in json.dumps(bodies)
    names = {parse_name(name) for body in bodies for name in pictures_of(body)}
    assert (MOST_SIDE, 100) in {name[1:] for name in names if name}
    assert picture_id(str(folder / "in/red.png")) in {name[0] for name in names if name}
    with asked.store.looking() as look:
        for (content,) in look.connection.execute(select(tables.picture.c.content)):
            with Image.open(BytesIO(content)) as image:
                assert (image.format, image.info.get("exif"), image.info.get("icc_profile")) == (
                    ("WEBP", None, None)
                )


@pytest.mark.parametrize(
    ("name", "why"),
    [("moves.gif", "moves"), ("damaged.png", "damaged"), ("absent.png", "No such"), ("red.png", "the same")],
)
def test_a_row_with_a_picture_that_cannot_be_shown_refuses_its_file(make_desk, folder, name, why):
    frame = Image.new("RGB", (9, 9))
    frame.save(folder / "in/moves.gif", save_all=True, append_images=[Image.new("RGB", (9, 9), "red")])
    (folder / "in/damaged.png").write_bytes((folder / "in/red.png").read_bytes()[:-40])
    rows = written(folder, [answers("in/red.png", "in/blue.jpg"), answers("in/red.png", f"in/{name}")])
    desk = make_desk(tasks=0)
    with pytest.raises(UserError, match=r"1 of 2 rows") as refused:
        add(desk, rows)
    assert re.search(rf"rows.jsonl:2: field candidates\[1\].*{why}", str(refused.value))
    assert (stored(desk.store), desk.store.read(project_tasks, "p")) == (0, [])


def test_what_is_sent_opens_no_file(asked, folder):
    client = TestClient(make_app(asked.store))
    owner = {"Authorization": f"Bearer {asked.store.write(issue_token, 'p', 'owner', name='O').token}"}

    def sent(*names: str) -> Any:
        return client.post("/api/v1/tasks", content=json.dumps(answers(*names)), headers=owner)

    red, blue = folder / "in/red.png", data_url(draw(folder / "in/new.png", "navy"))
    for path in (
        str(red),
        red.as_uri(),
        "in/red.png",
        f"pictures/{'0' * 32}-9x9.webp",
        "https://e.org/x.png",
    ):
        reply = sent(path, blue)
        assert (reply.status_code, "candidates[0].text" in reply.text) == (422, True), reply.text
    assert sent(data_url(red), blue).json()["added"] == 1
    (name,) = {*pictures_of(asked.store.read(project_tasks, "p")[-1]["body"])} - {
        *pictures_of(asked.store.read(project_tasks, "p")[0]["body"])
    }
    seen = client.get(f"/api/v1/pictures/{(parse_name(name) or ('',))[0]}", headers=owner)
    assert (seen.headers["content-type"], seen.status_code) == ("image/webp", 200)
    body = {"prompt": [{"role": "user", "content": [part(str(red))]}], "candidates": SAID}
    with pytest.raises(FieldError, match="a picture at"):
        asked.store.write(add_tasks, "p", [body], actor="o1")


def signed_in(desk: Desk, person: str | None = None) -> TestClient:
    client = TestClient(make_app(desk.store, site_of(8080)), base_url="http://127.0.0.1:8080")
    if person is not None:
        client.cookies.set("plaudit-8080", desk.store.write(open_session, "p", person).secret)
    return client


def test_a_picture_is_served_to_those_of_its_project_alone(asked, folder):
    asked.store.write(set_project, Project(name="q"), actor="o1")
    stranger = asked.store.write(issue_token, "q", "owner", name="S").pseudonym
    name = picture_id(str(folder / "in/red.png"))
    mine, others = signed_in(asked, asked.people(1)[0]), signed_in(asked)
    assert others.get(f"/pictures/{name}").status_code == 401
    others.cookies.set("plaudit-8080", asked.store.write(open_session, "q", stranger).secret)
    assert others.get(f"/pictures/{name}").status_code == 404
    for wrong in ("..%2flabels.db", "%2e%2e%2fin%2fred.png", "in/red.png", name[:-1]):
        assert mine.get(f"/pictures/{wrong}").status_code == 404
    headers = mine.get(f"/pictures/{name}").headers
    assert headers["content-type"] == "image/webp"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "default-src 'none'; img-src 'self'; sandbox"
    assert headers["cache-control"].startswith("private")


def test_pages_say_what_pictures_are_and_where_nothing_is(asked, folder):
    client = signed_in(asked, asked.store.write(issue_token, "p", "owner", name="O").pseudonym)
    ids = [task["id"] for task in asked.store.read(project_tasks, "p")]
    paths = ("/manage/tasks", *(f"/manage/tasks/{wanted}" for wanted in ids))
    for language, words in (
        ("en", ("Picture 2", "Answer A&#39;s picture")),
        ("de", ("Bild 2", "Bild von Antwort A")),
        ("ar", ("صورة الإجابة",)),
    ):
        page = "".join(client.get(path, headers={"Accept-Language": language}).text for path in paths)
        assert all(word in page for word in ('alt="A &lt;red&gt; card"', *words)), page
        assert str(folder) not in page
        names = re.findall(r'src="/pictures/([^"]*)"', page)
        assert names
        assert all(re.fullmatch("[0-9a-f]{32}", name) for name in names)


def test_rows_come_out_with_their_pictures_and_go_in_again(asked, folder):
    people = People(store=asked.store, project="p")
    ids = [task["id"] for task in asked.store.read(project_tasks, "p")]
    out = folder / "out/rows.jsonl"
    first = people.export(ids, out)
    rows = [record for record in read_records(out).records if isinstance(record, Comparison)]
    files = {str(path.relative_to(out.parent)): path.read_bytes() for path in out.parent.rglob("*.webp")}
    texts = [text for row in rows for text in (row.prompt, row.chosen, row.rejected)]
    sources = {name for text in texts for name in pictures(text)}
    assert {name.removeprefix(f"{out.parent}/") for name in sources} == {*files}
    assert all(open_picture(str(out.parent / name)).size == (parse_name(name) or ())[1:] for name in files)
    erase_person(asked.store, "p", asked.people(1)[0], actor="o1")
    second = people.export(ids, folder / "again/rows.jsonl")
    assert first.sha256 == second.sha256
    assert files == {f"pictures/{path.name}": path.read_bytes() for path in folder.glob("again/pictures/*")}
    # By the picture that was made smaller alone: its pixels are others now.
    assert [add(asked, out).added, stored(asked.store)] == [2, 4]


def test_a_copy_has_the_pictures_too(asked, folder):
    copy_store(asked.store, folder / "copy.db")
    with closing(open_store(folder / "copy.db")) as copy:
        assert stored(copy) == 3
        assert (
            People(store=copy, project="p")
            .export([task["id"] for task in copy.read(project_tasks, "p")], folder / "copy/rows.jsonl")
            .rows
            == 2
        )
    assert len([*folder.glob("copy/pictures/*.webp")]) == 3


def test_quality_is_reported_of_answers_without_words(make_desk, folder):
    for n in range(6):
        draw(folder / f"in/{n}.png", "red", (60 + n, 40))
    desk = make_desk(tasks=0, overlap=3)
    add(desk, written(folder, [answers(f"in/{n}.png", f"in/{n + 1}.png") for n in range(5)]))
    for person in desk.people(3):
        for _ in range(5):
            desk.answer(person)
    (row, *_) = quality(desk.store, "p").agreement
    assert row.units == 5


def test_a_talk_about_a_picture_is_refused(make_desk, folder):
    desk = make_desk(tasks=0, ask="talk", talks_to="http://127.0.0.1:1/v1#m")
    body = {"prompt": [{"role": "user", "content": [part(data_url(folder / "in/red.png"))]}]}
    with pytest.raises(FieldError, match="words alone"):
        desk.add(stored_bodies(desk.store, "p", [body]))
