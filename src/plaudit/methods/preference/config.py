"""All that ``plaudit train dpo`` and its relatives can be told; importing this does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import TYPE_CHECKING, ClassVar

from plaudit.bounds import FromOne, check_bounds
from plaudit.errors import UserError
from plaudit.methods.algorithm import Parameter
from plaudit.methods.chapter import Chapter, own_config_type
from plaudit.methods.config import ReferenceSettings, RunConfig
from plaudit.methods.preference import algorithms
from plaudit.methods.preference.cells import CELLS

if TYPE_CHECKING:
    from plaudit.methods.preference.row import AnyPreferenceAlgorithm


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSettings:
    """The data in parts, one after another; each part's result is the next one's start and reference.

    Example: ``StageSettings(parts=3)``
    """

    parts: FromOne = 1
    """How many; above 1 they lie in parts/0, parts/1 …, and their prompts follow the file's order."""
    part: int | None = None
    """Which of them this run trains; none: all of them, or the only one."""

    def __post_init__(self) -> None:
        check_bounds(self, "stages")
        if self.part is not None and not 0 <= self.part < self.parts:
            raise UserError(f"stages.part is from 0 to {self.parts - 1}, not {self.part}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceConfig(RunConfig):
    """A run that learns a policy from what people preferred.

    Example: ``PreferenceConfig(model=Path("sft/model"), data=Path("pairs.jsonl"), out=Path("runs/dpo"))``
    """

    epochs: float = 1.0
    """How often the data is gone through."""
    learning_rate: float = 1e-6
    """The peak learning rate; a tenth of what demonstrations are learnt with, with LoRA ten times as high."""
    reference: ReferenceSettings = field(default_factory=ReferenceSettings)
    """The policy that the new one is compared with."""
    stages: StageSettings = field(default_factory=StageSettings)
    """The data in parts."""
    _compares_passes: ClassVar[bool] = True
    _shares_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # A dataclass with slots is made anew, and a bare super() would still mean the one before.
        RunConfig.__post_init__(self)
        if self.reference.kind == "average" and self.zero is not None and self.divides_weights:
            raise UserError(
                "a reference.kind average follows whole weights: take --deepspeed.stage 2, or --shard instead"
            )


OwnPreferenceConfig = own_config_type(PreferenceConfig)
"""A run of an algorithm of the user's own, before it is known which settings it has."""
PREFERENCE: Chapter[AnyPreferenceAlgorithm, PreferenceConfig] = Chapter(
    own_method=algorithms.OWN,
    algorithms=algorithms.PREFERENCE_ALGORITHMS,
    cells=CELLS,
    config=PreferenceConfig,
    own_config=OwnPreferenceConfig,
    find=algorithms.find_preference_algorithm,
    load=algorithms.own_algorithm,
    make=algorithms.make_algorithm,
)
preference_config_type = PREFERENCE.config_type
"""From an algorithm's name to its config: ``preference_config_type("simpo")(model=…, gamma=0.5)``."""
configured_algorithm = PREFERENCE.configured
"""The algorithm of a name with the settings of a config; a record is what it is already."""
with_algorithm_settings = PREFERENCE.with_settings
"""The config with the algorithm's settings in it, so that config.yaml says all of what was run."""
all_parameters = PREFERENCE.parameters
"""Every setting that an algorithm or a cell has, by its name."""


def optional_settings(name: str, parameters: Mapping[str, Parameter], doc: str) -> type:
    """A group of settings, each of which may be left as the algorithm has it."""
    made = [
        (parameter.name, parameter.value_type | None, field(default=None, metadata={"doc": parameter.doc}))
        for parameter in parameters.values()
    ]
    namespace = {"generated": True, "__doc__": doc}
    return make_dataclass(name, made, namespace=namespace, frozen=True, slots=True, kw_only=True)
