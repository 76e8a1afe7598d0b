"""Samples of a run that learns rewards: each answer beside what it was given, never mixed with its words."""

from pathlib import Path

from plaudit.engine.sinks.base import RunStart, Sample
from plaudit.engine.sinks.files import JsonlSink
from plaudit.runs.report.run.page import write_report
from tests.engine.toy_runs import ToyRun, write_run
from tests.runs.report.read_page import read_page


def page_with(folder: Path, *samples: Sample) -> tuple[str, dict[str, str]]:
    run = write_run(folder, ToyRun(done=0))
    sink = JsonlSink(run)
    sink.open(RunStart(name="run", steps=1))
    sink.sample(1, list(samples))
    sink.close(None)
    path = write_report(run)
    return path.read_text("utf-8"), read_page(path).sections


def test_scores_stand_in_a_column_of_their_own(tmp_path: Path) -> None:
    ranked = Sample(
        prompt="Name a fruit.", completion="+12.34  A <b>pear.\n-0.20  ", expected="1.  A pear.\n1.5.  No."
    )
    page, sections = page_with(tmp_path / "run", ranked)
    found = sections["How the model scored"]
    assert found == "Prompt 1Name a fruit.At step 1+12.34A <b>pear.−0.20(nothing)In the data1.A pear.1.5.No."
    assert page.count('<dl class="judged">') == 2
    assert page.count("<dt>") == page.count("<dd>") == 4
    assert "A &lt;b&gt;pear." in page


def test_what_is_no_score_is_shown_as_it_was_said(tmp_path: Path) -> None:
    said = "+1.00 apples\n+2.00  pears"
    page, sections = page_with(
        tmp_path / "run", Sample(prompt="a?", completion="+1.00  b"), Sample(prompt="c?", completion=said)
    )
    assert sections["What the model said"].endswith(said)
    assert page.count('<dl class="judged">') == 1
