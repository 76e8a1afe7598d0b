"""The study of a real model, on a small one of its kind with random weights and rows of the same layouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.lab import Lab
from benchmarks.real import instructions
from plaudit.data.read import read_records
from plaudit.data.records import Prompt
from plaudit.feedback.instructing import InstructSettings, write_instructed
from tests.engine.toy import make_model, write_rows

SMALL = (
    *("prompts.n=40", "prompts.most=1", "grpo.rounds=1", "grpo.batch-size=2", "grpo.group-size=2"),
    *("grpo.draw.max-tokens=8", "grpo.held-out=0", "grpo.check=false"),
    *("ifeval.n=30", "ifeval.max-tokens=8", "drift.n=4", "drift.max-tokens=8"),
)


def test_instructions_are_learnt_and_both_models_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_model(Path("HuggingFaceTB/SmolLM2-135M-Instruct"))
    write_instructed(InstructSettings(n=30, seed=9), Path("made.jsonl"))
    made = [row for row in read_records("made.jsonl").records if isinstance(row, Prompt)]
    write_rows(Path("google/IFEval/train.jsonl"), [{"prompt": row.prompt, **row.metadata} for row in made])
    head, *rows = instructions(Lab(folder=tmp_path / "lab"), SMALL)
    assert head[2:] == ("before, %", "after, %", "difference, points")
    assert [row[1].split(",")[0] for row in rows] == [
        "prompt level",
        "kinds that were rewarded",
        "kinds that were held out",
    ]
