"""The exercises from outside: the list, what is refused, a small exercise up to its page."""

import json
import re
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from examples.exercises.__main__ import main
from examples.exercises.registry import EXERCISES
from tests.runs.pipeline.places import Went
from tests.runs.report.read_page import read_page

NAMES = [one.name for one in EXERCISES]
SMALL = {
    "demonstrations.n": 24,
    "sft.held-out": 0,
    "own.n": 24,
    "fresh.n": 24,
    "last.steps": 1,
    "mean.steps": 1,
}
CHANGED = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]


def lab(*words: object) -> Went:
    said, complained = StringIO(), StringIO()
    with redirect_stdout(said), redirect_stderr(complained):
        code = main([*map(str, words)])
    return Went(code=code, out=said.getvalue(), err=complained.getvalue())


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a small pooling has been run; who changes it works on a copy."""
    folder = tmp_path_factory.mktemp("lab")
    went = lab("pooling", "--out", folder, "--jobs", 1, *CHANGED)
    assert went.code == 0, went.err
    return folder


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["poolign"], "there is no exercise 'poolign'; did you mean pooling?; there are pooling, "),
        (["pooling", "xyzzy"], "there is no exercise 'xyzzy'; there are pooling, "),
        (["pooling", "unseen", "--set", "own.n=6"], "--set: every exercise has stages of its own; name one"),
        (["pooling", "--look", "--fresh"], "--fresh: --look runs nothing"),
        (["pooling", "--set", "own.m=6"], "stage own: "),
        (["pooling", "--set", "onw.n=6"], "--set onw.n=6: there is no stage 'onw'; did you mean own?"),
        (
            ["--look", "--out", "nowhere"],
            "nowhere: no exercise was run here yet; python -m examples.exercises lists them",
        ),
    ],
)
def test_what_nothing_would_come_of_is_refused_before_anything_runs(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    went = lab(*words)
    assert went.code == 2
    assert message in went.err
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_an_exercise_goes_from_the_command_to_its_page(out):
    page = read_page(out / "pooling" / "lab.html")
    assert page.words["h1"] == ["Where should a reward be read?"]
    assert [*page.sections][1:4] == ["What was seen", "Pictures", "Stages"]
    seen = page.sections["What was seen"]
    assert len(re.findall(r"[✓✗?] (holds|does not hold|not decided)", seen)) == 5
    assert page.tags["figure"] >= 5
    assert "own.n: 24, not 1500" in page.sections["head"]
    assert f"python -m examples.exercises pooling --out {out}" in page.sections["Reproduce"]
    every = read_page(out / "lab.html")
    assert "pooling/lab.html" in every.values("a", "href")
    assert all(name in every.sections["Not run yet"] for name in NAMES if name != "pooling")
    assert json.loads((out / "pooling" / "summary.json").read_text("utf-8"))["name"] == "pooling"
