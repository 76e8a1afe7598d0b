"""Supervised learning: rows → tokens → a policy → what is likely, or what a teacher finds likely."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from plaudit.batches.tokens import Example
from plaudit.checks.subject import Subject
from plaudit.models.policy import Policy
from plaudit.recipes.config import RunConfig
from plaudit.recipes.learner import Kind, Learner, Start
from plaudit.recipes.placing import arithmetic, place
from plaudit.recipes.policies import matrix_sizes, prepare_policy, write_model
from plaudit.recipes.rows import Recipe, Rows, load_rows
from plaudit.recipes.run import run
from plaudit.recipes.samples import sampler
from plaudit.training.distil import DIVERGENCE
from plaudit.training.flops import training_flops
from plaudit.training.held_out import held_out
from plaudit.training.metrics import Metric
from plaudit.training.plan import Pause
from plaudit.training.sinks.summary import Summary
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
    recipe: Recipe[Example]
    """From the records of the file to the rows that are trained."""
    objective: Callable[[Policy, Rows[Example], Arithmetic], Objective]
    """From a policy, before its weights are divided, and the rows to what a step minimises."""
    divergence: bool = False
    """Whether the objective is a distance from a teacher: held-out rows are then measured by it too."""
    inputs: tuple[Path, ...] = ()
    """Files and folders that it reads beside rows and model; a run that goes on wants the same ones."""


def by_likelihood(policy: Policy, rows: Rows[Example], products: Arithmetic) -> Objective:
    """Maximum likelihood of the rows."""
    del rows
    return likelihood(policy, products)


def run_supervised(config: RunConfig, method: Method) -> Summary | None:
    """Train, or go on; what is left behind lies in ``config.out``. Only the first rank has a summary."""
    return run(config, supervised_kind(config, method))


def supervised_kind(config: RunConfig, method: Method) -> Kind[SupervisedPiece]:
    """The run of a method, before it begins."""
    return Kind(name=method.name, prepare=partial(_learner, config, method), inputs=method.inputs)


def _learner(config: RunConfig, method: Method, start: Start) -> Learner[SupervisedPiece]:
    ranks, room = start.ranks, config.memory.tokens_at_once
    rows = load_rows(config, start.encoder, method.recipe, start.aside)
    policy, notes = prepare_policy(config, start.numbers, ranks)
    products = partial(arithmetic, start.numbers, ranks.device)
    objective = method.objective(policy, rows, products)
    notes += place(policy, config, ranks)
    asked = rows.held_out or rows.train
    return Learner(
        module=policy,
        objective=objective,
        alone=rows_of,
        rows=len(rows.train),
        pieces=lambda _, batch: pieces_of([rows.train[row] for row in batch], ranks, room),
        work=partial(_work, matrix_sizes(policy), frozen=config.lora.rank > 0),
        evaluate=_evaluation(config, method, start, policy, objective, rows) if rows.held_out else None,
        measured=(*HELD_OUT, DIVERGENCE) if method.divergence else HELD_OUT,
        sample=sampler(policy, start.encoder, asked, config.sample) if ranks.first or config.shard else None,
        write=lambda: write_model(policy, config, start.encoder, ranks),
        notes=(*rows.notes, *notes),
        subject=Subject(
            encoder=start.encoder,
            records=rows.records,
            held_out=rows.held_out_records,
            trained=rows.train,
            max_length=config.max_length,
            policy=policy,
            adapted=config.lora.rank > 0,
            products=products,
        ),
    )


def _evaluation(
    config: RunConfig, method: Method, start: Start, policy: Policy, objective: Objective, rows: Rows[Example]
) -> Callable[[Pause], Sequence[Metric]]:
    ranks, room = start.ranks, config.memory.tokens_at_once
    likely = evaluation(policy, rows.held_out, ranks, room, partial(arithmetic, start.numbers, ranks.device))
    if not method.divergence:
        return likely
    apart = held_out(objective, pieces_of(rows.held_out, ranks, room), ranks, {"loss": DIVERGENCE})
    return lambda pause: (*likely(pause), *apart(pause))


def _work(sizes: tuple[int, int], pieces: Sequence[SupervisedPiece], *, frozen: bool) -> float:
    examples = [example for piece in pieces for example in piece.examples]
    tokens = sum(example.tokens for example in examples)
    trained = sum(example.trained_tokens for example in examples)
    return training_flops(*sizes, tokens=tokens, trained_tokens=trained, frozen=frozen)
