"""A supervised run: rows → tokens → model → trainer → checkpoints → a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from plaudit.batches.template import Encoder, make_encoder
from plaudit.errors import UserError
from plaudit.models.files import Precision, precision
from plaudit.models.policy import Policy
from plaudit.recipes.config import MAY_CHANGE_ON_RESUME, SupervisedConfig
from plaudit.recipes.policies import arithmetic, matrix_sizes, place_policy, prepare_policy, write_model
from plaudit.recipes.rows import Recipe, Rows, load_rows
from plaudit.recipes.samples import sampler
from plaudit.training import lineage
from plaudit.training.chance import seed_everything
from plaudit.training.distil import DIVERGENCE, held_out
from plaudit.training.flops import matmul_rate, training_flops
from plaudit.training.interrupt import InterruptedRunError
from plaudit.training.loop import Loop
from plaudit.training.metrics import Metric
from plaudit.training.optimizer import make_optimizer, rate_share
from plaudit.training.order import Order
from plaudit.training.parallel import Ranks, joined
from plaudit.training.plan import Pause, Plan
from plaudit.training.report import write_report
from plaudit.training.runfolder import RunFolder, open_run
from plaudit.training.settings import KeepSettings
from plaudit.training.sinks.console import ConsoleSink
from plaudit.training.sinks.jsonl import read_notes, read_reports
from plaudit.training.sinks.summary import Summary, summarise
from plaudit.training.sinks.together import Sinks, sinks_for
from plaudit.training.step import Machine
from plaudit.training.supervised import (
    HELD_OUT,
    Arithmetic,
    Objective,
    SupervisedPiece,
    evaluation,
    likelihood,
    pieces_of,
    rows_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What sets one supervised algorithm apart from another.

    Example: SFT is ``Method(name="sft", recipe=answers, objective=by_likelihood)``.
    """

    name: str
    """What the user calls it."""
    recipe: Recipe
    """From the records of the file to the rows that are trained."""
    objective: Callable[[Policy, Rows, Arithmetic], Objective]
    """From a policy, before its weights are divided, and the rows to what a step minimises."""
    divergence: bool = False
    """Whether the objective is a distance from a teacher: held-out rows are then measured by it too."""
    inputs: tuple[Path, ...] = ()
    """Files and folders that it reads beside rows and model; a run that goes on wants the same ones."""


def by_likelihood(policy: Policy, rows: Rows, products: Arithmetic) -> Objective:
    """Maximum likelihood of the rows."""
    del rows
    return likelihood(policy, products)


def run_supervised(config: SupervisedConfig, method: Method) -> Summary | None:
    """Train, or go on; what is left behind lies in ``config.out``. Only the first rank has a summary."""
    with joined(config.device) as ranks, _folder(config, ranks) as folder:
        return _train(config, method, ranks, folder)


@contextmanager
def _folder(config: SupervisedConfig, ranks: Ranks) -> Iterator[RunFolder | None]:
    """The run folder, held by the first rank alone; who saved and then stopped leaves it in good order."""
    if not ranks.first:
        yield None
        return
    stop: InterruptedRunError | None = None
    with open_run(config.out, config=_plain(asdict(config)), may_change=MAY_CHANGE_ON_RESUME) as folder:
        try:
            yield folder
        except InterruptedRunError as asked:
            stop = asked
    if stop is not None:
        raise stop


def _train(
    config: SupervisedConfig, method: Method, ranks: Ranks, folder: RunFolder | None
) -> Summary | None:
    seed_everything(config.seed, ranks.rank)
    encoder = make_encoder(config.model, turns=config.turns)
    notes = [] if folder is None else [*folder.notes, *_trace(config, method, encoder, folder)]
    if _is_finished(config, ranks):
        if ranks.first:
            _say_that_it_is_finished(config, notes)
        return None
    rows = load_rows(config, encoder, method.recipe, None if folder is None else folder.path)
    _refuse_to_look_for_what_is_not_measured(config.keep, rows, method)
    numbers = precision(config.dtype, ranks.device)
    policy, more = prepare_policy(config, numbers, ranks)
    products = partial(arithmetic, numbers, ranks.device)
    objective = method.objective(policy, rows, products)
    more += place_policy(policy, config, ranks)
    notes += [*encoder.notes, *rows.notes, *more]
    parts = _Parts(policy=policy, objective=objective, encoder=encoder, rows=rows, numbers=numbers)
    plan = _plan(config, method, parts, ranks)
    loop = Loop(plan, config.out / "checkpoints", partial(_sinks, config, ranks), notes)
    progress = loop.run()
    if config.keep.use_best and progress.best_step is not None:
        loop.go_back_to(progress.best_step)
    write_model(policy, config, encoder, ranks)
    summary = summarise(read_reports(config.out), read_notes(config.out)) if ranks.first else None
    loop.sinks.close(summary)
    if ranks.first:
        write_report(config.out, command=f"plaudit train {method.name}")
    return summary


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What a plan is made of."""

    policy: Policy
    objective: Objective
    encoder: Encoder
    rows: Rows
    numbers: Precision


def _plan(config: SupervisedConfig, method: Method, parts: _Parts, ranks: Ranks) -> Plan[SupervisedPiece]:
    policy, rows = parts.policy, parts.rows
    order = Order(rows=len(rows.train), batch_size=config.batch_size, seed=config.seed)
    steps = config.steps or order.steps_in(config.epochs)
    room = config.memory.tokens_at_once
    every = -(-steps // 10)
    asked = rows.held_out or rows.train
    return Plan(
        steps=steps,
        machine=Machine(
            module=policy,
            optimizer=make_optimizer(policy, config.learning_rate, config.optimizer),
            objective=parts.objective,
            alone=rows_of,
            clip=config.optimizer.clip,
            ranks=ranks,
        ),
        pieces=lambda step: pieces_of([rows.train[row] for row in order.batch(step)], ranks, room),
        epoch_after=order.epoch_after,
        work=partial(_work, matrix_sizes(policy), frozen=config.lora.rank > 0),
        evaluate=_evaluation(method, parts, ranks, room) if rows.held_out else None,
        sample=sampler(policy, parts.encoder, asked, config.sample) if ranks.first or config.shard else None,
        rate=lambda step: config.learning_rate * rate_share(step, steps, config.optimizer),
        safety=config.safety,
        keep=config.keep,
        evaluate_every=config.evaluate_every or every,
        sample_every=config.sample_every or every,
        save_every=config.save_every or every,
        peak_flops=_peak_flops(parts.numbers, ranks),
        name=config.out.name,
        config=_plain(asdict(config)),
    )


def _refuse_to_look_for_what_is_not_measured(keep: KeepSettings, rows: Rows, method: Method) -> None:
    measured = (*HELD_OUT, DIVERGENCE) if method.divergence else HELD_OUT
    if keep.best not in measured:
        near = get_close_matches(keep.best, measured, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"keep.best: {keep.best!r} is not one of {', '.join(measured)}{hint}")
    if keep.use_best and not rows.held_out:
        raise UserError("keep.use_best needs held-out rows, and none is left: give more rows, or a file")


def _evaluation(
    method: Method, parts: _Parts, ranks: Ranks, room: int
) -> Callable[[Pause], Sequence[Metric]]:
    products = partial(arithmetic, parts.numbers, ranks.device)
    likely = evaluation(parts.policy, parts.rows.held_out, ranks, room, products)
    if not method.divergence:
        return likely
    apart = held_out(parts.objective, pieces_of(parts.rows.held_out, ranks, room), ranks)
    return lambda pause: (*likely(pause), *apart(pause))


def _peak_flops(numbers: Precision, ranks: Ranks) -> float:
    return sum(row[0] for row in ranks.every([matmul_rate(str(ranks.device), numbers.products)]))


def _work(sizes: tuple[int, int], pieces: Sequence[SupervisedPiece], *, frozen: bool) -> float:
    examples = [example for piece in pieces for example in piece.examples]
    tokens = sum(example.tokens for example in examples)
    trained = sum(example.trained_tokens for example in examples)
    return training_flops(*sizes, tokens=tokens, trained_tokens=trained, frozen=frozen)


def _sinks(config: SupervisedConfig, ranks: Ranks) -> Sinks:
    return Sinks(sinks_for(config.sinks, config.out) if ranks.first else ())


def _trace(config: SupervisedConfig, method: Method, encoder: Encoder, folder: RunFolder) -> tuple[str, ...]:
    """Write where everything came from; on resume, refuse when it has changed."""
    held_out = [] if config.held_out_share is not None else [Path(config.held_out)]
    now = lineage.gather(
        method=method.name,
        data=[config.data, *held_out, *method.inputs],
        seed=config.seed,
        model=config.model,
        tokenizer=config.model,
        template=encoder.template,
    )
    if folder.resumed and folder.lineage.exists():
        return lineage.compare(lineage.read(folder.lineage), now)
    lineage.write(folder.lineage, now)
    return ()


def _is_finished(config: SupervisedConfig, ranks: Ranks) -> bool:
    """Whether everything is there already; the first rank looks for all. The summary is written last."""
    folders = ("model", "adapter") if config.lora.rank else ("model",)
    there = (config.out / "summary.json").exists() and all(
        any((config.out / name).glob("*.safetensors")) for name in folders
    )
    return bool(ranks.every([float(there)])[0][0])


def _say_that_it_is_finished(config: SupervisedConfig, notes: Sequence[str]) -> None:
    console = ConsoleSink(quiet=True)
    for note in (
        *notes,
        f"{config.out}: this run is finished; nothing was done. Another run needs another --out",
    ):
        console.note(note)


def _plain(value: Any) -> Any:
    """Paths as strings: what YAML and trackers take."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return str(value) if isinstance(value, Path) else value
