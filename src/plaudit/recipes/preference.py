"""Preference optimisation: from comparisons, rankings or thumbs to a policy, by any row of the table.

Direct preference optimisation: Rafailov et al. 2023, arXiv:2305.18290. All algorithms: ``preference_table``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from plaudit.recipes.learner import Kind
from plaudit.recipes.preference_config import PreferenceConfig, StageSettings
from plaudit.recipes.preference_ready import learner
from plaudit.recipes.preference_rows import Algorithm, facts_of, row_of
from plaudit.recipes.references import refuse_unread
from plaudit.recipes.run import claim, run
from plaudit.training.preference import PreferencePiece
from plaudit.training.sinks.summary import Summary


def preference(algorithm: Algorithm, config: PreferenceConfig) -> Summary | None:
    """Learn by the algorithm of this name, or by a row of one's own; the result lies in ``config.out``.

    Data in parts are learnt one after another: each result is the next part's model and reference.
    """
    name = facts_of(algorithm).name
    config = as_named(name, config)
    refuse_unread(name, config.reference, referenced=row_of(algorithm, config.preference).referenced)
    if config.stages.parts == 1 or config.stages.part is not None:
        return _run(algorithm, config)
    parts, model = config.stages.parts, config.model
    runs: list[PreferenceConfig] = []
    for part in range(parts):
        out = config.out if part == parts - 1 else config.out / "parts" / str(part)
        stages = StageSettings(parts=parts, part=part)
        reference = replace(config.reference, model=None) if part else config.reference
        runs.append(replace(config, model=model, out=out, stages=stages, reference=reference))
        model = out / "model"
    claim(runs[-1])
    return [_run(algorithm, one) for one in runs][-1]


def as_named(name: str, config: PreferenceConfig) -> PreferenceConfig:
    """Two names stand for what becomes of the reference: one that follows, and one in steps."""
    if name == "tr-dpo" and config.reference.kind == "auto":
        return replace(config, reference=replace(config.reference, kind="average"))
    if name == "sdpo" and config.stages.parts == 1:
        return replace(config, stages=StageSettings(parts=2))
    return config


def _run(algorithm: Algorithm, config: PreferenceConfig) -> Summary | None:
    return run(config, preference_kind(algorithm, config))


def preference_kind(algorithm: Algorithm, config: PreferenceConfig) -> Kind[PreferencePiece]:
    """The run of one part, before it begins."""
    other = config.reference.model
    inputs = () if other is None else (other,)
    prepare = partial(learner, algorithm, config)
    return Kind(name=facts_of(algorithm).name, prepare=prepare, inputs=inputs)
