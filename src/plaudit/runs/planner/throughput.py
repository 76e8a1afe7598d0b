"""Throughput of this machine on this very run: some of its steps are taken at rate 0, and thrown away."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from plaudit.engine.distributed import Ranks, process_group
from plaudit.engine.loop import BatchOrder, TrainingJob
from plaudit.engine.metrics import measure_memory, values_of
from plaudit.engine.step import take_step
from plaudit.methods.config import RunConfig
from plaudit.methods.named_runs import drawn_completions, prepare_run
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.preference.config import PreferenceConfig
from plaudit.methods.run import start_run
from plaudit.runs.planner.models import CACHED
from plaudit.tokens.microbatch import Microbatch

MEASURE_SECONDS = 10.0
"""Seconds after which no further step is begun."""
WARMUP_PROMPTS = 2
"""Prompts of the first, small round, from whose time the next one's size is chosen."""
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """A measured throughput, or one that the user states."""

    tokens: float
    answers: float | None = None
    """Completions a second that are generated, scored and evaluated; None where nobody knows."""
    answer_tokens: int | None = None
    seconds: float = 0.0
    steps: int = 0
    peak: int | None = None
    """The most bytes that the measurement took, where the system says so."""
    basis: str | None = None
    """What it was estimated from, where nothing was measured or said."""


@dataclass(slots=True)
class _TrialCost:
    step_seconds: float = 0.0
    generation_seconds: float = 0.0
    tokens: int = 0
    answers: int = 0
    answer_tokens: int = 0
    steps: int = 0


def measure_throughput(method: str, config: RunConfig, reference: str) -> Throughput:
    """Measure throughput: take steps at a learning rate of 0 on the run's own rows; nothing is written."""
    if reference == CACHED:
        # All of it would be computed for a few steps; what a look costs is known from a live one.
        assert isinstance(config, PreferenceConfig)
        config = replace(config, reference=replace(config.reference, kind="live"))
    if isinstance(config, PolicyConfig):
        # A reward that tells no answers apart ends a run; a trial that learns nothing goes on.
        config = replace(config, draw=replace(config.draw, flat_rounds=0))
    started = time.perf_counter()
    with process_group(config.device) as ranks:
        before = measure_memory(str(ranks.device))
        run = start_run(config, ranks, method)
        with run.resources:
            job, subject = prepare_run(config, run)
            order = BatchOrder(rows=job.rows, batch_size=config.batch_size, seed=config.seed)
            trial = _Trial(job, order, ranks)
            cost = (
                trial.measure_rounds(MEASURE_SECONDS)
                if job.updates_per_batch > 1 or subject.sampler is not None
                else trial.measure_rows(MEASURE_SECONDS)
            )
        after = measure_memory(str(ranks.device))
    measured_peak = None if before.now is None else int((after.peak - before.now) * MIB)
    return Throughput(
        tokens=cost.tokens / cost.step_seconds,
        answers=cost.answers / cost.generation_seconds if cost.answers else None,
        answer_tokens=round(cost.answer_tokens / cost.answers) if cost.answers else None,
        seconds=time.perf_counter() - started,
        steps=cost.steps,
        peak=measured_peak if after.device_peak is None else int(after.device_peak * MIB),
    )


class _Trial:
    """Takes steps of a prepared run and adds up their cost."""

    def __init__(self, job: TrainingJob[Any], order: BatchOrder, ranks: Ranks) -> None:
        self._job, self._order, self._stepper = job, order, job.stepper(ranks)

    def measure_rows(self, max_seconds: int | float) -> _TrialCost:
        """Steps on rows: one micro-batch to warm up, then as many as there is time for."""
        warmup_cost, cost, number = _TrialCost(), _TrialCost(), 1
        deadline = time.perf_counter() + max_seconds
        self._take_step(1, self._microbatches(1)[:1], warmup_cost)
        microbatch_seconds = max(warmup_cost.step_seconds, 1e-9)
        while not cost.steps or time.perf_counter() + microbatch_seconds < deadline:
            microbatches = self._microbatches(number)
            microbatches_left = max(1, int((deadline - time.perf_counter()) / microbatch_seconds))
            if cost.steps and len(microbatches) > microbatches_left:
                break
            self._take_step(number, microbatches[:microbatches_left], cost)
            number += 1
        return cost

    def measure_rounds(self, max_seconds: int | float) -> _TrialCost:
        """Rounds of generation and training: a small one to warm up, then as large as there is time for."""
        size = min(WARMUP_PROMPTS, self._order.batch_size, self._order.rows)
        cost, deadline = _TrialCost(), time.perf_counter() + max_seconds
        number, round_seconds = 1, self._take_round(1, size, cost)
        while number == 1 or time.perf_counter() + round_seconds < deadline:
            prompts_left = int(size * (deadline - time.perf_counter()) / round_seconds)
            next_size = max(size, min(prompts_left, len(self._order.batch_rows(1))))
            cost = cost if next_size == size and number > 1 else _TrialCost()
            number, size = number + 1, next_size
            round_seconds = self._take_round(number, size, cost)
        return cost

    def _microbatches(self, step: int) -> Sequence[Microbatch]:
        return self._job.microbatches_of_step(step, self._order.batch_rows(step))

    def _take_round(self, number: int, size: int, cost: _TrialCost) -> float:
        inner, started = self._job.updates_per_batch, time.perf_counter()
        for step in range((number - 1) * inner + 1, number * inner + 1):
            requested = time.perf_counter()
            microbatches = self._job.microbatches_of_step(step, self._order.batch_rows(number)[:size])
            cost.generation_seconds += time.perf_counter() - requested
            if not microbatches:
                continue
            if step == (number - 1) * inner + 1:
                lengths = [len(completion.ids) for completion in drawn_completions(microbatches[0])]
                cost.answers += len(lengths)
                cost.answer_tokens += sum(lengths)
            self._take_step(step, microbatches, cost)
        return time.perf_counter() - started

    def _take_step(self, step: int, microbatches: Sequence[Microbatch], cost: _TrialCost) -> None:
        started = time.perf_counter()
        figures = values_of(take_step(self._stepper, microbatches, 0.0).metrics)
        cost.step_seconds += time.perf_counter() - started
        cost.tokens += int(figures["tokens"])
        cost.steps += 1
        for part in self._job.state.values():
            part.after_step(step, figures)
