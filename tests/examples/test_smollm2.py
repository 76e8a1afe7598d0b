"""The study of a real model, on a small one of its kind with random weights and rows of the same layouts."""

from pathlib import Path

import yaml

from benchmarks.lab import Lab
from benchmarks.real import document_of, instructions, sums
from plaudit.data.read import read_records
from plaudit.data.records import Prompt
from plaudit.feedback.instructing import InstructSettings, write_instructed
from plaudit.runs.pipeline.read import read_pipeline
from plaudit.runs.report.pipeline.page import write_report
from tests.engine.toy import make_model, write_rows
from tests.runs.report.read_page import read_page

CHANGES = ("rounds=1", "batch-size=2", "group-size=2", "draw.max-tokens=8", "check=false")
ROUND = tuple(f"grpo.{change}" for change in CHANGES)
SMALL = (
    "prompts.n=40",
    "prompts.most=1",
    "ifeval.n=30",
    "ifeval.max-tokens=8",
    "drift.n=4",
    "drift.max-tokens=8",
)


def test_sums_are_learnt_and_both_models_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_model(Path("HuggingFaceTB/SmolLM2-135M-Instruct"))
    _, *rows = sums(Lab(folder=tmp_path / "lab"), (*ROUND, "sums.n=4"))
    assert [row[1] for row in rows] == ["SmolLM2-135M-Instruct", "grpo"]
    results = read_page(write_report(tmp_path / "lab" / "sums" / "0")).sections["Results"]
    assert ("right by number" in results, "win rate" in results) == (True, False)
    Path("own.yaml").write_text(yaml.safe_dump(document_of("own-answers")), "utf-8")
    assert [stage.name for stage in read_pipeline(Path("own.yaml")).stages][-1] == "sums"


def test_instructions_are_learnt_and_both_models_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_model(Path("HuggingFaceTB/SmolLM2-135M-Instruct"))
    write_instructed(InstructSettings(n=30, seed=9), Path("made.jsonl"))
    made = [row for row in read_records("made.jsonl").records if isinstance(row, Prompt)]
    write_rows(Path("google/IFEval/train.jsonl"), [{"prompt": row.prompt, **row.metadata} for row in made])
    head, *rows = instructions(Lab(folder=tmp_path / "lab"), (*ROUND, *SMALL))
    assert head[2:] == ("before, %", "after, %", "difference, points")
    # No answer of eight tokens ends, so nothing is said of those that do.
    assert rows[-2] == ("0", "prompt level, strict, of answers that end", "–", "–", "")
    assert [row[1] for row in rows][:3] == [
        "prompt level, strict",
        "kinds that were rewarded",
        "kinds that were held out",
    ]
