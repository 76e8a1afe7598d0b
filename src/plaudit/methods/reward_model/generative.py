"""Generative reward models: SFT on questions about answers, with the wording saved beside the model.

One prompt makes several questions, for its rows and for both sides of each: they are held out together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from plaudit.data.files import raw_rows
from plaudit.data.generative_judging import (
    Critique,
    JudgePromptFormat,
    critic_rows,
    generative_reward_rows,
    pairwise_ranker_rows,
)
from plaudit.data.records import Demonstration, Rating, Record, record_kind
from plaudit.data.transforms import DemonstrationSet
from plaudit.engine.distributed import is_first_process
from plaudit.engine.sinks.base import Summary
from plaudit.errors import UserError
from plaudit.files import atomic
from plaudit.methods.data import EncodedData, prompt_families
from plaudit.methods.reward_model.config import CriticConfig, RankerConfig, TextRewardConfig
from plaudit.methods.supervised.run import SupervisedMethod, maximum_likelihood, run_supervised
from plaudit.rewards.llm.generative import (
    LANGUAGE_JUDGE_FILE,
    QUESTION_TOO_LONG,
    LanguageJudgeSpec,
    longest_length,
    refuse_same_replies,
    unknown_lines,
    unknown_token,
)
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import EncodedRows, Encoder, RefusedRow, encode_rows

GenerativeConfig = TextRewardConfig | RankerConfig | CriticConfig
"""The config of any of the three generative rewards."""
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
    wording = LanguageJudgeSpec(settings=config.words, quote=config.quote, max_length=config.max_length)
    encode = partial(_encode_questions, wording, make_demonstrations)
    summary = run_supervised(
        config, SupervisedMethod(name=wording.kind, encode=encode, make_objective=maximum_likelihood)
    )
    model = config.out / "model"
    # A run that was killed between its last word and this one is mended when it is started again.
    if is_first_process() and not (model / LANGUAGE_JUDGE_FILE).exists():
        atomic.write_json(model / LANGUAGE_JUDGE_FILE, wording.to_json())
    return summary


def _encode_questions(
    wording: LanguageJudgeSpec,
    make_demonstrations: MakeDemonstrations,
    records: Sequence[Record],
    encoder: Encoder,
    max_tokens: int,
) -> EncodedData[Example]:
    """The questions as tokens; one that is too long is refused, since half of it would ask something else."""
    refuse_same_replies(encoder, wording)
    lesson = make_demonstrations(records, wording.form(encoder))
    left_out = (f"{count} answers left out: {reason}" for reason, count in lesson.reason_counts.items())
    encoding = encode_rows(lesson.demonstrations, encoder)
    return EncodedData(
        encoding=_refuse_too_long(encoding, max_tokens),
        notes=(*lesson.notes, *left_out, *_unknown_token_notes(encoder, wording, encoding)),
        families=prompt_families(records, encoding),
    )


def _refuse_too_long(encoding: EncodedRows[Example], max_tokens: int) -> EncodedRows[Example]:
    usable = tuple(example for example in encoding.examples if longest_length(example) <= max_tokens)
    reason = QUESTION_TOO_LONG.format(most=max_tokens)
    refused = [
        RefusedRow(origin=example.origin, reason=reason)
        for example in encoding.examples
        if longest_length(example) > max_tokens
    ]
    return replace(encoding, examples=usable, refused=(*encoding.refused, *refused))


def _unknown_token_notes(
    encoder: Encoder, wording: LanguageJudgeSpec, encoding: EncodedRows[Example]
) -> Iterator[str]:
    """A note on the share of the questions' tokens that the tokenizer does not have."""
    unknown = unknown_token(encoder)
    tokens = [token for example in encoding.examples for token in example.prompt]
    count = sum(token == unknown for token in tokens)
    if not count:
        return
    lines = ", ".join(map(repr, unknown_lines(encoder, wording)))
    detail = f"; the wording itself has some in {lines}" if lines else ""
    yield f"{count / len(tokens):.1%} of the questions' tokens are unknown to the tokenizer{detail}"


def _critiques(config: CriticConfig, records: Sequence[Record]) -> Iterator[Critique]:
    """Each answer with the critique and the score of its row, which no common reader reads."""
    row_by_origin = _raw_rows_by_origin(config, records)
    for record in records:
        if not isinstance(record, Demonstration | Rating):
            raise UserError(
                f"{record.origin}: a critic learns from rows of one answer with a critique and a score, and "
                f"this row is a {record_kind(record)}"
            )
        row = row_by_origin.get(record.origin, {})
        critique = row.get("critique")
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
    """The raw rows of the files that the records come from, by their origin."""
    files = [config.data, *([] if config.held_out_share is not None else [Path(config.held_out)])]
    if len({path.name for path in files}) < len(files):
        raise UserError(f"{files[1]}: has the same name as the data, so origins do not tell them apart")
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
