"""Several sources of rows with weights: what is trained how often, held out once, and written down."""

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml

import plaudit
from plaudit.cli.main import main
from plaudit.files.data_sets import sources_of
from plaudit.methods.config import RunConfig
from plaudit.methods.data import load_rows
from plaudit.methods.supervised.run import SFT
from plaudit.tokens.encode import make_encoder
from tests.engine.toy import demonstrations, make_toy, write_rows
from tests.hub.served import files_of, serving_hub, use_hub

SHORT = ("--steps", "2", "--batch-size", "4", "--sample.rows", "0", "--device", "cpu", "--no-check")


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which base/, a.jsonl and b.jsonl lie: other rows in each."""
    monkeypatch.chdir(tmp_path)
    make_toy(tmp_path)
    rows = demonstrations(40)
    write_rows(tmp_path / "a.jsonl", rows[:20])
    write_rows(tmp_path / "b.jsonl", rows[20:])
    return tmp_path


def trained(toy: Path, data: str, seed: int = 0, held_out: str = "0.1") -> tuple[Counter[str], set[str]]:
    """How often each row is trained in a pass, and which rows are held out."""
    config = RunConfig(model=toy / "base", data=Path(data), out=toy / "run", seed=seed, held_out=held_out)
    rows = load_rows(config, make_encoder(config.model), SFT.encode, None)
    return Counter(row.origin for row in rows.train), {row.origin for row in rows.held_out}


def test_a_weight_says_how_often_a_row_is_trained_and_held_out_rows_come_once(toy):
    times, held = trained(toy, "a.jsonl*2 + b.jsonl*1.5")
    assert {count for origin, count in times.items() if origin.startswith("a.")} == {2}
    assert {count for origin, count in times.items() if origin.startswith("b.")} == {1, 2}
    assert len(held) == 4
    assert not held & set(times)
    assert trained(toy, "a.jsonl*2 + b.jsonl*1.5")[0] == times
    assert trained(toy, "a.jsonl*2 + b.jsonl*1.5", seed=1)[0] != times
    few, _ = trained(toy, "a.jsonl*0.25 + b.jsonl", held_out="0")
    assert 1 <= sum(origin.startswith("a.") for origin in few) <= 10
    # Nothing is held out by another chance than without weights.
    assert trained(toy, "a.jsonl + b.jsonl")[1] == held


def test_a_run_writes_down_every_source_and_goes_on(toy, capsys):
    command = ["train", "sft", "--model", "base", "--out", "run", *SHORT]
    assert main([*command, "--data", "a.jsonl*2", "b.jsonl"]) == 0, capsys.readouterr().err
    assert set(json.loads(Path("run/lineage.json").read_text())["data"]) == {"a.jsonl", "b.jsonl"}
    assert yaml.safe_load(Path("run/config.yaml").read_text())["data"] == "a.jsonl*2 + b.jsonl"
    assert "rows by weight: a.jsonl 20 × 2; b.jsonl 20 × 1" in capsys.readouterr().err
    assert main([*command, "--config", "run/config.yaml"]) == 0
    assert "this run is finished" in capsys.readouterr().err
    assert main([*command, "--data", "a.jsonl*3", "b.jsonl"]) == 2
    assert "data: 'a.jsonl*2 + b.jsonl' → 'a.jsonl*3 + b.jsonl'" in capsys.readouterr().err
    write_rows(Path("b.jsonl"), demonstrations(7))
    assert main([*command, "--data", "a.jsonl*2", "b.jsonl"]) == 2
    assert "data: b.jsonl" in capsys.readouterr().err
    Path("two.yaml").write_text("data: [a.jsonl*2, b.jsonl]\n")
    shown = ["train", "sft", "--config", "two.yaml", "--model", "base", "--out", "x", "--print-config"]
    with pytest.raises(SystemExit):
        main(shown)
    assert "data: a.jsonl*2 + b.jsonl" in capsys.readouterr().out


def test_python_takes_a_list_of_sources(toy):
    run = plaudit.train(
        "sft",
        model="base",
        data=["a.jsonl*2", Path("b.jsonl")],
        out="run",
        steps=1,
        batch_size=4,
        check=False,
        device="cpu",
        sample={"rows": 0},
    )
    assert set(json.loads((run.folder / "lineage.json").read_text())["data"]) == {"a.jsonl", "b.jsonl"}


def test_a_source_may_be_of_the_hub(toy, monkeypatch, capsys):
    with serving_hub() as hub:
        use_hub(monkeypatch, hub, toy)
        commit = hub.put("org/rows", {"train.jsonl": Path("b.jsonl").read_bytes()}, kind="dataset")
        hub.put("org/base", files_of(toy / "base"))
        command = ["train", "sft", "--model", "org/base", "--data", "a.jsonl", "org/rows*2", "--out", "run"]
        assert main([*command, *SHORT]) == 0, capsys.readouterr().err
        named = f"org/rows@{commit}:default/train"
        assert yaml.safe_load(Path("run/config.yaml").read_text())["data"] == f"a.jsonl + {named}*2"
        assert set(json.loads(Path("run/lineage.json").read_text())["data"]) == {"a.jsonl", named}
        hub.put("org/rows", {"train.jsonl": b""}, kind="dataset")
        assert main([*command, *SHORT]) == 0, capsys.readouterr().err


def test_what_is_no_source_or_no_weight_is_refused(toy, capsys):
    command = ["train", "sft", "--model", "base", "--out", "run", *SHORT, "--data", "a.jsonl"]
    for word, sentence in {
        "b.jsonl*0": "*0 says how often these rows are trained: above 0, at most 1000",
        "b.jsonl*1.2.3": "*1.2.3 says how often",
        "c.jsonl": "c.jsonl: there is no such file",
    }.items():
        assert main([*command, word]) == 2
        assert sentence in capsys.readouterr().err, word
    assert main(["data", "inspect", "a.jsonl + b.jsonl"]) == 2
    assert "several sources are taken by training alone" in capsys.readouterr().err


def test_a_file_that_is_called_so_is_meant(toy):
    write_rows(Path("c.jsonl*2"), demonstrations(3))
    write_rows(Path("x + y.jsonl"), demonstrations(3))
    assert sources_of("c.jsonl*2") == (("c.jsonl*2", 1.0),)
    assert sources_of("x + y.jsonl") == (("x + y.jsonl", 1.0),)


def test_the_plan_counts_rows_as_often_as_they_are_trained(toy, capsys):
    plan = ["plan", "sft", "--model", "base", "--no-measure", "--device", "cpu", "--held-out", "0"]
    for data, steps in ((["a.jsonl*3", "b.jsonl"], 5), (["a.jsonl", "b.jsonl"], 3)):
        assert main([*plan, "--epochs", "1", "--batch-size", "16", "--data", *data]) == 0
        assert f"{steps} steps" in capsys.readouterr().out
