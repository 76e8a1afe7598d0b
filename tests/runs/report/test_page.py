"""Templates: their layout leaves no trace, what they print is text, what they lack is an error."""

import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from plaudit.runs.report.page import docs_section, environment, lay_out, render, stylesheet
from plaudit.runs.report.parts import Command, Exchange, Note, Notes, Page, Samples, Section, Text

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
