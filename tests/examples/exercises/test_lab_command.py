"""The exercises from outside: the list, what is refused, a small exercise up to its page."""

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from examples.exercises.__main__ import main
from examples.exercises.registry import EXERCISES
from tests.runs.pipeline.places import Went, results
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


def test_without_names_the_exercises_are_listed_and_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    went = lab()
    assert went.code == 0
    for one in EXERCISES:
        assert re.search(rf"^  {one.name} +{re.escape(one.title)} \(about [\d.]+ min\)$", went.out, re.M)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["poolign"], "there is no exercise 'poolign'; did you mean pooling?; there are pooling, "),
        (["pooling", "xyzzy"], "there is no exercise 'xyzzy'; there are pooling, "),
        (["pooling", "unseen", "--set", "own.n=6"], "--set: every exercise has stages of its own; name one"),
        (["all", "--write", "mine.yaml"], "--write: every exercise has stages of its own; name one exercise"),
        (["--seed", "1"], "--seed: name an exercise"),
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


def test_a_config_is_written_to_be_changed_and_never_over_something(tmp_path):
    mine = tmp_path / "mine.yaml"
    went = lab("pooling", "--write", mine)
    assert went.code == 0
    assert mine.read_text("utf-8") == EXERCISES[0].config.read_text("utf-8")
    assert f"plaudit run {mine} --out runs/lab/pooling" in went.out
    assert "python -m examples.exercises pooling --look --out runs/lab" in went.out
    again = lab("pooling", "--write", mine)
    assert (again.code, "something is there already" in again.err) == (2, True)


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


@pytest.mark.slow
def test_the_same_command_keeps_what_is_there_and_says_the_same(out):
    before = results(out / "pooling")
    went = lab("pooling", "--out", out, "--jobs", 1, *CHANGED)
    assert went.err.count("  kept") == 8
    assert results(out / "pooling") == before
    looked = lab("pooling", "--look", "--out", out)
    assert (looked.code, looked.out) == (0, went.out)
    assert lab("--look", "--out", out).out == went.out


@pytest.mark.slow
def test_what_is_not_finished_cannot_be_looked_at_and_the_others_can(out, tmp_path):
    (tmp_path / "pooling").symlink_to(out / "pooling")
    (tmp_path / "unseen" / "stages").mkdir(parents=True)
    config = (out / "pooling" / "pipeline.yaml").read_text("utf-8")
    (tmp_path / "unseen" / "pipeline.yaml").write_text(config, "utf-8")
    went = lab("pooling", "unseen", "--look", "--out", tmp_path)
    assert went.code == 1
    assert "10 stages of unseen not finished (demonstrations, " in went.words
    assert "run python -m examples.exercises unseen first" in went.err
    assert "5 claims hold" in went.out
    assert "10 stages of unseen not finished" in read_page(tmp_path / "lab.html").words["body"][0]


def test_what_goes_wrong_in_one_exercise_does_not_keep_the_others_from_being_run(tmp_path):
    for name in ("pooling", "unseen"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("not plaudit's")
    went = lab("pooling", "unseen", "--out", tmp_path, "--jobs", 1)
    assert went.code == 1
    for name in ("pooling", "unseen"):
        assert f"exercises: {name}: {tmp_path / name}: this folder is no pipeline's" in went.err


@pytest.mark.slow
def test_it_is_asked_to_stop_and_says_that_it_goes_on(out, tmp_path):
    words = ["-m", "examples.exercises", "pooling", "--out", str(tmp_path), "--jobs", "1", *CHANGED]
    running = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True)
    while running.poll() is None and not (tmp_path / "pooling" / "stages" / "own" / "stage.json").exists():
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, complained = running.communicate()
    assert running.returncode == 128 + signal.SIGINT
    assert "stopped by SIGINT; the same command goes on from here" in complained
    assert not (tmp_path / "lab.html").exists()
    subprocess.run([sys.executable, *words], check=True)
    assert results(tmp_path / "pooling") == results(out / "pooling")
