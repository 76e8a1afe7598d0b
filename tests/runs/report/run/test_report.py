"""report.html tells what lies in the run folder, whatever state the run is in."""

import math
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from plaudit.engine import run_folder
from plaudit.engine.sinks.base import RunStart, Sample, summarise
from plaudit.engine.sinks.files import JsonlSink
from plaudit.engine.step_report import Number, StepReport
from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.runs.report.run.page import write_report
from tests.engine.toy_runs import CONFIG, ORIGIN, ToyRun, write_run
from tests.runs.report.in_browser import CHROMIUM, keeps_to_its_width
from tests.runs.report.read_page import Page, read_page, stands_alone

SECTIONS = ["Curves", "What the model said", "Notes", "Lineage", "Settings", "Going on"]


def page_of(folder: Path, run: ToyRun) -> Page:
    return read_page(write_report(write_run(folder, run)))


def with_figures(folder: Path, *lines: Mapping[str, Number], finished: bool = True) -> Page:
    folder.mkdir()
    (folder / "config.yaml").write_text("model: base\n")
    sink = JsonlSink(folder)
    sink.open(RunStart(name=folder.name, steps=len(lines)))
    reports = [
        StepReport(step=at, steps=len(lines), epoch=at / 2, values=line, timing={})
        for at, line in enumerate(lines, start=1)
    ]
    for report in reports:
        sink.log(report)
    sink.close(summarise(reports) if finished else None)
    return read_page(write_report(folder))


def lede(page: Page) -> str:
    return page.words["p"][1]


def test_a_finished_run_is_told_from_its_head_to_its_commands(tmp_path):
    run = tmp_path / "first try"
    page = page_of(run, ToyRun(notes=["one row was cut"]))
    assert page.words["title"][0] == "first try · plaudit"
    assert page.words["h1"] == ["first try"]
    assert page.words["h2"] == SECTIONS
    assert page.sections["head"].startswith("first tryFinished on ")
    assert lede(page) == "100 steps over 4.0 epochs of 200 rows; held-out loss fell from 2.74 to 1.86."
    assert "Held-out loss1.86its best" in page.sections["head"]
    assert "Tokens204,800in 800 rows" in page.sections["head"]
    assert page.sections["Notes"] == "one row was cut (before the first step)"
    assert CONFIG in page.words["pre"]
    assert f"plaudit train sft --config '{run}/config.yaml' --out '{run}-again'" in page.words["pre"]
    compile(page.words["pre"][-1], "commands", "exec")
    assert "AutoModelForCausalLM" in page.words["pre"][-1]


def test_the_date_is_that_of_the_last_word_and_not_of_the_page(tmp_path):
    run = write_run(tmp_path / "run", ToyRun(steps=2))
    os.utime(run / "summary.json", (0, 1_700_000_000))
    page = read_page(write_report(run))
    assert page.words["time"] == ["2023-11-14 at 22:13 UTC"]
    assert page.values("time", "datetime") == ["2023-11-14T22:13:20+00:00"]


def test_an_unfinished_run_says_how_far_it_came_and_how_to_go_on(tmp_path):
    page = page_of(tmp_path / "run", ToyRun(done=40))
    assert page.sections["head"].startswith("runNot finished · last figures of ")
    assert lede(page).startswith("40 of 100 steps so far, over 1.6 epochs of 200 rows; held-out loss fell")
    assert page.words["pre"][-1] == f"plaudit train sft --config {tmp_path}/run/config.yaml"


def test_a_run_that_went_on_after_its_last_word_is_not_finished(tmp_path):
    run = write_run(tmp_path / "run", ToyRun(steps=4))
    sink = JsonlSink(run)
    sink.open(RunStart(name="run", steps=8, done=4))
    sink.log(StepReport(step=5, steps=8, epoch=2.5, values={"loss": 1.0}, timing={}))
    sink.close(None)
    assert read_page(write_report(run)).sections["head"].startswith("runNot finished")


def test_the_command_is_the_one_that_the_run_was_started_with(tmp_path):
    run = write_run(tmp_path / "run", ToyRun(done=1))
    page = read_page(write_report(run, command="plaudit train preferred"))
    assert page.words["pre"][-1].startswith("plaudit train preferred --config ")


def test_an_adapter_is_loaded_as_one(tmp_path):
    run = write_run(tmp_path / "run", ToyRun(steps=1))
    (run / "model" / "config.json").unlink()
    (run / "model" / "adapter_config.json").write_text("{}")
    assert "from peft import AutoPeftModelForCausalLM" in read_page(write_report(run)).words["pre"][-1]


def test_before_the_first_step_there_is_a_page_all_the_same(tmp_path):
    (tmp_path / "config.yaml").write_text("model: base\n")
    page = read_page(write_report(tmp_path))
    assert lede(page) == "No step has been taken."
    assert page.words["h2"] == SECTIONS
    assert page.sections["Lineage"] == "The run ended before it wrote lineage.json."
    assert page.tags["svg"] == 0


def test_a_single_step_is_drawn_as_a_point(tmp_path):
    page = page_of(tmp_path / "run", ToyRun(steps=1, evaluate_every=1))
    assert lede(page) == "1 step over 4.0 epochs of 2 rows; held-out loss was 1.86 at step 1."
    assert page.tags["circle"] == 8


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            [{"held_out/loss": 2.0}, {"held_out/loss": 2.5}],
            "held-out loss rose from 2.00 to 2.50, with its best, 2.00, at step 1.",
        ),
        ([{"held_out/loss": 2.0}, {"held_out/loss": 2.001}], "held-out loss stayed at 2.00."),
        (
            [{"held_out/loss": 2.0}, {"held_out/loss": math.nan}],
            "held-out loss went from 2.00 to not finite, with its best, 2.00, at step 1.",
        ),
        ([{"loss": 3.0}, {"loss": 1.0}], "training loss fell from 3.00 to 1.00 (first and last step)."),
        ([{"loss": 3.0}], "training loss was 3.00."),
        (
            [{"loss": 1e-9, "reward": 0.1}, {"loss": -1e-9, "reward": 0.5}],
            "the reward of drawn answers rose from 0.100 to 0.500 (first and last step).",
        ),
    ],
)
def test_the_sentence_says_which_way_the_loss_went(tmp_path, lines, sentence):
    assert lede(with_figures(tmp_path / "run", *lines)).partition("; ")[2] == sentence


def test_without_held_out_rows_the_training_loss_is_averaged_over_each_end(tmp_path):
    page = with_figures(tmp_path / "run", *({"loss": 4.0 if at < 10 else 2.0} for at in range(100)))
    assert lede(page).endswith(
        "training loss fell from 4.00 to 2.00 (means of the first and the last 10 steps)."
    )
    assert "held out" not in page.sections["Curves"]


def test_rows_are_only_called_the_datas_own_when_the_count_comes_out_even(tmp_path):
    page = with_figures(tmp_path / "run", {"rows": 8}, {"rows": 8}, {"rows": 3})
    assert lede(page) == "3 steps over 1.5 epochs, 19 rows in all."


def test_values_that_are_no_numbers_are_gaps_marks_and_notes(tmp_path):
    values = [2.0, 1.9, math.nan, 1.7, math.inf, 1.5]
    page = with_figures(tmp_path / "run", *({"loss": value} for value in values))
    (line,) = [d for d in page.values("path", "d") if "L" in d]
    assert line.count("M") == 3
    assert page.values("path", "class").count("gap") == 2
    assert "loss was not a finite number at step 3, 5" in page.sections["Notes"]
    assert "step 3: not finite" in page.words["title"]


def test_a_figure_that_was_never_a_number_says_so_instead_of_drawing(tmp_path):
    page = with_figures(tmp_path / "run", {"loss": math.nan}, {"loss": math.nan})
    assert "Never a finite number." in page.sections["Curves"]
    assert page.tags["svg"] == 0


def test_a_spike_turns_the_axis_logarithmic_and_stays_in_sight(tmp_path):
    page = with_figures(tmp_path / "run", *({"grad_norm": 900.0 if at == 7 else 1.0} for at in range(20)))
    assert "The upright axis is logarithmic." in page.sections["Curves"]
    assert "step 8: 900" in page.words["title"]


def test_samples_show_the_first_and_the_last_answer_beside_the_expected_one(tmp_path):
    said = page_of(tmp_path / "run", ToyRun()).sections["What the model said"]
    assert said.endswith("Prompt 2Name a fruit.At step 25I am not sureAt step 100A pear.In the dataA pear.")
    assert said.startswith(
        "Prompt 1How do I reset my password?At step 25I am not sureAt step 100Open Settings"
    )


def test_a_prompt_that_is_asked_twice_is_compared_with_itself_in_order(tmp_path):
    run = write_run(tmp_path / "run", ToyRun(done=0))
    sink = JsonlSink(run)
    sink.open(RunStart(name="run", steps=2))
    for step, (one, other) in enumerate([("\n", "b"), ("c", "")], start=1):
        sink.sample(step, [Sample(prompt="Go.", completion=one), Sample(prompt="Go.", completion=other)])
    sink.close(None)
    said = read_page(write_report(run)).sections["What the model said"]
    assert said == "Prompt 1Go.At step 1(only white space)At step 2cPrompt 2Go.At step 1bAt step 2(nothing)"


def test_what_there_is_too_much_of_is_counted_rather_than_shown(tmp_path):
    run = write_run(
        tmp_path / "run", ToyRun(done=0, notes=["twice", *(f"note {at}" for at in range(120)), "twice"])
    )
    sink = JsonlSink(run)
    sink.open(RunStart(name="run", steps=2))
    sink.sample(1, [Sample(prompt=f"prompt {at}", completion="word " * 10**6) for at in range(15)])
    sink.close(None)
    path = write_report(run)
    page = read_page(path)
    assert path.stat().st_size < 100_000
    assert page.sections["What the model said"].endswith(
        "(4,999,000 more characters)3 more prompts in samples.jsonl."
    )
    assert page.sections["Notes"].startswith("21 earlier notes in notes.jsonl.note 20 ")
    assert "121 notes" in page.sections["head"]


def test_hashes_are_short_on_the_page_and_whole_in_their_titles(tmp_path):
    page = page_of(tmp_path / "run", ToyRun(steps=1))
    assert page.values("code", "title") == [
        *ORIGIN.data.values(),
        ORIGIN.model,
        ORIGIN.template,
        ORIGIN.tokenizer,
    ]
    assert "data: data/support.jsonl9f86d081884c…" in page.sections["Lineage"]
    assert "version 0.1.0, commit f856f57dabd2, with files that differed" in page.sections["Lineage"]


def test_a_line_that_a_kill_tore_is_left_out(tmp_path):
    run = write_run(tmp_path / "run", ToyRun(done=12))
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 13, "st')
    assert lede(read_page(write_report(run))).startswith("12 of 100 steps so far,")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.jsonl", "{broken\n", r"metrics.jsonl:1: this is not a line of JSON"),
        ("metrics.jsonl", '{"loss": 1}\n', r"metrics.jsonl:1: not a step that plaudit reported .*'step'"),
        ("metrics.jsonl", "[1]\n", r"metrics.jsonl:1: not a step that plaudit reported"),
        ("samples.jsonl", '{"step": 1}\n', r"samples.jsonl:1: not a sample"),
        ("notes.jsonl", '{"step": "x", "note": ""}\n', r"notes.jsonl:1: not a note"),
        ("summary.json", "[]", r"summary.json: not a summary that plaudit wrote"),
        ("lineage.json", "{}", r"lineage.json: not a lineage that plaudit wrote"),
    ],
)
def test_a_file_that_something_else_changed_is_named(tmp_path, name, content, message):
    (tmp_path / "config.yaml").write_text("model: base\n")
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("folder", ["empty", "absent"])
def test_a_folder_that_is_no_run_is_refused(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"not a run folder \(it has no config.yaml\)"):
        write_report(tmp_path / folder)


def test_a_page_is_replaced_whole_and_says_the_same_again(tmp_path):
    run = write_run(tmp_path / "run", ToyRun(done=5))
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first
    assert sorted(path.name for path in run.iterdir() if "report" in path.name) == ["report.html"]


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
