"""What can be refused before the first stage runs: settings that an algorithm does not read, libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from plaudit.errors import UserError
from plaudit.evaluation.policies.libraries import check_libraries
from plaudit.pipeline.stage import Pipeline, Stage
from plaudit.recipes.loop_config import LoopConfig, settled
from plaudit.recipes.loop_table import LOOPS
from plaudit.recipes.policy_config import PolicyConfig
from plaudit.recipes.policy_rows import chosen
from plaudit.recipes.preference_config import PreferenceConfig
from plaudit.recipes.preference_rows import row_of
from plaudit.recipes.references import refuse_unread
from plaudit.recipes.reward_losses import loss_of
from plaudit.recipes.rlhf_config import RlhfConfig
from plaudit.recipes.rlhf_rounds import policy_config, rlhf_round


def look_over(pipeline: Pipeline) -> None:
    """Complain about the first stage that would fail whatever those above it give."""
    for stage in pipeline.stages:
        try:
            _look(stage)
        except UserError as error:
            raise UserError(f"{stage.where}: {error}") from error


def _look(stage: Stage) -> None:
    if stage.kind.name == "evaluate":
        check_libraries()
    config, name = stage.config({}), stage.kind.name
    looks: Mapping[type, Callable[[str, Any], object]] = {
        PolicyConfig: chosen,
        PreferenceConfig: _preference,
        LoopConfig: lambda name, config: settled(LOOPS[name], config),
        RlhfConfig: _rlhf,
    }
    look = looks.get(type(config))
    if look is not None:
        look(name, config)


def _preference(name: str, config: PreferenceConfig) -> None:
    refuse_unread(name, config.reference, referenced=row_of(name, config.preference).referenced)


def _rlhf(_: str, config: RlhfConfig) -> None:
    chosen(config.loop.teach, policy_config(config, rlhf_round(config, 1)))
    loss_of("comparisons", config.reward_run.reward)
