"""Reward models: from what people said of answers to a model that says it of any answer.

Comparisons and rankings: Ouyang et al. 2022, arXiv:2203.02155. Steps: Lightman et al. 2023,
arXiv:2305.20050. Pre-training: Askell et al. 2021, arXiv:2112.00861.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from plaudit.batches.judged import Compared, JudgedRow
from plaudit.checks.subject import Subject
from plaudit.errors import UserError
from plaudit.models.files import is_reward_folder
from plaudit.models.reward import Normalisation, RewardModel
from plaudit.recipes.judged import judged_rows
from plaudit.recipes.learner import Kind, Learner, Start
from plaudit.recipes.placing import arithmetic, place
from plaudit.recipes.reward_config import (
    EnsembleSettings,
    LossName,
    PretrainingSettings,
    RewardConfig,
    RewardSettings,
)
from plaudit.recipes.reward_losses import chosen_loss, refuse_other_kind
from plaudit.recipes.rows import Rows, load_rows
from plaudit.recipes.run import claim, run
from plaudit.recipes.scored import scored
from plaudit.recipes.scorers import (
    body_size,
    demonstrated,
    mean_reward,
    on_the_scale_of,
    prepare_scorer,
    write_scorer,
)
from plaudit.rewards.combine import save_combination
from plaudit.rewards.manners import Combination
from plaudit.training.flops import training_flops
from plaudit.training.held_out import held_out
from plaudit.training.parallel import speaks
from plaudit.training.reward import HELD_OUT, RewardPiece, pieces_of, rows_of
from plaudit.training.sinks.summary import Summary
from plaudit.training.supervised import Arithmetic


def reward(config: RewardConfig) -> Summary | None:
    """Learn a reward; with several members, one after another, and what they say together in ``config.out``.

    The summary is that of the last run; None where every run was finished already.
    """
    _refuse_equal_members(config)
    if config.pretraining.data is not None:
        config = _pretrained(config)
    return _ensemble(config) if _is_choir(config) else _run(config)


def _pretrained(config: RewardConfig) -> RewardConfig:
    """The config of the main stage: it goes on with the model of the first one."""
    stage, rows = config.pretraining, config.pretraining.data
    assert rows is not None
    if is_reward_folder(config.model):
        raise UserError(f"{config.model}: a reward model needs no first stage; leave out --pretraining.data")
    first = replace(
        config,
        data=rows,
        out=config.out / "pretraining",
        format=None,
        held_out=config.held_out if config.held_out_share is not None else "0.05",
        epochs=stage.epochs,
        steps=None,
        learning_rate=stage.learning_rate or config.learning_rate,
        reward=_first_settings(config.reward, stage.loss),
        ensemble=EnsembleSettings(),
        pretraining=PretrainingSettings(),
    )
    main = replace(config, model=first.out / "model", pretraining=PretrainingSettings())
    if not _is_choir(config):
        claim(main)
    _run(first, discriminate=stage.loss == "auto")
    return main


def _is_choir(config: RewardConfig) -> bool:
    return config.ensemble.members > 1 and config.ensemble.member is None


def _first_settings(main: RewardSettings, loss: LossName) -> RewardSettings:
    """Only what holds for any rows: another loss reads other settings."""
    return RewardSettings(loss=loss, pooling=main.pooling, head_std=main.head_std, aspect=main.aspect)


def _refuse_equal_members(config: RewardConfig) -> None:
    """Members differ by their rows and by their new heads; without either they would be one model."""
    same_head = config.pretraining.data is not None or is_reward_folder(config.model)
    if config.ensemble.members > 1 and same_head and not config.ensemble.bootstrap:
        raise UserError(
            "ensemble: all members would go on with the same head and learn from the same rows, and so be "
            "equal: leave out --no-ensemble.bootstrap, or begin with a language model and no first stage"
        )


def _ensemble(config: RewardConfig) -> Summary | None:
    summary: Summary | None = None
    choir = config.ensemble
    folders = [config.out / "members" / str(member) for member in range(choir.members)]
    for member, out in enumerate(folders):
        own = replace(config, out=out, ensemble=replace(choir, member=member))
        summary = _run(own) or summary
    caution = choir.caution if choir.combine == "cautious" else None
    if speaks():
        save_combination(config.out, folders, Combination(how=choir.combine, k=caution))
    return summary


def _run(config: RewardConfig, *, discriminate: bool = False) -> Summary | None:
    return run(config, reward_kind(config, discriminate=discriminate))


def reward_kind(config: RewardConfig, *, discriminate: bool = False) -> Kind[RewardPiece]:
    """The run of one reward model, before it begins."""
    normalise = config.reward.normalise
    inputs = () if normalise is None else (normalise,)
    return Kind(name="reward", prepare=partial(_learner, config, discriminate), inputs=inputs)


def _learner(config: RewardConfig, discriminate: bool, start: Start) -> Learner[RewardPiece]:
    settings, ranks, room = config.reward, start.ranks, config.memory.tokens_at_once
    rows = load_rows(config, start.encoder, partial(judged_rows, settings), start.aside)
    chosen = chosen_loss(_named(settings, rows.train, discriminate), rows.train, config.rows)
    refuse_other_kind(rows.train, rows.held_out)
    to_zero, notes = demonstrated(config, start.encoder)
    model, more = prepare_scorer(config, start.encoder, start.numbers, ranks)
    if chosen.on_a_scale and not is_reward_folder(config.model):
        model.normalisation = on_the_scale_of(rows.train)
    notes += [*more, *place(model, config, ranks)]
    products = partial(arithmetic, start.numbers, ranks.device)
    objective = chosen.objective(model, products)
    train = drawn(rows.train, config.ensemble, config.seed)
    asked = rows.held_out or rows.train
    showing = ranks.first or config.shard

    def write() -> None:
        if to_zero:
            _set_level(model, mean_reward(model, to_zero, room, products))
        write_scorer(model, config, start.encoder, ranks)

    pieces = pieces_of(rows.held_out, ranks, room) if rows.held_out else ()
    return Learner(
        module=model,
        objective=objective,
        alone=rows_of,
        rows=len(train),
        pieces=lambda _, batch: pieces_of([train[row] for row in batch], ranks, room),
        work=partial(_work, body_size(model), frozen=config.lora.rank > 0),
        evaluate=held_out(objective, pieces, ranks, HELD_OUT) if pieces else None,
        measured=tuple(HELD_OUT[name] for name in chosen.measured),
        sample=scored(model, start.encoder, asked, config.sample, products) if showing else None,
        write=write,
        notes=(*rows.notes, chosen.sentence, *notes),
        subject=_subject(config, start, rows, model, products),
    )


def _set_level(model: RewardModel, level: float) -> None:
    """Answers of this reward have 0 from now on."""
    own = model.normalisation
    model.normalisation = Normalisation(offset=own.offset + level * own.scale, scale=own.scale)


def _subject(
    config: RewardConfig, start: Start, rows: Rows[JudgedRow], model: RewardModel, products: Arithmetic
) -> Subject:
    return Subject(
        encoder=start.encoder,
        records=rows.records,
        held_out=rows.held_out_records,
        trained=[row.example for row in rows.train],
        max_length=config.max_length,
        adapted=config.lora.rank > 0,
        products=products,
        scorer=model,
    )


def _named(settings: RewardSettings, rows: Sequence[JudgedRow], discriminate: bool) -> RewardSettings:
    """In the first stage comparisons are told apart answer by answer, unless another loss was named."""
    pairs = discriminate and isinstance(rows[0].said, Compared)
    return replace(settings, loss="binary") if pairs else settings


def drawn(rows: Sequence[JudgedRow], choir: EnsembleSettings, seed: int) -> Sequence[JudgedRow]:
    """The rows of one member: as many prompts as there are, drawn with replacement."""
    if choir.member is None or not choir.bootstrap:
        return rows
    own: dict[tuple[int, ...], list[JudgedRow]] = {}
    for row in rows:
        own.setdefault(row.prompt, []).append(row)
    prompts = list(own)
    chance = random.Random(f"{seed}/member {choir.member}")
    return [row for prompt in chance.choices(prompts, k=len(prompts)) for row in own[prompt]]


def _work(body: int, pieces: Sequence[RewardPiece], *, frozen: bool) -> float:
    tokens = sum(row.tokens for piece in pieces for row in piece.rows)
    return training_flops(body, 0, tokens=tokens, trained_tokens=0, frozen=frozen)
