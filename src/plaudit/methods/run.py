"""Preflight checks of a run: before its first step, or in place of it (``plaudit check``).

What a method hands to the training loop: model, objective, batches and evaluation.

Run any training job: open the run folder, prepare, train or resume, write summary and report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Generic

from torch import nn

from plaudit.engine import lineage
from plaudit.engine.checkpoint.state import seed_everything
from plaudit.engine.distributed import Ranks, is_first_process, process_group
from plaudit.engine.loop import BatchOrder, BatchRows, InterruptCheck, InterruptedRunError, Plan, TrainingLoop
from plaudit.engine.metrics import Metric
from plaudit.engine.optimizer import make_optimizer, schedule_factor
from plaudit.engine.run_folder import RunFolder, open_run
from plaudit.engine.sinks.base import FanOutSink, Sample, Summary, sinks_for, summarise
from plaudit.engine.sinks.console import ConsoleSink
from plaudit.engine.sinks.files import read_notes, read_reports
from plaudit.engine.stateful import Stateful
from plaudit.engine.step import Machine, ObjectiveResult
from plaudit.engine.step_report import StepReport
from plaudit.engine.throughput import matmul_rate
from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.methods.config import MAY_CHANGE_ON_RESUME, RunConfig
from plaudit.methods.own import load_object
from plaudit.models.load import Precision, precision
from plaudit.preflight.check import Check, Finding, refusal_message, run_checks
from plaudit.preflight.registry import CHECKS
from plaudit.preflight.report import as_dict
from plaudit.preflight.subject import Lesson, RolloutTrial, Subject
from plaudit.report.run.page import write_report
from plaudit.tokens.encode import Encoder, make_encoder
from plaudit.tokens.microbatch import MicrobatchT

Diagnose = Callable[[Sequence[StepReport]], Mapping[str, str]]
"""From all step reports to diagnostics: how each begins, by which it is recognised later, and how it ends."""


def no_diagnostics(reports: Sequence[StepReport]) -> Mapping[str, str]:
    """The diagnostics of a method that has none."""
    del reports
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run on this process: what its models and rows are prepared with, and where its notes are said.

    Example: ``Run(encoder=make_encoder(config.model), precision=precision(…), ranks=ranks).note("12 rows")``
    """

    encoder: Encoder
    """The tokenizer and its template."""
    precision: Precision
    """What products are made in."""
    ranks: Ranks
    """This process among its peers."""
    folder: Path | None = None
    """The run folder; None on every rank but the first, and where nothing is written."""
    notes: list[str] = field(default_factory=list[str])
    """What was decided so far, for the user."""
    resources: ExitStack = field(default_factory=ExitStack)
    """What is closed when the run ends, however it ends."""

    def note(self, *sentences: str) -> None:
        """Tell the user; it is said once the run's sinks are open, and kept in its summary."""
        self.notes.extend(sentences)


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
    evaluate: Callable[[InterruptCheck], Sequence[Metric]] | None
    """Held-out evaluation; None when nothing is held out."""
    held_out_metrics: tuple[str, ...]
    """The held-out metrics by which the best checkpoint may be chosen."""
    sample: Callable[[InterruptCheck], Sequence[Sample]] | None
    """What the model generates now; None for silence."""
    save: Callable[[], None]
    """Writes the result into the run folder; every rank must come."""
    state: Mapping[str, Stateful] = field(default_factory=dict[str, Stateful])
    """State beside the weights, by the name of its part in a checkpoint."""
    diagnose: Diagnose = no_diagnostics
    """The diagnostics that the metrics so far call for."""
    updates_per_batch: int = 1
    """Optimiser steps that a batch of rows is learnt from."""
    clip_groups: tuple[nn.Module, ...] = ()
    """Parts of the module whose gradients are clipped each by itself."""
    learning_rates: Mapping[str, float] = field(default_factory=dict[str, float])
    """Parts of the module that learn at a multiple of the rate."""
    update_fn: Callable[[Sequence[MicrobatchT]], Sequence[Metric]] | None = None
    """Moves weights in a way of its own."""
    trial: RolloutTrial | None = None
    """What can be tried of a run that draws its answers."""
    subject: Subject | None = None
    """What is checked before the first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[MicrobatchT]):
    """One way to learn, as the run sees it.

    Example: ``Kind(name="sft", prepare=…, inputs=())``
    """

    name: str
    """What the user calls it."""
    prepare: Callable[[Run], TrainingJob[MicrobatchT]]
    """Reads the rows and loads the model."""
    inputs: tuple[Path, ...] = ()
    """Files and folders that it reads beside rows and model; a run that goes on wants the same ones."""


def row_batches(
    microbatches: Callable[[int, Sequence[int]], Sequence[MicrobatchT]],
) -> Callable[[int, BatchRows], Iterator[Sequence[MicrobatchT]]]:
    """The steps of a job that learns from a batch of rows at each, given what makes micro-batches of them."""

    def batches(first: int, batch_rows: BatchRows) -> Iterator[Sequence[MicrobatchT]]:
        return (microbatches(step, batch_rows(step)) for step in count(first))

    return batches


def start_run(config: RunConfig, ranks: Ranks, folder: Path | None = None) -> Run:
    """What every run has before its model: seeded random numbers, the tokenizer and the precision."""
    seed_everything(config.seed, ranks.rank)
    return Run(
        encoder=encoder_for(config),
        precision=precision(config.dtype, ranks.device),
        ranks=ranks,
        folder=folder,
    )


def encoder_for(config: RunConfig) -> Encoder:
    """The encoder of the starting model, with the user's own reader of what prompts show beside words."""
    reader: Any = None if config.extras is None else load_object(config.extras, "--extras")
    return make_encoder(config.model, turns=config.turns, read_extras=reader)


def make_machine(config: RunConfig, job: TrainingJob[MicrobatchT], ranks: Ranks) -> Machine[MicrobatchT]:
    """The machine that takes this run's optimiser steps."""
    return Machine(
        module=job.module,
        optimizer=make_optimizer(job.module, config.learning_rate, config.optimizer, job.learning_rates),
        objective=job.objective,
        clip=config.optimizer.clip,
        ranks=ranks,
        clip_groups=job.clip_groups,
        update_fn=job.update_fn,
    )


CHECKS_FILE = "checks.json"
"""The file of a run folder with the findings of the checks before the first step."""


def run_preflight(config: RunConfig, job: TrainingJob[Any]) -> tuple[str, ...]:
    """Run the quick preflight checks before the first step; raises where one fails that may not."""
    refuse_unknown_checks(config.allow)
    if not config.check or job.subject is None:
        return ()
    start_checks = [check for check in CHECKS.values() if check.at_start]
    findings = list(run_checks(preflight_subject(config, job), start_checks, config.allow))
    error_message = refusal_message(findings)
    if error_message is not None:
        raise UserError(error_message)
    if is_first_process():
        atomic.write_json(config.out / CHECKS_FILE, as_dict(findings))
    passed = sum(one.result.holds is True for one in findings)
    allowed = (
        f"check {one.check.name} fails and is allowed to" for one in findings if one.verdict == "allowed"
    )
    return (f"{passed} checks passed before the first step", *allowed)


def preflight_findings(config: RunConfig, kind: Kind[Any], checks: Iterable[Check]) -> Iterator[Finding]:
    """Prepare a run and yield the findings of these checks; nothing is written and no step is taken."""
    refuse_unknown_checks(config.allow)
    with process_group(config.device) as ranks:
        run = start_run(config, ranks)
        with run.resources:
            job = kind.prepare(run)
            yield from run_checks(preflight_subject(config, job), checks, config.allow)


def preflight_subject(config: RunConfig, job: TrainingJob[Any]) -> Subject:
    """What the checks look at: the prepared models and rows, with what a step of the run does."""
    assert job.subject is not None, "a run that knows what it is made of"
    lesson = Lesson(
        module=job.module,
        objective=job.objective,
        pieces=lambda step, rows: next(job.microbatches(step, lambda _: rows)),
        rows=job.rows,
        rate=config.learning_rate,
        optimizer=config.optimizer,
        trial=job.trial,
    )
    return replace(job.subject, lesson=lesson)


def refuse_unknown_checks(names: Iterable[str]) -> None:
    """Raise for a name in ``--allow`` that is no check."""
    for name in names:
        if name not in CHECKS:
            raise UserError(f"--allow {name}: there is no such check; they are {', '.join(CHECKS)}")


def train(config: RunConfig, kind: Kind[Any]) -> Summary | None:
    """Train, or resume from the last checkpoint, into ``config.out``; the first rank returns the summary."""
    with process_group(config.device) as ranks, _open_run_folder(config, ranks) as folder:
        return _train(config, kind, ranks, folder)


def reserve_run_folder(config: RunConfig) -> None:
    """Create the folder of a run that waits for another one, so that bad settings are refused now."""
    with process_group(config.device) as ranks:
        exists = ranks.all_gather([float((config.out / "config.yaml").exists())])[0][0]
        if not exists:
            with _open_run_folder(config, ranks):
                ranks.barrier()


@contextmanager
def _open_run_folder(config: RunConfig, ranks: Ranks) -> Iterator[RunFolder | None]:
    """The run folder, opened by the first rank alone; an interrupted run closes it in good order."""
    if not ranks.is_first:
        yield None
        return
    stop: InterruptedRunError | None = None
    settings = plain_settings(config)
    may_change = {name for name in MAY_CHANGE_ON_RESUME if name.split(".")[0] in settings}
    with open_run(config.out, config=settings, may_change=may_change) as folder:
        try:
            yield folder
        except InterruptedRunError as interruption:
            stop = interruption
    if stop is not None:
        raise stop


def _train(config: RunConfig, kind: Kind[Any], ranks: Ranks, folder: RunFolder | None) -> Summary | None:
    run = start_run(config, ranks, None if folder is None else folder.path)
    with run.resources:
        return _train_run(config, kind, run, folder)


def _train_run(config: RunConfig, kind: Kind[Any], run: Run, folder: RunFolder | None) -> Summary | None:
    ranks = run.ranks
    if folder is not None:
        run.note(*folder.notes, *_record_lineage(config, kind, run.encoder, folder))
    if _is_finished(config, ranks):
        if ranks.is_first:
            _print_already_finished(config, run.notes)
        return None
    run.note(*run.encoder.notes)
    job = kind.prepare(run)
    _refuse_unmeasured_best_metric(config, job)
    run.note(*run_preflight(config, job))
    plan = _training_plan(config, job, ranks, _peak_flops(run.precision, ranks))
    loop = TrainingLoop(plan, config.out / "checkpoints", partial(_open_sinks, config, ranks), run.notes)
    progress = loop.run()
    if config.keep.use_best and progress.best_step is not None:
        loop.load_weights_of_step(progress.best_step)
    job.save()
    summary = summarise(read_reports(config.out), read_notes(config.out)) if ranks.is_first else None
    loop.sinks.close(summary)
    if ranks.is_first:
        write_report(config.out, command=f"plaudit train {kind.name}")
    return summary


def _training_plan(
    config: RunConfig, job: TrainingJob[MicrobatchT], ranks: Ranks, peak_flops: float
) -> Plan[MicrobatchT]:
    order = BatchOrder(rows=job.rows, batch_size=config.batch_size, seed=config.seed)
    inner = job.updates_per_batch
    steps = total_steps(config, order, inner)
    default_interval = -(-steps // 10)
    return Plan(
        steps=steps,
        machine=make_machine(config, job, ranks),
        batches=lambda first: job.microbatches(first, order.batch_rows),
        epoch_after=lambda step: order.epoch_after(-(-step // inner)),
        work=job.flops,
        evaluate=job.evaluate,
        sample=job.sample,
        rate=lambda step: config.learning_rate * schedule_factor(step, steps, config.optimizer),
        safety=config.safety,
        keep=config.keep,
        evaluate_every=config.evaluate_every or default_interval,
        sample_every=config.sample_every or default_interval,
        save_every=config.save_every or default_interval,
        peak_flops=peak_flops,
        name=config.out.name,
        config=plain_settings(config),
        companions=job.state,
        remark=partial(_new_notes, config.out, job.diagnose),
    )


def total_steps(config: RunConfig, order: BatchOrder, inner: int) -> int:
    """The number of optimiser steps of a run that takes ``inner`` of them for each batch of rows."""
    return config.steps or order.steps_for_epochs(config.epochs) * inner


def _new_notes(run_folder: Path, diagnose: Diagnose) -> tuple[str, ...]:
    """The diagnostics that this run has not printed before, recognised by how they begin."""
    past_notes = tuple(read_notes(run_folder))
    notes = diagnose(tuple(read_reports(run_folder)))
    return tuple(
        beginning + rest
        for beginning, rest in notes.items()
        if not any(note.startswith(beginning) for note in past_notes)
    )


def _refuse_unmeasured_best_metric(config: RunConfig, job: TrainingJob[Any]) -> None:
    keep = config.keep
    if keep.best not in job.held_out_metrics:
        closest = get_close_matches(keep.best, job.held_out_metrics, n=1)
        hint = f"; did you mean {closest[0]}?" if closest else ""
        raise UserError(f"keep.best: {keep.best!r} is not one of {', '.join(job.held_out_metrics)}{hint}")
    if keep.use_best and job.evaluate is None:
        raise UserError("keep.use_best needs held-out rows, and none is left: give more rows, or a file")


def _peak_flops(precision: Precision, ranks: Ranks) -> float:
    return sum(row[0] for row in ranks.all_gather([matmul_rate(str(ranks.device), precision.products)]))


def _open_sinks(config: RunConfig, ranks: Ranks) -> FanOutSink:
    return FanOutSink(sinks_for(config.sinks, config.out) if ranks.is_first else ())


def _record_lineage(
    config: RunConfig, kind: Kind[Any], encoder: Encoder, folder: RunFolder
) -> tuple[str, ...]:
    """Write the hashes of all inputs; on resume, refuse a run whose inputs have changed."""
    held_out = [] if config.held_out_share is not None else [Path(config.held_out)]
    current = lineage.gather_lineage(
        method=kind.name,
        data=[config.data, *held_out, *kind.inputs],
        seed=config.seed,
        model=config.model,
        tokenizer=config.model,
        template=encoder.template,
    )
    if folder.resumed and folder.lineage.exists():
        return lineage.compare_lineages(lineage.read_lineage(folder.lineage), current)
    lineage.write_lineage(folder.lineage, current)
    return ()


def _is_finished(config: RunConfig, ranks: Ranks) -> bool:
    """Whether summary (which is written last) and weights are there; the first rank checks for all."""
    folders = ("model", "adapter") if config.lora.rank else ("model",)
    complete = (config.out / "summary.json").exists() and all(
        any((config.out / name).glob("*.safetensors")) for name in folders
    )
    return bool(ranks.all_gather([float(complete)])[0][0])


def _print_already_finished(config: RunConfig, notes: Sequence[str]) -> None:
    console = ConsoleSink(quiet=True)
    for note in (
        *notes,
        f"{config.out}: this run is finished; nothing was done. Another run needs another --out",
    ):
        console.note(note)


def plain_settings(config: RunConfig) -> dict[str, Any]:
    """The settings that a user can set, as plain values; fields that follow from others are left out."""
    set_by_name = {one.name for one in fields(config) if one.init}
    return {name: _as_plain_value(value) for name, value in asdict(config).items() if name in set_by_name}


def _as_plain_value(value: Any) -> Any:
    """A value with its paths as strings, as YAML and experiment trackers take it."""
    if isinstance(value, Mapping):
        return {name: _as_plain_value(item) for name, item in value.items()}
    return str(value) if isinstance(value, Path) else value
