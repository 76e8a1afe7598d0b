"""A preflight check (what it proves, why that matters, how to fix it), its subject, and the runner of all.

The subject is the user's own tokenizer, rows, model, reward and sampler, those that there are. Checks run one
by one, and the model's state is restored after each.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch
import yaml

from plaudit.config import did_you_mean
from plaudit.data.records import Prompt, Record, Steps, Text
from plaudit.engine.loop import MANY_ROWS, TrainingJob
from plaudit.engine.step import ObjectiveResult
from plaudit.errors import UserError
from plaudit.models.backbone import modes_restored
from plaudit.models.policy import Policy, Reference
from plaudit.models.reward_model import RewardModel
from plaudit.rewards.base import Reward
from plaudit.rollouts.sampler import Sampler, SamplingSettings, WeightsVersion
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import AnsweredRecord, Encoder, encode_record_with_notes
from plaudit.tokens.microbatch import Microbatch

SAMPLE_SIZE = 8
"""Rows that are looked at where each costs a pass through the model."""
MAX_ROWS = 2**17
"""Of `MANY_ROWS` and more checks look at so many at most, from all over the file."""


@runtime_checkable
class RolloutTrial(Protocol):
    """What a run that draws its answers offers to the checks: its own micro-batches can be had once only."""

    def small_round(self) -> tuple[tuple[Microbatch, ...], str] | None:
        """A round of a few short answers, and what it is; None where nothing could be learnt from it."""
        ...

    def likelihood(
        self, examples: Sequence[Example]
    ) -> tuple[Callable[[Any], ObjectiveResult], Sequence[Microbatch]]:
        """Likelihood of given text under the policy: what is minimised, and the micro-batches."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreflightSubject:
    """Everything that a check may look at; what a run does not have is None or empty."""

    encoder: Encoder
    records: Sequence[Record]
    """The rows as they were read: all that could be, those held out by a share among them."""
    max_length: int
    held_out: Sequence[Record] = ()
    trained: Sequence[Example] = ()
    """What the run learns from, as its own tokens: too long ones cut, held-out ones left out; none where
    answers are drawn."""
    policy: Policy | None = None
    adapted: bool = False
    """Whether only adapters beside its weights learn."""
    reference: Reference | None = None
    same_reference: bool = False
    """Whether that is the very model that the run begins with."""
    sampler: Sampler | None = None
    """What draws answers, with the policy's weights of the moment when it is asked."""
    weights: WeightsVersion = field(default_factory=WeightsVersion)
    """Counts how often the policy's weights have moved: whoever moves them for a check says so."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    reward: Reward | None = None
    scorer: RewardModel | None = None
    job: TrainingJob[Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Every setting of the run; those of a group in a mapping of their own."""
    memory: "Result | None" = None
    """Whether the run fits into the memory of its GPU; None where nobody estimated it."""
    trial: RolloutTrial | None = None
    """What is tried in place of the run's own micro-batches where these are made of fresh answers."""

    @property
    def answered(self) -> list[AnsweredRecord]:
        """The first few rows that hold answers."""
        return list(islice((row for row in self.records if not isinstance(row, Prompt | Steps)), SAMPLE_SIZE))

    @property
    def prompts(self) -> list[Text]:
        """The prompts of the first few rows, no two alike."""
        return list(islice(dict.fromkeys(row.prompt for row in self.records if row.prompt), SAMPLE_SIZE))

    def example(self, record: AnsweredRecord) -> Example:
        return encode_record_with_notes(record, self.encoder).example


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    holds: bool | None
    """None where there is nothing to check: no reward, no adapters."""
    details: str
    """The evidence in one line: the figures, the offending row, or why there was nothing to check. Settings
    that would help stand below it, a line for each."""
    rendered_rows: str | None = None
    """Rows as the model reads them, coloured where there is a terminal: printed below the table."""
    doubtful: bool = False
    """Whether it holds, and yet is worth a look: it is told, and stops nothing."""


def passed(details: str, rendered_rows: str | None = None) -> Result:
    """A result that holds, with its evidence and, where given, rows to show below the table."""
    return Result(holds=True, details=details, rendered_rows=rendered_rows)


def warned(details: str) -> Result:
    return Result(holds=True, details=details, doubtful=True)


def failed(details: str, rendered_rows: str | None = None) -> Result:
    return Result(holds=False, details=details, rendered_rows=rendered_rows)


def not_applicable(reason: str) -> Result:
    return Result(holds=None, details=reason)


class NotApplicableError(Exception):
    """Ends a check that has nothing to look at, from however deep within it; its words are the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One property of a run that is easily wrong without any error message.

    Example: ``CHECKS["one-bos"].run(subject).holds``
    """

    name: str
    """What the user calls it: in tables, in ``--allow``, on its page, and in checks.yaml."""
    run: Callable[[PreflightSubject], Result]
    """Runs the check on a subject; model, gradients and random state are afterwards what they were before."""
    at_start: bool = False
    """Whether a run makes it before its first step too: it is cheap and needs no second copy of weights."""

    @property
    def texts(self) -> Mapping[str, str]:
        """What it ``proves``, what ``matters`` where that does not hold, and how the user may ``mend`` it."""
        return check_texts()[self.name]


@cache
def check_texts() -> Mapping[str, Mapping[str, str]]:
    """What is said of each check, by its name; read once, when somebody wants to see it."""
    return yaml.safe_load((files("plaudit.preflight") / "checks.yaml").read_text("utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    check: Check
    result: Result
    seconds: float
    allowed: bool
    """Whether the user lets the run go on although this check fails (``--allow``)."""

    @property
    def verdict(self) -> str:
        """The verdict in a word: pass, warn, FAIL, allowed or not applicable."""
        if self.result.holds is None:
            return "not applicable"
        if self.result.doubtful:
            return "warn"
        return "pass" if self.result.holds else "allowed" if self.allowed else "FAIL"

    @property
    def blocks_run(self) -> bool:
        """Whether the run must not start because of it: it fails and is not allowed."""
        return self.result.holds is False and not self.allowed


def refuse_unknown_checks(option: str, names: Iterable[str], checks: Collection[str]) -> None:
    """Raise for a name that an option gives to a check, and no check has."""
    for name in names:
        if name not in checks:
            hint = did_you_mean(name, checks) or f"; they are {', '.join(checks)}"
            raise UserError(f"{option} {name}: there is no such check{hint}")


def run_checks(
    subject: PreflightSubject, checks: Iterable[Check], allow: Sequence[str] = ()
) -> Iterator[Finding]:
    """Run each check in turn; one that raises a user's error fails with that error's message."""
    for name in ("records", "held_out", "trained"):
        if len(rows := getattr(subject, name)) >= MANY_ROWS:
            subject = replace(subject, **{name: rows[:: -(-len(rows) // MAX_ROWS)]})
    for check in checks:
        began = time.perf_counter()
        with preserve_state(subject):
            try:
                result = check.run(subject)
            except NotApplicableError as reason:
                result = not_applicable(str(reason))
            except UserError as error:
                result = failed(str(error))
        seconds = time.perf_counter() - began
        yield Finding(check=check, result=result, seconds=seconds, allowed=check.name in allow)


@contextmanager
def preserve_state(subject: PreflightSubject) -> Iterator[None]:
    """Restores random state, modes and gradients on exit, so that a checked run is the same run."""
    trained_module = None if subject.job is None else subject.job.module
    modules = [module for module in (subject.policy, subject.scorer, trained_module) if module is not None]
    # Of the GPU that is in use: to ask the others would open each of them.
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices), modes_restored(*modules):
        try:
            yield
        finally:
            for module in modules:
                # None and not zeros, which would hold the memory of another copy of the weights.
                module.zero_grad(set_to_none=True)


def refusal_message(findings: Sequence[Finding]) -> str | None:
    """The error message of a run that does not start because checks fail; None where none blocks it."""
    blocking = [finding for finding in findings if finding.blocks_run]
    if not blocking:
        return None
    lines = [
        f"  {finding.check.name}: {finding.result.details}\n    {finding.check.texts['mend']}"
        for finding in blocking
    ]
    names = " ".join(finding.check.name for finding in blocking)
    return (
        f"{len(blocking)} of {len(findings)} checks fail, so the run does not start:\n"
        + "\n".join(lines)
        + f"\nplaudit check says more of each; to train all the same: --allow {names}"
    )
