"""tools.targets: each figure is counted as it says, and one that leaves its bound is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import targets
from tools.targets import VAGUE, Figure, code_lines, comment_lines, prefix_families, shared_names
from tools.words import refused_words

TEXT = '''"""A module.

Two lines more.
"""

from __future__ import annotations

# Why, and
# why not.
LIMIT = 3  # noqa: PLR2004
"""What it is."""


def half(number: int) -> float:
    """Half of it."""
    return (
        number / 2  # a float
    )
'''


def test_code_is_neither_blank_nor_comment_nor_docstring_and_comments_for_tools_are_none():
    assert code_lines(TEXT) == 6
    assert code_lines('x = """\ntext\n"""\n') == 3
    assert comment_lines(TEXT) == 3


def test_the_vague_names_that_are_counted_are_those_of_the_page():
    assert {*VAGUE} == {*refused_words(Path(__file__).resolve().parents[2]).vague}


def test_three_files_on_one_prefix_are_a_family_and_a_name_of_more_is_found_unless_all_chapters_have_it():
    files = [Path(f"src/cli/eval_{name}.py") for name in ("reward", "policy", "tables")]
    assert prefix_families(files) == ["src/cli/eval_*"]
    assert prefix_families([*files[:2], Path("src/lab/eval_tables.py")]) == []
    files = [Path(f"{folder}/{name}.py") for folder in "abcd" for name in ("load", "run")]
    assert shared_names(files) == ["load (4)"]


@pytest.mark.parametrize(
    ("value", "status", "words"), [(3, 0, "reached"), (5, 0, "target 4"), (7, 1, "WORSE than 6")]
)
def test_only_what_leaves_its_bound_fails(tmp_path, monkeypatch, capsys, value, status, words):
    (tmp_path / "src" / "plaudit").mkdir(parents=True)
    (tmp_path / "src" / "plaudit" / "a.py").write_text('"""A module."""\n', "utf-8")
    figure = Figure(name="files", value=value, target=4, bound=6)
    monkeypatch.setattr(targets, "source_figures", lambda files: iter([figure]))
    monkeypatch.setattr(targets, "run_figures", lambda root: iter(()))
    assert targets.main(tmp_path) == status
    assert words in capsys.readouterr().out


def test_where_there_is_nothing_nothing_is_well(tmp_path, capsys):
    assert targets.main(tmp_path) == 1
    assert "nothing to check" in capsys.readouterr().out
