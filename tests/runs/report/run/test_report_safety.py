"""What a model said can do nothing to the page that shows it: it is text, whatever it looks like."""

from pathlib import Path

import pytest

from plaudit.engine import run_folder
from plaudit.engine.sinks.base import RunStart, Sample
from plaudit.engine.sinks.files import JsonlSink
from plaudit.files import atomic
from plaudit.runs.report.run.page import write_report
from tests.engine.toy_runs import ORIGIN, ToyRun, write_run
from tests.runs.report.in_browser import CHROMIUM, keeps_to_its_width
from tests.runs.report.read_page import read_page, stands_alone

ATTACK = "</div></pre></li></title><script>alert(1)</script><img src=x onerror='alert(2)'>\"'&amp;<!--"


def hostile_run(folder: Path) -> Path:
    """A run in which everything that comes from outside is an attack."""
    run = write_run(folder / "<b>'run' & \"co\"", ToyRun(done=2))
    atomic.write_text(run / "config.yaml", f"data: >\n  {ATTACK}\n")
    data = {f"data/{ATTACK}.jsonl": f'"><script>{"0" * 64}'}
    run_folder.write_lineage(run / "lineage.json", run_folder.Lineage(**{**vars_of(ORIGIN), "data": data}))
    sink = JsonlSink(run)
    sink.open(RunStart(name="run", steps=100, done=2))
    sink.note(ATTACK)
    sink.sample(2, [Sample(prompt=ATTACK, completion=ATTACK, expected=ATTACK)])
    sink.close(None)
    return run


def vars_of(origin: run_folder.Lineage) -> dict[str, object]:
    return {name: getattr(origin, name) for name in run_folder.Lineage.__slots__}


def test_markup_from_outside_is_shown_and_not_obeyed(tmp_path: Path) -> None:
    page = read_page(write_report(hostile_run(tmp_path)))
    assert page.words["h1"] == ["<b>'run' & \"co\""]
    assert page.sections["What the model said"] == f"Prompt 1{ATTACK}At step 2{ATTACK}In the data{ATTACK}"
    assert page.sections["Notes"] == f"{ATTACK} (after step 2)"
    assert f'data: data/{ATTACK}.jsonl"><script>00…' in page.sections["Lineage"]
    assert page.words["pre"][0] == f"data: >\n  {ATTACK}\n"
    assert {"script", "img", "b", "link", "iframe"} & set(page.tags) == {"b"}
    assert page.words["b"] == ["Not finished"]


def test_the_page_stands_alone_and_leads_to_its_own_headings(tmp_path: Path) -> None:
    page = stands_alone(write_report(write_run(tmp_path / "run", ToyRun(notes=["a note"]))))
    assert {target[1:] for target in page.values("a", "href")} == set(page.values("h2", "id"))
    assert set(page.values("h2", "id")) == set(page.values("section", "aria-labelledby"))


def test_a_reader_by_ear_or_keyboard_finds_the_way(tmp_path: Path) -> None:
    page = read_page(write_report(write_run(tmp_path / "run", ToyRun())))
    assert page.values("html", "lang") == ["en"]
    assert page.tags["h1"] == page.tags["main"] == 1
    assert page.tags["figure"] == page.tags["figcaption"] == page.tags["svg"] == 6
    assert page.values("svg", "role") == ["img"] * 6
    assert page.values("svg", "aria-label")[0] == (
        "Loss (nats) over the steps: training 3.19 at step 1, 1.75 at step 100; "
        "held out 2.74 at step 10, 1.86 at step 100"
    )
    assert len(page.values("th", "scope")) == page.tags["th"] > 20


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_nothing_is_wider_than_a_phone(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", ToyRun(notes=["x" * 500]))
    (run / "config.yaml").write_text(f"data: {'y' * 500}\n")
    sink = JsonlSink(run)
    sink.open(RunStart(name="run", steps=100, done=100))
    sink.sample(100, [Sample(prompt="z" * 500, completion="<b>" * 200, expected="مرحبا " * 50)])
    sink.close(None)
    keeps_to_its_width(write_report(run).read_text(), tmp_path)
