"""Which look's model a run leaves behind, and whether the run has overfit, in a sentence.

The last look is worse than the best one beyond noise when the mean of the differences in loss, row by row, is
more than two of its standard errors; rows of one prompt are one piece of evidence. Within noise the lowest of
ten figures is often that of a model that has hardly learnt, so where nobody asked, the last one stays. That a
model is right on its own rows far more often than on held-out ones is told, and chooses nothing: it does not
say that an earlier look was better.
"""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from plaudit.engine.distributed import Ranks
from plaudit.engine.loop import HeldOutRows, LoopProgress, Schedule, TrainingJob, TrainingLoop
from plaudit.engine.settings import KeepSettings
from plaudit.engine.sinks.files import read_reports
from plaudit.engine.step_report import StepReport
from plaudit.methods.config import RunConfig

HELD_OUT_LOSS = "held_out/loss"
"""The figure of a look that is there row by row."""
ERRORS = 2.0
"""A difference of more standard errors than this is no noise."""
FAR_ABOVE = 0.1
"""So far above held-out accuracy the training rows' own is a sign of overfitting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRise:
    """How much higher the held-out loss of one look is than another's."""

    mean: float
    error: float

    def __str__(self) -> str:
        """The rise with its 95 % interval, in words."""
        rise = f"higher by {self.mean:.2g} ± {ERRORS * self.error:.2g}"
        return f"{rise}, which may be noise" if self.is_noise else rise

    @property
    def is_noise(self) -> bool:
        return not self.mean > ERRORS * self.error


def settle_on_look(
    config: RunConfig,
    loop: TrainingLoop[Any],
    job: TrainingJob[Any],
    progress: LoopProgress,
    schedule: Schedule,
    *,
    ranks: Ranks,
) -> int | None:
    """Load the weights that are the result, and say what is to be said of them; the step that they are of."""
    if progress.best_step is None:
        return None
    keep, held_out = schedule.keep, job.held_out_rows
    rise, selected = None, progress.step
    if keep.use_best:
        rise = load_best_look(loop, progress, held_out, ranks)
        selected = progress.best_step
        # Rises are of the loss; whoever names another figure has chosen what the best look is.
        if config.keep.use_best is None and keep.best == HELD_OUT_LOSS and (rise is None or rise.is_noise):
            loop.load_weights_of_step(progress.step)
            selected = progress.step
    if held_out is not None and ranks.is_first:
        gap = accuracy_gap(tuple(read_reports(config.out)), held_out.count)
        note = best_look_note(progress, keep, steps=schedule.steps, selected=selected, rise=rise, gap=gap)
        if note is not None:
            loop.note_once(note)
    return selected


def load_best_look(
    loop: TrainingLoop[Any], progress: LoopProgress, held_out: HeldOutRows | None, ranks: Ranks
) -> LossRise | None:
    """Load the best look's weights; how much higher the last look's loss was, where it is another one."""
    assert progress.best_step is not None
    if progress.best_step == progress.step or held_out is None:
        loop.load_weights_of_step(progress.best_step)
        return None
    # Measured anew and not remembered: a run that was killed here has nothing to lose.
    last = held_out.losses()
    loop.load_weights_of_step(progress.best_step)
    rows = [
        (prompt, after - before) for (prompt, before), (_, after) in zip(held_out.losses(), last, strict=True)
    ]
    everywhere = ranks.rows.all_gather_strings([json.dumps(row) for row in rows])
    return loss_rise([json.loads(row) for row in everywhere])


def loss_rise(rows: Sequence[tuple[str, float]]) -> LossRise | None:
    """The mean of the rows' differences, each with the prompt that it belongs to; None of a single prompt.

    >>> loss_rise([("one", 0.5), ("one", 0.5), ("two", 0.0), ("two", 0.0)])
    LossRise(mean=0.25, error=0.25)
    """
    mean = fmean(difference for _, difference in rows) if rows else 0.0
    residuals = defaultdict[str, float](float)
    for prompt, difference in rows:
        residuals[prompt] += difference - mean
    prompts = len(residuals)
    if prompts < 2:
        return None
    squares = sum(residual**2 for residual in residuals.values()) * prompts / (prompts - 1)
    return LossRise(mean=mean, error=math.sqrt(squares) / len(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyGap:
    """How often a model is right on the rows that it learnt from last, and on held-out ones."""

    since: int
    """The step after which training rows count: that of the look before."""
    trained: float
    """On training rows, each before the step that learnt from it."""
    trained_rows: int
    held_out: float
    held_out_rows: int

    @property
    def is_wide(self) -> bool:
        """Whether the gap is a sign of overfitting: wide, and no noise."""
        (trained, trained_variance), (held_out, held_out_variance) = (
            _cautious_share(self.trained, self.trained_rows),
            _cautious_share(self.held_out, self.held_out_rows),
        )
        noise = math.sqrt(trained_variance + held_out_variance)
        return self.trained - self.held_out > FAR_ABOVE and trained - held_out > ERRORS * noise


def _cautious_share(share: float, rows: int) -> tuple[float, float]:
    """With two more rows on either side (Agresti and Coull), and its variance: none of three is not never."""
    more = rows + 4
    middle = (share * rows + 2) / more
    return middle, middle * (1 - middle) / more


def accuracy_gap(reports: Sequence[StepReport], held_out_rows: int) -> AccuracyGap | None:
    """The gap at the last look; None where a run has no accuracy, or learnt nothing since the look before."""
    looks = [report for report in reports if "held_out/accuracy" in report.values]
    if not looks:
        return None
    since = looks[-2].step if len(looks) > 1 else 0
    learnt = [
        report.values
        for report in reports
        if since < report.step <= looks[-1].step and math.isfinite(report.values.get("accuracy", math.nan))
    ]
    rows = sum(values["rows"] for values in learnt)
    if not rows or not held_out_rows:
        return None
    trained = sum(values["accuracy"] * values["rows"] for values in learnt) / rows
    held_out = float(looks[-1].values["held_out/accuracy"])
    return AccuracyGap(
        since=since, trained=trained, trained_rows=int(rows), held_out=held_out, held_out_rows=held_out_rows
    )


def best_look_note(
    progress: LoopProgress,
    keep: KeepSettings,
    *,
    steps: int,
    selected: int,
    rise: LossRise | None,
    gap: AccuracyGap | None,
) -> str | None:
    """What a run says at its end of the look that it keeps; None where the best is the last, and all is well.

    >>> progress = LoopProgress(step=75, best_step=36, best_value=0.58)
    >>> rise = LossRise(mean=0.05, error=0.01)
    >>> print(best_look_note(progress, KeepSettings(), steps=99, selected=36, rise=rise, gap=None)[:75])
    overfits: held-out loss was best at step 36 of 99 (0.58), at step 75 higher
    """
    gap = gap if gap is not None and gap.is_wide else None
    if gap is None and progress.best_step == progress.step:
        return None
    # The rise is one of the loss, whatever the best look was chosen by.
    rise = rise if keep.best == HELD_OUT_LOSS else None
    figure = keep.best.replace("held_out/", "held-out ").replace("_", " ")
    findings = [f"{figure} was best at step {progress.best_step} of {steps}"]
    findings[0] += f" ({progress.best_value:.3g})" + (f", at step {progress.step} {rise}" if rise else "")
    if gap is not None:
        findings.append(
            f"after step {gap.since} it was right on {gap.trained:.0%} of the rows that it learnt from and, "
            f"in the end, on {gap.held_out:.0%} of held-out ones"
        )
    findings.append("that model is kept" if selected == progress.best_step else "the last model is kept")
    overfits = gap is not None or (rise is not None and not rise.is_noise)
    return f"{'overfits: ' if overfits else ''}{'; '.join(findings)}"
