"""Preference optimisation: from comparisons, rankings or thumbs to a policy, by any algorithm of the table.

A run is prepared (rows, policy, reference, objective), and its first loss is checked. Direct preference
optimisation: Rafailov et al. 2023, arXiv:2305.18290. All algorithms: ``algorithms.py``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from plaudit.engine.checkpoint.state import RunningMean
from plaudit.engine.loop import TrainingJob, row_batches
from plaudit.engine.metrics import Metric, training_flops
from plaudit.engine.sinks.base import Summary
from plaudit.engine.step import InterruptCheck, held_out_evaluator
from plaudit.files.stored import joined, mapped
from plaudit.methods.data import Rows, load_rows
from plaudit.methods.models import matrix_sizes, prepare_policy, shard_or_broadcast, write_model
from plaudit.methods.preference.algorithms import OWN
from plaudit.methods.preference.config import (
    PreferenceConfig,
    StageSettings,
    configured_algorithm,
    with_algorithm_settings,
)
from plaudit.methods.preference.data import (
    data_diagnostics,
    mismatched_examples,
    preference_encoder,
    rows_of_part,
)
from plaudit.methods.preference.diagnostics import check_initial_loss, diagnostics
from plaudit.methods.preference.objective import (
    HELD_OUT_METRICS,
    PreferenceBatcher,
    PreferenceMicrobatch,
    PreferenceObjective,
    ScoringModels,
    pair_objective,
    unpaired_objective,
)
from plaudit.methods.preference.row import AnyPreferenceAlgorithm, PreferenceAlgorithm, UnpairedAlgorithm
from plaudit.methods.reference import (
    PreparedReference,
    no_reference,
    prepare_reference,
    refuse_other_vocabulary,
    refuse_unused_reference_settings,
    settled_reference,
)
from plaudit.methods.run import Run, open_run, reserve_run_folder, sample_completions_fn
from plaudit.preflight.check import PreflightSubject
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import Encoder, truncate_prompt
from plaudit.tokens.preferences import JudgedRow

RUNNING_MEAN_SHARE = 0.1
"""The weight of the newest step in BCO's running mean of rewards."""


def load_preference_rows(
    algorithm: str | AnyPreferenceAlgorithm, config: PreferenceConfig, encoder: Encoder, folder: Path | None
) -> Rows[JudgedRow]:
    """The rows that an algorithm learns from, of the part that this run trains."""
    rows = load_rows(config, encoder, preference_encoder(configured_algorithm(algorithm, config)), folder)
    return replace(rows, train=rows_of_part(rows.train, config.stages))


def load_models(
    row: AnyPreferenceAlgorithm, rows: Rows[JudgedRow], config: PreferenceConfig, run: Run
) -> tuple[PreferenceBatcher, PreparedReference]:
    """The policy and its reference, in what divides batches of these rows for them."""
    # Before the policy is loaded: rows of a single prompt are refused at once.
    mismatched = _mismatched_examples(row, rows, config, run.encoder)
    reference_config = settled_reference(config, rows.train)
    # Log-probs that are kept are computed by the policy while it is whole.
    by_parts = "reference" not in row.needs or reference_config.reference.kind == "live"
    policy, notes = prepare_policy(run.config, run.precision, run.ranks, by_parts=by_parts)
    # Mismatched answers are scored by the reference too, so a cache has to hold them.
    own_examples = [mapped(part, attrgetter("example")) for part in (rows.train, rows.held_out)]
    judged = joined([rows.train, rows.held_out]) if "changed" in row.needs else ()
    changed = [each.changed for each in judged if each.changed is not None]
    reference_examples = joined([*own_examples, tuple(mismatched.values()), changed])
    reference = (
        prepare_reference(reference_config, policy, run, reference_examples)
        if "reference" in row.needs
        else no_reference()
    )
    notes += shard_or_broadcast(policy, config, run.ranks)
    run.note(*notes, f"{row.name}: {row.formula}", *reference.notes)
    batcher = PreferenceBatcher(
        row=row,
        models=ScoringModels(policy=policy, reference=reference.reference),
        ranks=run.ranks.rows,
        tokens_at_once=config.memory.tokens_at_once,
        ties=config.rows.ties == "soft" and "sorted_batch" not in row.needs,
        running_mean=RunningMean(("reward_chosen", "reward_rejected"), share=RUNNING_MEAN_SHARE)
        if "running_mean" in row.needs
        else None,
        mismatched=mismatched,
    )
    return batcher, reference


def prepare_preference(
    algorithm: str | AnyPreferenceAlgorithm, config: PreferenceConfig, run: Run
) -> tuple[TrainingJob[PreferenceMicrobatch], PreflightSubject]:
    """Read the rows, load the models, check the first loss: what is trained, and what is checked."""
    row = configured_algorithm(algorithm, config)
    refuse_other_vocabulary(config, run.encoder)
    rows = load_preference_rows(row, config, run.encoder, run.folder)
    run.note(*rows.notes, *data_diagnostics(rows.train, row))
    batcher, reference = load_models(row, rows, config, run)
    objective, policy = make_objective(batcher), batcher.models.policy
    # Now or never: after a step a wrong reference looks like learning.
    is_same_model = reference.is_starting_model
    run.note(check_initial_loss(batcher, objective, rows.train, is_same_model=is_same_model))
    running_mean = batcher.running_mean
    job = TrainingJob(
        module=policy,
        objective=objective,
        rows=len(rows.train),
        microbatches=row_batches(
            lambda _, batch: batcher.microbatches([rows.train[number] for number in batch])
        ),
        flops=partial(_step_flops, matrix_sizes(policy), config, reference.live),
        learning_rate=config.learning_rate,
        optimizer=config.optimizer,
        evaluate=_evaluate_fn(batcher, objective, rows.held_out) if rows.held_out else None,
        held_out_metrics=tuple(f"held_out/{name}" for name in _metric_names(row)),
        sample=sample_completions_fn(policy, run, mapped(rows.held_out or rows.train, attrgetter("example"))),
        save=lambda: write_model(policy, config, run.encoder, run.ranks),
        state={**reference.state, **({} if running_mean is None else {"baseline": running_mean})},
        diagnose=partial(diagnostics, row, learning_rate=config.learning_rate),
    )
    subject = replace(
        run.subject(job, rows),
        trained=mapped(rows.train, attrgetter("example")),
        policy=policy,
        reference=batcher.models.reference if "reference" in row.needs else None,
        same_reference=is_same_model,
    )
    return job, subject


def make_objective(batcher: PreferenceBatcher) -> PreferenceObjective:
    if isinstance(batcher.row, UnpairedAlgorithm):
        return unpaired_objective(batcher.row, batcher.models)
    return pair_objective(batcher.row, batcher.models, ties=batcher.ties)


def _mismatched_examples(
    row: AnyPreferenceAlgorithm, rows: Rows[JudgedRow], config: PreferenceConfig, encoder: Encoder
) -> dict[Example, Example]:
    if "mismatched" not in row.needs:
        return {}

    def truncate(example: Example) -> Example:
        # An answer to another prompt measures how far the model went, whatever is left of that prompt.
        cuttable = replace(example, has_tools=False)
        truncated = truncate_prompt(cuttable, config.max_length, bos=encoder.info.bos)
        assert isinstance(truncated, Example), truncated
        return truncated

    return dict(mismatched_examples(joined([rows.train, rows.held_out]), rows.train, config.seed, truncate))


def _metric_names(row: AnyPreferenceAlgorithm) -> tuple[str, ...]:
    names = tuple(
        name for name in HELD_OUT_METRICS if name != "margin" or isinstance(row, PreferenceAlgorithm)
    )
    return (*names, "kl") if "reference" in row.needs else names


def _evaluate_fn(
    batcher: PreferenceBatcher, objective: PreferenceObjective, rows: Sequence[JudgedRow]
) -> Callable[[InterruptCheck], Sequence[Metric]]:
    names = {name: f"held_out/{name}" for name in _metric_names(batcher.row)}

    def evaluate(check_interrupt: InterruptCheck) -> Sequence[Metric]:
        # Divided anew each time: what the loss measures from moves with the policy.
        microbatches = batcher.microbatches(rows)
        return held_out_evaluator(objective, microbatches, batcher.ranks, names)(check_interrupt)

    return evaluate


def _step_flops(
    sizes: tuple[int, int], config: PreferenceConfig, live: bool, microbatches: Sequence[PreferenceMicrobatch]
) -> float:
    """Floating-point operations of these micro-batches; a live reference costs one more forward pass."""
    examples = [row.example for microbatch in microbatches for row in microbatch.judged]
    tokens = sum(example.tokens for example in examples)
    trained = sum(example.trained_tokens for example in examples)
    policy_flops = training_flops(*sizes, tokens=tokens, trained_tokens=trained, frozen=config.lora.rank > 0)
    # A third: no backward pass, which costs twice the forward one.
    reference_flops = training_flops(*sizes, tokens=tokens, trained_tokens=trained) / 3
    return policy_flops + reference_flops if live else policy_flops


def preference(algorithm: str | AnyPreferenceAlgorithm, config: PreferenceConfig) -> Summary | None:
    """Run an algorithm, by its name or as what ``dpo(beta=0.05)`` makes, into ``config.out``.

    Data in parts are learnt one after another: each result is the next part's model and reference.
    """
    config = with_algorithm_settings(algorithm, config)
    algorithm = configured_algorithm(algorithm, config)
    config = resolve_variant(algorithm, config)
    referenced = "reference" in algorithm.needs
    refuse_unused_reference_settings(algorithm.name, config.reference, referenced=referenced)
    if config.stages.parts == 1 or config.stages.part is not None:
        return _run_part(algorithm, config)
    parts, model = config.stages.parts, config.model
    runs: list[PreferenceConfig] = []
    for part in range(parts):
        # The last part takes the run's own folder, where its result is looked for.
        out = config.out if part == parts - 1 else config.out / "parts" / str(part)
        stages = StageSettings(parts=parts, part=part)
        # From the second part on the reference is the model that the part itself starts from.
        reference = replace(config.reference, model=None) if part else config.reference
        runs.append(replace(config, model=model, out=out, stages=stages, reference=reference))
        model = out / "model"
    reserve_run_folder(runs[-1])
    # A list, for every part has to run; the last one's summary is the whole run's.
    return [_run_part(algorithm, part_config) for part_config in runs][-1]


def own_preference(config: PreferenceConfig) -> Summary | None:
    """Run the algorithm of the user's own that ``config.algorithm`` names."""
    return preference(OWN, config)


def resolve_variant(algorithm: AnyPreferenceAlgorithm, config: PreferenceConfig) -> PreferenceConfig:
    """The config with the algorithm's reference (tr-dpo) and parts (sdpo), where the user names none."""
    if algorithm.reference_kind != "auto" and config.reference.kind == "auto":
        config = replace(config, reference=replace(config.reference, kind=algorithm.reference_kind))
    if algorithm.parts > 1 and config.stages.parts == 1:
        config = replace(config, stages=StageSettings(parts=algorithm.parts))
    return config


def _run_part(algorithm: AnyPreferenceAlgorithm, config: PreferenceConfig) -> Summary | None:
    other = config.reference.model
    user_file = Path(getattr(config, "algorithm", "").rpartition(":")[0])
    inputs = (*(() if other is None else (other,)), *((user_file,) if user_file.suffix == ".py" else ()))
    with open_run(config, algorithm.name, inputs) as run:
        return run.check_and_train(lambda: prepare_preference(algorithm, config, run))
