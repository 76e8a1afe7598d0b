"""The page in a real browser: nothing to scroll sideways on a phone, its style let in by its policy."""

from __future__ import annotations

from pathlib import Path

import pytest

from plaudit.engine.sinks.base import RunStart, Sample
from plaudit.engine.sinks.files import JsonlSink
from plaudit.runs.report.run.page import write_report
from tests.engine.toy_runs import ToyRun, write_run
from tests.runs.report.in_browser import CHROMIUM, measured


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_nothing_is_wider_than_a_phone(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", ToyRun(notes=["x" * 500]))
    (run / "config.yaml").write_text(f"data: {'y' * 500}\n")
    sink = JsonlSink(run)
    sink.open(RunStart(name="run", steps=100, done=100))
    sink.sample(100, [Sample(prompt="z" * 500, completion="<b>" * 200, expected="مرحبا " * 50)])
    sink.close(None)
    opened = write_report(run).read_text().replace("<details>", "<details open>")
    assert measured(opened, tmp_path) == {320: [320, "1184px"], 390: [390, "1184px"], 1200: [1200, "1184px"]}
