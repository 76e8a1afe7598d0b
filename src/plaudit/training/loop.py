"""The loop of every trainer: take up, step, look, report, save; killed anywhere, it goes on exactly.

A step is a pure function of the weights, the optimiser's state and the step's number, so going back to a
checkpoint and stepping again gives the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic

from plaudit.errors import UserError
from plaudit.training import checkpoint
from plaudit.training.chance import Chance, capture, restore
from plaudit.training.flops import memory_mib
from plaudit.training.interrupt import InterruptedRunError, listening
from plaudit.training.metrics import Metric, Number, StepReport, values_of
from plaudit.training.plan import Piece, Plan
from plaudit.training.sinks.sink import RunStart
from plaudit.training.sinks.together import Sinks
from plaudit.training.state import expected_shapes, snapshot, take_up
from plaudit.training.step import Fault, take_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run is; all of it is in every checkpoint.

    Example: ``Progress(step=120, saved=100, best_step=100, best_value=1.7, left_out=(31,))``
    """

    step: int = 0
    """Steps done."""
    saved: int = -1
    """The step of the newest checkpoint; −1 before the first."""
    best_step: int | None = None
    """The step with the best value so far."""
    best_value: float | None = None
    """That value."""
    left_out: tuple[int, ...] = ()
    """Steps whose rows gave numbers that were not finite."""
    learnt: Mapping[str, Mapping[str, Number]] | None = None
    """Figures and timing of the newest step while its report is not written: it was stopped in between."""

    @property
    def reported(self) -> int:
        """The last step whose report is written."""
        return self.step - (self.learnt is not None)


class Loop(Generic[Piece]):
    """One run; ``folder`` is where checkpoints go, ``make_sinks`` is called again after a roll-back."""

    def __init__(
        self, plan: Plan[Piece], checkpoints: Path, make_sinks: Callable[[], Sinks], notes: Sequence[str] = ()
    ) -> None:
        """The run begins with ``run``; ``notes`` are said when it does."""
        self._plan = plan
        self._machine = plan.machine
        self._ranks = plan.machine.ranks
        self._checkpoints = checkpoints
        self._make_sinks = make_sinks
        self._sinks = make_sinks()
        self._progress = Progress()
        self._chance: Chance = capture()
        self._notes = list(notes)

    def run(self) -> Progress:
        """All steps that are left; a signal saves the last whole one and leaves by `InterruptedRunError`."""
        self._take_up()
        with listening(self._ranks) as listener:
            self._machine = replace(self._machine, between=listener.stop_if_asked)
            self._open_sinks()
            if self._progress.saved < 0 and self._plan.safety.on_nonfinite == "rollback":
                self._save()
            try:
                while self._progress.reported < self._plan.steps and not self._had_enough():
                    if self._progress.learnt is None:
                        self._learn(self._progress.step + 1)
                    if self._progress.learnt is not None:
                        self._look_up(self._progress.step, self._progress.learnt)
            except InterruptedRunError:
                restore(self._chance)
                if self._progress.saved != self._progress.step:
                    self._save()
                self._sinks.close(None)
                raise
            if self._progress.step < self._plan.steps:
                self._say_that_it_was_enough()
        return self._progress

    def go_back_to(self, step: int) -> None:
        """Put the weights of a saved step into the module."""
        path = self._checkpoints / f"step-{step:08d}"
        try:
            state = checkpoint.load(path)
        except UserError as error:
            raise UserError(
                f"{error} It is the best one of this run; without --keep.use-best the last weights are taken."
            ) from error
        take_up(state, self._machine.module, None, self._ranks)

    @property
    def sinks(self) -> Sinks:
        """Where the run speaks; close them with the summary."""
        return self._sinks

    def _learn(self, step: int) -> None:
        """Take the step, unless it is one to pass over; after a roll-back ``learnt`` is still None."""
        began = time.perf_counter()
        self._chance = capture()
        figures: dict[str, Number] = {"learning_rate": self._plan.rate(step)}
        timing: dict[str, Number] = {}
        left_out = step in self._progress.left_out
        # A trainer that has nothing to learn at this step brings no piece, on any rank.
        pieces = () if left_out else self._plan.pieces(step)
        if pieces:
            outcome = take_step(self._machine, pieces, self._plan.rate(step))
            if outcome.fault is not None and not self._leave_out(step, outcome.fault):
                return
            figures = {**values_of(outcome.metrics), "grad_norm": outcome.gradient_norm, **figures}
            left_out = outcome.fault is not None
            timing = self._timing(pieces, figures, time.perf_counter() - began)
        if not left_out:
            for companion in self._plan.companions.values():
                companion.after(step, figures)
        learnt = {"figures": figures, "timing": timing}
        self._progress = replace(self._progress, step=step, learnt=learnt)
        self._chance = capture()

    def _look_up(self, step: int, learnt: Mapping[str, Mapping[str, Number]]) -> None:
        """Evaluate, sample, report and save; nothing is written before all of it can be."""
        plan, between = self._plan, self._machine.between
        looks = plan.evaluate is not None and self._due(step, plan.evaluate_every)
        looked = plan.evaluate(between) if plan.evaluate is not None and looks else ()
        says = plan.sample is not None and (step == 1 or self._due(step, plan.sample_every))
        # Where only the first rank samples, asking the others whether to stop would wait for ever.
        alone = between if self._ranks.world == 1 else _go_on
        said = plan.sample(alone) if plan.sample is not None and says else ()
        improved = self._better(step, looked)
        self._progress = replace(self._progress, learnt=None)
        values = {**learnt["figures"], **values_of(looked)}
        epoch = plan.epoch_after(step)
        self._sinks.log(
            StepReport(step=step, steps=plan.steps, epoch=epoch, values=values, timing=learnt["timing"])
        )
        if said:
            self._sinks.sample(step, said)
        if self._ranks.first and self._due(step, plan.evaluate_every):
            for sentence in plan.remark():
                self._sinks.note(sentence)
        if improved or self._due(step, plan.save_every):
            self._save()

    def _leave_out(self, step: int, fault: Fault) -> bool:
        """Do with a fault what the settings say; False when the run was rolled back."""
        safety = self._plan.safety
        sentence = fault.sentence(step)
        count = len(self._progress.left_out) + 1
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
        number = f"number {count} of at most {safety.skip_limit}"
        if safety.on_nonfinite == "skip":
            self._progress = replace(self._progress, left_out=left_out)
            self._sinks.note(f"{sentence}; the step is left out ({number})")
            return True
        self._sinks.close(None)
        # Said once the sinks are open again: they drop whatever was said after the checkpoint.
        self._notes.append(f"{sentence}; back to the newest checkpoint, and on without it ({number})")
        self._take_up()
        self._progress = replace(self._progress, left_out=left_out)
        self._sinks = self._make_sinks()
        self._open_sinks()
        return False

    def _had_enough(self) -> bool:
        """Whether the last looks have all been worse than the best one; known again when a run goes on."""
        keep, best = self._plan.keep, self._progress.best_step
        if not keep.patience or best is None or self._progress.learnt is not None:
            return False
        since = self._progress.step - best
        return since >= keep.patience * self._plan.evaluate_every

    def _say_that_it_was_enough(self) -> None:
        keep, progress = self._plan.keep, self._progress
        self._sinks.note(
            f"step {progress.step}: {keep.best} was best at step {progress.best_step} "
            f"({progress.best_value:.4g}) and not better at {keep.patience} looks since: the run ends"
        )
        if progress.saved != progress.step:
            self._save()

    def _open_sinks(self) -> None:
        plan = self._plan
        self._sinks.open(
            RunStart(name=plan.name, steps=plan.steps, done=self._progress.reported, config=plan.config)
        )
        for note in self._notes:
            self._sinks.note(note)
        self._notes = []

    def _due(self, step: int, every: int) -> bool:
        return step == self._plan.steps or (every > 0 and step % every == 0)

    def _better(self, step: int, looked: Sequence[Metric]) -> bool:
        if not looked:
            return False
        values = values_of(looked)
        keep = self._plan.keep
        if keep.best not in values:
            known = ", ".join(sorted(values))
            raise UserError(f"keep.best: {keep.best!r} is not a figure of this run; choose from {known}")
        value, best = float(values[keep.best]), self._progress.best_value
        sign = 1.0 if keep.best_is == "lowest" else -1.0
        if not math.isfinite(value) or (best is not None and sign * value >= sign * best):
            return False
        self._progress = replace(self._progress, best_step=step, best_value=value)
        return True

    def _timing(
        self, pieces: Sequence[Piece], figures: Mapping[str, Number], seconds: float
    ) -> dict[str, Number]:
        done = sum(row[0] for row in self._ranks.every([self._plan.work(pieces)]))
        peak = self._plan.peak_flops
        return {
            "seconds": seconds,
            "tokens_per_second": figures["tokens"] / seconds,
            "rows_per_second": figures["rows"] / seconds,
            "memory_mib": memory_mib(str(self._ranks.device)).reported,
            **({"mfu": done / seconds / peak} if peak else {}),
        }

    def _take_up(self) -> None:
        """The newest whole checkpoint; the first rank chooses it for all."""
        ranks, notes, step = self._ranks, (), -1
        if ranks.first:
            newest = checkpoint.load_latest(self._checkpoints, expected=expected_shapes(self._machine.module))
            if newest is not None:
                step, notes = newest.state.step, newest.notes
        step = int(ranks.every([float(step)])[0][0])
        self._notes += notes
        self._progress = Progress()
        if step < 0:
            return
        state = checkpoint.load(self._checkpoints / f"step-{step:08d}")
        take_up(state, self._machine.module, self._machine.optimizer, ranks)
        for name, companion in self._plan.companions.items():
            companion.take_up(state.tensors[name])
        facts: dict[str, Any] = dict(state.facts["progress"])
        self._progress = Progress(**{**facts, "left_out": tuple(facts["left_out"])})
        self._progress = replace(self._progress, step=step, saved=step)
        self._chance = capture()

    def _save(self) -> None:
        self._progress = replace(self._progress, saved=self._progress.step)
        facts = asdict(self._progress)
        state = snapshot(
            self._machine,
            self._plan.companions,
            step=self._progress.step,
            facts={"progress": {**facts, "left_out": list(self._progress.left_out)}},
        )
        if self._ranks.first:
            self._sinks.sync()
            keep = self._plan.keep
            saved = checkpoint.save(self._checkpoints, state, keep=keep.last, best=self._progress.best_step)
            for note in saved.notes:
                self._sinks.note(note)
        self._ranks.wait()


def _go_on() -> None:
    """A pause that never stops."""
