"""Looks a subject over: each check for itself, everything left as it was."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from plaudit.checks.check import Check, Result, failed
from plaudit.checks.subject import Subject
from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A check and what it saw.

    Example: ``Finding(check=CHECKS["one-bos"], result=passed("8 rows"), seconds=0.01, allowed=False)``
    """

    check: Check
    """What was looked for."""
    result: Result
    """What was seen."""
    seconds: float
    """How long it took."""
    allowed: bool
    """Whether the user lets the run go on although it fails."""

    @property
    def word(self) -> str:
        """The verdict in a word."""
        if self.result.holds is None:
            return "not applicable"
        return "pass" if self.result.holds else "allowed" if self.allowed else "FAIL"

    @property
    def stops(self) -> bool:
        """Whether a run ends here."""
        return self.result.holds is False and not self.allowed


def look_over(subject: Subject, checks: Iterable[Check], allow: Sequence[str] = ()) -> Iterator[Finding]:
    """Each check in turn; one that meets a user's error fails with its words."""
    for check in checks:
        began = time.perf_counter()
        with as_it_was(subject):
            try:
                result = check.look(subject)
            except UserError as error:
                result = failed(str(error))
        yield Finding(
            check=check,
            result=result,
            seconds=time.perf_counter() - began,
            allowed=check.name in allow,
        )


@contextmanager
def as_it_was(subject: Subject) -> Iterator[None]:
    """Chance, modes and gradients afterwards as before: a run that was looked over goes the same way."""
    learns = None if subject.lesson is None else subject.lesson.module
    modules = [one for one in (subject.policy, subject.scorer, learns) if one is not None]
    modes = {inner: inner.training for module in modules for inner in module.modules()}
    with torch.random.fork_rng(enabled=True):
        try:
            yield
        finally:
            for inner, training in modes.items():
                inner.training = training
            for module in modules:
                module.zero_grad(set_to_none=True)


def refusal(findings: Sequence[Finding]) -> str | None:
    """What a run says that does not start; None where nothing stops it."""
    stopping = [one for one in findings if one.stops]
    if not stopping:
        return None
    lines = [f"  {one.check.name}: {one.result.saw}\n    {one.check.mend}" for one in stopping]
    names = " ".join(one.check.name for one in stopping)
    return (
        f"{len(stopping)} of {len(findings)} checks fail, so the run does not start:\n"
        + "\n".join(lines)
        + f"\nplaudit check says more of each; to train all the same: --allow {names}"
    )


@contextmanager
def weights_kept(module: nn.Module) -> Iterator[Mapping[str, Tensor]]:
    """Weights and buffers afterwards as before, as a copy of them: for checks that take a step."""
    kept = {name: value.detach().clone() for name, value in module.state_dict().items()}
    try:
        yield kept
    finally:
        module.load_state_dict(kept)
