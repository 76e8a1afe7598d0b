"""A chapter's algorithms, cells and configs, as preference and policy optimisation have. Without torch.

A chapter has a table of functions, cells that any of its algorithms takes, and a config that every run of it
has. The config of one algorithm is made from the two: its settings are fields beside those of every run.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from plaudit.errors import UserError
from plaudit.methods.algorithm import Algorithm, Parameter, RecordT, refusal

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter(Generic[RecordT, ConfigT]):
    own_method: str
    """The method that takes an algorithm of the user's own: ``--algorithm mine.py:name``."""
    algorithms: Mapping[str, Algorithm]
    cells: Mapping[str, Parameter]
    """What any algorithm can be given beside its own settings."""
    config: type[ConfigT]
    own_config: type[ConfigT]
    """The config of a run before it is known which settings its own algorithm has."""
    find: Callable[[str], Algorithm]
    load: Callable[[str], Algorithm]
    make: Callable[[Algorithm, Mapping[str, Any]], RecordT]
    config_types: dict[str, type[ConfigT]] = field(default_factory=dict[str, type[ConfigT]])
    """One class for each name: configs of different classes are never equal."""

    def parameters(self) -> dict[str, Parameter]:
        """Every setting that an algorithm or a cell has, by its name."""
        every = [described.parameters for described in self.algorithms.values()]
        return {name: part for parts in (*every, self.cells) for name, part in parts.items()}

    def config_type(self, name: str, algorithm: str | None = None) -> type[ConfigT]:
        """The config of one algorithm: its settings and the cells stand beside those of every run.
        ``algorithm`` is the user's own, ``file.py:name``."""
        if algorithm is not None:
            return self._make_config_type(self.load(algorithm), algorithm=algorithm)
        if name == self.own_method:
            return self.own_config
        if name not in self.config_types:
            self.config_types[name] = self._make_config_type(self.find(name))
        return self.config_types[name]

    def _make_config_type(self, described: Algorithm, **more: str) -> type[ConfigT]:
        """The config with the settings of an algorithm and of cells as fields; ``more`` are further ones."""
        every_run = {this_field.name for this_field in dataclasses.fields(self.config)}  # pyright: ignore[reportArgumentType]
        taken = [name for name in described.parameters if name in every_run | {*more}]
        if taken:
            raise UserError(
                f"{described.name}: every run has a setting {taken[0]} already; call yours otherwise"
            )
        # An algorithm's own settings come first, and what they say counts.
        settings = {**described.parameters, **self.cells, **described.parameters}
        fields = [
            _field(setting, hidden=name not in described.parameters) for name, setting in settings.items()
        ]
        doc = "The algorithm: file.py:name."
        for name, value in more.items():
            fields.append(_field(Parameter(name=name, value_type=str, default=value, doc=doc), hidden=False))
        others = [name for name in self.parameters() if name not in settings]
        namespace = {
            "setting_names": tuple(settings),
            "refused": {name: refusal(self.algorithms, described.name, name) for name in others},
        }
        words = re.sub(r"\W", " ", described.name).title().replace(" ", "")
        return _config_class(f"{words}Config", fields, self.config, namespace)

    def configured(self, algorithm: str | RecordT, config: ConfigT) -> RecordT:
        """The algorithm of a name with the settings of a config; a record is what it is already."""
        if not isinstance(algorithm, str):
            return algorithm
        word: str | None = getattr(config, "algorithm", None)
        described = self.find(algorithm) if word is None else self.load(word)
        names: tuple[str, ...] = getattr(config, "setting_names", ())
        return self.make(described, {name: getattr(config, name) for name in names})

    def with_settings(self, algorithm: str | RecordT, config: ConfigT) -> ConfigT:
        """The config with the algorithm's settings in it, so that config.yaml says all of what was run."""
        settings: dict[str, Any] = {}
        if isinstance(algorithm, str):
            if hasattr(config, "setting_names"):
                return config
            target = self.config_type(algorithm, getattr(config, "algorithm", None))
        else:
            record: Any = algorithm
            if hasattr(config, "setting_names"):
                raise UserError(
                    "an algorithm that is given as a record has its cells already: leave out its settings, "
                    f"and give a {self.config.__name__}"
                )
            if record.name not in self.algorithms:
                return config
            target = self.config_type(record.name)
            settings = {**record.settings, **self._changed_numbers(record)}
        every_run = [this_field.name for this_field in dataclasses.fields(self.config) if this_field.init]  # pyright: ignore[reportArgumentType]
        return target(**{name: getattr(config, name) for name in every_run}, **settings)

    def _changed_numbers(self, record: Any) -> dict[str, float]:
        """The numbers by which a record differs from what its name and settings make."""
        # A record changed by `replace` is said in config.yaml as far as its changes are numbers of cells.
        plain = self.make(self.find(record.name), record.settings)
        names = [part.name for part in dataclasses.fields(record) if part.name in self.cells]
        numbers = {name: value for name in names if isinstance(value := getattr(record, name), int | float)}
        return {name: value for name, value in numbers.items() if value != getattr(plain, name)}


def _field(parameter: Parameter, *, hidden: bool) -> tuple[str, Any, Any]:
    made = dataclasses.field(default=parameter.default, metadata={"doc": parameter.doc, "hidden": hidden})
    return parameter.name, parameter.value_type, made


def own_config_type(base: type[ConfigT]) -> type[ConfigT]:
    """Made like the config of every algorithm; that it names one is all that is known of its settings."""
    doc = "The algorithm: file.py:name of a function that makes one, or of the record itself."
    namespace = {
        "__module__": base.__module__,
        "__doc__": (
            "A run of an algorithm of the user's own, before it is known which settings it has.\n\n"
            f'Example: ``Own{base.__name__}(model=…, out=…, algorithm="mine.py:hill")``'
        ),
    }
    return _config_class(
        f"Own{base.__name__}", [("algorithm", str, field(metadata={"doc": doc}))], base, namespace
    )


def _config_class(
    name: str, fields: Sequence[tuple[str, Any, Any]], base: type[ConfigT], namespace: Mapping[str, Any]
) -> type[ConfigT]:
    more = {"generated": True, **namespace}
    return dataclasses.make_dataclass(
        name, fields, bases=(base,), namespace=more, frozen=True, slots=True, kw_only=True
    )
