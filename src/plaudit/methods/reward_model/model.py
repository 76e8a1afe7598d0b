"""From a config to a reward model ready for training, its fast path verified; from there to its folder.

A generative reward model learns by SFT on questions about answers, and its wording is saved beside the model.
One prompt makes several questions, for its rows and for both sides of each: they are held out together.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from plaudit.data.files import raw_rows
from plaudit.data.generative_judging import (
    Critique,
    JudgePromptFormat,
    critic_rows,
    generative_reward_rows,
    pairwise_ranker_rows,
)
from plaudit.data.read import read_records
from plaudit.data.records import Demonstration, Rating, Record, record_kind
from plaudit.data.transforms import DemonstrationSet
from plaudit.engine.distributed import Ranks, is_first_process, unsharded
from plaudit.engine.sinks.base import Summary
from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.files.data_sets import sources_of
from plaudit.methods import models
from plaudit.methods.data import EncodedData, prompt_families
from plaudit.methods.reward_model.config import CriticConfig, RankerConfig, RewardConfig, TextRewardConfig
from plaudit.methods.supervised import run
from plaudit.models.adapters import numbers_in_four_bits, save_adapter, with_lora
from plaudit.models.load import Precision, is_reward_folder
from plaudit.models.reward_model import (
    FreshHead,
    Normalisation,
    RewardModel,
    load_reward_model,
    new_reward_model,
    save_reward_model,
)
from plaudit.models.verify import choose_layout, share_tokens
from plaudit.rewards.learned.batching import longest_length
from plaudit.rewards.llm import generative
from plaudit.tokens.batch import Example, batch_of
from plaudit.tokens.encode import EncodedRows, Encoder, RefusedRow, encode_rows
from plaudit.tokens.microbatch import micro_batches_in_order
from plaudit.tokens.preferences import JudgedRow, RatingLabel


def prepare_reward_model(
    config: RewardConfig, encoder: Encoder, precision: Precision, ranks: Ranks
) -> tuple[RewardModel, list[str]]:
    """The starting reward model with its head, adapters and verified layout; sharded where it can be."""
    device = models.loading_device(config, ranks)
    divided = _by_parts(config, encoder, precision, ranks) if config.shard else None
    if divided is None:
        model, notes = starting_reward_model(config, encoder, precision.weights, device)
        model = _with_adapters(model, config, ranks.device)
    else:
        model, notes = divided, _head_notes(divided, config)
    models.settle_layers(model, config)
    with unsharded(model):
        layout, note = choose_layout(model, config.memory.layout)
        model.use_layout(layout)
        notes += [*models.four_bit_notes(model), *([] if note is None else [note])]
        notes += models.narrow_as_configured(model, config, precision)
        share_tokens(model, ranks.sequence)
    return model.train(), notes


def _by_parts(
    config: RewardConfig, encoder: Encoder, precision: Precision, ranks: Ranks
) -> RewardModel | None:
    from plaudit.methods.parts import read_reward_by_parts

    return read_reward_by_parts(
        config.model,
        _fresh_head(config),
        ranks,
        encoder=encoder,
        dtype=precision.weights,
        compute=precision.products if precision.mixed else None,
        adapted=partial(with_lora, settings=config.lora) if config.lora.rank else None,
    )


def starting_reward_model(
    config: RewardConfig, encoder: Encoder, dtype: torch.dtype, device: torch.device
) -> tuple[RewardModel, list[str]]:
    """A language model's layers with a new head, or a reward model's own head where the folder has one."""
    head = _fresh_head(config)
    if is_reward_folder(config.model):
        model = load_reward_model(config.model, encoder=encoder, dtype=dtype, device=device)
    else:
        model = new_reward_model(config.model, head, encoder=encoder, dtype=dtype, device=device)
    return model, _head_notes(model, config)


def _fresh_head(config: RewardConfig) -> FreshHead:
    """The head of a reward model that begins as a language model; refused where the folder has its own."""
    for name in ("head_std", "layer"):
        if is_reward_folder(config.model) and getattr(config.reward, name) is not None:
            option = f"--reward.{name.replace('_', '-')}"
            raise UserError(f"{config.model}: this reward model has its head already: leave out {option}")
    pooling = "last" if config.reward.pooling == "auto" else config.reward.pooling
    # 7919, a prime: members of two runs with neighbouring seeds still begin with other heads.
    seed = config.seed + 7919 * (config.ensemble.member or 0)
    return FreshHead(seed=seed, std=config.reward.head_std, pooling=pooling, layer=config.reward.layer)


def _head_notes(model: RewardModel, config: RewardConfig) -> list[str]:
    if config.reward.pooling != "auto":
        model.pooling = config.reward.pooling
    model.backbone.plain_attention = config.memory.attention or model.backbone.plain_attention
    if is_reward_folder(config.model):
        return [f"{config.model} is a reward model already: it goes on with its own head"]
    layers = model.base.config.get_text_config().num_hidden_layers
    cut = f"read after layer {layers}: those above it are cut off"
    return [] if config.reward.layer is None else [cut]


def _with_adapters(model: RewardModel, config: RewardConfig, device: torch.device) -> RewardModel:
    return model.with_adapters(config.lora, device) if config.lora.rank else model


def normalisation_for_ratings(rows: Sequence[JudgedRow]) -> Normalisation:
    """Makes head outputs of mean 0 and deviation 1 ratings: reward = raw · deviation + mean."""
    scores = [row.judgement.score for row in rows if isinstance(row.judgement, RatingLabel)]
    # Not 0: ratings that are all one number were refused when the loss was chosen.
    mean, deviation = statistics.fmean(scores), statistics.pstdev(scores)
    # (raw + mean/σ) / (1/σ) = raw · σ + mean.
    return Normalisation(offset=-mean / deviation, scale=1 / deviation)


def normalisation_examples(config: RewardConfig, encoder: Encoder) -> tuple[tuple[Example, ...], list[str]]:
    """The demonstrations whose mean reward shall be 0, if any, and notes for the user."""
    path = config.reward.normalise
    if path is None:
        return (), []
    reading = read_records(path, threshold=config.rows.threshold)
    encoding = encode_rows(
        run.require_demonstrations(reading.records, "reward.normalise"), encoder, config.max_length
    )
    left_out = [
        *(problem.message for problem in reading.problems),
        *(refused.reason for refused in encoding.refused),
    ]
    if not encoding.examples:
        raise UserError(f"{path}: no demonstration can be used ({'; '.join(left_out[:1]) or 'it has none'})")
    note = f"{path.name}: {len(encoding.examples)} demonstrations shall score 0 on average"
    return tuple(encoding.examples), [
        f"{note}; {len(left_out)} cannot be used ({left_out[0]} …)" if left_out else note
    ]


def mean_reward(model: RewardModel, examples: Sequence[Example], tokens_at_once: int) -> float:
    """The mean reward of all completions; with sharded weights every rank must call it."""
    rewards: list[float] = []
    # By length, so that a micro-batch holds completions of like length and little padding.
    ordered = sorted(examples, key=lambda example: example.tokens)
    with torch.no_grad():
        for microbatch in micro_batches_in_order(ordered, tokens_at_once):
            rewards += model.rewards(batch_of(microbatch).to(model.device)).tolist()
    return statistics.fmean(rewards)


def write_reward_model(model: RewardModel, config: RewardConfig, encoder: Encoder, ranks: Ranks) -> None:
    """``model/`` (and ``adapter/`` for LoRA) in the run folder; every rank must come."""
    dtype, cpu = next(model.parameters()).dtype, torch.device("cpu")

    def fresh() -> RewardModel:
        return _with_adapters(starting_reward_model(config, encoder, dtype, cpu)[0], config, cpu)

    whole = models.gathered_model(model, fresh, ranks)
    if whole is None:
        return
    # The normalisation is no parameter, so it is not among the weights that were gathered.
    whole.normalisation, model = model.normalisation, whole
    # Adapters first: merged into the weights they could not be told from them any more.
    if config.lora.rank:
        with atomic.atomic_folder(config.out / "adapter") as partial:
            save_adapter(model.model, partial)
        if models.base_is_rounded(model):
            model = _on_its_own_base(model, config, encoder)
        model = model.merged()
    with atomic.atomic_folder(config.out / "model") as partial:
        save_reward_model(model, partial, template_of=config.model, encoder=encoder)


def _on_its_own_base(model: RewardModel, config: RewardConfig, encoder: Encoder) -> RewardModel:
    """The adapter that was just saved, on the model of the folder, which nothing has rounded."""
    dtype = torch.promote_types(model.base.dtype, torch.float32)
    whole, _ = starting_reward_model(config, encoder, dtype, torch.device("cpu"))
    whole.normalisation = model.normalisation
    return whole.with_adapter_of(config.out / "adapter")


def body_size(model: RewardModel) -> int:
    # Embeddings are looked up and not multiplied with, so they cost no operations.
    embedding_ids = {id(p) for p in model.base.get_input_embeddings().parameters()}
    wide = sum(p.numel() for p in model.parameters() if p.ndim >= 2 and id(p) not in embedding_ids)
    return wide + numbers_in_four_bits(model)


GenerativeConfig = TextRewardConfig | RankerConfig | CriticConfig
MakeDemonstrations = Callable[[Sequence[Record], JudgePromptFormat], DemonstrationSet]
"""From records to demonstrations: questions about answers with the replies that the model shall learn."""


def text_reward(config: TextRewardConfig) -> Summary | None:
    """A word for good or bad after each judged answer; the reward is log P(good) − log P(bad)."""
    return _train(config, lambda records, form: generative_reward_rows(records, config.words, form))


def ranker(config: RankerConfig) -> Summary | None:
    """The label of the better of two answers that are shown together."""
    return _train(
        config, lambda records, form: pairwise_ranker_rows(records, config.words, form, seed=config.seed)
    )


def critic(config: CriticConfig) -> Summary | None:
    """A critique of each answer and then its points: rows also have ``critique`` and ``score``."""
    return _train(config, lambda records, form: critic_rows(_critiques(config, records), config.words, form))


def _train(config: GenerativeConfig, make_demonstrations: MakeDemonstrations) -> Summary | None:
    wording = generative.LanguageJudgeSpec(
        settings=config.words, quote=config.quote, max_length=config.max_length
    )
    encode = partial(_encode_questions, wording, make_demonstrations)
    summary = run.run_supervised(
        config, run.SupervisedMethod(name=wording.kind, encode=encode, make_objective=run.maximum_likelihood)
    )
    model = config.out / "model"
    # A run that was killed between its last word and this one is mended when it is started again.
    if is_first_process() and not (model / generative.LANGUAGE_JUDGE_FILE).exists():
        atomic.write_json(model / generative.LANGUAGE_JUDGE_FILE, wording.to_json())
    return summary


def _encode_questions(
    wording: generative.LanguageJudgeSpec,
    make_demonstrations: MakeDemonstrations,
    records: Sequence[Record],
    encoder: Encoder,
    max_tokens: int,
) -> EncodedData[Example]:
    """The questions as tokens; one that is too long is refused, since half of it would ask something else."""
    generative.refuse_same_replies(encoder, wording)
    lesson = make_demonstrations(records, wording.form(encoder))
    left_out = (f"{count} answers left out: {reason}" for reason, count in lesson.reason_counts.items())
    encoding = encode_rows(lesson.demonstrations, encoder)
    usable = tuple(example for example in encoding.examples if longest_length(example) <= max_tokens)
    reason = generative.QUESTION_TOO_LONG.format(most=max_tokens)
    refused = [
        RefusedRow(origin=example.origin, reason=reason)
        for example in encoding.examples
        if longest_length(example) > max_tokens
    ]
    return EncodedData(
        encoding=replace(encoding, examples=usable, refused=(*encoding.refused, *refused)),
        notes=(*lesson.notes, *left_out, *_unknown_token_notes(encoder, wording, encoding)),
        families=prompt_families(records, encoding),
    )


def _unknown_token_notes(
    encoder: Encoder, wording: generative.LanguageJudgeSpec, encoding: EncodedRows[Example]
) -> Iterator[str]:
    unknown = generative.unknown_token(encoder)
    tokens = [token for example in encoding.examples for token in example.prompt]
    count = sum(token == unknown for token in tokens)
    if not count:
        return
    lines = ", ".join(map(repr, generative.unknown_lines(encoder, wording)))
    detail = f"; the wording itself has some in {lines}" if lines else ""
    yield f"{count / len(tokens):.1%} of the questions' tokens are unknown to the tokenizer{detail}"


def _critiques(config: CriticConfig, records: Sequence[Record]) -> Iterator[Critique]:
    """Each answer with the critique and the score of its row, which no common reader reads.

    What a person says of one answer alone is a critique too; of several, it is none of any.
    """
    row_by_origin = _raw_rows_by_origin(config, records)
    for record in records:
        if not isinstance(record, Demonstration | Rating):
            raise UserError(
                f"{record.origin}: a critic learns from rows of one answer with a critique and a score, and "
                f"this row is a {record_kind(record)}"
            )
        row = row_by_origin.get(record.origin, {})
        critique = row.get("critique") if record.reason is None or record.places else record.reason
        yield Critique(
            prompt=record.prompt,
            completion=record.completion,
            critique=critique if isinstance(critique, str) else None,
            points=record.score if isinstance(record, Rating) else _parse_score(row.get("score")),
            origin=record.origin,
        )


def _raw_rows_by_origin(
    config: CriticConfig, records: Sequence[Record]
) -> Mapping[str, Mapping[str, object]]:
    data = [Path(source) for source, _ in sources_of(config.data)]
    files = [*data, *([] if config.held_out_share is not None else [Path(config.held_out)])]
    if len({path.name for path in files}) < len(files):
        raise UserError(f"{files[-1]}: has the same name as other rows, so origins do not tell them apart")
    wanted = {record.origin for record in records}
    row_by_origin: dict[str, Mapping[str, object]] = {}
    for path in files:
        for raw in raw_rows(path, split=config.rows.split):
            row = raw.value
            if isinstance(row, Mapping):
                origin = str(row.get("origin") or raw.origin)
                row_by_origin |= {origin: row} if origin in wanted else {}
    return row_by_origin


def _parse_score(value: object) -> float:
    """A score, in a table perhaps as a text; NaN for anything else."""
    try:
        return math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        return math.nan
