"""A run of any kind: open the folder, get ready, learn or go on, write down what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from plaudit.batches.template import Encoder
from plaudit.errors import UserError
from plaudit.models.files import Precision
from plaudit.recipes.checking import checked
from plaudit.recipes.config import MAY_CHANGE_ON_RESUME, RunConfig
from plaudit.recipes.learner import Kind, Learner, Piece, Remark, begin, machine_of
from plaudit.training import lineage
from plaudit.training.flops import matmul_rate
from plaudit.training.interrupt import InterruptedRunError
from plaudit.training.loop import Loop
from plaudit.training.optimizer import rate_share
from plaudit.training.order import Order
from plaudit.training.parallel import Ranks, joined
from plaudit.training.plan import Plan
from plaudit.training.report import write_report
from plaudit.training.runfolder import RunFolder, open_run
from plaudit.training.sinks.console import ConsoleSink
from plaudit.training.sinks.jsonl import read_notes, read_reports
from plaudit.training.sinks.summary import Summary, summarise
from plaudit.training.sinks.together import Sinks, sinks_for


def run(config: RunConfig, kind: Kind[Any]) -> Summary | None:
    """Train, or go on; what is left behind lies in ``config.out``. Only the first rank has a summary."""
    with joined(config.device) as ranks, _folder(config, ranks) as folder:
        return _train(config, kind, ranks, folder)


def claim(config: RunConfig) -> None:
    """Begin the folder of a run that waits for another one: what would refuse it then refuses it now."""
    with joined(config.device) as ranks:
        begun = ranks.every([float((config.out / "config.yaml").exists())])[0][0]
        if not begun:
            with _folder(config, ranks):
                ranks.wait()


@contextmanager
def _folder(config: RunConfig, ranks: Ranks) -> Iterator[RunFolder | None]:
    """The run folder, held by the first rank alone; who saved and then stopped leaves it in good order."""
    if not ranks.first:
        yield None
        return
    stop: InterruptedRunError | None = None
    plain = plain_settings(config)
    may_change = {name for name in MAY_CHANGE_ON_RESUME if name.split(".")[0] in plain}
    with open_run(config.out, config=plain, may_change=may_change) as folder:
        try:
            yield folder
        except InterruptedRunError as asked:
            stop = asked
    if stop is not None:
        raise stop


def _train(config: RunConfig, kind: Kind[Any], ranks: Ranks, folder: RunFolder | None) -> Summary | None:
    start = begin(config, ranks, None if folder is None else folder.path)
    notes = [] if folder is None else [*folder.notes, *_trace(config, kind, start.encoder, folder)]
    if _is_finished(config, ranks):
        if ranks.first:
            _say_that_it_is_finished(config, notes)
        return None
    learner = kind.prepare(start)
    _refuse_to_look_for_what_is_not_measured(config, learner)
    notes += [*start.encoder.notes, *learner.notes, *checked(config, learner)]
    plan = _plan(config, learner, ranks, _peak_flops(start.numbers, ranks))
    loop = Loop(plan, config.out / "checkpoints", partial(_sinks, config, ranks), notes)
    progress = loop.run()
    if config.keep.use_best and progress.best_step is not None:
        loop.go_back_to(progress.best_step)
    learner.write()
    summary = summarise(read_reports(config.out), read_notes(config.out)) if ranks.first else None
    loop.sinks.close(summary)
    if ranks.first:
        write_report(config.out, command=f"plaudit train {kind.name}")
    return summary


def _plan(config: RunConfig, learner: Learner[Piece], ranks: Ranks, peak_flops: float) -> Plan[Piece]:
    order = Order(rows=learner.rows, batch_size=config.batch_size, seed=config.seed)
    inner = learner.inner
    steps = steps_of(config, order, inner)
    every = -(-steps // 10)
    return Plan(
        steps=steps,
        machine=machine_of(config, learner, ranks),
        pieces=lambda step: learner.pieces(step, order.batch(1 + (step - 1) // inner)),
        epoch_after=lambda step: order.epoch_after(-(-step // inner)),
        work=learner.work,
        evaluate=learner.evaluate,
        sample=learner.sample,
        rate=lambda step: config.learning_rate * rate_share(step, steps, config.optimizer),
        safety=config.safety,
        keep=config.keep,
        evaluate_every=config.evaluate_every or every,
        sample_every=config.sample_every or every,
        save_every=config.save_every or every,
        peak_flops=peak_flops,
        name=config.out.name,
        config=plain_settings(config),
        companions=learner.companions,
        remark=partial(_unsaid, config.out, learner.remark),
    )


def steps_of(config: RunConfig, order: Order, inner: int) -> int:
    """How many steps a run has, each batch of rows being learnt from in ``inner`` of them."""
    return config.steps or order.steps_in(config.epochs) * inner


def _unsaid(run: Path, remark: Remark) -> tuple[str, ...]:
    """Each sentence once in the life of a run, whatever figures it then holds."""
    said = tuple(read_notes(run))
    found = remark(tuple(read_reports(run)))
    return tuple(
        begins + goes_on
        for begins, goes_on in found.items()
        if not any(note.startswith(begins) for note in said)
    )


def _refuse_to_look_for_what_is_not_measured(config: RunConfig, learner: Learner[Any]) -> None:
    keep = config.keep
    if keep.best not in learner.measured:
        near = get_close_matches(keep.best, learner.measured, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"keep.best: {keep.best!r} is not one of {', '.join(learner.measured)}{hint}")
    if keep.use_best and learner.evaluate is None:
        raise UserError("keep.use_best needs held-out rows, and none is left: give more rows, or a file")


def _peak_flops(numbers: Precision, ranks: Ranks) -> float:
    return sum(row[0] for row in ranks.every([matmul_rate(str(ranks.device), numbers.products)]))


def _sinks(config: RunConfig, ranks: Ranks) -> Sinks:
    return Sinks(sinks_for(config.sinks, config.out) if ranks.first else ())


def _trace(config: RunConfig, kind: Kind[Any], encoder: Encoder, folder: RunFolder) -> tuple[str, ...]:
    """Write where everything came from; on resume, refuse when it has changed."""
    held_out = [] if config.held_out_share is not None else [Path(config.held_out)]
    now = lineage.gather(
        method=kind.name,
        data=[config.data, *held_out, *kind.inputs],
        seed=config.seed,
        model=config.model,
        tokenizer=config.model,
        template=encoder.template,
    )
    if folder.resumed and folder.lineage.exists():
        return lineage.compare(lineage.read(folder.lineage), now)
    lineage.write(folder.lineage, now)
    return ()


def _is_finished(config: RunConfig, ranks: Ranks) -> bool:
    """Whether everything is there already; the first rank looks for all. The summary is written last."""
    folders = ("model", "adapter") if config.lora.rank else ("model",)
    there = (config.out / "summary.json").exists() and all(
        any((config.out / name).glob("*.safetensors")) for name in folders
    )
    return bool(ranks.every([float(there)])[0][0])


def _say_that_it_is_finished(config: RunConfig, notes: Sequence[str]) -> None:
    console = ConsoleSink(quiet=True)
    for note in (
        *notes,
        f"{config.out}: this run is finished; nothing was done. Another run needs another --out",
    ):
        console.note(note)


def plain_settings(config: RunConfig) -> dict[str, Any]:
    """What can be set, as it is set: a field that follows from another one is left out."""
    set_by_name = {one.name for one in fields(config) if one.init}
    return {name: _plain(value) for name, value in asdict(config).items() if name in set_by_name}


def _plain(value: Any) -> Any:
    """Paths as strings: what YAML and trackers take."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return str(value) if isinstance(value, Path) else value
