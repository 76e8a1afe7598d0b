"""From a method's name and config to what it trains and checks, before it begins: for checks and plans."""

from collections.abc import Iterable, Iterator
from typing import Any

from plaudit.engine.distributed import process_group
from plaudit.engine.loop import TrainingJob
from plaudit.errors import UserError
from plaudit.methods.config import RunConfig
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.policy.objective import PolicyMicrobatch
from plaudit.methods.policy.run import prepare_policy_run
from plaudit.methods.preference.config import PreferenceConfig
from plaudit.methods.preference.run import prepare_preference
from plaudit.methods.registry import with_local_inputs
from plaudit.methods.reward_model.config import RewardConfig
from plaudit.methods.reward_model.run import prepare_reward
from plaudit.methods.run import Run, start_run
from plaudit.methods.supervised.run import PREFERRED, SFT, prepare_supervised
from plaudit.preflight.check import (
    Check,
    Finding,
    PreflightSubject,
    not_applicable,
    refuse_unknown_checks,
    run_checks,
)
from plaudit.preflight.checks import CHECKS
from plaudit.tokens.batch import Completion
from plaudit.tokens.microbatch import Microbatch

SUPERVISED_METHODS = {"sft": SFT, "preferred": PREFERRED}
"""Supervised methods that need no settings beside ``RunConfig``."""
METHODS_WITHOUT_TABLE = (*SUPERVISED_METHODS, "reward")
"""Methods without a table that can be prepared without being run."""

_NOT_LOADED = not_applicable("no model was loaded, since the run would not fit")


def prepare_run(config: RunConfig, run: Run) -> tuple[TrainingJob[Any], PreflightSubject]:
    """What this run would train, and what is checked before; raises for methods of several runs."""
    if isinstance(config, PreferenceConfig):
        return prepare_preference(run.method, config, run)
    if isinstance(config, PolicyConfig):
        return prepare_policy_run(run.method, config, run)
    if isinstance(config, RewardConfig):
        return prepare_reward(config, run)
    if run.method not in SUPERVISED_METHODS:
        raise UserError(f"{run.method} is made of other runs: look at those, one by one")
    return prepare_supervised(config, SUPERVISED_METHODS[run.method], run)


def drawn_completions(microbatch: Microbatch) -> tuple[Completion, ...]:
    """All completions of the round that a micro-batch belongs to; none where a run draws none."""
    examples = microbatch.round.examples if isinstance(microbatch, PolicyMicrobatch) else ()
    return tuple(completion for example in examples for completion in example.completions)


def preflight_findings(method: str, config: RunConfig, checks: Iterable[Check]) -> Iterator[Finding]:
    """Prepare a run and yield the findings of these checks; nothing is written and no step is taken."""
    refuse_unknown_checks("--allow", config.allow, CHECKS)
    config = with_local_inputs(config)
    with process_group(config.device) as ranks:
        run = start_run(config, ranks, method)
        with run.resources:
            memory, looked_at = run.memory_finding(), list(checks)
            if memory.check in looked_at and memory.blocks_run:
                yield memory
                yield from (
                    Finding(check=check, result=_NOT_LOADED, seconds=0.0, allowed=check.name in config.allow)
                    for check in looked_at
                    if check != memory.check
                )
                return
            yield from run_checks(prepare_run(config, run)[1], looked_at, config.allow)
