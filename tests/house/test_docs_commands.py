"""Every command that README and docs show is run, and prints what they say it prints."""

from pathlib import Path

import pytest

from tests.house.docs_commands import DocsError, blocks_of, run_page, shows

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = """
agreement ai-feedback by-hand checks collecting-teams constitutional control evaluating-policies
from-openrlhf first-model judging-rewards lab red-teaming troubleshooting loops parallel plan policy
preference proof python report resume reward-models run supervised talking ten-minutes world
"""
LONG = {"README.md", *(f"docs/{name}.md" for name in NAMES.split())}
"""Pages of commands that load torch: ten seconds and more, and minutes for README.md."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name, marks=[pytest.mark.slow] if name in LONG else [])
        for page, name in ((page, str(page.relative_to(ROOT))) for page in PAGES)
    ],
)
def test_the_commands_of_a_page_run_as_shown(page, tmp_path):
    text = page.read_text("utf-8")
    commands = [block for block in blocks_of(text) if block.language == "bash" and block.mark != "not run"]
    assert run_page(text, ROOT / "examples", tmp_path) == len(commands)


def test_the_readme_shows_commands_that_are_run():
    blocks = blocks_of((ROOT / "README.md").read_text("utf-8"))
    assert [block for block in blocks if block.language == "bash" and block.mark != "not run"]


def page(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def fenced(language: str, *lines: str) -> str:
    return "\n".join(["```" + language, *lines, "```"])


def test_blocks_of_a_page_share_one_folder_with_the_examples(tmp_path):
    examples = tmp_path / "examples"
    examples.mkdir()
    (examples / "rows.txt").write_text("one\ntwo\n")
    work = tmp_path / "work"
    work.mkdir()
    address = fenced("bash", "wc -l < examples/rows.txt > count")
    text = page(address, "Then:", fenced("bash", "cat count"), "<!-- output -->", fenced("text", "2"))
    assert run_page(text, examples, work) == 2
    assert not (examples / "count").exists()


def test_a_command_that_fails_anywhere_and_output_that_differs_fail_the_page(tmp_path):
    with pytest.raises(DocsError, match="exit code 3"):
        run_page(page("# Page", fenced("bash", "exit 3")), tmp_path / "none", tmp_path)
    for command in ("false | cat", "false\ntrue"):
        with pytest.raises(DocsError, match="exit code 1"):
            run_page(page(fenced("bash", command)), tmp_path / "none", tmp_path)
    text = page(fenced("bash", "echo 4 rows"), "", "<!-- output -->", fenced("text", "5 rows"))
    with pytest.raises(DocsError, match="but this came out\n4 rows"):
        run_page(text, tmp_path / "none", tmp_path)


def test_a_block_with_a_reason_is_not_run(tmp_path):
    text = page("<!-- not run: it downloads a model -->", fenced("bash", "exit 1"))
    assert run_page(text, tmp_path / "none", tmp_path) == 0


def test_the_programs_of_the_environment_come_first_and_the_hub_is_off(tmp_path):
    address = fenced("bash", "plaudit --version", 'echo "offline=$HF_HUB_OFFLINE"')
    text = page(address, "<!-- output -->", fenced("text", "plaudit ...", "offline=1"))
    assert run_page(text, tmp_path / "none", tmp_path) == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (page("<!-- not run -->", fenced("bash", "true")), "say why"),
        (page("<!-- not run: -->", fenced("bash", "true")), "say why"),
        (page("<!-- not run: slow -->", "words", fenced("bash", "true")), "must follow"),
        (page("<!-- not run: slow -->"), "page ends"),
        (page("<!-- not run: slow -->", fenced("python", "1")), "in front of python"),
        (page(fenced("sh", "true")), "call it bash"),
        (page(fenced("console", "$ true")), "call it bash"),
        (page("```bash", "true"), "no end"),
        (page("<!-- output -->", fenced("text", "x")), "no command that is run"),
        (page(fenced("bash", "true"), "<!-- output -->", fenced("json", "1")), "text block"),
        (
            page("<!-- not run: slow -->", fenced("bash", "true"), "<!-- output -->", fenced("text", "x")),
            "no command that is run",
        ),
    ],
)
def test_markup_that_would_hide_a_block_is_refused(text, complaint):
    with pytest.raises(DocsError, match=complaint):
        blocks_of(text)


def test_blocks_inside_lists_lose_their_indent_and_a_fence_inside_a_longer_one_is_content():
    text = page("1. First:", "", "   ```bash", "   if true; then", "     true", "   fi", "   ```")
    assert blocks_of(text)[0].text == "if true; then\n  true\nfi\n"
    text = page("````markdown", "```bash", "exit 1", "```", "````")
    assert [block.language for block in blocks_of(text)] == ["markdown"]


@pytest.mark.parametrize(
    ("wanted", "output", "found"),
    [
        ("b\n", "a\nb\nc\n", True),
        ("b\nc\n", "a\nb\nc\n", True),
        ("a\nc\n", "a\nb\nc\n", False),
        ("a\n...\nc\n", "a\nb\nb\nc\n", True),
        ("a\n...\nc\n", "a\nc\n", True),
        ("c\n...\na\n", "a\nb\nc\n", False),
        ("loss 1... in ... s\n", "loss 1.25 in 3.1 s\n", True),
        ("loss 1\n", "loss 12\n", False),
        ("oss 1\n", "loss 1\n", False),
        ("a\n\nb\n", "a  \n\nb\n", True),
        ("(1+1)\n", "(1+1)\n", True),
    ],
)
def test_shown_lines_are_looked_for_in_the_output(wanted, output, found):
    assert shows(wanted, output) is found
