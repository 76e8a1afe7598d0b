"""The page in a real browser: nothing to scroll sideways on a phone, its style let in by its policy."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from plaudit.training.report import write_report
from plaudit.training.sinks.jsonl import JsonlSink
from plaudit.training.sinks.sink import RunStart, Sample
from tests.training.toy_runs import ToyRun, write_run

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
MEASURE = """
addEventListener("load", () => {
  document.title = JSON.stringify(Array.from(frames, (frame) => {
    const style = frame.getComputedStyle(frame.document.querySelector("main"));
    return [frame.document.documentElement.scrollWidth, style.maxWidth];
  }));
});
"""


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


def measured(page: str, folder: Path) -> dict[int, list[object]]:
    """How wide the page becomes in frames of these widths, and how wide its style lets its text be."""
    widths = (320, 390, 1200)
    frames = "".join(f'<iframe width={w} height=900 srcdoc="{html.escape(page)}"></iframe>' for w in widths)
    outer = folder / "outer.html"
    outer.write_text(
        f"<!DOCTYPE html><style>iframe {{ border: 0 }}</style><script>{MEASURE}</script>{frames}"
    )
    assert CHROMIUM is not None
    command = [CHROMIUM, *QUIET, f"--user-data-dir={folder / 'profile'}", "--dump-dom", outer.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    (title,) = re.findall(r"<head>.*?<title>(.*?)</title>", done.stdout, re.DOTALL)
    return dict(zip(widths, json.loads(html.unescape(title)), strict=True))
