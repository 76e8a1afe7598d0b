"""Models that judge in words: plain likelihood on questions about answers, and a note of how they were asked.

One prompt makes several questions, for its rows and for both sides of each: they are held out together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from plaudit.batches.cut import Refused
from plaudit.batches.rows import Encoding, encode_rows
from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.recipes.rows import Prepared, families_of
from plaudit.recipes.supervised import Method, by_likelihood, run_supervised
from plaudit.recipes.worded_config import CriticConfig, RankerConfig, TextRewardConfig
from plaudit.records.control import Lesson
from plaudit.records.dicts import kind_of
from plaudit.records.feedback import Demonstration, Rating, Record
from plaudit.records.worded import Critique, criticised, first_or_second, good_or_bad
from plaudit.records.worded_form import Form
from plaudit.rewards.worded_facts import WORDED_FACTS, Wording
from plaudit.rewards.worded_model import TOO_LONG, longest, refuse_same_replies, unknown_lines, unknown_token
from plaudit.sources.files import raw_rows
from plaudit.training import durable
from plaudit.training.parallel import speaks
from plaudit.training.sinks.summary import Summary

WordedConfig = TextRewardConfig | RankerConfig | CriticConfig
"""The config of any of the three."""
Teach = Callable[[Sequence[Record], Form], Lesson]
"""From records to questions with their replies."""


def text_reward(config: TextRewardConfig) -> Summary | None:
    """A word for good or bad after each judged answer; the reward is log P(good) − log P(bad)."""
    return _run(config, lambda records, form: good_or_bad(records, config.words, form))


def ranker(config: RankerConfig) -> Summary | None:
    """The label of the better of two answers that are shown together."""
    return _run(config, lambda records, form: first_or_second(records, config.words, form, seed=config.seed))


def critic(config: CriticConfig) -> Summary | None:
    """A critique of each answer and then its points: rows also have ``critique`` and ``score``."""
    return _run(config, lambda records, form: criticised(_critiques(config, records), config.words, form))


def _run(config: WordedConfig, teach: Teach) -> Summary | None:
    wording = Wording(settings=config.words, quote=config.quote, max_length=config.max_length)
    recipe = partial(_prepared, wording, teach)
    summary = run_supervised(config, Method(name=wording.kind, recipe=recipe, objective=by_likelihood))
    model = config.out / "model"
    # A run that was killed between its last word and this one is mended when it is started again.
    if speaks() and not (model / WORDED_FACTS).exists():
        durable.write_json(model / WORDED_FACTS, wording.facts())
    return summary


def _prepared(
    wording: Wording, teach: Teach, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> Prepared[Example]:
    """The lesson as tokens; a question that is too long is refused, for half of it asks something else."""
    refuse_same_replies(encoder, wording)
    lesson = teach(records, wording.form(encoder))
    left_out = (f"{count} answers left out: {reason}" for reason, count in lesson.reasons.items())
    encoding = encode_rows(lesson.demonstrations, encoder)
    return Prepared(
        encoding=_whole(encoding, max_tokens),
        notes=(*lesson.notes, *left_out, *_unknown(encoder, wording, encoding)),
        families=families_of(records, encoding),
    )


def _whole(encoding: Encoding[Example], max_tokens: int) -> Encoding[Example]:
    fitting = tuple(example for example in encoding.examples if longest(example) <= max_tokens)
    reason = TOO_LONG.format(most=max_tokens)
    refused = [
        Refused(origin=example.origin, reason=reason)
        for example in encoding.examples
        if longest(example) > max_tokens
    ]
    return replace(encoding, examples=fitting, refused=(*encoding.refused, *refused))


def _unknown(encoder: Encoder, wording: Wording, encoding: Encoding[Example]) -> Iterator[str]:
    """How much of what is asked the tokenizer does not know."""
    unknown = unknown_token(encoder)
    tokens = [token for example in encoding.examples for token in example.prompt]
    count = sum(token == unknown for token in tokens)
    if not count:
        return
    lines = ", ".join(map(repr, unknown_lines(encoder, wording)))
    own = f"; the wording itself has some in {lines}" if lines else ""
    yield f"{count / len(tokens):.1%} of the questions' tokens are unknown to the tokenizer{own}"


def _critiques(config: CriticConfig, records: Sequence[Record]) -> Iterator[Critique]:
    """Each answer with the critique and the score that its row has beside what every reader reads."""
    said = _beside(config, records)
    for record in records:
        if not isinstance(record, Demonstration | Rating):
            raise UserError(
                f"{record.origin}: a critic learns from rows of one answer with a critique and a score, and "
                f"this row is a {kind_of(record)}"
            )
        row = said.get(record.origin, {})
        critique = row.get("critique")
        yield Critique(
            prompt=record.prompt,
            completion=record.completion,
            critique=critique if isinstance(critique, str) else None,
            points=record.score if isinstance(record, Rating) else _number(row.get("score")),
            origin=record.origin,
        )


def _beside(config: CriticConfig, records: Sequence[Record]) -> Mapping[str, Mapping[str, object]]:
    """The rows of the file that the records come from, by their origin."""
    files = [config.data, *([] if config.held_out_share is not None else [Path(config.held_out)])]
    if len({path.name for path in files}) < len(files):
        raise UserError(f"{files[1]}: has the same name as the data, so origins do not tell them apart")
    wanted = {record.origin for record in records}
    found: dict[str, Mapping[str, object]] = {}
    for path in files:
        for raw in raw_rows(path, split=config.rows.split):
            row = raw.value
            if isinstance(row, Mapping):
                origin = str(row.get("origin") or raw.origin)
                found |= {origin: row} if origin in wanted else {}
    return found


def _number(value: object) -> float:
    """A score, in a table perhaps as a text; NaN for anything else."""
    try:
        return math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        return math.nan
