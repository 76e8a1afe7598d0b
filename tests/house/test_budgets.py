"""The budget checker sees what is over its budget, and only that."""

from pathlib import Path

import pytest

from tools import budgets


def check(root: Path, capsys: pytest.CaptureFixture[str], **files: str) -> tuple[int, list[str]]:
    for name, text in files.items():
        path = root / "src" / "plaudit" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return budgets.main(root), capsys.readouterr().out.splitlines()


def function(lines: int, docstring: str = "") -> str:
    body = [f'    """{docstring}"""'] if docstring else []
    return "\n".join(["def long():", *body, *["    x = 1"] * (lines - 1)]) + "\n"


@pytest.mark.parametrize(("lines", "status"), [(600, 0), (601, 1)])
def test_a_file_has_600_lines_at_most(lines, status, tmp_path, capsys):
    found = check(tmp_path, capsys, a="x = 1\n" * lines)
    assert found[0] == status
    assert ("src/plaudit/a.py:1: file of 601 lines, at most 600" in found[1]) is bool(status)


@pytest.mark.parametrize(("lines", "status"), [(40, 0), (41, 1)])
def test_a_function_has_40_lines_at_most(lines, status, tmp_path, capsys):
    found = check(tmp_path, capsys, a="x = 1\n" + function(lines))
    assert found[0] == status
    said = "src/plaudit/a.py:2: function long: 41 lines without its docstring, at most 40"
    assert (said in found[1]) is bool(status)


def test_methods_and_inner_and_async_functions_count_too_and_docstrings_do_not(tmp_path, capsys):
    inner = "class A:\n    def outer(self):\n        async def long():\n" + "            x = 1\n" * 41
    status, said = check(tmp_path, capsys, a=inner)
    assert status == 1
    assert [line.split(": ")[1] for line in said[:2]] == ["function outer", "function long"]
    assert check(tmp_path, capsys, a=function(40, docstring="One.\n\n    Two.\n    "))[0] == 0
    assert check(tmp_path, capsys, a=function(41, docstring="One."))[0] == 1


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("a, b, c, d, e, f, g, h", 0),
        ("a, b, c, d, e, f, g, h, i", 1),
        ("a, /, b, c, d, e, *, f, g, h, i", 1),
        ("self, a, b, c, d, e, f, g, h", 0),
        ("a, b, c, d, e, f, g, *h, **i", 1),
    ],
)
def test_a_function_has_8_arguments_at_most(arguments, status, tmp_path, capsys):
    found = check(tmp_path, capsys, a=f"def many({arguments}):\n    pass\n")
    assert found[0] == status
    assert ("src/plaudit/a.py:1: function many: 9 arguments, at most 8" in found[1]) is bool(status)


@pytest.mark.parametrize(
    "files",
    [
        {"a": "class A: pass\nclass B(A): pass\nclass C(B): pass\n"},
        {"a": "class A: pass\n", "b": "from plaudit.a import A as Z\nclass B(Z): pass\nclass C(B): pass\n"},
        {
            "a": "class A: pass\n",
            "b": "import plaudit.a\nclass B(plaudit.a.A): pass\n",
            "c": "from plaudit import b\nclass C(b.B[int]): pass\n",
        },
        {"p__a": "class A: pass\nclass B(A): pass\n", "p__b": "from .a import B\nclass C(B): pass\n"},
    ],
)
def test_a_class_has_one_of_ours_above_it_at_most(files, tmp_path, capsys):
    status, said = check(tmp_path, capsys, **files)
    assert status == 1
    assert [line.partition(": ")[2] for line in said[:-1]] == [
        "class C: 2 of our classes above it, at most 1; compose instead"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "class A: pass\nclass B(A): pass\nclass C(A): pass\n",
        "from torch.optim import Adam as Base\nclass Adam(Base): pass\nclass Mine(Adam): pass\n",
        "from torch import nn\nclass A(nn.Module): pass\nclass B(nn.Module): pass\n",
        "from typing import Protocol\nclass A(Protocol): pass\nclass B(A): pass\n",
    ],
)
def test_classes_of_other_packages_do_not_count(text, tmp_path, capsys):
    assert check(tmp_path, capsys, a=text)[0] == 0


def test_every_folder_with_python_is_looked_at(tmp_path, capsys):
    for folder in ("src", "tests", "tools", "examples", "benchmarks"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "long.py").write_text("x = 1\n" * 601)
    assert budgets.main(tmp_path) == 1
    assert capsys.readouterr().out.count("file of 601 lines") == 5


def test_an_empty_repository_does_not_pass(tmp_path, capsys):
    assert budgets.main(tmp_path) == 1
    assert "nothing to check was found" in capsys.readouterr().out
