"""A preflight check (what it proves, why that matters, how to fix it), and the runner of all checks.

Checks run one by one, and the model's state is restored after each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from plaudit.errors import UserError
from plaudit.preflight.subject import PreflightSubject


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of one check: passed, failed or not applicable, with its evidence.

    Example: ``Result(holds=False, details="rows.jsonl:3 begins with <s><s>")``
    """

    holds: bool | None
    """None where there is nothing to check: no reward, no adapters."""
    details: str
    """The evidence in one line: the figures, the offending row, or why there was nothing to check."""
    rendered_rows: str | None = None
    """Rows as the model reads them, coloured where there is a terminal: printed below the table for the
    user.
    """


def passed(details: str, rendered_rows: str | None = None) -> Result:
    """A result that holds, with its evidence and, where given, rows to show below the table."""
    return Result(holds=True, details=details, rendered_rows=rendered_rows)


def failed(details: str, rendered_rows: str | None = None) -> Result:
    """A result that does not hold, with its evidence and, where given, rows to show below the table."""
    return Result(holds=False, details=details, rendered_rows=rendered_rows)


def not_applicable(reason: str) -> Result:
    """A result of a check that had nothing to examine, with the reason."""
    return Result(holds=None, details=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One property of a run that is easily wrong without any error message.

    Example: ``CHECKS["one-bos"].look(subject).holds``
    """

    name: str
    """What the user calls it: in tables, in ``--allow``, on its page."""
    proves: str
    """What holds when it passes, as a sentence."""
    matters: str
    """What happens to a run where it does not, and where that has happened."""
    mend: str
    """How the user fixes it."""
    run: Callable[[PreflightSubject], Result]
    """Runs the check on a subject; model, gradients and random state are afterwards what they were before."""
    at_start: bool = False
    """Whether a run makes this check before its first step as well: it is cheap and needs no second copy of
    weights.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A check together with its result.

    Example: ``Finding(check=CHECKS["one-bos"], result=passed("8 rows"), seconds=0.01, allowed=False)``
    """

    check: Check
    """The check that was run."""
    result: Result
    """What it found."""
    seconds: float
    """How long it took."""
    allowed: bool
    """Whether the user lets the run go on although this check fails (``--allow``)."""

    @property
    def verdict(self) -> str:
        """The verdict in a word: pass, FAIL, allowed or not applicable."""
        if self.result.holds is None:
            return "not applicable"
        return "pass" if self.result.holds else "allowed" if self.allowed else "FAIL"

    @property
    def blocks_run(self) -> bool:
        """Whether the run must not start because of it: it fails and is not allowed."""
        return self.result.holds is False and not self.allowed


def run_checks(
    subject: PreflightSubject, checks: Iterable[Check], allow: Sequence[str] = ()
) -> Iterator[Finding]:
    """Run each check in turn; one that raises a user's error fails with that error's message."""
    for check in checks:
        began = time.perf_counter()
        with preserve_state(subject):
            try:
                result = check.run(subject)
            except UserError as error:
                result = failed(str(error))
        yield Finding(
            check=check,
            result=result,
            seconds=time.perf_counter() - began,
            allowed=check.name in allow,
        )


@contextmanager
def preserve_state(subject: PreflightSubject) -> Iterator[None]:
    """Restores random state, train and eval modes and gradients on exit, so that a checked run is the same
    run.
    """
    trained_module = None if subject.job is None else subject.job.module
    modules = [one for one in (subject.policy, subject.scorer, trained_module) if one is not None]
    modes = {inner: inner.training for module in modules for inner in module.modules()}
    with torch.random.fork_rng(enabled=True):
        try:
            yield
        finally:
            for inner, training in modes.items():
                inner.training = training
            for module in modules:
                module.zero_grad(set_to_none=True)


def refusal_message(findings: Sequence[Finding]) -> str | None:
    """The error message of a run that does not start because checks fail; None where none of them blocks
    it.
    """
    blocking = [one for one in findings if one.blocks_run]
    if not blocking:
        return None
    lines = [f"  {one.check.name}: {one.result.details}\n    {one.check.mend}" for one in blocking]
    names = " ".join(one.check.name for one in blocking)
    return (
        f"{len(blocking)} of {len(findings)} checks fail, so the run does not start:\n"
        + "\n".join(lines)
        + f"\nplaudit check says more of each; to train all the same: --allow {names}"
    )


@contextmanager
def preserve_weights(module: nn.Module) -> Iterator[Mapping[str, Tensor]]:
    """Yields a copy of weights and buffers and restores them on exit: for checks that take a step."""
    original = {name: value.detach().clone() for name, value in module.state_dict().items()}
    try:
        yield original
    finally:
        module.load_state_dict(original)
