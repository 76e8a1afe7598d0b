"""What pages are made of: the words of three languages, untrusted texts, differences, static files."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from plaudit.collect.app.render import (
    LANGUAGES,
    environment,
    render,
    speaker,
    static,
    static_file,
    static_version,
    words,
)
from plaudit.collect.app.texts import clean_markdown, differences, html_of
from tests.collect.hostile import HOSTILE

_PLURAL = re.compile(r"\.(zero|one|two|few|many|other)$")
FORMS = {"en": {"one", "other"}, "de": {"one", "other"}, "ar": {"zero", "one", "two", "few", "many", "other"}}


def visit(**more: Any) -> SimpleNamespace:
    who, session = SimpleNamespace(pseudonym="a1", project="p", scopes=("label",)), SimpleNamespace(id="5e55")
    usual = {"who": who, "session": session, "address": "/label", "solo": False, "form_token": "f0rm"}
    return SimpleNamespace(**{**usual, **more})


def _refused(language: str = "en", **more: Any) -> str:
    values = {"visit": visit(), "nav": [], "status": 409, "message": "no", "field": None, **more}
    return render("refused.html", language=language, values=values)


def test_a_page_names_its_language_and_direction() -> None:
    assert '<html lang="de" dir="ltr">' in _refused("de")
    assert '<html lang="ar" dir="rtl">' in _refused("ar")


def test_what_is_printed_is_escaped_and_shows_every_letter() -> None:
    page = _refused(message="<script>alert(1)</script> \u202e")
    assert "&lt;script&gt;" in page
    assert "<script>alert" not in page
    assert "⟨U+202E⟩" in page


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_the_same_words_with_the_same_places(language: str) -> None:
    english, other = words("en"), words(language)
    plain = {key for key in english if not _PLURAL.search(key)}
    counted = {_PLURAL.sub("", key) for key in english if _PLURAL.search(key)}
    assert {key for key in other if not _PLURAL.search(key)} == plain
    assert {key for key in other if _PLURAL.search(key)} == {
        f"{key}.{form}" for key in counted for form in FORMS[language]
    }
    for key in plain:
        assert _places(other[key]) == _places(english[key]), key
        assert other[key].strip() == other[key], key
    for key, text in other.items():
        # A form for one or two may leave the number out, as "one answer" does.
        if match := _PLURAL.search(key):
            assert _places(text) | {"n"} == _places(english[f"{key[: match.start()]}.other"]) | {"n"}, key


def _places(text: str) -> set[str]:
    return {*re.findall(r"\{(\w*)\}", text)}


def test_every_word_that_a_template_uses_is_there() -> None:
    loader = environment().loader
    assert loader is not None
    known = {_PLURAL.sub("", key) for key in words("en")}
    for name in loader.list_templates():
        source, _, _ = loader.get_source(environment(), name)
        # A key that ends in a sign is the beginning of one that is put together.
        for key in re.findall(r"""\bw\(\s*"([^"%~]+)"\s*[,)]""", source):
            assert key in known, (name, key)


def test_numbers_take_the_form_that_the_language_has_for_them() -> None:
    assert str(speaker("de")("answers", n=1)) == "1 Antwort"
    assert str(speaker("ar")("answers", n=2)) == "إجابتان"


def test_what_stands_in_a_sentence_is_escaped_once_and_set_apart_where_letters_run_the_other_way() -> None:
    page = environment().from_string('{{ w("answer", letter=own("a & <b>")) }}')
    assert page.render(lang="en", w=speaker("en")) == "Answer a &amp; &lt;b&gt;"
    assert str(speaker("en")("answer", letter="a & <b>")) == "Answer a &amp; &lt;b&gt;"
    assert "\u2068A\u2069" in str(speaker("ar")("answer", letter="A"))


@pytest.mark.parametrize("attack", HOSTILE)
def test_markdown_runs_nothing_and_loads_nothing(attack: str) -> None:
    attribute = r'(href="(https?|mailto):[^"]*"|(?!on|style)[a-z]+="[\w -]*")'
    safe = re.compile(rf"</?(?!img|svg|script|style)[a-z0-9]+( {attribute})*>")
    tags = re.findall(r"<[^>]*>", clean_markdown(attack))
    assert [tag for tag in tags if not safe.fullmatch(tag)] == []


def test_a_conversation_says_who_speaks() -> None:
    turns = [{"role": "user", "content": "Hi <b>"}, {"role": "assistant", "content": "Hello"}]
    page = environment().from_string("{{ text(turns) }}").render(turns=turns, lang="en", w=speaker("en"))
    assert re.findall(r'<p class="role">(\w+)</p>', page) == ["Person", "Assistant"]
    assert "Hi &lt;b&gt;" in page


FORMULAS = yaml.safe_load(Path(__file__).with_name("markdown.yaml").read_text("utf-8"))
DEEP = ("$" + "{" * 1_900 + "$", "<code>", "<math")


@pytest.mark.parametrize(("source", "holds", "lacks"), [*FORMULAS, DEEP])
def test_formulas_and_code_are_drawn_and_money_and_what_is_broken_is_shown_as_it_is(source, holds, lacks):
    html = clean_markdown(source).replace('<math display="inline">', "<math>")
    assert (holds in html, lacks in html) == (True, False), html


@pytest.mark.parametrize(("markdown", "marks"), [(False, "&lt;<mark>b</mark>"), (True, "<mark><math")])
def test_differences_put_together_are_the_texts(markdown: bool, marks: str) -> None:
    texts = "It is **four**.\n\n$x^2$ & <b>\n", "It is five, I *think*.\n\n$x_2$ & <i>\n"
    left, right = differences(*texts, markdown) or ("", "")
    unmarked = [re.sub("</?mark>", "", side) for side in (left, right)]
    assert unmarked == [html_of(text, markdown) for text in texts]
    assert marks in left


def test_long_texts_are_compared_by_lines() -> None:
    _, right = differences("a b c d\n" * 2_000, "a b c d\n" * 1_999 + "e\n") or ("", "")
    assert right.endswith("d\n<mark>e</mark>\n</div>")


def test_static_files_have_addresses_that_change_with_them() -> None:
    assert static("app.css") == f"/static/{static_version()}/app.css"
    found = static_file("app.css")
    assert found is not None
    assert found[1].startswith("text/css")
    assert static_file("../render.py") is None
