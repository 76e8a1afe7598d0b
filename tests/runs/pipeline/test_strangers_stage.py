"""A package of somebody else's brings a verb, a stage and a section: as docs/extending.md has it written."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.toy import write_rows
from tests.runs.pipeline.places import seal

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "wing"
_FILE = re.compile(r"^`(\S+)`:\n\n```\w+\n(.*?)```$", re.MULTILINE | re.DOTALL)
Command = Callable[..., str]


def files_of_the_page() -> dict[str, str]:
    """The files that docs/extending.md has its reader write, by the names that stand above them."""
    return dict(_FILE.findall((ROOT / "docs" / "extending.md").read_text("utf-8")))


def test_the_example_is_what_the_page_has_written() -> None:
    paths = (path for path in EXAMPLE.rglob("*.*") if path.suffix in (".py", ".toml", ".yaml"))
    assert files_of_the_page() == {
        path.relative_to(EXAMPLE).as_posix(): path.read_text("utf-8") for path in paths
    }


@pytest.fixture(scope="module")
def plaudit_with_it(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Command]:
    """A new folder with the files of the page and rows, and the command where its entry points are found."""
    folder = tmp_path_factory.mktemp("polite")
    for name, text in files_of_the_page().items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    about = folder / "site" / f"{project['name']}-{project['version']}.dist-info"
    about.mkdir(parents=True)
    facts = f"Name: {project['name']}\nVersion: {project['version']}\n"
    about.joinpath("METADATA").write_text(facts, "utf-8")
    lines = [
        line
        for group, points in project["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {place}" for name, place in points.items()))
    ]
    about.joinpath("entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")
    answers = ["Thank you.", "No.", "Many thanks!", "Yes."]
    rows = [{"prompt": f"Say {n}.", "completion": answer} for n, answer in enumerate(answers)]
    write_rows(folder / "demonstrations.jsonl", rows)
    path = os.pathsep.join(map(str, (ROOT / "src", folder, folder / "site")))

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "plaudit", *words]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return folder, run


@pytest.mark.slow
def test_a_pipeline_runs_its_stage_and_the_page_names_it(plaudit_with_it: tuple[Path, Command]) -> None:
    folder, plaudit = plaudit_with_it
    assert "2 of 4 demonstrations thank" in plaudit("run", "pipeline.yaml", "--out", "out")
    rows = (folder / "out/stages/polite/rows.jsonl").read_text("utf-8").splitlines()
    assert len(rows) == 2
    assert all("hank" in row for row in rows)
    assert seal(folder / "out", "polite")["do"] == "thanks"
    page = (folder / "out/report.html").read_text("utf-8")
    assert "polite" in page
    assert "2 of 4 demonstrations thank" in page
    assert '<h2 id="thanks">Thanks</h2>' in page
    assert "% of the demonstrations thank." in page
    # Its result is kept as any stage's is, and its settings decide it.
    assert "polite  kept" in plaudit("run", "pipeline.yaml", "--out", "out")
    changed = plaudit("run", "pipeline.yaml", "--out", "out", "--dry-run", "--set", "polite.word=many")
    assert "word: thank → many" in changed


@pytest.mark.slow
def test_the_command_that_its_seal_names_writes_the_same_rows(plaudit_with_it: tuple[Path, Command]) -> None:
    folder, plaudit = plaudit_with_it
    assert "keep the demonstrations that thank" in plaudit("--help")
    plaudit("run", "pipeline.yaml", "--out", "again")
    command = seal(folder / "again", "polite")["command"].split()
    rows = folder / "again/stages/polite/rows.jsonl"
    expected = rows.read_bytes()
    rows.unlink()
    plaudit(*command[1:])
    assert rows.read_bytes() == expected
