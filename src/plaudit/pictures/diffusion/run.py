"""A run over pictures: rows, model and objective into the loop, and the result into the run folder."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from plaudit.config import to_plain_data
from plaudit.engine import run_folder
from plaudit.engine.checkpoint.state import seed_everything
from plaudit.engine.distributed import single_process
from plaudit.engine.loop import BatchOrder, Schedule, TrainingJob, TrainingLoop
from plaudit.engine.run_folder import RunFolder, open_run_folder
from plaudit.engine.sinks.base import FanOutSink, RunStart, Summary, summarise
from plaudit.engine.sinks.files import read_notes, read_reports, sinks_for
from plaudit.engine.step import InterruptedRunError
from plaudit.errors import UserError
from plaudit.models.load import device_of
from plaudit.pictures.diffusion import objective as objectives
from plaudit.pictures.diffusion.config import (
    DdpoConfig,
    DiffusionConfig,
    DpoConfig,
    KtoConfig,
    RewardConfig,
    SftConfig,
)
from plaudit.pictures.diffusion.data import PictureRow, Pixels, pictures_digest, read_rows
from plaudit.pictures.diffusion.evaluation import reward_of
from plaudit.pictures.diffusion.models import (
    Drawer,
    PixelDrawer,
    PreferenceModel,
    load_drawer,
    load_preference_model,
    vocabulary,
)

MAY_CHANGE = frozenset({"sinks", "device", "keep", "save_every", "at_once", "safety"})
"""What may differ when a run goes on."""


def train(config: DiffusionConfig) -> Summary | None:
    """Train, or go on; None where the result is there already."""
    rows, notes = read_rows(config.data, config.reads, threshold=config.threshold)
    if config.model is None and not isinstance(config, SftConfig | RewardConfig):
        raise UserError(
            "--model is missing: give the model/ of a run of plaudit diffusion sft, or a pipeline"
        )
    stop: InterruptedRunError | None = None
    settings = {"method": type(config).__name__, **to_plain_data(config)}
    with open_run_folder(config.out, config=settings, may_change=MAY_CHANGE) as folder:
        notes += [*folder.notes, *_record_lineage(config, rows, folder)]
        if folder.summary.exists() and folder.model.is_dir():
            return None
        # Carried past the folder's end, where an exception would count as one in disorder.
        try:
            return _train(config, rows, notes)
        except InterruptedRunError as interruption:
            stop = interruption
    raise stop


def _record_lineage(
    config: DiffusionConfig, rows: Sequence[PictureRow], folder: RunFolder
) -> tuple[str, ...]:
    """Hashes of rows, pictures and model; a run that goes on wants the same."""
    method = f"diffusion {type(config).__name__}"
    lineage = run_folder.gather_lineage(
        data=[config.data], seed=config.seed, model=config.model, method=method
    )
    current = replace(lineage, data={**lineage.data, "its pictures": pictures_digest(rows)})
    if folder.resumed and folder.lineage.exists():
        return run_folder.compare_lineages(run_folder.read_lineage(folder.lineage), current)
    run_folder.write_lineage(folder.lineage, current)
    return ()


def _train(config: DiffusionConfig, rows: Sequence[PictureRow], notes: Sequence[str]) -> Summary:
    seed_everything(config.seed, 0)
    ranks = single_process(device_of(config.device))
    job = _job(config, rows, ranks.device)
    order = BatchOrder(rows=len(rows), batch_size=config.batch_size, seed=config.seed)
    steps = config.steps or order.steps_for_epochs(config.epochs) * job.updates_per_batch
    every = config.save_every or -(-steps // 10)
    schedule = Schedule(
        order=order,
        steps=steps,
        evaluate_every=0,
        sample_every=0,
        save_every=every,
        safety=config.safety,
        keep=config.keep,
        peak_flops=0.0,
    )

    def open_sinks(done: int, marks: Mapping[str, str]) -> FanOutSink:
        sinks = FanOutSink(sinks_for(config.sinks, config.out))
        settings = to_plain_data(config)
        sinks.open(RunStart(name=config.out.name, steps=steps, done=done, config=settings, marks=marks))
        return sinks

    loop = TrainingLoop(job, schedule, ranks, folder=config.out, open_sinks=open_sinks, notes=notes)
    loop.run()
    job.save()
    summary = summarise(read_reports(config.out), read_notes(config.out))
    loop.sinks.close(summary)
    return summary


def _job(config: DiffusionConfig, rows: Sequence[PictureRow], device: torch.device) -> TrainingJob[Any]:
    model, more = _model(config, rows, device).train(), dict[str, Any]()
    if isinstance(model, PreferenceModel):
        batches = objectives.picture_batches(rows, config, Pixels(rows, model.size), None)
        objective = objectives.pick_objective(model)
    elif isinstance(config, DdpoConfig):
        rounds = objectives.Rounds(model, rows, config, reward_of(config.reward, device))
        batches, objective = rounds.batches, rounds.objective
        more = {"state": {"round": rounds}, "updates_per_batch": config.updates}
    else:
        levels = len(model.levels.alpha_T)
        batches = objectives.picture_batches(rows, config, Pixels(rows, model.size), levels)
        objective = objectives.sft_objective(model)
        if isinstance(config, KtoConfig):
            reference, noisy = model.reference(), batches
            batches = lambda first, chosen: objectives.with_baseline(noisy(first, chosen), model, reference)  # noqa: E731
            objective = objectives.kto_objective(model, reference, config)
        elif isinstance(config, DpoConfig):
            objective = objectives.dpo_objective(model, model.reference(), config)
    weights = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    return TrainingJob(
        module=model,
        objective=objective,
        rows=len(rows),
        microbatches=batches,
        # Forward and back: an estimate of a pass for each picture as a whole.
        flops=lambda pieces: 6.0 * weights * sum(piece.tokens for piece in pieces),
        learning_rate=config.learning_rate,
        optimizer=config.optimizer,
        evaluate=None,
        held_out_metrics=(),
        sample=None,
        save=lambda: model.save(config.out / "model"),
        **more,
    )


def _model(
    config: DiffusionConfig, rows: Sequence[PictureRow], device: torch.device
) -> Drawer | PreferenceModel:
    """The model of a folder, or a new one whose words are those of the captions."""
    if config.model is not None:
        load: Any = load_preference_model if isinstance(config, RewardConfig) else load_drawer
        return load(config.model, device)
    words = vocabulary(row.caption for row in rows)
    if isinstance(config, RewardConfig):
        return PreferenceModel(config.size, config.width, words).to(device)
    assert isinstance(config, SftConfig), "other methods have a model"
    return PixelDrawer(config.new, words).to(device)
