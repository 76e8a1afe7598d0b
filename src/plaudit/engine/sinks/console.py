"""The run as a person watches it: a bar on a terminal or in a notebook, a line now and then elsewhere.

Everything goes to the error stream, so that what a command prints for other programs stays clean.
"""

import html
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from plaudit.data.fields import shared_length, shorten
from plaudit.engine.sinks.base import RunStart, Sample, Summary
from plaudit.engine.step_report import Number, StepReport

_MAX_SAMPLES = 2
_MAX_CHARACTERS = 300
_MIN_SHARED = 40
"""Characters from which on what all prompts begin with is shown once."""
_HELD_OUT_LABELS = {"held_out/judge": "judge", "held_out/reward": "held-out", "held_out/loss": "held-out"}
"""What a run is judged by: the first of these that it has, and what it is called in a line."""
_POLICY_METRICS = (("reward", "reward", ".3f"), ("kl", "KL", ".2f"), ("length_mean", "length", ".0f"))
"""What says more of a policy that is rewarded than its loss does."""


class ConsoleSink:
    """Progress, loss, held-out loss, tokens per second and the time left."""

    name = "console"
    faults: tuple[type[Exception], ...] = (OSError,)

    def __init__(
        self,
        *,
        quiet: bool = False,
        every: Number = 10.0,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``quiet`` leaves only notes; ``every`` is the seconds between two lines where there is no bar."""
        self._console = console or Console(stderr=True)
        self._quiet = quiet
        self._clock = clock
        notebook = in_notebook() and console is None
        if notebook:
            # As plain lines of the cell: rich would display each as an output of its own.
            self._console = Console(file=sys.stdout, force_jupyter=False)
        live = notebook or is_live(self._console, os.environ)
        # A bar is redrawn by the step that moved it: a redrawing thread would take time from training.
        self._bar = _progress_bar(self._console, notebook) if live and not quiet else None
        self._every = 0.25 if live else every
        self._run = RunStart(name="", steps=0)
        self._started_at = self._shown_at = 0.0
        self._shown_step = 0
        self._report: StepReport | None = None
        self._held_out = ""
        self._first_sample: int | None = None
        self._last_sample: tuple[int, Sequence[Sample]] = (0, ())

    def open(self, run: RunStart) -> None:
        """Start the clock; the time left counts this process's steps only."""
        self._run, self._started_at = run, self._clock()
        self._shown_at, self._shown_step = self._started_at, run.done
        if self._quiet:
            return
        resumed_text = f", taken up after step {run.done}" if run.done else ""
        self._print_line(f"{run.name}: {run.steps} step{'' if run.steps == 1 else 's'}{resumed_text}")
        if self._bar is not None:
            self._bar.add_task("run", total=run.steps, completed=run.done, words="")
            self._bar.start()

    def log(self, report: StepReport) -> None:
        """Show the step if it is time: the first, the last, or long enough after the one shown before."""
        self._report = report
        held_out = _held_out_text(report)
        is_new, self._held_out = bool(held_out), held_out or self._held_out
        now = self._clock()
        first_or_last = report.step in (self._run.done + 1, report.steps)
        if self._quiet or not (is_new or first_or_last or now - self._shown_at >= self._every):
            return
        self._show(report, now)

    def sample(self, step: int, rows: Sequence[Sample]) -> None:
        """The first answers, shortened: those of the first look at once, those of the last at the end."""
        self._last_sample = (step, rows)
        if self._first_sample is None:
            self._first_sample = step
            self._show_samples(step, rows)

    def _show_samples(self, step: int, rows: Sequence[Sample]) -> None:
        if self._quiet:
            return
        shared = shared_beginning([row.prompt for row in rows])
        for number, row in enumerate(rows[:_MAX_SAMPLES]):
            # What all prompts begin with, a system prompt, is read once.
            again = number > 0 or step != self._first_sample
            prompt = f"…{row.prompt[shared:]}" if shared and again else row.prompt
            # Control characters are spelt out: they may steer a terminal.
            self._print_line(f"step {step}  asked     {shorten(prompt, _MAX_CHARACTERS)}")
            self._print_line(f"step {step}  answered  {shorten(row.completion, _MAX_CHARACTERS)}")

    def note(self, text: str) -> None:
        """A remark above the bar; shown even when quiet."""
        self._print_line(f"note: {text}", style="bold yellow")

    def sync(self) -> None:
        """Does nothing: the console keeps no state."""

    def close(self, summary: Summary | None) -> None:
        if self._report is not None and self._report.step != self._shown_step and not self._quiet:
            self._show(self._report, self._clock())
        if self._bar is not None:
            self._bar.stop()
        if self._quiet:
            return
        if self._last_sample[0] != self._first_sample:
            self._show_samples(*self._last_sample)
        elapsed = duration(self._clock() - self._started_at)
        self._print_line(f"{self._run.name}: {'done' if summary else 'stopped'} after {elapsed}")

    def _show(self, report: StepReport, now: float) -> None:
        self._shown_at, self._shown_step = now, report.step
        left = (now - self._started_at) / max(1, report.step - self._run.done) * (report.steps - report.step)
        status = _status_text(report, self._held_out, left)
        if self._bar is None:
            self._print_line(f"step {report.step}/{report.steps}  {status}")
        else:
            self._bar.update(self._bar.task_ids[0], total=report.steps, completed=report.step, words=status)
            self._bar.refresh()

    def _print_line(self, text: str, style: str = "") -> None:
        # Text, not str: brackets in a model's words are no markup.
        self._console.print(Text(text, style), highlight=False, soft_wrap=True)


def is_live(console: Console, environment: Mapping[str, str]) -> bool:
    """Whether a bar can be drawn: a real terminal, and not a CI log that calls itself one."""
    in_ci = environment.get("CI", "").lower() not in ("", "0", "false")
    return console.is_terminal and not console.is_dumb_terminal and not in_ci


def in_notebook() -> bool:
    """Whether this is a cell of a notebook, and not a terminal or a script."""
    shell = sys.modules.get("IPython")
    running = None if shell is None else shell.get_ipython()
    return running is not None and hasattr(running, "kernel")


def duration(seconds: Number) -> str:
    """Seconds as a person reads them.

    >>> duration(59.6), duration(3725), duration(200000)
    ('1:00', '1:02:05', '2d 7:33:20')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    clock = f"{hour}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
    return f"{days}d {clock}" if days else clock


def shared_beginning(prompts: Sequence[str]) -> int:
    """Characters that several prompts begin with, to the end of a line; 0 where that is little.

    >>> system = "<system>Be brief, and kind to all who ask.\\n"
    >>> shared_beginning([system + "Hi", system + "Ho"])
    43
    """
    if len(prompts) < 2:
        return 0
    # What the first and the last of them in order share, all of them do.
    first, last = min(prompts), max(prompts)
    end = first.rfind("\n", 0, shared_length(first, last)) + 1
    return end if _MIN_SHARED <= end < len(first) else 0


class NotebookBar:
    """A bar under a cell of a notebook; it is called as rich's is, which would need widgets for one."""

    task_ids = (TaskID(0),)

    def __init__(self) -> None:
        self._shown: Any = None
        self._state: dict[str, Any] = {}

    def add_task(self, name: str, **state: Any) -> None:
        """What is counted: ``total``, ``completed`` and ``words`` behind the bar."""
        del name
        self._state = state

    def start(self) -> None:
        self._shown = import_module("IPython.display").display(self, display_id=True)

    def update(self, task: TaskID, **state: Any) -> None:
        """Change the numbers; `refresh` shows them."""
        del task
        self._state |= state

    def refresh(self) -> None:
        self._shown.update(self)

    def stop(self) -> None:
        """Leave the bar as it is."""

    def __repr__(self) -> str:
        return f"{self._state['completed']}/{self._state['total']}  {self._state['words']}"

    def _repr_html_(self) -> str:
        done, total = self._state["completed"], self._state["total"]
        words = html.escape(self._state["words"])
        return f'<progress max="{total}" value="{done}"></progress> {done}/{total} &nbsp; {words}'


def _progress_bar(console: Console, notebook: bool) -> Progress | NotebookBar:
    if notebook:
        return NotebookBar()
    steps, words = TextColumn("{task.completed}/{task.total}"), TextColumn("{task.fields[words]}")
    return Progress(BarColumn(bar_width=24), steps, words, console=console, auto_refresh=False)


def _held_out_text(report: StepReport) -> str:
    for name, label in _HELD_OUT_LABELS.items():
        if name in report.values:
            return f"{label} {report.values[name]:.4f}"
    return ""


def _status_text(report: StepReport, held_out: str, seconds_left: float) -> str:
    values = report.values
    parts = [f"loss {values['loss']:.4f}"] if "loss" in values and "reward" not in values else []
    if "reward" in values:
        parts += [f"{label} {values[name]:{form}}" for name, label, form in _POLICY_METRICS if name in values]
    if held_out:
        parts.append(held_out)
    if "accuracy" in report.values:
        parts.append(f"accuracy {report.values['accuracy']:.0%}")
    if "tokens_per_second" in report.timing:
        parts.append(f"{report.timing['tokens_per_second']:,.0f} tokens/s")
    return "  ".join([*parts, f"{duration(seconds_left)} left"])
