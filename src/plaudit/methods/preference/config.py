"""All that ``plaudit train dpo`` and its relatives can be told; importing this does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from plaudit.errors import UserError
from plaudit.methods.config import RunConfig
from plaudit.methods.preference.algorithms import (
    OWN,
    PREFERENCE_ALGORITHMS,
    find_algorithm,
    make_algorithm,
    own_algorithm,
    preference_algorithm,
    refusal,
)
from plaudit.methods.preference.cells import CELLS
from plaudit.methods.signature import Algorithm, Parameter, config_with_settings

if TYPE_CHECKING:
    from plaudit.methods.preference.row import AnyPreferenceAlgorithm

OLD_NAMES = {
    "beta": "beta",
    "smoothing": "label_smoothing",
    "margin": "gamma",
    "tau": "tau",
    "odds": "orpo_lambda",
    "desirable": "desirable_weight",
    "undesirable": "undesirable_weight",
    "measure": "log_prob",
    "link": "link",
    "alpha": "link_alpha",
    "price": "length_alpha",
    "tail": "ld_alpha",
    "hold": "dpop_lambda",
    "weigh": "weighting",
    "nll": "nll_coef",
    "mix": "mix",
}
"""What each setting of the group ``preference`` is called now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSettings:
    """The policy that the new one is compared with.

    Example: ``ReferenceSettings(kind="live")``
    """

    kind: Literal["auto", "precomputed", "live", "average", "none"] = "auto"
    """Computed once and kept, asked at each step, following, or none. auto: precomputed, or live."""
    model: Path | None = None
    """Its folder; none: the model that the run starts from."""
    cache: Path | None = None
    """Where precomputed log-probs are kept; none: plaudit in the user's cache folder."""
    every: int | None = None
    """Steps between moves of an average reference; none: 64."""
    share: float | None = None
    """How far it moves towards the policy; 1 copies it. none: 0.6."""

    def __post_init__(self) -> None:
        """Refuse a reference that never moves."""
        if self.every is not None and self.every < 1:
            raise UserError(f"reference.every must be at least 1, not {self.every}")
        if self.share is not None and not 0 < self.share <= 1:
            raise UserError(f"reference.share is above 0 and at most 1, not {self.share:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSettings:
    """The data in parts, one after another; each part's result is the next one's start and reference.

    Example: ``StageSettings(parts=3)``
    """

    parts: int = 1
    """How many; above 1 they lie in parts/0, parts/1 …, and their prompts follow the file's order."""
    part: int | None = None
    """Which of them this run trains; none: all of them, or the only one."""

    def __post_init__(self) -> None:
        """Refuse a run without parts."""
        if self.parts < 1:
            raise UserError(f"stages.parts must be at least 1, not {self.parts}")
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
    """The peak learning rate; a tenth of what demonstrations are learnt with, LoRA about ten times more."""
    reference: ReferenceSettings = field(default_factory=ReferenceSettings)
    """The policy that the new one is compared with."""
    stages: StageSettings = field(default_factory=StageSettings)
    """The data in parts."""

    renamed: ClassVar[Mapping[str, str]] = {f"preference.{old}": new for old, new in OLD_NAMES.items()}
    """Settings by the names that they had before, which are taken for one release."""


def _own_config_type() -> type[PreferenceConfig]:
    """Made like the config of every algorithm; that it names one is all that is known of its settings."""
    doc = "The algorithm: file.py:name of a function that makes one, or of the record itself."
    namespace = {
        "generated": True,
        "__module__": __name__,
        "__doc__": (
            "A run of an algorithm of the user's own, before it is known which settings it has.\n\n"
            'Example: ``OwnPreferenceConfig(model=…, data=…, out=…, algorithm="mine.py:hill")``'
        ),
    }
    return make_dataclass(
        "OwnPreferenceConfig",
        [("algorithm", str, field(metadata={"doc": doc}))],
        bases=(PreferenceConfig,),
        namespace=namespace,
        frozen=True,
        slots=True,
        kw_only=True,
    )


OwnPreferenceConfig = _own_config_type()
"""A run of an algorithm of the user's own, before it is known which settings it has."""


def preference_config_type(name: str, own: str | None = None) -> type[PreferenceConfig]:
    """The config of one algorithm: its signature's settings and the cells stand beside those of every run.

    ``own`` is the user's own algorithm, ``file.py:name``, of the method that is called ``preference``.

    >>> preference_config_type("simpo")(model=Path("m"), data=Path("d"), out=Path("o"), gamma=0.5).beta
    2.0
    """
    if own is not None:
        return _config_type(own_algorithm(own), algorithm=own)
    return OwnPreferenceConfig if name == OWN else _named_config_type(name)


@cache
def _named_config_type(name: str) -> type[PreferenceConfig]:
    """One class for each name: configs of different classes are never equal."""
    return _config_type(find_algorithm(name))


def _config_type(described: Algorithm, **more: str) -> type[PreferenceConfig]:
    refused = {one: refusal(described.name, one) for one in all_parameters()}
    return config_with_settings(PreferenceConfig, described, CELLS, refused, **more)


def all_parameters() -> dict[str, Parameter]:
    """Every setting that an algorithm or a cell has, by its name."""
    every = [described.parameters for described in PREFERENCE_ALGORITHMS.values()]
    return {name: one for parameters in (*every, CELLS) for name, one in parameters.items()}


def configured_algorithm(
    algorithm: str | AnyPreferenceAlgorithm, config: PreferenceConfig
) -> AnyPreferenceAlgorithm:
    """The algorithm of a name with the settings of a config; a record is what it is already."""
    if not isinstance(algorithm, str):
        return algorithm
    return make_algorithm(_described(algorithm, config), given_settings(config))


def _described(name: str, config: PreferenceConfig) -> Algorithm:
    own: str | None = getattr(config, "algorithm", None)
    return find_algorithm(name) if own is None else own_algorithm(own)


def given_settings(config: PreferenceConfig) -> dict[str, Any]:
    """The settings of its algorithm that a config holds."""
    names: tuple[str, ...] = getattr(config, "setting_names", ())
    return {name: getattr(config, name) for name in names}


def with_algorithm_settings(
    algorithm: str | AnyPreferenceAlgorithm, config: PreferenceConfig
) -> PreferenceConfig:
    """The config with the algorithm's settings in it, so that config.yaml says all of what was run."""
    if isinstance(algorithm, str):
        if hasattr(config, "setting_names"):
            return config
        target, settings = (
            preference_config_type(algorithm, getattr(config, "algorithm", None)),
            dict[str, Any](),
        )
    elif hasattr(config, "setting_names"):
        raise UserError(
            "an algorithm that is given as a record has its cells already: leave out its settings, and "
            "give a PreferenceConfig"
        )
    elif algorithm.name not in PREFERENCE_ALGORITHMS:
        return config
    else:
        target, settings = (
            preference_config_type(algorithm.name),
            {**algorithm.settings, **_changed_numbers(algorithm)},
        )
    return target(**{one.name: getattr(config, one.name) for one in fields(PreferenceConfig)}, **settings)


def _changed_numbers(record: AnyPreferenceAlgorithm) -> dict[str, float]:
    """The numbers by which a record differs from what its name and settings make."""
    plain = preference_algorithm(record.name, **record.settings)
    names = [name for name in ("length_alpha", "dpop_lambda", "nll_coef") if hasattr(record, name)]
    return {name: getattr(record, name) for name in names if getattr(record, name) != getattr(plain, name)}


def optional_settings(name: str, parameters: Mapping[str, Parameter], doc: str) -> type:
    """A group of settings, each of which may be left as the algorithm has it."""
    made = [
        (one.name, one.value_type | None, field(default=None, metadata={"doc": one.doc}))
        for one in parameters.values()
    ]
    return make_dataclass(
        name, made, namespace={"generated": True, "__doc__": doc}, frozen=True, slots=True, kw_only=True
    )
