"""A run over pictures: rows, model and objective into the loop, and the result into the run folder."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from examples.diffusion import objective as steps_of
from examples.diffusion.config import (
    DdpoConfig,
    DiffusionConfig,
    DpoConfig,
    KtoConfig,
    RewardConfig,
    SftConfig,
)
from examples.diffusion.data import PictureRow, pictures_digest, read_rows
from examples.diffusion.evaluation import reward_of
from examples.diffusion.models import PixelDrawer, PreferenceModel, load_model, vocabulary
from plaudit.config import to_plain_data
from plaudit.engine import run_folder
from plaudit.engine.checkpoint.state import seed_everything
from plaudit.engine.distributed import single_process
from plaudit.engine.loop import BatchOrder, Schedule, TrainingJob, TrainingLoop
from plaudit.engine.settings import KeepSettings, SafetySettings
from plaudit.engine.sinks.base import FanOutSink, RunStart, summarise
from plaudit.engine.sinks.files import read_notes, read_reports, sinks_for
from plaudit.engine.step import InterruptedRunError
from plaudit.errors import UserError
from plaudit.models.load import device_of

MAY_CHANGE = frozenset({"sinks", "device", "save_every", "at_once"})
"""What may differ when a run goes on."""


def train(config: DiffusionConfig) -> bool:
    """Train, or go on; False where the result is there already."""
    if config.model is None and not isinstance(config, SftConfig | RewardConfig):
        raise UserError("--model is missing: the model/ of a run of sft, or a pipeline")
    rows, notes = read_rows(config.data, config.reads, threshold=config.threshold)
    method, stop = f"diffusion {type(config).__name__}", None
    settings = {"method": method, **to_plain_data(config)}
    with run_folder.open_run_folder(config.out, config=settings, may_change=MAY_CHANGE) as folder:
        facts: Any = {"data": [config.data], "seed": config.seed, "model": config.model, "method": method}
        lineage = run_folder.gather_lineage(**facts)
        lineage = replace(lineage, data={**lineage.data, "its pictures": pictures_digest(rows)})
        if folder.resumed and folder.lineage.exists():
            notes += run_folder.compare_lineages(run_folder.read_lineage(folder.lineage), lineage)
        run_folder.write_lineage(folder.lineage, lineage)
        if folder.summary.exists() and folder.model.is_dir():
            return False
        # Carried past the folder's end, where an exception would count as one in disorder.
        try:
            _train(config, rows, [*folder.notes, *notes])
        except InterruptedRunError as interruption:
            stop = interruption
    if stop is not None:
        raise stop
    return True


def _train(config: DiffusionConfig, rows: Sequence[PictureRow], notes: Sequence[str]) -> None:
    seed_everything(config.seed, 0)
    ranks = single_process(device_of(config.device))
    job = _job(config, rows, ranks.device)
    schedule = Schedule(
        order=BatchOrder(rows=len(rows), batch_size=config.batch_size, seed=config.seed),
        steps=config.steps,
        evaluate_every=0,
        sample_every=0,
        save_every=config.save_every or -(-config.steps // 10),
        safety=SafetySettings(),
        keep=KeepSettings(),
        peak_flops=0.0,
    )

    def open_sinks(done: int, marks: Mapping[str, str]) -> FanOutSink:
        sinks, plain = FanOutSink(sinks_for(config.sinks, config.out)), to_plain_data(config)
        sinks.open(RunStart(name=config.out.name, steps=config.steps, done=done, config=plain, marks=marks))
        return sinks

    loop = TrainingLoop(job, schedule, ranks, folder=config.out, open_sinks=open_sinks, notes=notes)
    loop.run()
    job.save()
    loop.sinks.close(summarise(read_reports(config.out), read_notes(config.out)))


def _job(config: DiffusionConfig, rows: Sequence[PictureRow], device: torch.device) -> TrainingJob[Any]:
    model, more = _model(config, rows, device), dict[str, Any]()
    if isinstance(config, DdpoConfig):
        rounds = steps_of.Rounds(model, rows, config, reward_of(config.reward, device))
        batches, step = rounds.batches, rounds.step
        more = {"state": {"round": rounds}, "updates_per_batch": config.updates}
    else:
        batches, step = steps_of.picture_batches(rows, config, model), partial(steps_of.sft_step, model=model)
    if isinstance(config, RewardConfig):
        step = partial(steps_of.pick_step, model=model)
    elif isinstance(config, DpoConfig):
        step = partial(steps_of.dpo_step, model=model, reference=model.reference(), config=config)
    elif isinstance(config, KtoConfig):
        both = {"model": model, "reference": model.reference()}
        batches = steps_of.with_baseline(batches, **both)
        step = partial(steps_of.kto_step, config=config, **both)
    weights = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    return TrainingJob(
        module=model,
        objective=step,
        rows=len(rows),
        microbatches=batches,
        # Forward and back, as if each weight were met once in a picture.
        flops=lambda pieces: 6.0 * weights * sum(piece.tokens for piece in pieces),
        learning_rate=config.learning_rate,
        optimizer=config.optimizer,
        evaluate=None,
        held_out_metrics=(),
        sample=None,
        save=lambda: model.save(config.out / "model"),
        **more,
    )


def _model(config: DiffusionConfig, rows: Sequence[PictureRow], device: torch.device) -> Any:
    """The model of a folder, or a new one whose words are those of the captions."""
    if config.model is not None:
        return load_model(
            config.model, "preference" if isinstance(config, RewardConfig) else "drawer", device
        )
    words = vocabulary([row.caption for row in rows])
    if isinstance(config, RewardConfig):
        return PreferenceModel(config.new.size, config.new.width, words).to(device)
    assert isinstance(config, SftConfig), "other methods have a model"
    return PixelDrawer(config.new, words).to(device)
