"""``plaudit revise`` from prompts or answers to demonstrations, pairs, steps and figures; its refusals."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from examples.mind_server.server import MindServer
from plaudit.cli.main import main
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Demonstration
from plaudit.lab.world import base_model_folder
from plaudit.lab.world.minds import Mind
from tests.commands import commands

run, refused = commands("revise")


@pytest.fixture
def server():
    with MindServer([Mind(price="10/30", accuracy=0.9), Mind(name="shy", refusals=1.0)]) as running:
        yield running


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for kind, n in (("comparisons", 15), ("prompts", 12)):
        assert main(["world", "make", kind, "--n", str(n), "--out", f"{kind}.jsonl"]) == 0
    capsys.readouterr()
    return tmp_path


def by(server: MindServer, model: str = "world") -> str:
    return f"openai:{server.url}#{model}"


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_each_round_is_scored_by_a_reward_and_corrected_by_people(capsys, folder, server):
    assert main(["world", "make", "comparisons", "--n", "30", "--out", "many.jsonl"]) == 0
    command = ("many.jsonl", "--by", by(server), "--rounds", 2, "--score", "length:1-8")
    files = ("--pairs", "p.jsonl", "--steps", "s.jsonl", "--figures", "f.json")
    out = run(capsys, *command, *files)
    scores = json.loads(Path("f.json").read_text())["scores"]
    whole = [row for row in lines("s.jsonl") if len(row["rounds"]) == 2]
    assert scores["answers"] == len(whole) > 20
    texts = [[row["answer"].strip(), *(step["revision"] for step in row["rounds"])] for row in whole]
    for number, figures in enumerate(scores["rounds"]):
        values = [[float(1 <= len(text.split()) <= 8) for text in row] for row in texts]
        assert figures["mean"]["value"] == pytest.approx(fmean(row[number] for row in values))
        wins = [0.5 + 0.5 * (row[number] - row[0]) for row in values]
        assert number == 0 or figures["wins"]["value"] == pytest.approx(fmean(wins))
    assert f"round 2 by length:1-8: mean {scores['rounds'][2]['mean']['value']:.3f}" in out
    assert "errs as all judges do" not in out
    # People prefer every last revision; of the first round's pairs they judged none but those that stayed.
    rows = [{**row, "group": "people"} for row in lines("p.jsonl")]
    Path("people.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "corrected by" in run(capsys, *command, "--people", "people.jsonl", *files)
    last = json.loads(Path("f.json").read_text())["scores"]["rounds"][2]["corrected"]
    assert last["corrected"]["value"] > last["raw"]["value"]
    Path("few.jsonl").write_text(json.dumps(rows[0]) + "\n")
    assert "fewer than 20 prompts have labels" in refused(capsys, *command, "--people", "few.jsonl", *files)


def test_answers_are_revised_without_a_critique(capsys, folder, server):
    command = ("comparisons.jsonl", "--by", by(server), "--without-critique", "--constitution", "ours")
    run(capsys, *command, "--out", "rows.jsonl", "--steps", "s.jsonl")
    steps = [step for row in lines("s.jsonl") for step in row["rounds"]]
    assert {step["critique"] for step in steps} == {None}
    assert server.counts.requests == len(lines("s.jsonl"))
    assert "revise-alone-1" in (lines("rows.jsonl")[0]["annotator"])
    for more, says in (
        (("--minimal",), "minimal mends what a critique names"),
        (("--card", "card.json"), "people and card correct a judge: name it with score"),
    ):
        assert says in refused(capsys, *command, *more, "--out", "rows.jsonl")


@pytest.mark.slow
def test_answers_of_rows_become_demonstrations_pairs_steps_and_figures(capsys, folder, server):
    where = ("--out", "rows.jsonl", "--pairs", "p.jsonl", "--steps", "s.jsonl", "--figures", "f.json")
    asked = (
        *("comparisons.jsonl", "--by", by(server), "--constitution", "ours"),
        *("--rounds", 2, "--price", "10/30"),
    )
    assert "at most in all" in run(capsys, *asked, "--estimate")
    assert server.counts.requests == 0
    out = run(capsys, *asked, *where)
    rows = [row for row in read_records("rows.jsonl").records if isinstance(row, Demonstration)]
    pairs = [row for row in read_records("p.jsonl").records if isinstance(row, Comparison)]
    steps, figures = lines("s.jsonl"), json.loads(Path("f.json").read_text())
    assert len(rows) == len(pairs) == figures["outcomes"]["revised"] == figures["after"]["answers"] > 10
    assert {row.annotator for row in rows} == {figures["by"]}
    assert len(steps) == sum(figures["outcomes"].values()) == 30
    assert all(len({step["principle"] for step in row["rounds"]}) == 2 for row in steps)
    assert figures["price"] == pytest.approx(server.counts.price)
    assert "refusals" in out
    assert "spent in all" in out
    # Answers to one prompt that were revised into the same words share the questions of the second round.
    requests = server.counts.requests
    assert 2 * 30 < requests < 4 * 30
    again = run(capsys, *asked, *where)
    assert server.counts.requests == requests
    assert again.splitlines()[2:] == out.splitlines()[2:]


def test_the_answers_of_a_model_are_revised_and_those_that_are_cut_are_not(capsys, folder, server):
    asked = ("prompts.jsonl", "--model", base_model_folder(), "--by", by(server), "--out", "rows.jsonl")
    out = run(capsys, *asked, "--max-tokens", 8, "--n", 10)
    [line] = [line for line in out.splitlines() if line.startswith("not to be revised")]
    cut = int(line.split(": ")[1].split()[0])
    assert line.endswith(" cut off")
    assert 0 < cut < 10
    assert server.counts.requests == 2 * (10 - cut)


def test_a_reviser_that_is_the_revised_model_is_named(capsys, folder):
    model = base_model_folder()
    out = run(capsys, "prompts.jsonl", "--model", model, "--by", f"model:{model},max-tokens=8", "--estimate")
    assert "revises answers of its own" in out


def test_what_cannot_be_revised_is_refused_in_words(capsys, folder, server):
    some = ("prompts.jsonl", "--by", by(server))
    out = ("--out", "rows.jsonl")
    assert "say where the rows go" in refused(capsys, *some)
    assert "these rows are prompts alone: name the model" in refused(capsys, *some, *out)
    pairs = ("comparisons.jsonl", *out, "--by")
    assert "cannot write: name one model" in refused(capsys, *pairs, "length:1-20")
    assert "cannot write: name one model" in refused(capsys, *pairs, "jury:three.yaml")
    for rounds in ("0", "5"):
        assert "expected 1 to 4" in refused(capsys, *pairs, by(server), "--rounds", rounds)
    assert "one round that changes" in refused(capsys, *pairs, by(server), "--rounds", "2", "--minimal")
    Path("bare.yaml").write_text("- {id: one, choose: a, critique: b}\n")
    refusal = refused(capsys, *pairs, by(server), "--constitution", "bare.yaml")
    assert "bare.yaml, principle 1 (one): revise is missing" in refusal
    Path("no-rows.jsonl").write_text('{"poem": "Roses."}\n')
    assert "no-rows.jsonl" in refused(capsys, "no-rows.jsonl", *out, "--by", by(server))
    assert "no answer was revised" in refused(capsys, *pairs, by(server, "shy"))
    assert "its prices are not known" in refused(capsys, *pairs, by(server), "--most-money", "1")
    assert not Path("rows.jsonl").exists()
    assert server.counts.requests == 30


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_and_asks_nothing_twice(folder, capsys):
    with MindServer([Mind(delay=0.3)]) as slow:
        words = ["revise", "comparisons.jsonl", "--by", by(slow), "--requests", "2", "--out", "rows.jsonl"]
        process = subprocess.Popen([sys.executable, "-m", "plaudit", *words], env={**os.environ})
        while slow.counts.to_json()["replies"] < 8:
            time.sleep(0.05)
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        # What was under way when it was killed is the only thing that may be asked again.
        assert main(words) == 0
        counts = slow.counts.to_json()
    assert counts["replied_twice"] <= 2
    assert counts["questions"] == 60
