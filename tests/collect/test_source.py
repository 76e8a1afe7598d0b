"""What the source of the app never does, whatever its tests happen to ask: found by reading it."""

import ast
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

import plaudit.collect

FOLDER = Path(plaudit.collect.__file__).parent
SOURCES = sorted(FOLDER.rglob("*.py"))
TEMPLATES = sorted((FOLDER / "app" / "templates").rglob("*.html"))
SCRIPTS = sorted((FOLDER / "app" / "static").glob("*.js"))


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_nothing_runs_words_as_code(path):
    for name, call in calls(path):
        assert name not in ("eval", "exec", "compile", "os.system", "os.popen", "yaml.load"), name
        assert not any(keyword.arg == "shell" for keyword in call.keywords), name
        # SQL by hand is never put together: but for SQLite's settings, which take no parameters.
        if name in ("text", "sqlalchemy.text") or name.endswith((".exec_driver_sql", ".execute")):
            words = ast.unparse(call.args[0])
            is_made = isinstance(call.args[0], ast.JoinedStr | ast.BinOp) or ".format(" in words
            assert not is_made or words.startswith("f'PRAGMA "), f"{name} at line {call.lineno}: {words}"
    unsafe = {"pickle", "shelve", "marshal", "dill", "xml", "lxml", "telnetlib", "ftplib"}
    # Formulas are written as XML, and no XML is ever read.
    writes = {"xml"} if path.name == "texts.py" else set[str]()
    assert unsafe & {*imports(path)} == writes
    assert not re.search(
        r"fromstring|XMLParser|iterparse|\.parse\(|\.XML\(", path.read_text("utf-8") if writes else ""
    )


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_hashes_are_of_the_kinds_that_still_hold(path):
    words = path.read_text("utf-8")
    # hmac.new is given its hash as hashlib.sha256 too.
    assert {*re.findall(r"hashlib\.(\w+)", words)} <= {"sha256", "file_digest"}
    assert words.count("file_digest(") == len(re.findall(r'file_digest\(\w+, "sha256"\)', words))
    assert {"cryptography", "Crypto", "nacl", "ssl"} & {*imports(path)} == set()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_secrets_are_made_by_the_machine(path):
    # Which task comes next is to be the same draw at every replay, and is no secret.
    assert "random" not in {*imports(path)} or path.name in (
        "assigning.py",
        "drawing.py",
        "routed.py",
        "stage.py",
    )


class _Tags(HTMLParser):
    """Every tag of a template, with its attributes; the words of Jinja are taken out first."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.found = list[tuple[str, dict[str, str]]]()
        self.within = dict[str, str]()
        self._open = ""
        words = re.sub(r"\{#.*?#\}|\{%.*?%\}", " ", path.read_text("utf-8"), flags=re.DOTALL)
        self.feed(re.sub(r"\{\{.*?\}\}", "value", words, flags=re.DOTALL))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))
        self._open = tag

    def handle_data(self, data: str) -> None:
        self.within[self._open] = self.within.get(self._open, "") + data.strip()

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_pages_hold_no_script_style_or_handler_of_their_own(path):
    tags = _Tags(path)
    for tag, given in tags.found:
        assert not any(name.startswith("on") or name in ("style", "srcdoc") for name in given), (tag, given)
        assert tag not in ("iframe", "object", "embed", "base", "style"), tag
        if tag == "script":
            assert given["src"] == "value", given
        if tag in ("img", "link", "source"):
            assert given.get("src", given.get("href")) == "value", given
    assert tags.within.get("script", "") == ""


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_never_switch_escaping_off(path):
    words = path.read_text("utf-8")
    assert re.findall(r"\|\s*safe\b|autoescape\s+false|\|\s*tojson", words) == []
    # An attribute without quotes ends at the first blank of a text.
    assert re.findall(r"\s[\w-]+=\{\{", words) == []


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_form_that_changes_something_holds_its_token(path):
    for form in re.findall(r"<form\b.*?</form>", path.read_text("utf-8"), re.DOTALL):
        assert re.search(r'method="(get|dialog)"', form) or "hidden()" in form, form[:100]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_write_text_and_never_markup(path):
    words = path.read_text("utf-8")
    assert not re.search(r"[\"']paste[\"'][^}]*preventDefault", words)
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert forbidden not in words, forbidden
    assert re.findall(r"https?://|\bimport\(|new Worker|WebSocket|setTimeout\(\s*[\"'`]", words) == []
