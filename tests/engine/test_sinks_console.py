"""What a person sees of a run: on a terminal, in a log file, in CI."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from plaudit.engine.sinks.base import RunStart, Sample, summarise
from plaudit.engine.sinks.console import ConsoleSink, duration, is_live
from plaudit.engine.step_report import StepReport

PROGRAM = """
import sys
from pathlib import Path
from plaudit.engine.step_report import StepReport
from plaudit.engine.sinks.base import FanOutSink, RunStart
from plaudit.engine.sinks.files import sinks_for
sinks = FanOutSink(sinks_for(["console"], Path(sys.argv[1])))
sinks.open(RunStart(name="toy", steps=3))
for step in (1, 2, 3):
    values = {"loss": 2.5, "held_out/loss": 2.25} if step == 2 else {"loss": 2.5}
    sinks.log(StepReport(step=step, steps=3, epoch=1.0, values=values, timing={"tokens_per_second": 12345.6}))
    sinks.note("look [bold]here[/bold]") if step == 2 else None
sinks.close(None)
print("for other programs")
"""


def report(step: int, steps: int = 100, held_out: float | None = None) -> StepReport:
    fresh = {} if held_out is None else {"held_out/loss": held_out}
    timing = {"seconds": 1.0, "tokens_per_second": 1234.5}
    return StepReport(step=step, steps=steps, epoch=0.5, values={"loss": 2.0, **fresh}, timing=timing)


class Watched:
    """A console sink on a log file, with a clock that the test moves."""

    def __init__(self, *, quiet: bool = False, done: int = 0, steps: int = 100) -> None:
        self.now = 1000.0
        self._file = io.StringIO()
        console = Console(file=self._file, width=100)
        self.sink = ConsoleSink(quiet=quiet, console=console, clock=lambda: self.now)
        self.sink.open(RunStart(name="toy", steps=steps, done=done))

    def step(self, report: StepReport, *, after: float) -> None:
        self.now += after
        self.sink.log(report)

    @property
    def lines(self) -> list[str]:
        return self._file.getvalue().splitlines()


def test_a_log_file_gets_the_first_line_then_one_every_ten_seconds_then_the_last():
    watched = Watched(steps=30)
    for step in range(1, 31):
        watched.step(report(step, steps=30), after=3.0)
    watched.sink.close(summarise([report(30, steps=30)]))
    assert watched.lines == [
        "toy: 30 steps",
        "step 1/30  loss 2.0000  1,234 tokens/s  1:27 left",
        "step 5/30  loss 2.0000  1,234 tokens/s  1:15 left",
        "step 9/30  loss 2.0000  1,234 tokens/s  1:03 left",
        "step 13/30  loss 2.0000  1,234 tokens/s  0:51 left",
        "step 17/30  loss 2.0000  1,234 tokens/s  0:39 left",
        "step 21/30  loss 2.0000  1,234 tokens/s  0:27 left",
        "step 25/30  loss 2.0000  1,234 tokens/s  0:15 left",
        "step 29/30  loss 2.0000  1,234 tokens/s  0:03 left",
        "step 30/30  loss 2.0000  1,234 tokens/s  0:00 left",
        "toy: done after 1:30",
    ]


def test_the_time_left_after_a_resume_counts_this_processs_steps_only():
    watched = Watched(done=60)
    watched.step(report(61), after=2.0)
    watched.step(report(62), after=12.0)
    assert watched.lines[0] == "toy: 100 steps, taken up after step 60"
    assert watched.lines[1].endswith("1:18 left")
    assert watched.lines[2].endswith(f"{duration(38 * 7)} left")


def test_a_fresh_held_out_loss_is_shown_at_once_and_stays_in_later_lines():
    watched = Watched()
    watched.step(report(1), after=1.0)
    watched.step(report(2, held_out=2.125), after=1.0)
    watched.step(report(3), after=1.0)
    watched.step(report(4), after=10.0)
    held_out = [re.findall(r"step (\d+)/.*held-out ([\d.]+)", line) for line in watched.lines]
    assert held_out == [[], [], [("2", "2.1250")], [("4", "2.1250")]]


def test_a_run_that_is_stopped_shows_its_last_step():
    watched = Watched()
    watched.step(report(1), after=1.0)
    watched.step(report(2), after=1.0)
    watched.sink.close(None)
    assert watched.lines[-2].startswith("step 2/100")
    assert watched.lines[-1] == "toy: stopped after 0:02"


def test_quiet_leaves_only_the_notes():
    watched = Watched(quiet=True)
    watched.step(report(1, held_out=2.0), after=20.0)
    watched.sink.sample(1, [Sample(prompt="p", completion="c")])
    watched.sink.note("the tracker is off")
    watched.sink.close(None)
    assert watched.lines == ["note: the tracker is off"]


def test_a_models_words_are_shown_as_they_are_but_cannot_steer_the_terminal():
    watched = Watched()
    rows = [Sample(prompt="[red]hi[/red]", completion="a\x1b[2Jb\n" + "x" * 400)] * 5
    watched.sink.sample(7, rows)
    assert len(watched.lines) == 1 + 2 * 2
    assert watched.lines[1] == "step 7  asked     [red]hi[/red]"
    assert watched.lines[2] == "step 7  answered  a\\x1b[2Jb\\n" + "x" * 293 + "…"


def test_a_system_prompt_is_shown_once():
    watched = Watched()
    system = "<|system|>\nYou are an assistant of few words.<|end|>\n<|user|>\n"
    rows = [Sample(prompt=system + asked, completion="c") for asked in ("Hi", "Ho")]
    for step in (1, 9):
        watched.sink.sample(step, rows)
    watched.sink.close(None)
    shown = [line for line in watched.lines if "asked" in line]
    first = system.replace("\n", "\\n") + "Hi"
    assert shown == [
        f"step 1  asked     {first}",
        "step 1  asked     …Ho",
        "step 9  asked     …Hi",
        "step 9  asked     …Ho",
    ]


def test_letters_of_every_language_stay_as_they_are():
    watched = Watched()
    watched.sink.sample(1, [Sample(prompt="Fruit?", completion="jabłko 林檎 🍎")])
    assert watched.lines[-1] == "step 1  answered  jabłko 林檎 🍎"


@pytest.mark.parametrize(
    ("terminal", "environment", "live"),
    [(True, {}, True), (False, {}, False), (True, {"CI": "true"}, False), (True, {"CI": "false"}, True)],
)
def test_a_bar_is_drawn_on_a_terminal_and_never_in_ci(terminal, environment, live):
    console = Console(file=io.StringIO(), force_terminal=terminal, _environ={"TERM": "xterm"})
    assert is_live(console, environment) is live


def environment(**extra: str) -> dict[str, str]:
    hidden = ("CI", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**inherited, "TERM": "xterm", **extra}


def on_a_terminal(folder: Path, **extra: str) -> tuple[str, str]:
    """What the program writes to its output, and to the terminal that is its error stream."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=theirs, env=environment(COLUMNS="110", **extra), text=True
    ) as process:
        os.close(theirs)
        seen = b""
        while piece := _read(ours):
            seen += piece
        output = process.communicate(timeout=60)[0]
    os.close(ours)
    return output, seen.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the other end has been closed.
        return b""


def test_a_real_terminal_gets_a_bar_with_notes_above_it_and_standard_output_stays_clean(tmp_path):
    output, seen = on_a_terminal(tmp_path)
    assert output == "for other programs\n"
    assert "━" in seen
    assert "3/3 loss 2.5000  held-out 2.2500  12,346 tokens/s  0:00 left" in re.sub(
        r"\x1b\[[\d;?]*\w", "", seen
    )
    assert "note: look [bold]here[/bold]" in seen
    assert "\x1b[?25h" in seen[seen.rindex("\x1b[?25l") :], "the cursor is shown again"


def test_ci_that_offers_a_terminal_gets_plain_lines(tmp_path):
    _, seen = on_a_terminal(tmp_path, CI="true")
    assert "━" not in seen
    assert "\x1b[?25l" not in seen
    assert "step 3/3  loss 2.5000" in seen


def test_a_terminal_that_knows_no_unicode_does_not_end_the_run(tmp_path):
    command = [sys.executable, "-c", PROGRAM.replace("look [bold]here[/bold]", "jabłko 🍎"), str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, check=True, env=environment(PYTHONIOENCODING="ascii:backslashreplace")
    )
    assert b"note: jab\\u0142ko" in done.stderr
