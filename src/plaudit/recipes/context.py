"""Context distillation: answer as if a context had been read, without reading it.

Askell et al. 2021, arXiv:2112.00861, section 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.models.policy import Policy
from plaudit.recipes.config import ContextConfig
from plaudit.recipes.rows import Prepared, Rows
from plaudit.recipes.sft import demonstrations
from plaudit.recipes.supervised import Method, run_supervised
from plaudit.records.feedback import Record
from plaudit.training.distil import distillation, divergence_named, frozen, rows_in_context
from plaudit.training.sinks.summary import Summary
from plaudit.training.supervised import Arithmetic, Objective


def context(config: ContextConfig) -> Summary | None:
    """Σ KL(π₀(· | context, x) ‖ π(· | x)) over the answers; the teacher is the starting model."""
    try:
        words = config.context.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{config.context}: the context cannot be read: {error}") from error
    method = Method(
        name="context",
        recipe=partial(with_and_without, words),
        objective=partial(from_oneself, config.divergence),
        divergence=True,
        inputs=(config.context,),
    )
    return run_supervised(config, method)


def with_and_without(
    words: str, records: Sequence[Record], encoder: Encoder, max_tokens: int
) -> Prepared[Example]:
    """Each row as the student reads it, and the prompt that the teacher reads."""
    rows = rows_in_context(demonstrations(records, "context"), encoder, words, max_tokens)
    return Prepared(encoding=rows.encoding, teacher_prompts=rows.teacher_prompts)


def from_oneself(divergence: str, policy: Policy, rows: Rows[Example], products: Arithmetic) -> Objective:
    """The distance from a frozen copy of the starting model that reads the context."""
    return distillation(policy, frozen(policy), products, divergence_named(divergence), rows.teacher_prompts)
