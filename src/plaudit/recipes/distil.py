"""Distillation: learn from another model's whole distribution at every token of the answers.

Forward KL: Hinton et al. 2015, arXiv:1503.02531. Reverse: arXiv:2306.08543. JS: arXiv:2306.13649.
"""

from __future__ import annotations

from functools import partial

from plaudit.batches.tokenizer import load_tokenizer
from plaudit.batches.tokens import Example
from plaudit.models.policy import Policy
from plaudit.recipes.config import DistilConfig
from plaudit.recipes.policies import load_frozen
from plaudit.recipes.rows import Rows
from plaudit.recipes.sft import answers
from plaudit.recipes.supervised import Method, run_supervised
from plaudit.training.distil import distillation, divergence_named, refuse_other_tokenizer
from plaudit.training.sinks.summary import Summary
from plaudit.training.supervised import Arithmetic, Objective


def distil(config: DistilConfig) -> Summary | None:
    """Σ D(teacher, student) over the answers' tokens."""
    refuse_other_tokenizer(load_tokenizer(config.model), load_tokenizer(config.teacher))
    method = Method(
        name="distil",
        recipe=answers,
        objective=partial(from_teacher, config),
        divergence=True,
        inputs=(config.teacher,),
    )
    return run_supervised(config, method)


def from_teacher(
    config: DistilConfig, policy: Policy, rows: Rows[Example], products: Arithmetic
) -> Objective:
    """The distance from the teacher, which is asked what the student is asked."""
    del rows
    teacher = load_frozen(config.teacher, policy)
    return distillation(policy, teacher, products, divergence_named(config.divergence))
