"""Lines that were reported are there after any end; lines of steps that run again are not there twice."""

import json
import math
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from plaudit.engine.sinks.files import JsonlFile, JsonlRecord
from plaudit.errors import UserError

WRITE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from plaudit.engine.sinks.files import JsonlFile

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
        assert lines.notes == (
            f"{path}: dropped the last 2 lines, after step 2: of steps that will run again",
        )
        lines.append({"step": 3})
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'


@pytest.mark.parametrize(
    "tail", [b'{"step": 3', b'{"step": 3}', b"\0\0\0\0", b'{"ste\n', b"3\n", b"\xff\n\0\0"]
)
def test_a_torn_end_is_dropped_and_said(tmp_path: Path, tail: bytes) -> None:
    path = written(tmp_path / "metrics.jsonl", 1, 2)
    with path.open("ab") as file:
        file.write(tail)
    with JsonlFile(path, keep=up_to_two) as lines:
        notes = lines.notes
    count = "last 2 lines" if b"\n\0" in tail else "last line"
    assert notes == (f"{path}: dropped the {count}, after step 2: torn (the run was killed while writing)",)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    with JsonlFile(path, keep=up_to_two) as lines:
        assert lines.notes == ()


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


def remove_the_second(lines: list[bytes]) -> list[bytes]:
    return [lines[0], *lines[2:]]


def change_the_second(lines: list[bytes]) -> list[bytes]:
    return [lines[0], b'{"step": 2, "loss": 0.0}\n', *lines[2:]]


def swap_two(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[2], lines[1], *lines[3:]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (remove_the_second, ":2: this line, of step 3, is not the one that the run wrote here"),
        (change_the_second, ":2: this line, of step 2, is not the one that the run wrote here"),
        (swap_two, ":2: this line, of step 3, is not the one that the run wrote here"),
        (
            lambda lines: [lines[0], b"edited\n", *lines[2:]],
            ":2: this line, which is no line of JSON, is not",
        ),
        (lambda lines: [b'{"step": 0}\n', *lines], ":1: this line, of step 0, is not the one"),
        (lambda lines: lines[:2], ": the run had written 3 lines, and 2 are there, the last one of step 2"),
        (
            lambda lines: [*lines[:2], lines[2][:-1]],
            ":3: this line, which is no line of JSON, is not the one",
        ),
    ],
)
def test_lines_lost_or_changed_since_the_checkpoint_are_named(tmp_path, change, said):
    path = tmp_path / "metrics.jsonl"
    with JsonlFile(path) as lines:
        for step in (1, 2, 3):
            lines.append({"step": step})
        marks = lines.marks
        lines.append({"step": 4})
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True)[:3])))
    before = path.read_bytes()
    with pytest.raises(UserError, match=re.escape(f"{path}{said}")) as refused:
        JsonlFile(path, keep=lambda record: record["step"] <= 3, marks=marks)
    assert "restore the file, or leave an empty one in its place" in str(refused.value)
    assert path.read_bytes() == before


def test_a_file_as_it_was_goes_on_and_its_marks_with_it(tmp_path: Path) -> None:
    path, whole = written(tmp_path / "metrics.jsonl", 1, 2, 3), written(tmp_path / "whole.jsonl", 1, 2, 7)
    with JsonlFile(path) as lines:
        assert len(lines.marks) == 24
        marks = lines.marks
    with JsonlFile(path, keep=up_to_two, marks=marks[:16]) as lines:
        assert lines.notes == (f"{path}: dropped the last line, after step 2: of steps that will run again",)
        lines.append({"step": 7})
        marks = lines.marks
    with JsonlFile(whole) as lines:
        assert lines.marks == marks


def test_a_file_that_is_gone_is_missed_and_an_empty_one_is_a_choice_that_is_said(tmp_path: Path) -> None:
    path = written(tmp_path / "metrics.jsonl", 1, 2)
    with JsonlFile(path) as lines:
        marks = lines.marks
    path.unlink()
    with pytest.raises(UserError, match="the file is gone, and 2 lines with it"):
        JsonlFile(path, marks=marks)
    assert not path.exists()
    path.touch()
    with JsonlFile(path, marks=marks) as lines:
        assert lines.notes == (f"{path}: empty: the run goes on without the 2 lines that it had written",)


@pytest.mark.parametrize("harm", ["removed", "replaced", "cut"])
def test_a_file_that_somebody_takes_away_while_it_is_written_is_missed(tmp_path: Path, harm: str) -> None:
    path = tmp_path / "metrics.jsonl"
    with JsonlFile(path) as lines:
        lines.append({"step": 1}, sync_now=True)
        if harm == "cut":
            path.write_bytes(b"")
        else:
            path.unlink()
        if harm == "replaced":
            path.write_text('{"step": 1}\n')
        with pytest.raises(
            UserError, match="removed, replaced or changed the file while the run wrote to it"
        ):
            lines.append({"step": 2}, sync_now=True)
