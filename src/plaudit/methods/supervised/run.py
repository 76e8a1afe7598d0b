"""Supervised training: rows → tokens → a policy, by maximum likelihood or by distillation from a teacher.

- sft: learn to say what the demonstrations say (Ouyang et al. 2022, arXiv:2203.02155, section 3.5).
- preferred: learn the answers that people liked, and nothing from the others.
- control: learn good and bad answers alike, each behind a word for how good it is. Words: Korbak et al. 2023,
  arXiv:2302.08582. Levels: Quark, Lu et al. 2022, arXiv:2205.13636.
- context: answer as if a context had been read, without reading it (Askell et al. 2021, arXiv:2112.00861,
  section 2.1).
- distil: learn from another model's whole distribution at every token of the answers. Forward KL: Hinton et
  al. 2015, arXiv:1503.02531 (with the answers' own tokens as hard targets beside the teacher's soft ones:
  its section 2). Reverse: arXiv:2306.08543. JS: arXiv:2306.13649.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

from plaudit.data.records import Demonstration, Prompt, Record
from plaudit.data.transforms import ControlSettings, DemonstrationSet, preferred_only, with_control_words
from plaudit.engine.loop import TrainingJob, row_batches
from plaudit.engine.metrics import Metric, mean_metric, training_flops
from plaudit.engine.sinks.base import Summary
from plaudit.engine.step import InterruptCheck, held_out_evaluator, merge_over_ranks
from plaudit.errors import UserError, located
from plaudit.methods.config import ContextConfig, ControlConfig, DistilConfig, RunConfig, SftConfig
from plaudit.methods.data import EncodedData, Rows, load_rows, prompt_families
from plaudit.methods.models import (
    load_frozen_policy,
    matrix_sizes,
    prepare_policy,
    shard_or_broadcast,
    write_model,
)
from plaudit.methods.run import Run, open_run, sample_completions_fn
from plaudit.methods.supervised.distillation import (
    DIVERGENCE_METRIC,
    context_role,
    distillation_objective,
    divergence_named,
    encode_with_context,
    frozen_copy,
    refuse_other_tokenizer,
)
from plaudit.methods.supervised.objective import (
    HELD_OUT_METRICS,
    SupervisedMicrobatch,
    SupervisedObjective,
    likelihood_evaluator,
    likelihood_objective,
    microbatches_of,
)
from plaudit.models.policy import Policy
from plaudit.preflight.check import PreflightSubject
from plaudit.rewards.registry import resolve_reward
from plaudit.rollouts.sampler import SamplingSettings, WeightsVersion
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import Encoder, encode_rows
from plaudit.tokens.prompts import EncodedPrompt, encode_prompt_records
from plaudit.tokens.tokenizer import load_tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedMethod:
    name: str
    encode: Callable[[Sequence[Record], Encoder, int], EncodedData[Example]]
    make_objective: Callable[[Policy, Rows[Example]], SupervisedObjective]
    """From a policy, before its weights are divided, and the rows to what a step minimises."""
    divergence: bool = False
    """Whether the objective is a distance from a teacher: held-out rows are then measured by it too."""
    inputs: tuple[Path, ...] = ()
    """Files and folders that it reads beside rows and model; a run that goes on wants the same ones."""


def maximum_likelihood(policy: Policy, rows: Rows[Example]) -> SupervisedObjective:
    return likelihood_objective(policy)


def run_supervised(config: RunConfig, method: SupervisedMethod) -> Summary | None:
    """Train by this method, or resume, into ``config.out``; the first rank returns the summary."""
    with open_run(config, method.name, method.inputs) as run:
        return run.check_and_train(lambda: prepare_supervised(config, method, run))


def prepare_supervised(
    config: RunConfig, method: SupervisedMethod, run: Run
) -> tuple[TrainingJob[SupervisedMicrobatch], PreflightSubject]:
    """Read the rows and load the policy: what is trained, and what is checked before."""
    ranks, tokens_at_once = run.ranks, config.memory.tokens_at_once
    rows = load_rows(config, run.encoder, method.encode, run.folder)
    # Whoever distils from it may want it whole.
    by_parts = method.make_objective is maximum_likelihood
    policy, notes = prepare_policy(run.config, run.precision, ranks, by_parts=by_parts)
    # Before weights are divided: self-distillation keeps a whole copy of the policy.
    objective = method.make_objective(policy, rows)
    notes += shard_or_broadcast(policy, config, ranks)
    run.note(*rows.notes, *notes)
    judged = JUDGED_METRICS if isinstance(config, SftConfig) and config.judge.by is not None else ()
    job = TrainingJob(
        module=policy,
        objective=objective,
        rows=len(rows.train),
        microbatches=row_batches(
            lambda _, batch: microbatches_of([rows.train[row] for row in batch], ranks, tokens_at_once)
        ),
        flops=partial(_step_flops, matrix_sizes(policy), frozen=config.lora.rank > 0),
        learning_rate=config.learning_rate,
        optimizer=config.optimizer,
        evaluate=_evaluate_fn(config, method, run, policy, objective, rows) if rows.held_out else None,
        held_out_metrics=(*HELD_OUT_METRICS, *((DIVERGENCE_METRIC,) if method.divergence else ()), *judged),
        sample=sample_completions_fn(policy, run, rows.held_out or rows.train),
        save=lambda: write_model(policy, config, run.encoder, ranks),
    )
    return job, replace(run.subject(job, rows), trained=rows.train, policy=policy)


def _evaluate_fn(
    config: RunConfig,
    method: SupervisedMethod,
    run: Run,
    policy: Policy,
    objective: SupervisedObjective,
    rows: Rows[Example],
) -> Callable[[InterruptCheck], Sequence[Metric]]:
    ranks, tokens_at_once = run.ranks, config.memory.tokens_at_once
    evaluate_likelihood = likelihood_evaluator(policy, rows.held_out, ranks, tokens_at_once)
    if isinstance(config, SftConfig) and config.judge.by is not None:
        evaluate_answers = judged_evaluator(config, run, policy, rows)
        return lambda pause: (*evaluate_likelihood(pause), *evaluate_answers(pause))
    if not method.divergence:
        return evaluate_likelihood
    microbatches = microbatches_of(rows.held_out, ranks, tokens_at_once)
    evaluate_divergence = held_out_evaluator(
        objective, microbatches, ranks, {"divergence": DIVERGENCE_METRIC}
    )
    return lambda pause: (*evaluate_likelihood(pause), *evaluate_divergence(pause))


def _step_flops(
    sizes: tuple[int, int], microbatches: Sequence[SupervisedMicrobatch], *, frozen: bool
) -> float:
    examples = [example for microbatch in microbatches for example in microbatch.examples]
    tokens = sum(example.tokens for example in examples)
    trained = sum(example.trained_tokens for example in examples)
    return training_flops(*sizes, tokens=tokens, trained_tokens=trained, frozen=frozen)


def preferred(config: SftConfig) -> Summary | None:
    """Maximum likelihood of the winner of each comparison, the best of each ranking, each thumb up."""
    return run_supervised(chosen_by_judge(config), replace(PREFERRED, inputs=judge_files(config)))


def encode_preferred(records: Sequence[Record], encoder: Encoder, max_tokens: int) -> EncodedData[Example]:
    """The preferred answers as tokens; what is left out is counted in the notes."""
    return encode_selection(preferred_only(records), records, encoder, max_tokens)


PREFERRED = SupervisedMethod(name="preferred", encode=encode_preferred, make_objective=maximum_likelihood)


def encode_selection(
    chosen: DemonstrationSet, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> EncodedData[Example]:
    """Selected demonstrations as tokens, with notes on what was left out."""
    left_out = (f"{count} answers left out: {reason}" for reason, count in chosen.reason_counts.items())
    encoding = encode_rows(chosen.demonstrations, encoder, max_tokens)
    return EncodedData(
        encoding=encoding, notes=(*chosen.notes, *left_out), families=prompt_families(records, encoding)
    )


def control(config: ControlConfig) -> Summary | None:
    """Maximum likelihood of every judged answer, each given its word; ask with the best."""
    encode = partial(encode_with_control_words, config.control)
    return run_supervised(
        config, SupervisedMethod(name="control", encode=encode, make_objective=maximum_likelihood)
    )


def encode_with_control_words(
    settings: ControlSettings, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> EncodedData[Example]:
    """The judged answers as tokens, each with its control word where the chat template keeps it."""
    return encode_selection(
        with_control_words(records, settings, context_role(encoder)), records, encoder, max_tokens
    )


def sft(config: SftConfig) -> Summary | None:
    """Maximum likelihood of demonstrations: −Σ log π(y_t | x, y_<t) / tokens."""
    return run_supervised(chosen_by_judge(config), replace(SFT, inputs=judge_files(config)))


def encode_demonstrations(
    records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> EncodedData[Example]:
    """Demonstrations as tokens, as SFT and distillation learn them."""
    return EncodedData(encoding=encode_rows(require_demonstrations(records, "sft"), encoder, max_tokens))


SFT = SupervisedMethod(name="sft", encode=encode_demonstrations, make_objective=maximum_likelihood)


def require_demonstrations(records: Sequence[Record], method: str) -> Sequence[Demonstration]:
    """The records, where all of them are demonstrations; raises for any other one."""
    for record in records:
        if not isinstance(record, Demonstration):
            advice = "to learn from the preferred answers: plaudit train preferred"
            if isinstance(record, Prompt):
                advice = "every row needs an answer to learn"
            kind = type(record).__name__.lower()
            raise UserError(
                f"{record.origin}: this row is a {kind}, and {method} learns from demonstrations; {advice}"
            )
    return cast("Sequence[Demonstration]", records)


def context(config: ContextConfig) -> Summary | None:
    """Σ KL(π₀(· | context, x) ‖ π(· | x)) over the answers; the teacher is the starting model."""
    with located(f"{config.context}: the context cannot be read", OSError, UnicodeDecodeError):
        context_text = config.context.read_text(encoding="utf-8")

    def make_objective(policy: Policy, rows: Rows[Example]) -> SupervisedObjective:
        # The starting model itself, frozen, reads the context.
        divergence = divergence_named(config.divergence)
        return distillation_objective(policy, frozen_copy(policy), divergence, rows.teacher_prompts)

    encode = partial(encode_context_rows, context_text)
    inputs = (config.context,)
    method = SupervisedMethod(
        name="context", encode=encode, make_objective=make_objective, divergence=True, inputs=inputs
    )
    return run_supervised(config, method)


def encode_context_rows(
    context_text: str, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> EncodedData[Example]:
    """Each row as the student reads it, and the prompt that the teacher reads."""
    return encode_with_context(require_demonstrations(records, "context"), encoder, context_text, max_tokens)


def distil(config: DistilConfig) -> Summary | None:
    """Σ (1 − w) D(teacher, student) − w log π over the answers' tokens, w the share of hard targets."""
    # Before any folder is opened or model loaded: the two tokenizers tell.
    refuse_other_tokenizer(load_tokenizer(config.model), load_tokenizer(config.teacher))

    def make_objective(policy: Policy, rows: Rows[Example]) -> SupervisedObjective:
        teacher, divergence = load_frozen_policy(config.teacher, policy), divergence_named(config.divergence)
        return distillation_objective(policy, teacher, divergence, hard_weight=config.hard_weight)

    method = SupervisedMethod(
        name="distil",
        encode=encode_demonstrations,
        make_objective=make_objective,
        divergence=True,
        inputs=(config.teacher,),
    )
    return run_supervised(config, method)


JUDGED_METRICS = ("held_out/judge", "held_out/length_mean", "held_out/frac_finished")
"""What answers to held-out prompts add to the figures of a look."""


def chosen_by_judge(config: SftConfig) -> SftConfig:
    """The config by which the judge's score chooses the model, unless another figure was named. The loss on
    held-out rows rises long before answers get worse (Ouyang et al. 2022, arXiv:2203.02155, 3.5)."""
    if config.judge.by is None or config.keep.best != "held_out/loss":
        return config
    keep = replace(config.keep, best="held_out/judge", best_is="highest", use_best=True)
    return replace(config, keep=keep)


def judge_files(config: SftConfig) -> tuple[Path, ...]:
    """What must be unchanged when the run goes on: the judge's folder or file."""
    return () if config.judge.by is None or not Path(config.judge.by).exists() else (Path(config.judge.by),)


def judged_evaluator(
    config: SftConfig, run: Run, policy: Policy, rows: Rows[Example]
) -> Callable[[InterruptCheck], tuple[Metric, ...]]:
    """The mean score of the likeliest answers to held-out prompts; each rank answers its share."""
    assert config.judge.by is not None
    ranks = run.ranks
    reward = resolve_reward(config.judge.by, device=str(ranks.device))
    prompts = _held_out_prompts(config, run.encoder, rows)
    weights = WeightsVersion()
    sampler = run.local_sampler(policy, weights)
    settings = SamplingSettings(temperature=0, max_tokens=config.judge.tokens)
    mine = prompts[ranks.rows.rank :: ranks.rows.world_size]

    def evaluate(check_interrupt: InterruptCheck) -> tuple[Metric, ...]:
        check_interrupt()
        # Steps lie between two looks.
        weights.moved()
        sampler.refresh()
        answers = [group[0].answer for group in sampler.generate([prompt.shown for prompt in mine], settings)]
        tasks = [
            prompt.task([(answer.text, answer.ended)]) for prompt, answer in zip(mine, answers, strict=True)
        ]
        rows_of_scores = reward.scores(tasks) if tasks else ()
        scores = [row[0] for row in rows_of_scores if row[0] is not None]
        metrics = (
            mean_metric(JUDGED_METRICS[0], math.fsum(scores), len(scores)),
            mean_metric(JUDGED_METRICS[1], sum(answer.tokens for answer in answers), len(answers)),
            mean_metric(JUDGED_METRICS[2], sum(answer.ended for answer in answers), len(answers)),
        )
        merged = merge_over_ranks(metrics, ranks)
        if not merged[0].weight:
            who = f"--judge.by {config.judge.by}"
            raise UserError(f"{who}: no answer to {len(prompts)} held-out prompts got a verdict")
        return merged

    return evaluate


def _held_out_prompts(config: SftConfig, encoder: Encoder, rows: Rows[Example]) -> tuple[EncodedPrompt, ...]:
    held_out = {example.origin for example in rows.held_out}
    records = rows.held_out_records or [record for record in rows.records if record.origin in held_out]
    encoded = encode_prompt_records(records, encoder, config.max_length - config.judge.tokens)
    if not encoded.examples:
        reasons = "; ".join(sorted({row.reason for row in encoded.refused})) or "there are none"
        raise UserError(f"--judge.by: no held-out prompt can be answered: {reasons}")
    return tuple(encoded.examples[: config.judge.prompts])
