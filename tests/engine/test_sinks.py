"""The sinks of a run together: the files, TensorBoard, and what happens when one of them fails."""

import json
import resource
from pathlib import Path

import pytest

from plaudit.engine.sinks.base import FanOutSink, RunStart, Sample, Sink, Summary, summarise
from plaudit.engine.sinks.files import JsonlSink, read_notes, read_reports, sinks_for
from plaudit.engine.sinks.trackers import TensorboardSink
from plaudit.engine.step_report import StepReport
from plaudit.errors import UserError

RUN = RunStart(name="toy", steps=4)


def report(step: int, seconds: float = 0.5) -> StepReport:
    return StepReport(
        step=step, steps=4, epoch=step / 4, values={"loss": 1 / step, "rows": 8}, timing={"seconds": seconds}
    )


class ListSink:
    """The fake of the seam: remembers what it was told, and fails where it is asked to."""

    name = "list"
    faults: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, fails_at: str = "", error: Exception | None = None) -> None:
        self.told: list[tuple[object, ...]] = []
        self._fails_at = fails_at
        self._error = error or ConnectionError("tracker unreachable")

    def open(self, run: RunStart) -> None:
        self._take("open", run)

    def log(self, report: StepReport) -> None:
        self._take("log", report.step)

    def sample(self, step, rows) -> None:
        self._take("sample", step, *rows)

    def note(self, text: str) -> None:
        self._take("note", text)

    def sync(self) -> None:
        self._take("sync")

    def close(self, summary: Summary | None) -> None:
        self._take("close", summary)

    def _take(self, what: str, *rest: object) -> None:
        if what == self._fails_at:
            raise self._error
        self.told.append((what, *rest))


def whole_run(sinks: Sink, folder: Path) -> None:
    sinks.open(RUN)
    for step in range(1, 5):
        sinks.log(report(step))
        if step == 2:
            sinks.sample(step, [Sample(prompt="Name a fruit.", completion="An apple.")])
            sinks.sync()
    sinks.close(summarise(read_reports(folder)))


def test_the_run_folder_holds_a_line_a_step_the_answers_and_the_last_word(tmp_path):
    whole_run(FanOutSink([JsonlSink(tmp_path)]), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines[0] == {
        "step": 1,
        "steps": 4,
        "epoch": 0.25,
        "loss": 1.0,
        "rows": 8,
        "timing": {"seconds": 0.5},
    }
    assert [line["step"] for line in lines] == [1, 2, 3, 4]
    assert json.loads((tmp_path / "samples.jsonl").read_text()) == {
        "step": 2,
        "prompt": "Name a fruit.",
        "completion": "An apple.",
    }
    last_word = json.loads((tmp_path / "summary.json").read_text())
    assert last_word["best"] == {"loss": {"step": 4, "value": 0.25}}
    assert last_word["counts"] == {"tokens": 0, "rows": 32}
    assert last_word["notes"] == []


def test_a_line_is_readable_by_others_before_the_run_ends(tmp_path):
    sink = JsonlSink(tmp_path)
    sink.open(RUN)
    sink.log(report(1))
    assert [r.step for r in read_reports(tmp_path)] == [1]
    sink.close(None)
    assert not (tmp_path / "summary.json").exists()


def test_after_a_kill_the_reproducible_part_of_the_file_is_that_of_an_uninterrupted_run(tmp_path):
    whole_run(JsonlSink(tmp_path / "whole"), tmp_path / "whole")
    killed = tmp_path / "killed"
    first = JsonlSink(killed)
    first.open(RUN)
    for step in (1, 2, 3):
        first.log(report(step, seconds=9.0))
    first.sample(2, [Sample(prompt="kept", completion="kept")])
    first.sample(3, [Sample(prompt="dropped", completion="dropped")])
    first.note("the first process said this")
    with (killed / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')
    second = FanOutSink([JsonlSink(killed)])
    second.open(RunStart(name="toy", steps=4, done=2))
    for step in (3, 4):
        second.log(report(step))
    second.close(summarise(read_reports(killed)))
    assert [r.values for r in read_reports(killed)] == [r.values for r in read_reports(tmp_path / "whole")]
    assert [r.step for r in read_reports(killed)] == [1, 2, 3, 4]
    assert (killed / "samples.jsonl").read_text().count("\n") == 1
    notes = json.loads((killed / "summary.json").read_text())["notes"]
    assert any("metrics.jsonl" in note and "dropped" in note for note in notes)


def test_a_models_odd_characters_reach_the_file_and_come_back(tmp_path):
    odd = 'quote " newline \n escape \x1b null \x00 emoji 🍎 lone \ud800 line separator \u2028'
    sink = JsonlSink(tmp_path)
    sink.open(RUN)
    sink.sample(1, [Sample(prompt="p", completion=odd, expected="e")])
    sink.close(None)
    lines = (tmp_path / "samples.jsonl").read_bytes().split(b"\n")
    assert len(lines) == 2
    assert json.loads(lines[0]) == {"step": 1, "prompt": "p", "completion": odd, "expected": "e"}


def test_a_record_that_someone_has_damaged_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(json.dumps(report(1).as_json()) + "\nnonsense\n")
    with pytest.raises(UserError, match=r"metrics\.jsonl:2: this is not a line of JSON"):
        list(read_reports(tmp_path))


def log_many(sinks: FanOutSink) -> None:
    for step in range(2, 20):
        sinks.log(report(step))


def test_a_full_disk_ends_the_run_with_a_message_that_names_the_file(tmp_path):
    other = ListSink()
    sinks = FanOutSink([JsonlSink(tmp_path), other])
    sinks.open(RUN)
    sinks.log(report(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
    try:
        with pytest.raises(UserError, match=r"metrics\.jsonl"):
            log_many(sinks)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    sinks.close(None)
    steps = [r.step for r in read_reports(tmp_path)]
    assert steps == list(range(1, len(steps) + 1))
    assert ("close", None) in other.told


def test_a_folder_that_is_a_file_is_named(tmp_path):
    (tmp_path / "run").write_text("")
    with pytest.raises(UserError, match="run"):
        JsonlSink(tmp_path / "run").open(RUN)


@pytest.mark.parametrize("moment", ["open", "log", "sample", "sync", "close"])
def test_a_tracker_that_fails_is_switched_off_with_one_note_and_the_run_goes_on(tmp_path, moment):
    tracker, other = ListSink(fails_at=moment), ListSink()
    whole_run(FanOutSink([JsonlSink(tmp_path), other, tracker]), tmp_path)
    words = (
        "list failed and is switched off; training goes on without it (ConnectionError: tracker unreachable)"
    )
    assert [told for told in other.told if told[0] == "note"] == [("note", words)]
    assert list(read_notes(tmp_path)) == [words]
    assert json.loads((tmp_path / "summary.json").read_text())["notes"] == [words]
    assert [r.step for r in read_reports(tmp_path)] == [1, 2, 3, 4]
    order = ["open", "log", "log", "sample", "sync", "log", "log", "close"]
    assert [told[0] for told in tracker.told] == order[: order.index(moment)]


def test_two_trackers_may_fail_at_once(tmp_path):
    whole_run(FanOutSink([JsonlSink(tmp_path), ListSink("log"), ListSink("log"), ListSink("note")]), tmp_path)
    assert len(list(read_notes(tmp_path))) == 3


def test_a_fault_that_is_not_the_trackers_own_is_not_hidden(tmp_path):
    sinks = FanOutSink([JsonlSink(tmp_path), ListSink("log", TypeError("a bug"))])
    sinks.open(RUN)
    with pytest.raises(TypeError, match="a bug"):
        sinks.log(report(1))


def test_the_runs_own_record_is_fed_first_and_closed_last(tmp_path):
    told: list[str] = []

    class Ordered(ListSink):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def _take(self, what: str, *rest: object) -> None:
            told.append(f"{self.name} {what}")

    sinks = FanOutSink([Ordered("record"), Ordered("tracker")])
    sinks.log(report(1))
    sinks.close(None)
    assert told == ["record log", "tracker log", "tracker close", "record close"]


def test_a_name_with_a_slip_gets_the_nearest_suggestion(tmp_path):
    with pytest.raises(UserError, match=r"called 'tensorbord' to log to; did you mean tensorboard\?"):
        sinks_for(["console", "tensorbord"], tmp_path)
    with pytest.raises(UserError, match=r"called 'xyzzy' to log to\. Choose from jsonl, console"):
        sinks_for(["xyzzy"], tmp_path)


def test_a_name_given_twice_makes_one_sink_and_the_record_is_always_there(tmp_path):
    assert [sink.name for sink in sinks_for(["console", "console"], tmp_path)] == ["jsonl", "console"]
    assert [sink.name for sink in sinks_for([], tmp_path)] == ["jsonl", "console"]
    assert list(tmp_path.iterdir()) == []


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_shows_every_figure_at_its_step(tmp_path):
    sink = TensorboardSink(tmp_path)
    sink.open(RUN)
    sink.log(report(1))
    sink.log(report(2))
    sink.sample(2, [Sample(prompt="p", completion="# not a heading")])
    sink.note("careful")
    sink.close(None)
    assert scalars(tmp_path) == {
        "epoch": [(1, 0.25), (2, 0.5)],
        "loss": [(1, 1.0), (2, 0.5)],
        "rows": [(1, 8.0), (2, 8.0)],
        "timing/seconds": [(1, 0.5), (2, 0.5)],
    }


def test_tensorboard_hides_the_steps_that_a_resumed_run_repeats(tmp_path):
    killed = TensorboardSink(tmp_path)
    killed.open(RUN)
    for step in (1, 2, 3, 4):
        killed.log(report(step, seconds=9.0))
    killed.sync()
    resumed = TensorboardSink(tmp_path)
    resumed.open(RunStart(name="toy", steps=4, done=2))
    resumed.log(report(3, seconds=1.0))
    resumed.close(None)
    killed.close(None)
    assert scalars(tmp_path)["timing/seconds"] == [(1, 9.0), (2, 9.0), (3, 1.0)]


def test_tensorboard_that_cannot_write_is_switched_off(tmp_path):
    (tmp_path / "tensorboard").write_text("in the way")
    whole_run(FanOutSink([JsonlSink(tmp_path), TensorboardSink(tmp_path)]), tmp_path)
    assert [note.split(";")[0] for note in read_notes(tmp_path)] == ["tensorboard failed and is switched off"]
