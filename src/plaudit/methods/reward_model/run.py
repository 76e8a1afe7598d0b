"""Reward models: from judged answers to a model that scores any answer.

Comparisons and rankings: Ouyang et al. 2022, arXiv:2203.02155. Steps: Lightman et al. 2023,
arXiv:2305.20050. Pre-training: Askell et al. 2021, arXiv:2112.00861. The log shows samples: rewards of
held-out completions, beside the judgement.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

import torch

from plaudit.engine.distributed import Ranks, is_first_process
from plaudit.engine.loop import HeldOutRows, InterruptCheck, TrainingJob, row_batches
from plaudit.engine.metrics import Metric, training_flops
from plaudit.engine.sinks.base import Sample, Summary
from plaudit.engine.step import held_out_evaluator
from plaudit.errors import UserError
from plaudit.files.stored import mapped, selected
from plaudit.methods.config import SampleSettings
from plaudit.methods.data import load_rows
from plaudit.methods.models import shard_or_broadcast
from plaudit.methods.reward_model.config import (
    EnsembleSettings,
    PretrainingSettings,
    RewardConfig,
    RewardSettings,
)
from plaudit.methods.reward_model.data import encode_judged_rows
from plaudit.methods.reward_model.losses import refuse_other_held_out_kind, select_loss
from plaudit.methods.reward_model.model import (
    body_size,
    mean_reward,
    normalisation_examples,
    normalisation_for_ratings,
    prepare_reward_model,
    write_reward_model,
)
from plaudit.methods.reward_model.objective import (
    HELD_OUT_METRICS,
    LanguageTerm,
    RewardMicrobatch,
    RewardObjective,
    load_language_term,
    microbatches_of,
    preferred_tokens,
    row_losses,
)
from plaudit.methods.run import Run, open_run, reserve_run_folder
from plaudit.models.load import is_reward_folder
from plaudit.models.reward_model import Normalisation, RewardModel
from plaudit.preflight.check import PreflightSubject
from plaudit.rewards.combine.aggregate import Combination
from plaudit.rewards.combine.manifest import save_combination
from plaudit.tokens.batch import Example, batch_of
from plaudit.tokens.encode import Encoder
from plaudit.tokens.preferences import JudgedRow, PairLabel, RankingLabel, RatingLabel, StepLabels
from plaudit.tokens.tokenizer import FACTS_SETTING


def sample_scores_fn(
    model: RewardModel, encoder: Encoder, rows: Sequence[JudgedRow], settings: SampleSettings
) -> Callable[[InterruptCheck], Sequence[Sample]]:
    """A function that scores the completions of the first rows; sharded, every rank must call it."""
    shown_rows = rows[: settings.rows]

    def sample(pause: InterruptCheck) -> list[Sample]:
        samples: list[Sample] = []
        for row in shown_rows:
            pause()
            with torch.no_grad():
                samples.append(_make_sample(row, _row_rewards(model, row), encoder, settings.tokens))
        return samples

    return sample


def _row_rewards(model: RewardModel, row: JudgedRow) -> list[float]:
    """The reward of each completion; of a solution with steps, the score of its weakest step."""
    batch = batch_of([row.example]).to(model.device)
    if isinstance(row.judgement, StepLabels):
        return [float(model.step_rewards(batch, torch.tensor([row.judgement.ends])).min())]
    return model.rewards(batch).tolist()


def _make_sample(row: JudgedRow, rewards: Sequence[float], encoder: Encoder, tokens: int) -> Sample:
    completions = row.example.completions
    order = sorted(range(len(completions)), key=lambda n: -rewards[n])
    texts = [
        " ".join(encoder.info.decode(answer.ids[:tokens]).split()) + "…" * (len(answer.ids) > tokens)
        for answer in completions
    ]
    completion = "\n".join(f"{rewards[n]:+.2f}  {texts[n]}" for n in order)
    prompt = encoder.info.decode(row.prompt)
    return Sample(prompt=prompt, completion=completion, expected=_label_text(row, texts))


def _label_text(row: JudgedRow, texts: Sequence[str]) -> str:
    match row.judgement:
        case PairLabel(probability=probability):
            return "a tie" if probability == 0.5 else f"better: {texts[0] if probability > 0.5 else texts[1]}"
        case RankingLabel(ranks=ranks):
            order = sorted(range(len(texts)), key=lambda n: ranks[n])
            return "\n".join(f"{ranks[n]:g}.  {texts[n]}" for n in order)
        case RatingLabel(score=score):
            return f"rated {score:g}"
        case StepLabels(labels=labels):
            return "steps: " + ", ".join(f"{label:g}" for label in labels)


def reward(config: RewardConfig) -> Summary | None:
    """Train a reward model, or several members one after another with their combination in ``config.out``.

    The summary is that of the last run; None where every run was finished already.
    """
    # Raise where members would have the same head and the same rows, and so be one model.
    same_head = config.pretraining.data is not None or is_reward_folder(config.model)
    if config.ensemble.members > 1 and same_head and not config.ensemble.bootstrap:
        raise UserError(
            "ensemble: all members would go on with the same head and learn from the same rows, and so be "
            "equal: leave out --no-ensemble.bootstrap, or begin with a language model and no first stage"
        )
    if config.pretraining.data is not None:
        config = _run_pretraining(config)
    return _run_ensemble(config) if _is_ensemble(config) else _run_one(config)


def _run_pretraining(config: RewardConfig) -> RewardConfig:
    """Run the first stage; returns the config of the main stage, which starts from its model."""
    stage, rows, settings = config.pretraining, config.pretraining.data, config.reward
    assert rows is not None
    if is_reward_folder(config.model):
        raise UserError(f"{config.model}: a reward model needs no first stage; leave out --pretraining.data")
    if config.reward.nll_coef:
        raise UserError(
            "reward.nll_coef with --pretraining.data: the first stage hands on a reward model, which has no "
            "language head; leave one of them out"
        )
    first = replace(
        config,
        data=rows,
        out=config.out / "pretraining",
        format=None,
        # A file of held-out rows is of the main stage's kind; the first stage splits its own rows.
        held_out=config.held_out if config.held_out_share is not None else "0.05",
        epochs=stage.epochs,
        steps=None,
        learning_rate=stage.learning_rate or config.learning_rate,
        # Only those that hold for any rows.
        reward=RewardSettings(
            loss=stage.loss,
            pooling=settings.pooling,
            layer=settings.layer,
            facts=settings.facts,
            head_std=settings.head_std,
            aspect=settings.aspect,
        ),
        ensemble=EnsembleSettings(),
        pretraining=PretrainingSettings(),
    )
    # The head that the first stage hands on is made, and its layers are cut.
    settings = replace(settings, head_std=None, layer=None)
    main = replace(config, model=first.out / "model", reward=settings, pretraining=PretrainingSettings())
    if not _is_ensemble(config):
        reserve_run_folder(main)
    _run_one(first, discriminate=stage.loss == "auto")
    return main


def _is_ensemble(config: RewardConfig) -> bool:
    return config.ensemble.members > 1 and config.ensemble.member is None


def _run_ensemble(config: RewardConfig) -> Summary | None:
    summary: Summary | None = None
    ensemble = config.ensemble
    folders = [config.out / "members" / str(member) for member in range(ensemble.members)]
    for member, out in enumerate(folders):
        member_config = replace(config, out=out, ensemble=replace(ensemble, member=member))
        # None for a member that was finished before: the last one that ran is reported.
        summary = _run_one(member_config) or summary
    caution = ensemble.caution if ensemble.combine == "cautious" else None
    if is_first_process():
        save_combination(config.out, folders, Combination(how=ensemble.combine, k=caution))
    return summary


def _run_one(config: RewardConfig, *, discriminate: bool = False) -> Summary | None:
    normalise = config.reward.normalise
    with open_run(config, "reward", () if normalise is None else (normalise,)) as run:
        planned = replace(config, memory=run.config.memory)
        return run.check_and_train(lambda: prepare_reward(planned, run, discriminate=discriminate))


def prepare_reward(
    config: RewardConfig, run: Run, *, discriminate: bool = False
) -> tuple[TrainingJob[RewardMicrobatch], PreflightSubject]:
    """Read the rows and load one reward model: what is trained, and what is checked before."""
    settings, ranks, tokens_at_once = config.reward, run.ranks, config.memory.tokens_at_once
    run.encoder.info.tokenizer.init_kwargs.update({FACTS_SETTING: True} if settings.facts else {})
    rows = load_rows(config, run.encoder, partial(encode_judged_rows, settings), run.folder)
    loss = select_loss(_with_pretraining_loss(settings, rows.train, discriminate), rows.train, config.rows)
    refuse_other_held_out_kind(rows.train, rows.held_out)
    zero_examples, notes = normalisation_examples(config, run.encoder)
    language = load_language_term(
        config.model, settings.nll_coef, dtype=run.precision.weights, device=ranks.device
    )
    model, model_notes = prepare_reward_model(config, run.encoder, run.precision, ranks)
    if loss.on_rating_scale and not is_reward_folder(config.model):
        model.normalisation = normalisation_for_ratings(rows.train)
    notes += [*model_notes, *shard_or_broadcast(model, config, ranks)]
    objective = loss.objective(model, language)
    train = bootstrap_rows(rows.train, config.ensemble, config.seed)
    sample_rows = rows.held_out or rows.train
    samples_here = ranks.is_first or config.divides_weights or ranks.sequence is not None
    evaluate, held_out_rows = _held_out_fns(objective, rows.held_out, ranks, tokens_at_once)
    run.note(*rows.notes, loss.sentence, *notes)
    job = TrainingJob(
        module=model,
        objective=objective,
        rows=len(train),
        microbatches=row_batches(
            lambda _, batch: microbatches_of([train[row] for row in batch], ranks, tokens_at_once)
        ),
        flops=partial(_step_flops, body_size(model), language, frozen=config.lora.rank > 0),
        learning_rate=config.learning_rate,
        optimizer=config.optimizer,
        evaluate=evaluate,
        held_out_metrics=tuple(HELD_OUT_METRICS[name] for name in loss.metrics),
        held_out_rows=held_out_rows,
        sample=sample_scores_fn(model, run.encoder, sample_rows, config.sample) if samples_here else None,
        save=partial(_save_model, model, config, run, zero_examples),
    )
    subject = replace(run.subject(job, rows), trained=mapped(rows.train, attrgetter("example")), scorer=model)
    return job, subject


def _held_out_fns(
    objective: RewardObjective, rows: Sequence[JudgedRow], ranks: Ranks, tokens_at_once: int
) -> tuple[Callable[[InterruptCheck], Sequence[Metric]] | None, HeldOutRows | None]:
    if not rows:
        return None, None
    microbatches = microbatches_of(rows, ranks, tokens_at_once)
    losses = partial(row_losses, objective, microbatches)
    evaluate = held_out_evaluator(objective, microbatches, ranks, HELD_OUT_METRICS)
    return evaluate, HeldOutRows(count=len(rows), losses=losses)


def _save_model(model: RewardModel, config: RewardConfig, run: Run, zero_examples: Sequence[Example]) -> None:
    """Write the model; the mean reward of ``zero_examples`` is 0 from now on."""
    # Only at the end, since the level moves with every step.
    if zero_examples:
        level = mean_reward(model, zero_examples, config.memory.tokens_at_once)
        normalisation = model.normalisation
        # (raw − offset − level · scale) / scale is the old reward less the level.
        offset = normalisation.offset + level * normalisation.scale
        model.normalisation = Normalisation(offset=offset, scale=normalisation.scale)
    write_reward_model(model, config, run.encoder, run.ranks)


def _with_pretraining_loss(
    settings: RewardSettings, rows: Sequence[JudgedRow], discriminate: bool
) -> RewardSettings:
    """In pre-training, comparisons are learnt answer by answer (binary), unless another loss was named."""
    compares = discriminate and isinstance(rows[0].judgement, PairLabel)
    return replace(settings, loss="binary") if compares else settings


def bootstrap_rows(rows: Sequence[JudgedRow], ensemble: EnsembleSettings, seed: int) -> Sequence[JudgedRow]:
    """The rows of one ensemble member: as many prompts as there are, sampled with replacement."""
    if ensemble.member is None or not ensemble.bootstrap:
        return rows
    rows_by_prompt: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        rows_by_prompt.setdefault(row.prompt_id, []).append(number)
    prompts = list(rows_by_prompt)
    rng = random.Random(f"{seed}/member {ensemble.member}")
    # Whole prompts are drawn: rows of one prompt are no independent evidence.
    drawn = rng.choices(prompts, k=len(prompts))
    return selected(rows, (number for prompt in drawn for number in rows_by_prompt[prompt]))


def _step_flops(
    body: int, language: LanguageTerm | None, microbatches: Sequence[RewardMicrobatch], *, frozen: bool
) -> float:
    tokens = sum(microbatch.tokens for microbatch in microbatches)
    head, projected = 0, 0
    if language is not None:
        rows = (row for microbatch in microbatches for row in microbatch.judged)
        head, projected = language.weight_VH.numel(), sum(map(preferred_tokens, rows))
    return training_flops(body, head, tokens=tokens, trained_tokens=projected, frozen=frozen)
