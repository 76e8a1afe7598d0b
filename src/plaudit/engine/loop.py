"""The training loop: resume, step, evaluate, report, save; killed at any point, it resumes exactly.

A method hands a `TrainingJob` to the loop. A step is a pure function of the weights, the optimiser's state
and the step's number, and the rows of a step are one of the seed, so going back to a checkpoint and stepping
again gives the same bits. SIGTERM and Ctrl-C end a run in good order: the last whole step is saved, then the
process leaves.
"""

import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, Generic, cast

from torch import nn

from plaudit.engine.checkpoint import save
from plaudit.engine.checkpoint.state import (
    RngState,
    Stateful,
    capture_rng_state,
    expected_shapes,
    load_snapshot,
    restore_rng_state,
    snapshot,
)
from plaudit.engine.distributed import Ranks, is_sharded
from plaudit.engine.metrics import Metric, measure_memory, values_of
from plaudit.engine.optimizer import make_optimizer, schedule_factor
from plaudit.engine.settings import DeepSpeedSettings, KeepSettings, OptimizerSettings, SafetySettings
from plaudit.engine.sinks.base import FanOutSink, Sample
from plaudit.engine.sinks.files import read_notes, read_reports
from plaudit.engine.step import (
    InterruptCheck,
    InterruptedRunError,
    NonFiniteFault,
    ObjectiveResult,
    Stepper,
    listen_for_signals,
    take_step,
)
from plaudit.engine.step_report import SLOW_STEP, Number, StepPace, StepReport
from plaudit.errors import UserError
from plaudit.models.backbone import evaluation_mode
from plaudit.tokens.microbatch import MicrobatchT
from plaudit.wings import offered


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOrder:
    """Every row once an epoch, shuffled anew each time; the last batch of an epoch may be smaller.
    Example: ``BatchOrder(rows=10, batch_size=4, seed=0)`` has three steps an epoch, of 4, 4 and 2 rows."""

    rows: int
    batch_size: int
    """How many make up a step, over all ranks."""
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.rows // self.batch_size)

    def steps_for_epochs(self, epochs: float) -> int:
        """How many steps make so many epochs, at least one.

        >>> BatchOrder(rows=10, batch_size=4, seed=0).steps_for_epochs(1.5)
        4
        """
        return max(1, round(epochs * self.steps_per_epoch))

    def batch_rows(self, step: int) -> tuple[int, ...]:
        """The rows of step 1, 2, …

        >>> order = BatchOrder(rows=5, batch_size=2, seed=0)
        >>> sorted(row for step in (1, 2, 3) for row in order.batch_rows(step))
        [0, 1, 2, 3, 4]
        """
        # A function of the step alone: a resume needs no saved iterator, and no loader can run ahead of it.
        epoch, within = divmod(step - 1, self.steps_per_epoch)
        shuffled = _shuffled_rows(self.rows, self.seed, epoch)
        return tuple(shuffled[within * self.batch_size : (within + 1) * self.batch_size])

    def epoch_after(self, step: int) -> float:
        """How often the data has been gone through after this step."""
        epoch, within = divmod(step, self.steps_per_epoch)
        return epoch + within * self.batch_size / self.rows


MANY_ROWS = 2**20  # From so many rows on there is no object for each.


# The epoch at hand and its neighbour: millions of rows are not shuffled again at every step.
@lru_cache(maxsize=2)
def _shuffled_rows(rows: int, seed: int, epoch: int) -> Sequence[int]:
    if rows >= MANY_ROWS:
        from plaudit.engine.ranks import shuffled

        return shuffled(rows, f"{seed}/{epoch}")
    order = list(range(rows))
    # A generator of its own, seeded by text: Python hashes a
    # string seed with SHA-512, alike in every process.
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


BatchRows = Callable[[int], Sequence[int]]
"""From a batch's number, which counts from 1, to its rows."""


Diagnose = Callable[[Sequence[StepReport]], Mapping[str, str]]
"""From all step reports to diagnostics: how each begins, by which it is recognised later, and how it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutRows:
    """Held-out rows one by one, by which overfitting is told from noise."""

    count: int
    losses: Callable[[], Sequence[tuple[str, float]]]
    """The hash of the prompt and the loss of each row of this rank, by the weights as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob(Generic[MicrobatchT]):
    """A model that is ready to train, and all that a run asks of its method.

    Example: ``TrainingJob(module=policy, objective=objective, rows=len(rows.train), microbatches=…, …)``
    """

    module: nn.Module
    """What is trained, on its device and divided over the ranks."""
    objective: Callable[[MicrobatchT], ObjectiveResult]
    """From a micro-batch to what a step minimises."""
    rows: int
    """How many rows are trained."""
    microbatches: Callable[[int, BatchRows], Iterator[Sequence[MicrobatchT]]]
    """This rank's micro-batches of a step and of each step after it, given the rows of batches."""
    flops: Callable[[Sequence[MicrobatchT]], float]
    """Floating-point operations of these micro-batches."""
    learning_rate: float
    """The peak learning rate."""
    optimizer: OptimizerSettings
    """The optimiser and its schedule."""
    evaluate: Callable[[InterruptCheck], Sequence[Metric]] | None
    """Held-out evaluation; None when nothing is held out."""
    held_out_metrics: tuple[str, ...]
    """The held-out metrics by which the best checkpoint may be chosen."""
    held_out_rows: HeldOutRows | None = None
    """Held-out rows one by one; where they are given, a run tells of its overfitting."""
    sample: Callable[[InterruptCheck], Sequence[Sample]] | None
    """What the model generates now; None for silence."""
    save: Callable[[], None]
    """Writes the result into the run folder; every rank must come."""
    state: Mapping[str, Stateful] = field(default_factory=dict[str, Stateful])
    """State beside the weights, by the name of its part in a checkpoint."""
    diagnose: Diagnose = lambda reports: {}
    """The diagnostics that the metrics so far call for."""
    updates_per_batch: int = 1
    """Optimiser steps that a batch of rows is learnt from."""
    clip_groups: tuple[nn.Module, ...] = ()
    """Parts of the module whose gradients are clipped each by itself."""
    rate_multiples: Mapping[str, float] = field(default_factory=dict[str, float])
    """Parts of the module that learn at a multiple of the rate."""
    update_fn: Callable[[Sequence[MicrobatchT]], Sequence[Metric]] | None = None
    """Moves weights in a way of its own."""
    timing: Callable[[], Mapping[str, Number]] = dict[str, Number]
    """What else there is to say of the time that a step took."""
    deepspeed: DeepSpeedSettings | None = None
    """How DeepSpeed keeps weights, gradients and the optimiser's state; None where it does not."""

    def microbatches_of_step(self, step: int, rows: Sequence[int]) -> Sequence[MicrobatchT]:
        """This rank's micro-batches of one step that learns from these rows."""
        return next(self.microbatches(step, lambda _: rows))

    def stepper(self, ranks: Ranks) -> Stepper[MicrobatchT]:
        """What takes this job's optimiser steps."""
        stepper = Stepper(
            module=self.module,
            optimizer=make_optimizer(self.module, self.learning_rate, self.optimizer, self.rate_multiples),
            objective=self.objective,
            clip=self.optimizer.clip,
            ranks=ranks,
            clip_groups=self.clip_groups,
            update_fn=self.update_fn,
        )
        if self.deepspeed is None:
            return stepper
        zero = offered("ZeroAdamW", of="runs")(self.module, stepper.optimizer, self.deepspeed, ranks)
        return replace(stepper, optimizer=cast("Any", zero), gradients=zero, session=zero.session)


def row_batches(
    microbatches: Callable[[int, Sequence[int]], Sequence[MicrobatchT]],
) -> Callable[[int, BatchRows], Iterator[Sequence[MicrobatchT]]]:
    """The steps of a job that learns from a batch of rows at each, given what makes micro-batches of them."""

    def batches(first: int, batch_rows: BatchRows) -> Iterator[Sequence[MicrobatchT]]:
        return (microbatches(step, batch_rows(step)) for step in count(first))

    return batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long a run is, and what it does between steps, whatever it trains."""

    order: BatchOrder
    steps: int
    evaluate_every: int
    sample_every: int
    save_every: int
    safety: SafetySettings
    keep: KeepSettings
    peak_flops: float
    """What the hardware could do in a second, over all ranks; 0 when it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopProgress:
    step: int = 0
    saved: int = -1
    """The step of the newest checkpoint; −1 before the first."""
    best_step: int | None = None
    best_value: float | None = None
    left_out: tuple[int, ...] = ()
    """Steps whose rows gave numbers that were not finite."""
    learnt: Mapping[str, Mapping[str, Number]] | None = None
    """Metrics and timing of the newest step while its report is not written yet."""

    @property
    def reported(self) -> int:
        """The last step whose report is written."""
        return self.step - (self.learnt is not None)


class TrainingLoop(Generic[MicrobatchT]):
    def __init__(
        self,
        job: TrainingJob[MicrobatchT],
        schedule: Schedule,
        ranks: Ranks,
        *,
        folder: Path,
        open_sinks: Callable[[int, Mapping[str, str]], FanOutSink],
        verify_folder: Callable[[], Sequence[str]] = tuple,
        notes: Sequence[str] = (),
    ) -> None:
        """The run begins with ``run``; ``open_sinks`` gets the steps done and the marks of the lines so far.
        ``notes`` are said after it, and whatever ``verify_folder`` returns before each report."""
        self._job, self._schedule, self._ranks = job, schedule, ranks
        self._stepper = job.stepper(ranks)
        self._folder, self._checkpoints = folder, folder / "checkpoints"
        self._make_sinks, self._sinks = open_sinks, FanOutSink(())
        divided, background = is_sharded(job.module) and job.deepspeed is None, schedule.keep.background
        background = divided if background is None else background
        self._writer = save.CheckpointWriter(ranks, background=background)
        self._verify_folder, self._marks = verify_folder, dict[str, str]()
        self._progress = LoopProgress()
        self._batches: Iterator[Sequence[MicrobatchT]] = iter(())
        self._next_step = -1
        self._rng_state: RngState = capture_rng_state()
        self._notes = list(notes)
        self._pace = StepPace(phases=job.updates_per_batch)

    def run(self) -> LoopProgress:
        """All steps that are left; a signal saves the last whole one and leaves by `InterruptedRunError`."""
        with self._stepper.session(), closing(self._writer), listen_for_signals(self._ranks) as listener:
            # Before the sinks open: they cut their files back to the step that the checkpoint has.
            self._resume()
            self._stepper = replace(self._stepper, on_microbatch=listener.raise_if_interrupted)
            self._open_sinks()
            # A fault in the first steps needs something to roll back to.
            if self._progress.saved < 0 and self._schedule.safety.on_nonfinite == "rollback":
                self._save()
            try:
                # `learnt` holds a step that moved weights and is not reported yet: a
                # run that was interrupted in between goes on with that.
                while self._progress.reported < self._schedule.steps and not self._patience_exhausted():
                    if self._progress.learnt is None:
                        self._train_step(self._progress.step + 1)
                    if self._progress.learnt is not None:
                        self._evaluate_and_save(self._progress.step, self._progress.learnt)
            except InterruptedRunError:
                # The torn step or evaluation has drawn numbers already; what
                # is saved must be the state before it.
                restore_rng_state(self._rng_state)
                if self._progress.saved != self._progress.step:
                    self._save()
                self._note_all(self._writer.finish())
                self._sinks.close(None)
                raise
            if self._progress.step < self._schedule.steps:
                self._end_early()
            self._note_all(self._writer.finish())
        # It learns no more: whoever looks at the result finds it without dropout.
        self._job.module.eval()
        return self._progress

    def load_weights_of_step(self, step: int) -> None:
        """Load the weights of a saved step into the module, such as those of the best checkpoint."""
        path = self._checkpoints / f"step-{step:08d}"
        try:
            state = save.load_checkpoint(path, ranks=self._ranks)
        except UserError as error:
            raise UserError(
                f"{error} It is the best one of this run; with --no-keep.use-best the last weights are taken."
            ) from error
        load_snapshot(state, self._stepper.module, None, self._ranks)

    def note_once(self, note: str) -> None:
        """Tell the user, unless this run has done so before: one that is started again ends again."""
        if self._ranks.is_first and note not in read_notes(self._folder):
            self._sinks.note(note)

    @property
    def sinks(self) -> FanOutSink:
        return self._sinks

    def _train_step(self, step: int) -> None:
        """Take the step, unless it is one to pass over; after a roll-back ``learnt`` is still None."""
        started = time.perf_counter()
        # Where an interrupt during this step goes back to.
        self._rng_state = capture_rng_state()
        rate = self._job.learning_rate * schedule_factor(step, self._schedule.steps, self._job.optimizer)
        metrics: dict[str, Number] = {"learning_rate": rate}
        timing: dict[str, Number] = {}
        left_out = step in self._progress.left_out
        # A trainer that has nothing to learn at this step brings no micro-batch, on any rank.
        microbatches = () if left_out else self._pull_batch(step)
        if microbatches:
            outcome = take_step(self._stepper, microbatches, rate)
            if outcome.fault is not None and not self._handle_fault(step, outcome.fault):
                return
            metrics = {**values_of(outcome.metrics), "grad_norm": outcome.gradient_norm, **metrics}
            left_out = outcome.fault is not None
            # The arithmetic of all ranks over this rank's seconds: ranks finish a step together.
            flops = sum(row[0] for row in self._ranks.rows.all_gather([self._job.flops(microbatches)]))
            timing = self._timing(flops, metrics, time.perf_counter() - started)
            self._note_slow_step(self._pace.slow_step_note(step, timing["seconds"], flops))
        # Controllers (an adaptive KL coefficient, a running mean)
        # learn only from steps that moved the weights.
        if not left_out:
            for part in self._job.state.values():
                part.after_step(step, metrics)
        step_metrics = {"figures": metrics, "timing": timing}
        # From here on the step counts: an interrupt during evaluation saves
        # it with its figures, and repeats nothing.
        self._progress = replace(self._progress, step=step, learnt=step_metrics)
        self._rng_state = capture_rng_state()

    def _pull_batch(self, step: int) -> Sequence[MicrobatchT]:
        """The next batch; after a checkpoint or a step that was left out, pulling begins anew."""
        # The iterator may hold a round of rollouts; a jump in steps makes what it would hand out next stale.
        if step != self._next_step:
            self._batches = self._job.microbatches(step, self._schedule.order.batch_rows)
        self._next_step = step + 1
        return next(self._batches)

    def _evaluate_and_save(self, step: int, step_metrics: Mapping[str, Mapping[str, Number]]) -> None:
        """Evaluate, sample, report and save; nothing is written before all of it can be."""
        job, schedule, on_microbatch = self._job, self._schedule, self._stepper.on_microbatch
        evaluation_due = self._is_due(step, schedule.evaluate_every)
        # Long work first, writing last: an interrupt up to here leaves no half-reported step behind.
        sampling_due = step == 1 or self._is_due(step, schedule.sample_every)
        # Where only the first rank samples, asking the others whether to stop would wait for ever.
        check_interrupt = on_microbatch if self._ranks.world_size == 1 else lambda: None
        with evaluation_mode(job.module):
            held_out_metrics = job.evaluate(on_microbatch) if job.evaluate and evaluation_due else ()
            samples = job.sample(check_interrupt) if job.sample and sampling_due else ()
        improved = self._is_new_best(step, held_out_metrics)
        # Before `_save` below: a checkpoint that still said `learnt`
        # would evaluate and report this step twice.
        self._progress = replace(self._progress, learnt=None)
        values = {**step_metrics["figures"], **values_of(held_out_metrics)}
        # Several optimiser steps may learn from one batch of rows
        # (PPO epochs): rows are counted, not updates.
        epoch = schedule.order.epoch_after(-(-step // job.updates_per_batch))
        for mended in self._verify_folder():
            self._sinks.note(mended)
        report = StepReport(
            step=step, steps=schedule.steps, epoch=epoch, values=values, timing=step_metrics["timing"]
        )
        self._sinks.log(report)
        if samples:
            self._sinks.sample(step, samples)
        if self._ranks.is_first and evaluation_due:
            for diagnostic in self._new_diagnostics():
                self._sinks.note(diagnostic)
        self._note_all(self._writer.finish(wait=False))
        self._writer.make_room(lambda: snapshot(self._stepper, job.state, step=step, facts={}))
        if improved or self._is_due(step, schedule.save_every):
            self._save()

    def _handle_fault(self, step: int, fault: NonFiniteFault) -> bool:
        """Do with a fault what the settings say; False when the run was rolled back."""
        safety = self._schedule.safety
        sentence = fault.message(step)
        count = len(self._progress.left_out) + 1
        # Taken before the roll-back, whose checkpoint knows of none of the faults since it was written.
        left_out = (*self._progress.left_out, step)
        if safety.on_nonfinite == "raise":
            raise UserError(
                f"{sentence}. Look at these rows, lower the learning rate, or let the run pass over such "
                "steps with --safety.on-nonfinite skip"
            )
        if count > safety.skip_limit:
            raise UserError(
                f"{sentence}. It would be step number {count} to be left out, and safety.skip_limit is "
                f"{safety.skip_limit}: the run stops. Look at these rows, or lower the learning rate"
            )
        ordinal = f"number {count} of at most {safety.skip_limit}"
        if safety.on_nonfinite == "skip":
            self._progress = replace(self._progress, left_out=left_out)
            self._sinks.note(f"{sentence}; the step is left out ({ordinal})")
            return True
        self._sinks.close(None)
        # Said once the sinks are open again: they drop whatever was said after the checkpoint.
        self._notes.append(f"{sentence}; back to the newest checkpoint, and on without it ({ordinal})")
        self._resume()
        self._progress = replace(self._progress, left_out=left_out)
        self._open_sinks()
        return False

    def _patience_exhausted(self) -> bool:
        keep, best = self._schedule.keep, self._progress.best_step
        if not keep.patience or best is None or self._progress.learnt is not None:
            return False
        # Counted in steps and not in looks, so that a resumed run knows it without a counter of its own.
        return self._progress.step - best >= keep.patience * self._schedule.evaluate_every

    def _end_early(self) -> None:
        keep, progress = self._schedule.keep, self._progress
        self.note_once(
            f"step {progress.step}: {keep.best} was best at step {progress.best_step} "
            f"({progress.best_value:.4g}) and not better at {keep.patience} looks since: the run ends"
        )
        if progress.saved != progress.step:
            self._save()

    def _open_sinks(self) -> None:
        self._sinks = self._make_sinks(self._progress.reported, self._marks)
        self._note_all(self._notes)
        self._notes = []

    def _new_diagnostics(self) -> tuple[str, ...]:
        """The diagnostics that this run has not printed before, recognised by how they begin."""
        past_notes = tuple(read_notes(self._folder))
        diagnostics = self._job.diagnose(tuple(read_reports(self._folder)))
        return tuple(
            beginning + rest
            for beginning, rest in diagnostics.items()
            if not any(note.startswith(beginning) for note in past_notes)
        )

    def _is_due(self, step: int, every: int) -> bool:
        return step == self._schedule.steps or (every > 0 and step % every == 0)

    def _is_new_best(self, step: int, held_out_metrics: Sequence[Metric]) -> bool:
        if not held_out_metrics:
            return False
        values = values_of(held_out_metrics)
        keep = self._schedule.keep
        if keep.best not in values:
            metric_names = ", ".join(sorted(values))
            raise UserError(
                f"keep.best: {keep.best!r} is not a figure of this run; choose from {metric_names}"
            )
        # A tie keeps the earlier checkpoint: less training for the same figure.
        value, best = float(values[keep.best]), self._progress.best_value
        sign = 1.0 if keep.best_is == "lowest" else -1.0
        if not math.isfinite(value) or (best is not None and sign * value >= sign * best):
            return False
        self._progress = replace(self._progress, best_step=step, best_value=value)
        return True

    def _note_slow_step(self, note: str | None) -> None:
        # Once in a run, resumed or not: what makes one step slow often makes many.
        if note is None or not self._ranks.is_first:
            return
        if not any(earlier.startswith(SLOW_STEP) for earlier in read_notes(self._folder)):
            self._sinks.note(note)

    def _timing(self, flops: float, metrics: Mapping[str, Number], seconds: float) -> dict[str, Number]:
        peak = self._schedule.peak_flops
        return {
            "seconds": seconds,
            "tokens_per_second": metrics["tokens"] / seconds,
            "rows_per_second": metrics["rows"] / seconds,
            "memory_mib": measure_memory(str(self._ranks.device)).reported,
            **({"mfu": flops / seconds / peak} if peak else {}),
            **self._job.timing(),
        }

    def _resume(self) -> None:
        self._notes += self._writer.finish()
        shapes = expected_shapes(self._stepper.module, self._stepper.optimizer)
        newest = save.load_latest_checkpoint(self._checkpoints, expected=shapes, ranks=self._ranks)
        self._progress, self._marks = LoopProgress(), {}
        self._next_step = -1
        if newest is None:
            return
        state, step = newest.state, newest.state.step
        self._notes += newest.notes
        load_snapshot(state, self._stepper.module, self._stepper.optimizer, self._ranks)
        for name, part in self._job.state.items():
            part.load_tensors(state.tensors[name])
        saved_progress: dict[str, Any] = {**state.facts["progress"], "step": step, "saved": step}
        self._progress = LoopProgress(**{**saved_progress, "left_out": tuple(saved_progress["left_out"])})
        # Checkpoints of before have none.
        self._marks = state.facts.get("marks", {})
        self._rng_state = capture_rng_state()

    def _save(self) -> None:
        self._progress = replace(self._progress, saved=self._progress.step)
        # Metrics reach the disk before the checkpoint, so no saved step can lack its line after a power cut.
        marks = self._sinks.sync()
        progress = {**asdict(self._progress), "left_out": list(self._progress.left_out)}
        facts = {"progress": progress, "marks": marks}
        state = snapshot(self._stepper, self._job.state, step=self._progress.step, facts=facts)
        keep, best = self._schedule.keep, self._progress.best_step
        self._note_all(self._writer.save(self._checkpoints, state, keep=keep.last, best=best))

    def _note_all(self, notes: Sequence[str]) -> None:
        for note in notes:
            self._sinks.note(note)
