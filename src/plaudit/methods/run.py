"""Run any training job: open the run folder, prepare, check, train or resume, write summary and report.

During training a few held-out prompts are completed greedily, as samples for the log.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from plaudit.config import all_settings, did_you_mean, to_plain_data
from plaudit.engine import run_folder
from plaudit.engine.checkpoint.state import deterministic_kernels, seed_everything
from plaudit.engine.distributed import Ranks, is_sharded, process_group, unsharded
from plaudit.engine.loop import MANY_ROWS, BatchOrder, Schedule, TrainingJob, TrainingLoop
from plaudit.engine.metrics import matmul_rate
from plaudit.engine.run_folder import RunFolder, open_run_folder
from plaudit.engine.sinks.base import FanOutSink, RunStart, Sample, Summary, summarise
from plaudit.engine.sinks.console import ConsoleSink
from plaudit.engine.sinks.files import read_notes, read_reports, sinks_for
from plaudit.engine.step import InterruptCheck, InterruptedRunError
from plaudit.errors import UserError
from plaudit.files import atomic, hub
from plaudit.files.data_sets import sources_of
from plaudit.files.model_folder import check_weight_files
from plaudit.methods.algorithm import load_object
from plaudit.methods.best_look import settle_on_look
from plaudit.methods.config import MAY_CHANGE_ON_RESUME, RunConfig
from plaudit.methods.data import Rows
from plaudit.methods.models import gather_into, prepare_policy, uncompiled_notes
from plaudit.models.backbone import token_types
from plaudit.models.load import Precision, precision, stored_dtype
from plaudit.models.policy import Policy
from plaudit.preflight.check import (
    MAX_ROWS,
    Finding,
    PreflightSubject,
    Result,
    refusal_message,
    refuse_unknown_checks,
    run_checks,
)
from plaudit.preflight.checks import CHECKS
from plaudit.preflight.report import as_dict
from plaudit.releases import untried_releases, untried_releases_named
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import WeightsVersion
from plaudit.tokens.batch import Example, batch_of
from plaudit.tokens.encode import Encoder, make_encoder, read_template
from plaudit.tokens.microbatch import layout_batch
from plaudit.wings import offered, offered_if_any

CHECKS_FILE = "checks.json"
"""The file of a run folder with the findings of the checks before the first step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run on this process: what its models and rows are prepared with, and where its notes are said.

    Example: ``with open_run(config, "sft") as run: run.note("12 rows"); run.train(job)``
    """

    config: RunConfig
    """Its settings."""
    method: str
    """What it trains by, as the user calls it."""
    encoder: Encoder
    """The tokenizer and its template."""
    precision: Precision
    """What products are made in."""
    ranks: Ranks
    """This process among its peers."""
    folder: Path | None = None
    """The run folder; None on every rank but the first, and where nothing is written."""
    verify_folder: Callable[[], Sequence[str]] = tuple
    """Raises where the run folder is no longer the one that was opened; returns what it mended."""
    finished: bool = False
    """Whether its result is there already, so that there is nothing left to train."""
    memory: Result | None = None
    """Whether it fits into the memory of its GPU; None where nobody asked."""
    notes: list[str] = field(default_factory=list[str])
    """What was decided so far, for the user."""
    resources: ExitStack = field(default_factory=ExitStack)
    """What is closed when the run ends, however it ends."""
    news: list[Callable[[], Sequence[str]]] = field(default_factory=list)
    """Called after each step: what there is to tell the user."""

    def local_sampler(self, policy: Policy, weights: WeightsVersion) -> LocalSampler:
        """What draws from the policy; of one that is divided over ranks, a whole copy in narrow numbers."""
        if not is_sharded(policy):
            return LocalSampler.from_policy(policy, self.encoder, weights)
        narrow = replace(self.precision, weights=self.precision.products)
        whole = prepare_policy(self.config, narrow, self.ranks)[0].requires_grad_(requires_grad=False).eval()
        size = sum(weight.nbytes for weight in whole.parameters()) / 2**20
        kind = f"in {str(narrow.weights).removeprefix('torch.')}, {size:,.0f} MiB more on each rank"
        self.note(f"answers are drawn with a whole copy of the weights {kind}")
        return LocalSampler.from_policy(whole, self.encoder, weights, partial(gather_into, whole, policy))

    def note(self, *sentences: str) -> None:
        """Tell the user; it is said once the run's sinks are open, and kept in its summary."""
        self.notes.extend(sentences)

    def _news_of_step(self, job: TrainingJob[Any]) -> tuple[str, ...]:
        other_news = (sentence for news in self.news for sentence in news())
        return (*self.verify_folder(), *uncompiled_notes(job.module), *other_news)

    def subject(self, job: TrainingJob[Any], rows: Rows[Any]) -> PreflightSubject:
        """What the preflight checks of every run look at; a method adds its models by ``replace``."""
        return PreflightSubject(
            job=job,
            settings=plain_settings(self.config),
            encoder=self.encoder,
            records=rows.records,
            held_out=rows.held_out_records,
            max_length=self.config.max_length,
            adapted=self.config.lora.rank > 0,
            memory=self.memory,
        )

    def memory_finding(self) -> Finding:
        """The check that needs neither rows nor models: whether these would fit."""
        subject = PreflightSubject(
            encoder=self.encoder, records=(), max_length=self.config.max_length, memory=self.memory
        )
        return next(run_checks(subject, [CHECKS["memory"]], self.config.allow))

    def check(self, subject: PreflightSubject) -> None:
        """Run the quick preflight checks before the first step; raises where one fails that may not."""
        config = self.config
        if subject.job is not None:
            _refuse_unmeasured_best_metric(config, subject.job)
        if not config.check:
            return
        start_checks = [check for check in CHECKS.values() if check.at_start]
        # All of them before any refusal, for several faults are mended in one go.
        findings = list(run_checks(subject, start_checks, config.allow))
        error_message = refusal_message(findings)
        if error_message is not None:
            raise UserError(error_message)
        if self.ranks.is_first:
            atomic.write_json(config.out / CHECKS_FILE, as_dict(findings))
        passed = sum(finding.result.holds is True for finding in findings)
        some = f", looking at {MAX_ROWS:,} rows at most" if len(subject.records) >= MANY_ROWS else ""
        self.note(f"{passed} checks passed before the first step{some}")
        for finding in findings:
            if finding.verdict == "allowed":
                self.note(f"check {finding.check.name} fails and is allowed to")
            elif finding.verdict == "warn":
                self.note(f"check {finding.check.name}: {finding.result.details}")

    def check_and_train(
        self, prepare: Callable[[], tuple[TrainingJob[Any], PreflightSubject]]
    ) -> Summary | None:
        """Prepare a run that is not finished, check it before its first step, and train it.

        The models live in this call alone: nothing may hold a sharded one when the process group is left, or
        the group's threads outlive it.
        """
        if self.finished:
            return None
        # Before anything is loaded: later it would be torch's word, and not ours, that memory is full.
        findings = [] if self.memory is None else [self.memory_finding()]
        if (error_message := refusal_message(findings)) is not None:
            raise UserError(error_message)
        job, subject = prepare()
        self.check(subject)
        return self.train(job)

    def train(self, job: TrainingJob[Any]) -> Summary | None:
        """Train, or resume from the last checkpoint; the first rank returns the summary."""
        config, ranks, job = self.config, self.ranks, replace(job, deepspeed=self.config.zero)
        _refuse_unmeasured_best_metric(config, job)
        rates = ranks.all_gather([matmul_rate(str(ranks.device), self.precision.products)])
        schedule = _schedule(config, job, sum(row[0] for row in rates))
        self.note(*_best_look_notes(config, schedule))

        # Called by the loop, which alone knows how many steps a checkpoint has behind it.
        def open_sinks(done: int, marks: Mapping[str, str]) -> FanOutSink:
            sinks = FanOutSink(sinks_for(config.sinks, config.out) if ranks.is_first else ())
            name, settings = config.out.name, plain_settings(config)
            sinks.open(RunStart(name=name, steps=schedule.steps, done=done, config=settings, marks=marks))
            return sinks

        if config.lora.rank:
            self.note(f"adapters learn at a rate of {config.learning_rate:g} (--learning-rate)")
        if (dtype := stored_dtype(config.model)) is not None:
            name = str(dtype).removeprefix("torch.")
            self.note(f"the result is written in {name}, as {config.model} is; checkpoints keep float32")
        loop = TrainingLoop(
            job,
            schedule,
            ranks,
            folder=config.out,
            open_sinks=open_sinks,
            verify_folder=lambda: self._news_of_step(job),
            notes=self.notes,
        )
        selected = settle_on_look(config, loop, job, loop.run(), schedule, ranks=ranks)
        # The model before the summary, by which later commands know that the model is there.
        job.save()
        if not ranks.is_first:
            loop.sinks.close(None)
            return None
        # From the files: reports of before a resume are in no one's memory.
        summary = summarise(read_reports(config.out), read_notes(config.out), selected=selected)
        loop.sinks.close(summary)
        if write_page := offered_if_any("run_page"):
            write_page(config.out, command=f"plaudit train {self.method}")
        return summary


@contextmanager
def open_run(config: RunConfig, method: str, inputs: Sequence[Path] = ()) -> Iterator[Run]:
    """Open the run in ``config.out``, on all ranks.

    ``inputs`` are files and folders that it reads beside rows and model: a run that goes on wants the same
    ones. Where its result is there already the user is told, and ``finished`` is true.
    """
    refuse_unknown_checks("--allow", config.allow, CHECKS)
    if config.zero is not None:
        offered("DeepSpeed", of="runs")(config.device)
    with (
        untried_releases_named(),
        process_group(config.device, sequence_ranks=config.sequence_ranks) as ranks,
        _open_same_folder(config, ranks, method, inputs) as folder,
    ):
        run = start_run(config, ranks, method, folder=folder, finished=_is_finished(config, ranks))
        if folder is not None:
            lineage_notes = record_lineage(method, config, inputs, run.encoder.template, folder)
            run.note(*untried_releases(), *folder.notes, *lineage_notes)
        if not run.finished:
            run.note(*run.encoder.notes)
        elif ranks.is_first:
            console = ConsoleSink(quiet=True)
            for note in run.notes:
                console.note(note)
            done = "this run is finished; nothing was done. Another run needs another --out"
            console.note(f"{config.out}: {done}")
        # Closed inside group and folder, so that nothing writes or answers once these are gone.
        with run.resources:
            yield run


def start_run(
    config: RunConfig, ranks: Ranks, method: str, *, folder: RunFolder | None = None, finished: bool = False
) -> Run:
    """What every run has before its model: seeded random numbers, the tokenizer and the precision."""
    seed_everything(config.seed, ranks.rank)
    ranks = ranks.sharding_over(config.shard_ranks)
    encoder = encoder_for(config)
    if not finished:
        # Before rows are read, which may take minutes.
        check_weight_files(config.model)
    memory, recompute = None, False
    if config.check and not finished:
        # A plan makes models of its own: the run's random numbers stay as they were seeded.
        with torch.random.fork_rng(devices=[]):
            estimate = offered_if_any("memory_fit")
            memory, recompute = (None, False) if estimate is None else estimate(method, config, ranks)
    notes: list[str] = []
    # On all ranks or on none: where weights are divided, they are gathered again.
    if config.memory.checkpointing is None and any(flag for [flag] in ranks.all_gather([float(recompute)])):
        config = replace(config, memory=replace(config.memory, checkpointing=True))
        notes = ["--memory.checkpointing: layers are computed again, or the run would not fit the GPU"]
    run = Run(
        notes=notes,
        config=config,
        method=method,
        encoder=encoder,
        precision=precision(config.dtype, ranks.device),
        ranks=ranks,
        folder=None if folder is None else folder.path,
        verify_folder=tuple if folder is None else folder.verify,
        finished=finished,
        memory=memory,
    )
    if config.deterministic:
        run.resources.enter_context(deterministic_kernels())
    return run


def encoder_for(config: RunConfig) -> Encoder:
    """The encoder of the starting model, with the user's own reader of what prompts show beside words."""
    reader: Any = None if config.extras is None else load_object(config.extras, "--extras")
    template = None if config.template is None else read_template(config.template)
    settings: Any = {"turns": config.turns, "template": template, "text": config.text}
    return make_encoder(config.model, read_extras=reader, **settings)


def reserve_run_folder(config: RunConfig) -> None:
    """Create the folder of a run that waits for another one, so that bad settings are refused now."""
    with process_group(config.device) as ranks:
        if not ranks.first_says((config.out / "config.yaml").exists()):
            with open_folder(config, ranks):
                ranks.barrier()


@contextmanager
def _open_same_folder(
    config: RunConfig, ranks: Ranks, method: str, inputs: Sequence[Path]
) -> Iterator[RunFolder | None]:
    """The run folder, once it is known that all ranks run the same thing."""
    held_out = {} if config.held_out_share is not None else {"held_out": Path(config.held_out)}
    sources = sources_of(config.data)
    data = {f"data {name}" if len(sources) > 1 else "data": Path(name) for name, _ in sources}
    files = {**data, **held_out, "model": config.model, **{str(path): path for path in inputs}}
    # A file may lie elsewhere on another machine: its content counts. The run's own folder is one for all.
    values = run_folder.flat_settings(asdict(config)).items()
    elsewhere = {*held_out, *(name for name, value in values if isinstance(value, Path))} - {"out"}
    # Each rank has a device of its own; what it computes in has to be the same.
    elsewhere |= {"device"}
    settings = run_folder.flat_settings(plain_settings(config)).items()
    facts = {name: value for name, value in settings if name not in elsewhere}
    facts["weights of data"] = [weight for _, weight in sources]
    if config.dtype == "auto":
        facts["dtype"] = f"auto, which is {precision(config.dtype, ranks.device).products}"
    run_folder.refuse_differing_ranks(ranks, {"method": method, **facts}, files)
    with open_folder(config, ranks) as folder:
        yield folder


@contextmanager
def open_folder(
    config: RunConfig, ranks: Ranks, *, fixed: frozenset[str] = frozenset()
) -> Iterator[RunFolder | None]:
    """The run folder, opened by the first rank alone; an interrupted run closes it in good order."""
    if not ranks.is_first:
        yield None
        return
    stop: InterruptedRunError | None = None
    settings = plain_settings(config)
    may_change = {name for name in MAY_CHANGE_ON_RESUME if name.split(".")[0] in settings} - fixed
    single = (setting for setting in all_settings(type(config)) if setting.group is None)
    defaults = {setting.key: to_plain_data(setting.default) for setting in single}
    with open_run_folder(config.out, config=settings, may_change=may_change, defaults=defaults) as folder:
        # Carried past the folder's exit, where an exception counts as an end in disorder.
        try:
            yield folder
        except InterruptedRunError as interruption:
            stop = interruption
    if stop is not None:
        raise stop


def _schedule(config: RunConfig, job: TrainingJob[Any], peak_flops: float) -> Schedule:
    order = BatchOrder(rows=job.rows, batch_size=config.batch_size, seed=config.seed)
    steps = total_steps(config, order, job.updates_per_batch)
    # Rounded up, so that a run of few steps has no interval of 0.
    default_interval = -(-steps // 10)
    evaluate_every = config.evaluate_every or default_interval
    return Schedule(
        order=order,
        steps=steps,
        evaluate_every=evaluate_every,
        sample_every=config.sample_every or default_interval,
        save_every=config.save_every or default_interval,
        safety=config.safety,
        keep=config.settled_keep(evaluates=job.evaluate is not None),
        peak_flops=peak_flops,
    )


def _best_look_notes(config: RunConfig, schedule: Schedule) -> Iterator[str]:
    """What a run that may keep its best look says of it before its first step, where nobody asked for it."""
    if schedule.keep.use_best and config.keep.use_best is None:
        look = f"{schedule.keep.best_is} {schedule.keep.best}, every {schedule.evaluate_every} steps"
        yield f"the model of the best look is kept ({look}) unless the last one is as good within noise"


def total_steps(config: RunConfig, order: BatchOrder, inner: int) -> int:
    """The number of optimiser steps of a run that takes ``inner`` of them for each batch of rows."""
    return config.steps or order.steps_for_epochs(config.epochs) * inner


def _refuse_unmeasured_best_metric(config: RunConfig, job: TrainingJob[Any]) -> None:
    keep = config.keep
    if keep.best not in job.held_out_metrics:
        hint = did_you_mean(keep.best, job.held_out_metrics)
        raise UserError(f"keep.best: {keep.best!r} is not one of {', '.join(job.held_out_metrics)}{hint}")
    if keep.use_best and job.evaluate is None:
        raise UserError("keep.use_best needs held-out rows, and none is left: give more rows, or a file")


def record_lineage(
    method: str, config: RunConfig, inputs: Sequence[Path], template: str | None, folder: RunFolder
) -> tuple[str, ...]:
    """Write the hashes of all inputs; on resume, refuse a run whose inputs have changed."""
    held_out = [] if config.held_out_share is not None else [Path(config.held_out)]
    current = run_folder.gather_lineage(
        method=method,
        data=[config.data, *held_out, *inputs],
        seed=config.seed,
        model=config.model,
        tokenizer=config.model,
        template=template,
    )
    if folder.resumed and folder.lineage.exists():
        return run_folder.compare_lineages(run_folder.read_lineage(folder.lineage), current)
    run_folder.write_lineage(folder.lineage, current)
    return run_folder.changed_exports(current)


def _is_finished(config: RunConfig, ranks: Ranks) -> bool:
    """Whether summary (which is written last) and weights are there; the first rank checks for all."""
    folders = ("model", "adapter") if config.lora.rank else ("model",)
    complete = (config.out / "summary.json").exists() and all(
        any((config.out / name).glob("*.safetensors")) for name in folders
    )
    return ranks.first_says(complete)


def plain_settings(config: RunConfig) -> dict[str, Any]:
    """The settings that a user can set, as plain values; fields that follow from others are left out."""
    set_by_name = {setting.name for setting in fields(config) if setting.init}
    values = {**asdict(config), "keep": asdict(config.settled_keep())}
    return {name: _as_plain_value(value) for name, value in values.items() if name in set_by_name}


def _as_plain_value(value: Any) -> Any:
    """A value with its paths as strings, as YAML and experiment trackers take it."""
    # A folder of the hub is what it is called there, commit and all: its path is this machine's own.
    if isinstance(value, Mapping):
        return {name: _as_plain_value(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_as_plain_value(item) for item in value)
    return hub.recorded_name(value) if isinstance(value, Path | str) else value


def sample_completions_fn(
    policy: Policy, run: Run, examples: Sequence[Example]
) -> Callable[[InterruptCheck], Sequence[Sample]] | None:
    """A function that generates completions of the first prompts; None on ranks that need not call it."""
    settings = run.config.sample
    if not (run.ranks.is_first or run.config.divides_weights):
        return None

    def sample(pause: InterruptCheck) -> list[Sample]:
        samples: list[Sample] = []
        with policy.as_plain_model(), unsharded(policy):
            for example in examples[: settings.rows]:
                pause()
                samples.append(_generate_sample(policy, run.encoder, example, settings.tokens))
        return samples

    return sample


def _generate_sample(policy: Policy, encoder: Encoder, example: Example, tokens: int) -> Sample:
    ids = torch.tensor([example.prompt], device=policy.device)
    extras = layout_batch(batch_of([example.select([0])]).to(policy.device), "right").extras
    generate: Any = policy.base.generate
    with torch.no_grad():
        # synced_gpus: with divided weights a rank whose answer has ended must still join each pass.
        generated = generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=list(encoder.stop_ids),
            pad_token_id=encoder.stop_ids[0],
            synced_gpus=is_sharded(policy),
            **extras,
            **token_types(policy.base, ids, extras),
        )
    decode = encoder.info.decode
    prompt = decode(example.prompt)
    completion = decode(generated[0, ids.shape[1] :].tolist())
    return Sample(prompt=prompt, completion=completion, expected=decode(example.completions[0].ids))
