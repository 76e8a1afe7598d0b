"""Text from outside is text, whatever it looks like, and every letter of it can be seen."""

from html.parser import HTMLParser

import pytest
from hypothesis import given, strategies as st

from plaudit.runs.report.charts.axes import element
from plaudit.runs.report.words import escape_invisible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bell\x07 nul\x00 escape\x1b[2J", "bell⟨U+0007⟩ nul⟨U+0000⟩ escape⟨U+001B⟩[2J"),
        ("\u202egpj.exe", "⟨U+202E⟩gpj.exe"),
        ("zero\u200bwidth \u2066isolate\u2069", "zero⟨U+200B⟩width ⟨U+2066⟩isolate⟨U+2069⟩"),
        ("half \ud83d", "half ⟨U+D83D⟩"),
        ("hidden \U000e0041", "hidden ⟨U+E0041⟩"),
        ("tab\tand line\nstay", "tab\tand line\nstay"),
        ("👩‍👩‍👧 ক্‍ষ می‌خواهم مرحبا", "👩‍👩‍👧 ক্‍ষ می‌خواهم مرحبا"),
    ],
)
def test_what_cannot_be_seen_is_named_and_what_belongs_to_a_script_stays(text: str, shown: str) -> None:
    assert escape_invisible(text) == shown


@given(st.text(), st.text())
def test_any_text_comes_back_from_the_page_as_it_was_shown(text: str, value: str) -> None:
    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__(convert_charrefs=True)
            self.found: list[object] = []
            self.text = ""

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found.append((tag, attrs))

        def handle_data(self, data: str) -> None:
            self.text += data

    reader = Reader()
    reader.feed(element("p", {"title": value}, text))
    reader.close()
    assert reader.found == [("p", [("title", escape_invisible(value))])]
    assert reader.text == escape_invisible(text)
