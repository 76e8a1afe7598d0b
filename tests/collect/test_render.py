"""What pages are made of: the words of three languages, untrusted texts, differences, static files."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from plaudit.collect.app.render import (
    LANGUAGES,
    clean_markdown,
    differences,
    environment,
    render,
    speaker,
    static,
    static_file,
    static_version,
    words,
)

_PLURAL = re.compile(r"\.(zero|one|two|few|many|other)$")
_FORMS = {
    "en": {"one", "other"},
    "de": {"one", "other"},
    "ar": {"zero", "one", "two", "few", "many", "other"},
}


def visit(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{
            "who": SimpleNamespace(pseudonym="a1", project="p", scopes=("label",)),
            "session": SimpleNamespace(id="5e55"),
            "address": "/label",
            "solo": False,
            "form_token": "f0rm",
            **more,
        }
    )


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
        f"{key}.{form}" for key in counted for form in _FORMS[language]
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


@pytest.mark.parametrize(
    "attack",
    [
        "<img src=x onerror=alert(1)>",
        "[a](javascript:alert(1))",
        "[a](data:text/html,<script>alert(1)</script>)",
        "![a](https://tracker.example/pixel.png)",
        "<svg onload=alert(1)>",
        "<javascript:alert(1)>",
        '[a](https://a.example "onmouseover=alert(1)")',
    ],
)
def test_markdown_runs_nothing_and_loads_nothing(attack: str) -> None:
    tags = re.findall(r"<[^>]*>", str(clean_markdown(attack)))
    assert all(re.fullmatch(r'</?p>|</a>|<a href="https?://[^"]*"[^<>]*>', tag) for tag in tags), tags
    assert not any("alert" in tag or "title" in tag for tag in tags)


def test_links_of_markdown_open_elsewhere_and_tell_nothing() -> None:
    html = str(clean_markdown("[a](https://a.example)"))
    assert 'target="_blank"' in html
    assert "noopener" in html


def test_a_conversation_says_who_speaks() -> None:
    turns = [{"role": "user", "content": "Hi <b>"}, {"role": "assistant", "content": "Hello"}]
    page = environment().from_string("{{ text(turns) }}").render(turns=turns, lang="en", w=speaker("en"))
    assert re.findall(r'<p class="role">(\w+)</p>', page) == ["Person", "Assistant"]
    assert "Hi &lt;b&gt;" in page


def test_differences_put_together_are_the_texts_by_lines_where_long_and_none_of_the_longest() -> None:
    left, right = "It is four.\nTruly.", "It is five, I think.\nTruly."
    both = differences(left, right)
    assert tuple("".join(piece for piece, _ in side) for side in both) == (left, right)
    assert ("four", True) in both[0]
    left, right = "a b c d\n" * 2_000, "a b c d\n" * 1_999 + "e\n"
    assert differences(left, right)[1][-1] == ("e\n", True)
    assert differences("a\n" * 5_000, "b\n" * 5_000) == ([("a\n" * 5_000, False)], [("b\n" * 5_000, False)])


def test_static_files_have_addresses_that_change_with_them() -> None:
    assert static("app.css") == f"/static/{static_version()}/app.css"
    found = static_file("app.css")
    assert found is not None
    assert found[1].startswith("text/css")
    assert static_file("../render.py") is None
