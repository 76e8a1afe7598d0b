"""What is registered stands where one looks for it: steps of CONTRIBUTING.md that no other test asks for."""

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path

import pytest

from plaudit.collect.kinds import KINDS
from plaudit.errors import UserError
from plaudit.feedback.judges.modes import HOWS, MODES
from plaudit.feedback.judges.wording import wording_named
from plaudit.index import homes_of
from plaudit.methods.iterative.algorithms import ITERATIVE_ALGORITHMS
from plaudit.methods.policy.algorithms import POLICY_ALGORITHMS
from plaudit.methods.policy.cells import CELLS as POLICY_CELLS, NAMED
from plaudit.methods.preference.algorithms import PREFERENCE_ALGORITHMS
from plaudit.methods.preference.cells import CELLS as PREFERENCE_CELLS
from plaudit.methods.registry import METHODS
from plaudit.rewards.registry import resolve_reward
from plaudit.runs.pipeline.kinds import page_sections
from plaudit.wings import Wing, everything

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "plaudit"


def reward_words() -> list[str]:
    with pytest.raises(UserError) as refusal:
        resolve_reward("no-such-reward")
    listed = str(refusal.value).partition("There is ")[2]
    return [word for word in re.split(", | and ", listed) if " " not in word]


def options(cells: Iterable[str]) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in cells]


def in_tables(text: str) -> set[str]:
    cells = re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE)
    return {name for cell in cells for name in (cell.strip(), *re.findall(r"`([^`]+)`", cell))}


def in_code(text: str) -> set[str]:
    """The words of code, within a line or in a block of its own; of a command, its first two."""
    codes = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    commands = re.findall(r"plaudit (?:train )?[\w-]+", text)
    return {*commands, *(word for code in codes for word in re.findall(r"[\w-]+", code))}


REGISTERED: dict[str, tuple[Callable[[], Iterable[str]], Callable[[str], set[str]], str]] = {
    "preference algorithm": (lambda: PREFERENCE_ALGORITHMS, in_code, "preference.md algorithms/*.md"),
    "setting of preferences": (lambda: options(PREFERENCE_CELLS), in_code, "preference.md"),
    "policy algorithm": (lambda: POLICY_ALGORITHMS, in_code, "policy.md algorithms/*.md"),
    "setting of policies": (lambda: options(POLICY_CELLS), in_code, "policy.md"),
    "cell of policies": (lambda: (name for table in NAMED.values() for name in table), in_code, "policy.md"),
    "loop": (lambda: ITERATIVE_ALGORITHMS, in_tables, "loops.md"),
    "method": (lambda: [f"plaudit train {name}" for name in METHODS], in_code, "*.md"),
    "verb": (lambda: [f"plaudit {name}" for name in everything("verbs")], in_code, "*.md"),
    "reward": (reward_words, in_tables, "rewards.md"),
    "mode of judges": (lambda: HOWS, in_tables, "ai-feedback.md"),
    "judge": (lambda: everything("judges"), in_code, "ai-feedback.md"),
    "kind of task": (lambda: KINDS, in_tables, "collecting-teams.md"),
    "stage": (lambda: everything("stages"), in_tables, "run.md"),
    "field of a wing": (lambda: [field.name for field in fields(Wing)], in_tables, "extending.md"),
    "section": (lambda: [section.title for section in page_sections().values()], in_tables, "report.md"),
}
"""What is registered, where on a page it stands, and on which page of docs."""


@pytest.mark.parametrize("what", REGISTERED)
def test_what_is_registered_is_named_on_its_page(what):
    names, named_in, pages = REGISTERED[what]
    paths = [path for page in pages.split() for path in (ROOT / "docs").glob(page)]
    named = {name for path in paths for name in named_in(path.read_text("utf-8"))}
    assert [name for name in names() if name not in named] == [], f"a {what} that docs/{pages} should name"


@pytest.mark.parametrize("table", [PREFERENCE_ALGORITHMS, POLICY_ALGORITHMS], ids=["preference", "policy"])
def test_an_algorithm_is_in_the_public_index(table):
    """A loop is none: it is a record, and no function that somebody could call."""
    assert [name for name in table if name.replace("-", "_") not in homes_of(PACKAGE / "__init__.pyi")] == []


@pytest.mark.parametrize("chapter", ["losses", "advantages"])
def test_a_function_of_a_chapter_is_in_its_index_and_in_its_tests(chapter):
    public = [
        (path.stem, node.name)
        for path in sorted((PACKAGE / chapter).glob("*.py"))
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name != path.stem
    ]
    index = homes_of(PACKAGE / chapter / "__init__.pyi")
    tested = words_of_tests(chapter, "oracles", "methods")
    assert [place for place in public if place[1] not in index] == []
    assert [place for place in public if place[1] not in tested] == []


def words_of_tests(*folders: str) -> set[str]:
    paths = [path for folder in folders for path in (ROOT / "tests" / folder).rglob("*.py")]
    return {word for path in paths for word in re.findall(r"[\w-]+", path.read_text("utf-8"))}


TESTED: dict[str, tuple[Callable[[], Iterable[str]], str, str]] = {
    # Tests of their pages ask that each check has one, and no other.
    "check": (lambda: [page.stem for page in (ROOT / "docs/checks").glob("*.md")], '"{}"', "tests"),
    "reward": (lambda: [re.split(r"\W", word)[0] for word in reward_words()], r'"{}\b', "tests"),
    "mode of judges": (lambda: HOWS, 'how="?{}', "tests/feedback"),
    "stage": (lambda: everything("stages"), r"""do"?: "?{}\b""", "tests"),
}
"""What is registered without a table of its tests that has to be whole, how it is named there, and where."""


@pytest.mark.parametrize("what", TESTED)
def test_what_is_registered_is_named_in_tests(what):
    names, form, folder = TESTED[what]
    paths = [path for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    text = "\n".join(path.read_text("utf-8") for path in paths)
    assert [name for name in names() if not re.search(form.format(name), text)] == [], (
        f"no {what} of {folder}"
    )


def test_every_mode_of_judges_can_be_chosen_and_has_its_wording():
    assert {*MODES} == {*HOWS}
    assert all(wording_named(mode).version for mode in MODES)


RECIPES = dict(
    re.findall(
        r"^### (.+?)\n(.+?)(?=^##)",
        (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Adding to it")[2],
        re.MULTILINE | re.DOTALL,
    )
)
"""The recipes of CONTRIBUTING.md, by their titles."""
PATH = re.compile(r"`([\w./]*\w/[\w./]+|[\w/]+\.(?:pyi?|md|yaml))`")


@pytest.mark.parametrize("title", RECIPES)
def test_the_files_and_tables_that_a_recipe_names_are_there(title):
    """With <name> left out: those are the ones that the recipe is for."""
    places = {
        path: [root / path for root in (ROOT, PACKAGE) if (root / path).exists()]
        for path in PATH.findall(RECIPES[title])
    }
    assert places
    assert {path for path, there in places.items() if not there} <= {"stages.py", "wing.py"}
    files = [place for there in places.values() for place in there if place.suffix == ".py"]
    text = "\n".join(file.read_text("utf-8") for file in files)
    tables = re.findall(r"`([A-Z_]{3,})`", RECIPES[title])
    assert [name for name in tables if not re.search(rf"^{name}\b", text, re.MULTILINE)] == []


def test_whatever_is_registered_has_a_recipe():
    """Of the tables above; a loop, a method and a setting are made as what stands beside them."""
    kinds = {"preference algorithm", "policy algorithm", "reward", "judge's mode", "kind of task", "check"}
    kinds |= {"stage of pipelines", "section of the pipeline's page", "row format", "loss"}
    assert {title.removeprefix("A ") for title in RECIPES} == kinds
