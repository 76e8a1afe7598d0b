"""Policy optimisation: from prompts and a reward to a better policy, by any row of the table.

Proximal policy optimisation: Schulman et al. 2017, arXiv:1707.06347. All algorithms: ``policy_table``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from plaudit.recipes.learner import Kind
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.policy_ready import learner
from plaudit.recipes.policy_rows import Algorithm, chosen, facts_of
from plaudit.recipes.run import run
from plaudit.training.policy import Piece
from plaudit.training.sinks.summary import Summary


def policy(algorithm: Algorithm, config: PolicyConfig) -> Summary | None:
    """Improve by the algorithm of this name, or by a row of one's own; the result lies in ``config.out``."""
    config = _with_judge(as_long(algorithm, config))
    return run(config, policy_kind(algorithm, config))


def policy_kind(algorithm: Algorithm, config: PolicyConfig) -> Kind[Piece]:
    """The run of an algorithm, before it begins."""
    prepare = partial(learner, algorithm, config)
    return Kind(name=facts_of(algorithm).name, prepare=prepare, inputs=_inputs(config))


def as_long(algorithm: Algorithm, config: PolicyConfig) -> PolicyConfig:
    """Rounds as steps of the loop."""
    if config.rounds is None:
        return config
    found = chosen(algorithm, config)
    inner = int(found.number("epochs") * found.number("minibatches"))
    return replace(config, rounds=None, steps=config.rounds * inner)


def _with_judge(config: PolicyConfig) -> PolicyConfig:
    """Who names a judge has the model that the judge likes best, and no rounds beyond it."""
    if config.judge.by is None or not config.judge.chooses or config.keep.best != "held_out/reward":
        return config
    keep = replace(config.keep, best="held_out/judge", use_best=True, patience=config.judge.patience)
    return replace(config, keep=keep)


def _inputs(config: PolicyConfig) -> tuple[Path, ...]:
    """Files and folders that a run that goes on must find as they were."""
    words = [config.reward, config.process.by, config.judge.by]
    folders = [Path(word) for word in words if word is not None and Path(word).exists()]
    others = [config.critic.model, config.reference.model, config.ptx.data]
    return (*folders, *(path for path in others if path is not None))
