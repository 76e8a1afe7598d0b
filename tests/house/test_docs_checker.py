"""The docs checker finds indexed names without a docstring, records without an example and dead links."""

from pathlib import Path

import pytest

from tools import docs
from tools.links import anchors_of

GOOD = '''"""A module."""

from dataclasses import dataclass

LIMIT = 3
"""How many."""
Clip = Annotated[float, "How far a ratio may go."]
_inner = 4


@dataclass(frozen=True)
class Fact:
    """A fact.

    Example: ``Fact(name="a")``
    """

    name: str
    """What it is called."""
    _cache: int = 0

    @property
    def short(self):
        """The name, cut."""

    @short.setter
    def short(self, value):
        pass

    def _hidden(self):
        pass


def act():
    """Acts."""

    def inside():
        pass


def _help():
    pass
'''


def check(root: Path, capsys: pytest.CaptureFixture[str], text: str) -> tuple[int, list[str]]:
    (root / "src").mkdir(exist_ok=True)
    (root / "src" / "a.py").write_text(text)
    (root / "src" / "__init__.pyi").write_text("from a import LIMIT, Clip, Fact, Plain, act\n")
    (root / "README.md").write_text("# Title\n")
    return docs.main(root), capsys.readouterr().out.splitlines()[:-1]


def test_a_documented_module_passes_and_a_class_without_a_docstring_is_named(tmp_path, capsys):
    assert check(tmp_path, capsys, GOOD) == (0, [])
    status, said = check(tmp_path, capsys, '"""A module."""\n\n\nclass Plain:\n    x = 1\n')
    assert (status, said) == (1, ["src/a.py:4: Plain is public and needs a docstring"])


@pytest.mark.parametrize(
    ("removed", "complaint"),
    [
        ('"""A module."""', "the module needs a docstring"),
        ('"""How many."""', "LIMIT is public and needs a docstring"),
        ('"How far a ratio may go."', "Clip is public and needs a docstring"),
        ('"""What it is called."""', "Fact.name is public and needs a docstring"),
        ('"""The name, cut."""', "Fact.short is public and needs a docstring"),
        ('"""Acts."""', "act is public and needs a docstring"),
        ("Example: ", "Fact is a record: its docstring needs one literal `Example:`"),
    ],
)
def test_what_lacks_its_words_is_named(removed, complaint, tmp_path, capsys):
    assert removed in GOOD
    status, said = check(tmp_path, capsys, GOOD.replace(removed, "" if removed == "Example: " else "..."))
    assert status == 1
    assert [line.partition(": ")[2] for line in said] == [complaint]


@pytest.mark.parametrize(
    ("example", "complaint"),
    [
        ('Fact(name="a")', None),
        ('Fact(name="a", …)', None),
        ('read(Path("a"), key=…).short', "the example of Fact calls read, which is nowhere"),
        ('act().of(names=Fact(nam="a"))', "the example of Fact gives Fact a nam, which it does not have"),
        (
            'torch.anything(Fact(\n        name="a", age=3), …)',
            "the example of Fact gives Fact a age, which it does not have",
        ),
    ],
)
def test_an_example_names_what_is_there(example, complaint, tmp_path, capsys):
    text = GOOD.replace("from dataclasses", "from pathlib import Path\nfrom dataclasses").replace(
        'Fact(name="a")', example
    )
    status, said = check(tmp_path, capsys, text)
    assert [line.partition(": ")[2] for line in said] == ([] if complaint is None else [complaint])
    assert status == (complaint is not None)


def test_what_is_in_no_public_index_may_be_plain(tmp_path, capsys):
    text = GOOD.replace("LIMIT", "BOUND").replace('"""How many."""', "").replace("def act", "def do")
    assert check(tmp_path, capsys, text.replace('"""Acts."""', "")) == (0, [])


def site(root: Path, capsys: pytest.CaptureFixture[str], **pages: str) -> tuple[int, list[str]]:
    (root / "src").mkdir()
    (root / "src" / "a.py").write_text('"""A module."""\n')
    for name, text in pages.items():
        path = root / f"{name.replace('__', '/')}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return docs.main(root), capsys.readouterr().out.splitlines()[:-1]


def test_links_that_lead_somewhere_pass(tmp_path, capsys):
    readme = (
        '# Title\n[a](docs/a.md) [b](docs/b.md#two-words "t") [top](#title) [web](https://example.org/x)\n'
    )
    readme += '[code](src/a.py) <img src="docs/b.md"> `[not](a-link.md)`\n```text\n[nor](this.md)\n```\n'
    page = "# Two *words*\n[up](../README.md) [root](/README.md#title) [mail](mailto:a@example.org)\n"
    assert site(tmp_path, capsys, README=readme, docs__a=page, docs__b="# Two words\n") == (0, [])


@pytest.mark.parametrize(
    ("link", "complaint"),
    [
        ("[x](docs/none.md)", "link to docs/none.md: there is no such file"),
        ("[x](docs/a.md#none)", "link to docs/a.md#none: there is no such heading in it"),
        ("[x](#none)", "link to #none: there is no such heading in it"),
        ('<a href="none.html">x</a>', "link to none.html: there is no such file"),
        ("![picture](none.png)", "link to none.png: there is no such file"),
    ],
)
def test_a_link_that_leads_nowhere_is_named(link, complaint, tmp_path, capsys):
    status, said = site(tmp_path, capsys, README=f"[a](docs/a.md)\n\n{link}\n", docs__a="# A\n")
    assert (status, said) == (1, [f"README.md:3: {complaint}"])


def test_a_page_of_docs_that_nothing_leads_to_is_named(tmp_path, capsys):
    pages = {"README": "[docs](docs/README.md)\n", "docs__README": "[a](a.md)\n", "docs__a": "[b](b.md)\n"}
    islands = {"docs__c": "[d](d.md)\n", "docs__d": "[c](c.md)\n"}
    status, said = site(tmp_path, capsys, **pages, docs__b="# B\n", **islands)
    complaints = [f"docs/{name}.md:1: no link leads here from README.md or docs/README.md" for name in "cd"]
    assert (status, said) == (1, complaints)


def test_headings_are_linked_as_github_links_them():
    text = "# Run it: `make demo`!\n## A-b c\n## A-b c\n```text\n# no heading\n```\n"
    assert anchors_of(text) == {"run-it-make-demo", "a-b-c", "a-b-c-1"}


def test_no_code_or_no_pages_do_not_pass(tmp_path, capsys):
    assert docs.main(tmp_path) == 1
    (tmp_path / "README.md").write_text("# Title\n")
    assert docs.main(tmp_path) == 1
    assert "nothing to check was found" in capsys.readouterr().out
