"""A run looked over: before its first step, or in place of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from plaudit.checks.check import Check
from plaudit.checks.checking import Finding, look_over, refusal
from plaudit.checks.report import as_dict
from plaudit.checks.subject import Lesson, Subject
from plaudit.checks.table import CHECKS
from plaudit.errors import UserError
from plaudit.recipes.config import RunConfig
from plaudit.recipes.learner import Kind, Learner, begin
from plaudit.training import durable
from plaudit.training.parallel import joined, speaks

LOOKED = "checks.json"
"""The file of a run folder with what was looked over before its first step."""


def checked(config: RunConfig, learner: Learner[Any]) -> tuple[str, ...]:
    """Look a run over that is about to begin, and say so; complain where a check fails that may not."""
    refuse_unknown(config.allow)
    if not config.check or learner.subject is None:
        return ()
    quick = [check for check in CHECKS.values() if check.at_start]
    findings = list(look_over(subject_of(config, learner), quick, config.allow))
    refused = refusal(findings)
    if refused is not None:
        raise UserError(refused)
    if speaks():
        durable.write_json(config.out / LOOKED, as_dict(findings))
    held = sum(one.result.holds is True for one in findings)
    allowed = (f"check {one.check.name} fails and is allowed to" for one in findings if one.word == "allowed")
    return (f"{held} checks passed before the first step", *allowed)


def look(config: RunConfig, kind: Kind[Any], checks: Iterable[Check]) -> Iterator[Finding]:
    """Make a run ready as it would be, and look it over; nothing is written, nothing is learnt."""
    refuse_unknown(config.allow)
    with joined(config.device) as ranks:
        learner = kind.prepare(begin(config, ranks))
        yield from look_over(subject_of(config, learner), checks, config.allow)


def subject_of(config: RunConfig, learner: Learner[Any]) -> Subject:
    """What is looked at, with what a step of the run does."""
    assert learner.subject is not None, "a run that knows what it is made of"
    lesson = Lesson(
        module=learner.module,
        objective=learner.objective,
        pieces=learner.pieces,
        alone=learner.alone,
        rows=learner.rows,
        rate=config.learning_rate,
        optimizer=config.optimizer,
        draws=learner.subject.sampler is not None,
        companions=learner.companions,
    )
    return replace(learner.subject, lesson=lesson)


def refuse_unknown(names: Iterable[str]) -> None:
    """Complain about checks that there are not."""
    for name in names:
        if name not in CHECKS:
            raise UserError(f"--allow {name}: there is no such check; they are {', '.join(CHECKS)}")
