"""Every training method by name: entry point, config, and a run made ready; importing this is quick."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from plaudit.engine.distributed import process_group
from plaudit.engine.loop import TrainingJob
from plaudit.errors import UserError
from plaudit.methods.config import ContextConfig, ControlConfig, DistilConfig, RunConfig
from plaudit.methods.iterative.algorithms import ITERATIVE_ALGORITHMS
from plaudit.methods.iterative.config import LoopConfig, RlhfConfig
from plaudit.methods.policy.config import POLICY, OwnPolicyConfig, PolicyConfig
from plaudit.methods.policy.objective import PolicyMicrobatch
from plaudit.methods.policy.run import prepare_policy_run
from plaudit.methods.preference.config import PREFERENCE, OwnPreferenceConfig, PreferenceConfig
from plaudit.methods.preference.run import prepare_preference
from plaudit.methods.reward_model.config import (
    CriticConfig,
    GroupConfig,
    RankerConfig,
    RewardConfig,
    TextRewardConfig,
)
from plaudit.methods.reward_model.run import prepare_reward
from plaudit.methods.run import Run, refuse_unknown_checks, start_run
from plaudit.methods.supervised.run import PREFERRED, SFT, prepare_supervised
from plaudit.preflight.check import Check, Finding, PreflightSubject, run_checks
from plaudit.tokens.batch import Completion
from plaudit.tokens.microbatch import Microbatch

METHODS: dict[str, tuple[str, str, type]] = {
    "sft": ("plaudit.methods.supervised.run:sft", "learn to say what demonstrations say", RunConfig),
    "preferred": (
        "plaudit.methods.supervised.run:preferred",
        "learn the answers that were liked",
        RunConfig,
    ),
    "control": (
        "plaudit.methods.supervised.run:control",
        "learn good and bad, told apart by a word",
        ControlConfig,
    ),
    "context": (
        "plaudit.methods.supervised.run:context",
        "answer as if a context had been read",
        ContextConfig,
    ),
    "distil": ("plaudit.methods.supervised.run:distil", "learn from a teacher's distribution", DistilConfig),
    "group": (
        "plaudit.methods.reward_model.group_preference:group",
        "learn how groups of people differ in what they prefer",
        GroupConfig,
    ),
    "reward": (
        "plaudit.methods.reward_model.run:reward",
        "learn to score answers as people judged them",
        RewardConfig,
    ),
    "text-reward": (
        "plaudit.methods.reward_model.model:text_reward",
        "learn to say in a word whether an answer is good",
        TextRewardConfig,
    ),
    "ranker": (
        "plaudit.methods.reward_model.model:ranker",
        "learn to say which of two answers is better",
        RankerConfig,
    ),
    "critic": (
        "plaudit.methods.reward_model.model:critic",
        "learn to write critiques, and points after them",
        CriticConfig,
    ),
    "preference": (
        "plaudit.methods.preference.run:own_preference",
        "learn from preferences by an algorithm of your own (--algorithm mine.py:name)",
        OwnPreferenceConfig,
    ),
    "policy": (
        "plaudit.methods.policy.run:own_policy",
        "improve a policy by an algorithm of your own (--algorithm mine.py:name)",
        OwnPolicyConfig,
    ),
    "rlhf": (
        "plaudit.methods.iterative.rlhf:rlhf",
        "compare its own answers, learn the reward, improve by it; and again",
        RlhfConfig,
    ),
}
"""Each method that is no row of a table: its entry point, a line for ``--list``, and its config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmTable:
    """A table of algorithms, each row of which is a method without an entry of its own.

    Example: ``TABLES[0].rows["dpo"].paper``
    """

    title: str
    """What they are, all together."""
    rows: Mapping[str, Any]
    """Each algorithm's facts, by its name."""
    entry_point: str
    """The entry point, as ``module:function``; it takes a name and a config."""
    config: Callable[[str], type]
    """The config of an algorithm, by its name."""


TABLES = (
    AlgorithmTable(
        title="Preference optimisation",
        rows=PREFERENCE.algorithms,
        entry_point="plaudit.methods.preference.run:preference",
        config=PREFERENCE.config_type,
    ),
    AlgorithmTable(
        title="Policy optimisation",
        rows=POLICY.algorithms,
        entry_point="plaudit.methods.policy.run:policy",
        config=POLICY.config_type,
    ),
    AlgorithmTable(
        title="Loops that make their own rows",
        rows=ITERATIVE_ALGORITHMS,
        entry_point="plaudit.methods.iterative.run:loop",
        config=lambda _: LoopConfig,
    ),
)
"""Each table of algorithms."""

OWN_ALGORITHMS: Mapping[str, Callable[[str, str | None], type]] = {
    chapter.own_method: chapter.config_type for chapter in (PREFERENCE, POLICY)
}
"""Methods that take an algorithm of the user's own (``--algorithm mine.py:name``), with its config."""
PREFLIGHT_METHODS = ("sft", "preferred", "reward", *OWN_ALGORITHMS)
"""Methods without a table that ``plaudit check`` and ``plaudit plan`` can prepare."""


def config_types() -> dict[str, type]:
    """The config class of each method, by its name.

    >>> config_types()["dpo"].__name__
    'DpoConfig'
    """
    own_methods = {name: config for name, (_, _, config) in METHODS.items()}
    return own_methods | {name: table.config(name) for table in TABLES for name in table.rows}


def config_type(name: str, own: str | None = None) -> type:
    """The config class of a method; ``own`` is the user's own algorithm, where one was named."""
    for table in TABLES:
        if name in table.rows:
            return table.config(name)
    return OWN_ALGORITHMS[name](name, own) if name in OWN_ALGORITHMS else METHODS[name][2]


def preflight_methods() -> tuple[str, ...]:
    """The methods that ``plaudit check`` and ``plaudit plan`` can prepare."""
    return (*PREFLIGHT_METHODS, *(name for table in TABLES[:-1] for name in table.rows))


def run_method(name: str, config: Any) -> Any:
    """Call the entry point of a method; None where the run was finished already."""
    for table in TABLES:
        if name in table.rows:
            return _load_entry_point(table.entry_point)(name, config)
    return _load_entry_point(METHODS[name][0])(config)


def _load_entry_point(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


SUPERVISED_METHODS = {"sft": SFT, "preferred": PREFERRED}
"""Supervised methods that need no settings beside ``RunConfig``."""
METHODS_WITHOUT_TABLE = (*SUPERVISED_METHODS, "reward")
"""Methods without a table that can be prepared without being run."""


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
    refuse_unknown_checks(config.allow)
    with process_group(config.device) as ranks:
        run = start_run(config, ranks, method)
        with run.resources:
            yield from run_checks(prepare_run(config, run)[1], checks, config.allow)
