"""What can be refused before the first stage runs, and what the stages that train will cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from plaudit.errors import UserError
from plaudit.evaluation.policies.alignment_tax import check_libraries
from plaudit.methods.iterative.algorithms import ITERATIVE_ALGORITHMS
from plaudit.methods.iterative.config import LoopConfig, RlhfConfig, resolve_settings
from plaudit.methods.iterative.rlhf import policy_config, rlhf_round
from plaudit.methods.policy.config import PolicyConfig
from plaudit.methods.policy.conflicts import configured_algorithm as configured_policy_algorithm
from plaudit.methods.preference.config import PreferenceConfig, configured_algorithm
from plaudit.methods.reference import refuse_unused_reference_settings
from plaudit.methods.registry import preflight_methods
from plaudit.methods.reward_model.losses import loss_name_for
from plaudit.pipeline.spec import Pipeline
from plaudit.pipeline.stage_run import StageContext
from plaudit.pipeline.status import PipelineContext, StageStatus


def validate_pipeline(pipeline: Pipeline) -> None:
    """Refuse a pipeline with a stage that would fail whatever the stages above it give."""
    for stage in pipeline.stages:
        try:
            if stage.kind.name == "evaluate":
                check_libraries()
            config = stage.config({})
            for config_type, validate in _VALIDATORS.items():
                if isinstance(config, config_type):
                    validate(stage.kind.name, config)
        except UserError as error:
            raise UserError(f"{stage.where}: {error}") from error


def _validate_preference(name: str, config: PreferenceConfig) -> None:
    needs_reference = "reference" in configured_algorithm(name, config).needs
    refuse_unused_reference_settings(name, config.reference, referenced=needs_reference)


def _validate_rlhf(_: str, config: RlhfConfig) -> None:
    configured_policy_algorithm(config.loop.teach, policy_config(config, rlhf_round(config, 1)))
    loss_name_for("comparisons", config.reward_run.reward)


_VALIDATORS: Mapping[type, Callable[[str, Any], object]] = {
    PolicyConfig: configured_policy_algorithm,
    PreferenceConfig: _validate_preference,
    LoopConfig: lambda name, config: resolve_settings(ITERATIVE_ALGORITHMS[name], config),
    RlhfConfig: _validate_rlhf,
}
"""What refuses the settings that an algorithm does not read."""


def cost_lines(context: PipelineContext, status: StageStatus) -> Iterator[str]:
    """The arithmetic and the memory of plaudit plan; nothing is measured."""
    name = status.stage.kind.name
    if status.stage_key is None:
        yield "its cost is known when what it needs is there"
        return
    if name not in preflight_methods():
        yield "it is made of other runs: plaudit plan tells the cost of each"
        return
    from plaudit.planner.render import cost_sentences

    stage_context = StageContext(stage=status.stage, pipeline=context.pipeline, folder=context.folder)
    yield from cost_sentences(name, stage_context.config())
