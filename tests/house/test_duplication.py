"""The duplication checker finds repeated passages whatever their spacing, comments and docstrings."""

from pathlib import Path

import pytest

from tools import duplication

PASSAGE = "".join(f"step_{i} = compute({i}, mode='x')\n" for i in range(6))


def own(name: str, lines: int) -> str:
    return "".join(f"{name}_{i} = {i}\n" for i in range(lines))


def share(root: Path, capsys: pytest.CaptureFixture[str], **files: str) -> tuple[int, str]:
    (root / "src").mkdir(exist_ok=True)
    for name, text in files.items():
        (root / "src" / f"{name}.py").write_text(text)
    return duplication.main(root), capsys.readouterr().out.splitlines()[-1]


def test_a_passage_in_two_files_is_found(tmp_path, capsys):
    status, said = share(tmp_path, capsys, a=PASSAGE, b=PASSAGE)
    assert (status, said) == (1, "12 of 12 code lines (100.0%) stand elsewhere too, limit 5%")


def test_a_passage_twice_in_one_file_is_found(tmp_path, capsys):
    assert share(tmp_path, capsys, a=PASSAGE + own("between", 3) + PASSAGE)[1].startswith("12 of 15 ")


def test_every_copy_is_named(tmp_path, capsys):
    (tmp_path / "src").mkdir()
    for name in "abc":
        (tmp_path / "src" / f"{name}.py").write_text(PASSAGE)
    assert duplication.main(tmp_path) == 1
    said = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in said[:-1]] == [
        f"src/{name}.py:{number}" for name in "abc" for number in range(1, 7)
    ]


def test_spaces_comments_docstrings_imports_and_brackets_do_not_hide_a_copy(tmp_path, capsys):
    lines = PASSAGE.splitlines()
    copy = ["def f():", '    """A docstring."""', "    import os", ""]
    copy += [f"    {line.replace(', ', ' ,  ')}  # {number}" for number, line in enumerate(lines)]
    copy.insert(7, "    # a comment")
    copy.insert(9, '    """Another string."""')
    status, said = share(tmp_path, capsys, a=PASSAGE, b="\n".join(copy) + "\n")
    assert (status, said[:12]) == (1, "12 of 13 cod")


@pytest.mark.parametrize(
    "files",
    [
        {"a": "".join(PASSAGE.splitlines(keepends=True)[:5]), "b": "".join(PASSAGE.splitlines(True)[:5])},
        {"a": PASSAGE, "b": PASSAGE.replace("step_3", "other")},
        {"a": "x = 1\n" * 11},
        {"a": "import os\n" * 9 + own("a", 1), "b": "import os\n" * 9 + own("b", 1)},
    ],
    ids=["five lines", "one line differs", "a run of equal lines", "imports"],
)
def test_what_is_no_copy_does_not_count(files, tmp_path, capsys):
    status, said = share(tmp_path, capsys, **files)
    assert (status, said[:5]) == (0, "0 of ")


@pytest.mark.parametrize(("rest", "status"), [(228, 1), (229, 0)])
def test_the_limit_is_five_in_a_hundred(rest, status, tmp_path, capsys):
    assert share(tmp_path, capsys, a=PASSAGE + own("rest", rest), b=PASSAGE)[0] == status


def test_no_code_does_not_pass(tmp_path, capsys):
    assert share(tmp_path, capsys)[0] == 1
    assert share(tmp_path, capsys, a='"""Only words."""\n')[0] == 1
