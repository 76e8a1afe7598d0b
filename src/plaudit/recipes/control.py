"""Control tokens: learn good and bad answers alike, each behind a word for how good it is.

Words: Korbak et al. 2023, arXiv:2302.08582. Levels: Quark, Lu et al. 2022, arXiv:2205.13636.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.recipes.config import ControlConfig
from plaudit.recipes.preferred import from_lesson
from plaudit.recipes.rows import Prepared
from plaudit.recipes.supervised import Method, by_likelihood, run_supervised
from plaudit.records.control import ControlSettings, controlled
from plaudit.records.feedback import Record
from plaudit.training.distil import place_for
from plaudit.training.sinks.summary import Summary


def control(config: ControlConfig) -> Summary | None:
    """Maximum likelihood of every judged answer, each given its word; ask with the best."""
    recipe = partial(behind_words, config.control)
    return run_supervised(config, Method(name="control", recipe=recipe, objective=by_likelihood))


def behind_words(
    settings: ControlSettings, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> Prepared[Example]:
    """The judged answers with their words, placed where the chat template keeps them."""
    return from_lesson(controlled(records, settings, place_for(encoder)), records, encoder, max_tokens)
