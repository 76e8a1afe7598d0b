"""Templates, sentences and text from outside: layout leaves no trace, and what is text stays text."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, strategies as st
from jinja2 import UndefinedError
from markupsafe import Markup

import plaudit.runs.report
from plaudit.evaluation.stats import Estimate
from plaudit.runs.report.charts.axes import element
from plaudit.runs.report.page import docs_section, environment, lay_out, render, stylesheet
from plaudit.runs.report.parts import Command, Exchange, Note, Notes, Page, Samples, Section, Text, say
from plaudit.runs.report.words import escape_invisible

ATTACK = "<script>alert(1)</script>&\"'\u202e"
SHOWN = "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#34;&#39;⟨U+202E⟩"


def printed(template: str, **data: object) -> str:
    return environment().from_string(template).render(data)


@pytest.mark.parametrize(
    ("template", "page"),
    [
        ("<p>\n  One\n  two.\n</p>\n<p>three</p>\n", "<p>One two.</p><p>three</p>"),
        (
            "<ul>\n  {% for n in (1, 2) %}\n  <li>{{ n }}</li>\n  {% endfor %}\n</ul>",
            "<ul><li>1</li><li>2</li></ul>",
        ),
        ("{{ 1 }} <b>two</b> and\n<i>three</i>", "1 <b>two</b> and<i>three</i>"),
        ('<p{% if true %} class="a"{% endif %}>x</p>', '<p class="a">x</p>'),
    ],
)
def test_line_breaks_of_a_template_part_words_and_nothing_else(template: str, page: str) -> None:
    assert printed(template) == page


def test_what_is_printed_is_text_of_which_every_letter_shows_and_every_line_break_stays() -> None:
    assert printed('<p title="{{ text }}">{{ text }}</p>', text=ATTACK) == f'<p title="{SHOWN}">{SHOWN}</p>'
    assert printed("{{ text | shortened(8) }}", text=ATTACK).startswith("&lt;script&gt; … (")
    assert printed("{{ (': ' ~ text) | unbroken }}", text=ATTACK) == f": {SHOWN}"
    assert printed("<pre>\n{{ text }}\n</pre>", text="a\n  b\n<c>") == "<pre>a\n  b\n&lt;c&gt;</pre>"


def test_an_option_is_not_broken_behind_its_hyphens_nor_a_number_from_its_per_cent() -> None:
    text = "give --minibatches 4, or --draw.max-tokens=8: a<b --x is 5 %"
    assert printed("{{ text | unbroken }}", text=text) == (
        'give <span class="option">--minibatches</span> 4, '
        'or <span class="option">--draw.max-tokens</span>=8: '
        "a&lt;b --x is 5\N{NO-BREAK SPACE}%"
    )
    assert ".option { white-space: nowrap; }" in stylesheet("page")


def test_a_place_in_the_docs_leads_to_its_words_on_the_page_itself() -> None:
    notes = [Note("No prompt teaches. docs/policy.md#flat"), Note("docs/policy.md#flat docs//etc/hosts.md")]
    page = render(Page(title="a", heading="a", head=[Notes(notes)], sections=[]))
    assert page.count('<a href="#docs-policy-flat">docs/policy.md#flat</a>') == 2
    assert page.count('<details id="docs-policy-flat"') == 1
    assert "<code>--dynamic-sampling</code>" in page.partition("What the docs say of it")[2]
    assert "etc-hosts" not in page
    text = "".join(path.read_text("utf-8") for path in Path("src/plaudit/methods").rglob("diagnostics.py"))
    headings = re.findall(r"\{DOCS_PAGE\}#([\w-]+)", text)
    assert [
        name for name in headings if not docs_section("policy", name) + docs_section("preference", name)
    ] == []


def test_a_drawing_of_our_own_is_markup_and_a_text_in_a_macro_is_not() -> None:
    assert printed("{{ chart }}", chart=Markup("<svg></svg>")) == "<svg></svg>"
    assert SHOWN in lay_out(Samples([Exchange(prompt=ATTACK, answers=[])]))
    assert lay_out(Command(ATTACK, ATTACK)).count(SHOWN) == 2
    assert lay_out(Notes([Note(ATTACK, about=ATTACK, quiet=ATTACK)])).count(SHOWN) == 3
    assert lay_out(Markup("<svg></svg>")) == "<svg></svg>"


def test_a_page_is_its_sections_in_their_order() -> None:
    sections = [Section(f"Part {name}", name, [Text(ATTACK)]) for name in ("a", "b")]
    page = Page(title=ATTACK, heading="Both", head=[Text("Look.", "lede")], sections=sections)
    written = render(page)
    assert written.index("Look.") < written.index('<h2 id="a">Part a</h2>') < written.index('<h2 id="b">')
    assert written.count(SHOWN) == 3
    assert "<nav" not in written
    assert '<a href="#b">Part b</a>' in render(replace(page, contents=True))


def test_what_a_template_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'name' is undefined"):
        printed("{{ name }}")
    with pytest.raises(AssertionError, match="a template decides"):
        printed("{{ name }}", name=None)
    with pytest.raises(AttributeError, match="str"):
        lay_out("a text that is no part")


def test_no_template_prints_anything_unescaped() -> None:
    folder = resources.files("plaudit.runs.report").joinpath("templates")
    templates = {path.name: path.read_text("utf-8") for path in folder.iterdir()}
    assert set(templates) == {"base.html.j2", "docs.html.j2", "page.html.j2", "parts.html.j2"}
    for text in templates.values():
        assert "safe" not in text
        assert "autoescape" not in text
    assert "</" not in stylesheet("page", "charts", "run", "reports", "lab")


FOLDER = Path(next(iter(plaudit.runs.report.__path__)))


def names(entry: Any, above: str = "") -> Iterator[str]:
    """The names of all sentences; the three of a warning have one."""
    for name, below in entry.items():
        is_group = isinstance(below, dict) and "finding" not in below
        yield from names(below, f"{above}{name}.") if is_group else [above + name]


def patterns() -> Iterator[str]:
    """Every string of the package's code as a pattern; what is filled in may be anything."""
    # The pages of the exercises stand among the examples.
    for path in (*FOLDER.rglob("*.py"), *Path("examples/exercises").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [re.escape(x.value) if isinstance(x, ast.Constant) else ".*" for x in node.values]
                yield from [] if parts[0] == ".*" else ["".join(map(str, parts))]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.escape(node.value)


def test_every_sentence_is_said_somewhere() -> None:
    written = yaml.safe_load(
        resources.files("plaudit.runs.report").joinpath("sentences.yaml").read_text("utf-8")
    )
    said = [re.compile(one) for one in set(patterns())]
    unsaid = [
        name
        for name in names(written)
        if not any(one.fullmatch(name) or one.fullmatch(name.removeprefix("doubts.")) for one in said)
    ]
    assert unsaid == []


def test_a_field_is_written_as_its_sentence_says_and_never_read_as_one() -> None:
    worth = Estimate(value=0.5, low=0.25, high=0.75, n=9, prompts=9)
    assert say("run.went", before=float("nan"), after=0.0612) == "went from not finite to 0.0612"
    assert say("reward.overlap", names="{accuracy} {0}").startswith(
        "Its interval overlaps with that of {accuracy} {0}:"
    )
    assert say("category_fell", name="x" * 60, before=worth, after=worth).startswith("x" * 40 + " … (20 more")
    with pytest.raises(KeyError, match="after"):
        say("run.went", before=1.0)
    with pytest.raises(KeyError, match="nothing"):
        say("run.nothing")


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
