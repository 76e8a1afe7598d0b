"""The pictures of the docs: each page of the app at both widths, small enough to lie in the repository."""

import re
from pathlib import Path

from plaudit.collect.app.server import PAGES
from tools import pictures

ROOT = Path(__file__).resolve().parents[3]
# Downloads, pages of a moment (a redirect, a link that works once), and a list that has one project here.
WITHOUT = {"/", "/entered", "/start/{secret}", "/manage/pay.csv", "/projects", "/pictures/{hash}"}


def test_every_page_has_a_picture_at_each_width(tmp_path: Path) -> None:
    folder = ROOT / pictures.FOLDER
    files = {file.name for file in folder.iterdir()}
    names = {re.sub(r"-(desktop|phone)\.webp$", "", file) for file in files}
    assert files == {f"{name}-{size}.webp" for name in names for size in pictures.WIDTHS}
    assert sum(file.stat().st_size for file in folder.iterdir()) < 1_500_000
    with pictures.ExitStack() as stack:
        shop = pictures.opened_shop(stack, tmp_path, "pair")
        shown = {name: path for name, _, path in pictures.pages_of(shop)}
    assert set(shown) | {f"label-{kind}" for kind in (*pictures.KINDS, pictures.PICTURED)} == names
    for page in PAGES:
        if page.method == "GET" and page.path not in WITHOUT:
            pattern = re.sub(r"\\\{\w+\\\}", r"[^/]+", re.escape(page.path))
            assert any(re.fullmatch(pattern, path) for path in (*shown.values(), "/label")), page.path
