"""Lines that were reported are there after any end; lines of steps that run again are not there twice."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from plaudit.errors import UserError
from plaudit.files.jsonl import JsonlFile, JsonlRecord, truncate_after

WRITE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from plaudit.files.jsonl import JsonlFile

lines = JsonlFile(Path(sys.argv[1]))
for step in range(50):
    lines.append({"step": step})
os.kill(os.getpid(), signal.SIGKILL)
"""


def up_to_two(record: JsonlRecord) -> bool:
    return record["step"] <= 2


def written(path: Path, *steps: int) -> Path:
    with JsonlFile(path) as lines:
        for step in steps:
            lines.append({"step": step})
    return path


def test_lines_are_appended_and_read_back_exactly(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with JsonlFile(path) as lines:
        assert lines.notes == ()
        lines.append({"step": 1, "loss": 1 / 3})
        lines.append({"step": 2, "loss": math.nan, "text": "日本"}, sync_now=True)
        lines.sync()

    assert path.read_text() == (
        '{"step": 1, "loss": 0.3333333333333333}\n{"step": 2, "loss": {"$float": "nan"}, "text": "日本"}\n'
    )


def test_a_killed_process_loses_no_line_that_it_reported(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    child = subprocess.run([sys.executable, "-c", WRITE_AND_DIE, str(path)], check=False, timeout=60)

    assert child.returncode == -signal.SIGKILL
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == list(range(50))


def test_steps_that_will_run_again_are_dropped_and_said(tmp_path: Path) -> None:
    path = written(tmp_path / "metrics.jsonl", 1, 2, 3, 4)

    with JsonlFile(path, keep=up_to_two) as lines:
        assert lines.notes == (f"{path}: lines from 3 on belong to steps that will run again; dropped",)
        lines.append({"step": 3})

    assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'


@pytest.mark.parametrize(
    "tail", [b'{"step": 3', b'{"step": 3}', b"\0\0\0\0", b'{"ste\n', b"3\n", b"\xff\n\0\0"]
)
def test_a_torn_end_is_dropped_and_said(tmp_path: Path, tail: bytes) -> None:
    path = written(tmp_path / "metrics.jsonl", 1, 2)
    with path.open("ab") as file:
        file.write(tail)

    notes = truncate_after(path, up_to_two)

    assert notes[0] == f"{path}:3: the line is torn (the run was killed while writing it); dropped"
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    assert truncate_after(path, up_to_two) == ()


def test_a_bad_line_among_good_ones_is_named_and_nothing_is_cut(tmp_path: Path) -> None:
    path = written(tmp_path / "metrics.jsonl", 1)
    with path.open("a") as file:
        file.write('edited by hand\n{"step": 2}\n')
    before = path.read_bytes()

    with pytest.raises(UserError, match=r"metrics.jsonl:2: not a line of JSON, though good lines follow"):
        JsonlFile(path)
    assert path.read_bytes() == before


def test_a_line_that_json_cannot_hold_is_refused_and_not_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with JsonlFile(path) as lines, pytest.raises(ValueError, match=r"\['ids'\] is a tuple"):
        lines.append({"step": 1, "ids": (1, 2)})

    assert path.read_bytes() == b""
