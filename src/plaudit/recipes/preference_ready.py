"""A preference run made ready: rows, policy, reference, what is minimised, and a look before the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from plaudit.batches.cut import cut
from plaudit.batches.judged import JudgedRow
from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.checks.subject import Subject
from plaudit.models.policy import Policy
from plaudit.recipes.learner import Learner, Start
from plaudit.recipes.opinion_notes import notes_on
from plaudit.recipes.opinions import opinions
from plaudit.recipes.placing import arithmetic, place
from plaudit.recipes.policies import matrix_sizes, prepare_policy, write_model
from plaudit.recipes.preference_config import PreferenceConfig
from plaudit.recipes.preference_rows import Algorithm, facts_of, row_of
from plaudit.recipes.references import (
    Prepared,
    nobody,
    prepare_reference,
    refuse_other_vocabulary,
    short_run,
)
from plaudit.recipes.rows import Rows, load_rows
from plaudit.recipes.samples import sampler
from plaudit.recipes.stages import part_of
from plaudit.training.companion import Companion, RunningMean
from plaudit.training.first_look import first_look
from plaudit.training.flops import training_flops
from plaudit.training.held_out import held_out
from plaudit.training.metrics import Metric
from plaudit.training.plan import Pause
from plaudit.training.preference import (
    FIGURES,
    Eyes,
    PreferenceObjective,
    PreferencePiece,
    comparing,
    judging,
    rows_of,
)
from plaudit.training.preference_batch import Batches, strangers_of
from plaudit.training.preference_remarks import remarks
from plaudit.training.preference_row import PreferenceRow, SingleRow
from plaudit.training.sinks.sink import Sample

FORGETTING = 0.1
"""How much of BCO's running mean is new at each step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A policy with its reference, its rows and what is minimised, ready to learn.

    Example: ``begin("dpo", config, start)``
    """

    rows: Rows[JudgedRow]
    """What is trained and what is held out."""
    policy: Policy
    """What learns."""
    reference: Prepared
    """What it is compared with."""
    batches: Batches
    """How a batch is divided."""
    objective: PreferenceObjective
    """What a step minimises."""
    notes: tuple[str, ...]
    """What was decided, for the user."""


def begin(algorithm: Algorithm, config: PreferenceConfig, start: Start) -> Begun:
    """Read the rows, load the models, and look whether all is as it must be before the first step."""
    row, facts, ranks = row_of(algorithm, config.preference), facts_of(algorithm), start.ranks
    refuse_other_vocabulary(config, start.encoder)
    rows = rows_for(algorithm, config, start.encoder, start.aside)
    strangers = _strangers(row, rows, config, start.encoder)
    policy, notes = prepare_policy(config, start.numbers, ranks)
    asked = [*(one.example for one in (*rows.train, *rows.held_out)), *strangers.values()]
    how = short_run(config, len(rows.train))
    reference = prepare_reference(how, policy, start, asked) if row.referenced else nobody()
    notes += place(policy, config, ranks)
    products = partial(arithmetic, start.numbers, ranks.device)
    batches = Batches(
        row=row,
        eyes=Eyes(policy=policy, reference=reference.reference, products=products),
        ranks=ranks,
        tokens_at_once=config.memory.tokens_at_once,
        ties=_ties(row, config),
        running=_running() if row.baseline == "running" else None,
        strangers=strangers,
    )
    objective = _objective(batches)
    looked = first_look(batches, objective, rows.train, same=reference.same)
    return Begun(
        rows=rows,
        policy=policy,
        reference=reference,
        batches=batches,
        objective=objective,
        notes=(
            *rows.notes,
            *notes_on(rows.train, row, config.preference),
            *notes,
            f"{facts.name}: {facts.formula}",
            *reference.notes,
            looked.sentence,
        ),
    )


def rows_for(
    algorithm: Algorithm, config: PreferenceConfig, encoder: Encoder, aside: Path | None
) -> Rows[JudgedRow]:
    """The rows that an algorithm learns from, of the part that this run trains."""
    row, facts = row_of(algorithm, config.preference), facts_of(algorithm)
    recipe = opinions(facts, ties=_ties(row, config), hard=_sorts(row))
    rows = load_rows(config, encoder, recipe, aside)
    return replace(rows, train=part_of(rows.train, config.stages))


def _sorts(row: PreferenceRow | SingleRow) -> bool:
    return isinstance(row, PreferenceRow) and row.sorts


def _ties(row: PreferenceRow | SingleRow, config: PreferenceConfig) -> bool:
    return config.rows.ties == "soft" and not _sorts(row)


def learner(algorithm: Algorithm, config: PreferenceConfig, start: Start) -> Learner[PreferencePiece]:
    """All that a run asks of it."""
    begun = begin(algorithm, config, start)
    row, train, held = begun.batches.row, begun.rows.train, begun.rows.held_out
    return Learner(
        module=begun.policy,
        objective=begun.objective,
        alone=rows_of,
        rows=len(train),
        pieces=lambda _, batch: begun.batches.pieces([train[n] for n in batch]),
        work=partial(_work, matrix_sizes(begun.policy), config, begun.reference.live),
        evaluate=_evaluation(begun, held) if held else None,
        measured=tuple(f"held_out/{figure}" for figure in _figures(row)),
        sample=_sampler(begun.policy, start, config, begun.rows),
        write=lambda: write_model(begun.policy, config, start.encoder, start.ranks),
        notes=begun.notes,
        companions=_companions(begun),
        remark=partial(remarks, row, learning_rate=config.learning_rate),
        subject=_subject(begun, config, start),
    )


def _subject(begun: Begun, config: PreferenceConfig, start: Start) -> Subject:
    return Subject(
        encoder=start.encoder,
        records=begun.rows.records,
        held_out=begun.rows.held_out_records,
        trained=[row.example for row in begun.rows.train],
        max_length=config.max_length,
        policy=begun.policy,
        adapted=config.lora.rank > 0,
        reference=begun.batches.eyes.reference if begun.batches.row.referenced else None,
        same_reference=begun.reference.same,
        products=begun.batches.eyes.products,
    )


def _objective(batches: Batches) -> PreferenceObjective:
    if isinstance(batches.row, SingleRow):
        return judging(batches.row, batches.eyes)
    return comparing(batches.row, batches.eyes, ties=batches.ties)


def _strangers(
    row: PreferenceRow | SingleRow, rows: Rows[JudgedRow], config: PreferenceConfig, encoder: Encoder
) -> dict[Example, Example]:
    if row.baseline != "mismatched":
        return {}

    def fit(example: Example) -> Example:
        fitted = cut(example, config.max_length, bos=encoder.info.bos)
        assert isinstance(fitted, Example), fitted
        return fitted

    return dict(strangers_of((*rows.train, *rows.held_out), rows.train, config.seed, fit))


def _running() -> RunningMean:
    return RunningMean(("reward_chosen", "reward_rejected"), share=FORGETTING)


def _companions(begun: Begun) -> dict[str, Companion]:
    running = begun.batches.running
    return {**begun.reference.companions, **({} if running is None else {"baseline": running})}


def _figures(row: PreferenceRow | SingleRow) -> tuple[str, ...]:
    own = tuple(name for name in FIGURES if name != "margin" or isinstance(row, PreferenceRow))
    return (*own, "kl") if row.referenced else own


def _evaluation(begun: Begun, rows: Sequence[JudgedRow]) -> Callable[[Pause], Sequence[Metric]]:
    batches = begun.batches
    names = {name: f"held_out/{name}" for name in _figures(batches.row)}

    def evaluate(pause: Pause) -> Sequence[Metric]:
        return held_out(begun.objective, batches.pieces(rows), batches.ranks, names)(pause)

    return evaluate


def _sampler(
    policy: Policy, start: Start, config: PreferenceConfig, rows: Rows[JudgedRow]
) -> Callable[[Pause], Sequence[Sample]] | None:
    if not (start.ranks.first or config.shard):
        return None
    asked = [row.example for row in rows.held_out or rows.train]
    return sampler(policy, start.encoder, asked, config.sample)


def _work(
    sizes: tuple[int, int], config: PreferenceConfig, live: bool, pieces: Sequence[PreferencePiece]
) -> float:
    """A reference that is asked at each step costs one more forward pass."""
    examples = [row.example for piece in pieces for row in piece.rows]
    tokens = sum(example.tokens for example in examples)
    trained = sum(example.trained_tokens for example in examples)
    own = training_flops(*sizes, tokens=tokens, trained_tokens=trained, frozen=config.lora.rank > 0)
    forward = training_flops(*sizes, tokens=tokens, trained_tokens=trained) / 3
    return own + forward if live else own
