"""An algorithm is a function: its signature is its settings, its docstring their help. Without torch.

    def simpo(beta: Positive = 2.0, gamma: FromZero = 1.0) -> PreferenceAlgorithm:
        '''−log σ(βh − γ), h of mean log-probs.

        beta: what the lead in mean log-probs is multiplied with.
        gamma: the lead that is asked for.

        Meng et al. 2024, arXiv:2405.14734.
        '''

The first paragraph is what is minimised, the last one where it is from. A setting that many algorithms have
says its help once, in its type: ``KlCoef = Annotated[FromZero, "How dear distance is."]``. A cell is
described in the same way; what it works on stands before a slash: ``def clip(inputs, /, clip_low=0.2)``.
Options, YAML keys, ``--help``, ``--list``, the tables of the documentation and refusals are read from here.

An algorithm of the user's own is named by ``file.py:name`` or ``module:name``.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Generic, Literal, ParamSpec, TypeVar, get_args, get_type_hints

from plaudit.bounds import Bound, bound_in, refuse_unless
from plaudit.config import did_you_mean
from plaudit.errors import UserError, located
from plaudit.files.user_code import import_user_module


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One setting of an algorithm."""

    name: str
    value_type: Any
    default: Any
    """What it is where nobody says it."""
    doc: str
    bound: Bound | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """What a function says of the algorithm that it makes."""

    name: str
    """What the command calls it: the function's name, with hyphens."""
    function: Callable[..., Any]
    formula: str
    """What it minimises."""
    paper: str
    parameters: Mapping[str, Parameter]

    @property
    def defaults(self) -> dict[str, Any]:
        return {name: parameter.default for name, parameter in self.parameters.items()}

    @property
    def record(self) -> str:
        """The name of the record that it makes, as its annotation has it; told without making one."""
        annotation = inspect.unwrap(self.function).__annotations__.get("return", "")
        # The class itself where a module does not defer its annotations.
        return getattr(annotation, "__name__", str(annotation).rpartition(".")[2])

    @property
    def data(self) -> Literal["pairs", "thumbs"]:
        """Of a preference algorithm: comparisons and rankings, or answers called good or bad."""
        return "thumbs" if self.record == "UnpairedAlgorithm" else "pairs"


def describe(function: Callable[..., Any]) -> Algorithm:
    """The algorithm that a function makes; refused where a setting has no default.

    >>> from plaudit.bounds import Positive
    >>> def mine(beta: Positive = 0.1):
    ...     '''−log σ(βh).
    ...
    ...     beta: how dear distance is.
    ...     '''
    >>> describe(mine).formula, describe(mine).parameters["beta"].doc
    ('−log σ(βh)', 'How dear distance is.')
    """
    # What stands before a slash is what the function works on, and no setting.
    parts = inspect.signature(function).parameters.values()
    settings = [part for part in parts if part.kind is not part.POSITIONAL_ONLY]
    hints = _parameter_hints(function, settings)
    paragraphs = [" ".join(paragraph.split()) for paragraph in (inspect.getdoc(function) or "").split("\n\n")]
    # From the text as it stands: in the joined paragraphs settings could not be told apart any more.
    docs = _parameter_docs(inspect.getdoc(function) or "", tuple(setting.name for setting in settings))
    name = getattr(function, "__name__", "own")
    parameters: dict[str, Parameter] = {}
    for parameter in settings:
        if parameter.default is parameter.empty:
            raise UserError(
                f"{name}: its setting {parameter.name} has no default; give it one: {parameter.name}=0.1"
            )
        hint = hints.get(parameter.name, type(parameter.default))
        made = make_parameter(parameter.name, hint, parameter.default)
        doc = docs.get(parameter.name) or made.doc or f"A setting of {name}."
        parameters[parameter.name] = dataclasses.replace(made, doc=doc)
    named = tuple(f"{each}:" for each in parameters)
    prose = [paragraph for paragraph in paragraphs if not paragraph.startswith(named)]
    formula = prose[0].removesuffix(".") if prose and prose[0] else name
    paper = prose[-1].removesuffix(".") if len(prose) > 1 else ""
    return Algorithm(
        name=name.replace("_", "-"), function=function, formula=formula, paper=paper, parameters=parameters
    )


def _parameter_hints(function: Callable[..., Any], settings: Sequence[inspect.Parameter]) -> dict[str, Any]:
    """The types of the settings alone: what is returned may be a name that only type checkers know."""
    plain = inspect.unwrap(function)
    annotated = (setting for setting in settings if setting.annotation is not setting.empty)
    holder = SimpleNamespace(__annotations__={setting.name: setting.annotation for setting in annotated})
    return get_type_hints(holder, globalns=getattr(plain, "__globals__", {}), include_extras=True)


def _parameter_docs(doc: str, names: tuple[str, ...]) -> dict[str, str]:
    """The lines ``name: help`` of a docstring; a line that begins otherwise goes on with the one before."""
    docs: dict[str, str] = {}
    for paragraph in doc.split("\n\n"):
        current = None
        for line in paragraph.splitlines():
            name, colon, text = line.strip().partition(":")
            if colon and name in names:
                current, docs[name] = name, text.strip()
            elif current is not None:
                docs[current] += " " + line.strip()
    # A Greek letter stays as it is: γ is a symbol, Γ would be another one.
    return {name: text[:1].upper() + text[1:] if text[:1].isascii() else text for name, text in docs.items()}


def make_parameter(name: str, hint: Any, default: Any) -> Parameter:
    """A setting from its annotation, which says its type, its bound and its help.

    >>> from plaudit.bounds import FromZero
    >>> from typing import Annotated
    >>> make_parameter("kl_coef", Annotated[FromZero, "How dear distance is."], 0.1).doc
    'How dear distance is.'
    """
    # Without include_extras every Annotated is taken off, also those inside a union.
    plain = get_type_hints(SimpleNamespace(__annotations__={"hint": hint}), globalns={})["hint"]
    return Parameter(name=name, value_type=plain, default=default, doc=_help_in(hint), bound=bound_in(hint))


def optional(parameter: Parameter) -> Parameter:
    """The setting as it is where whoever it belongs to has a value already: none leaves that."""
    return dataclasses.replace(parameter, value_type=parameter.value_type | None, default=None)


def _help_in(hint: Any) -> str:
    """What an annotation says beside the type; the last word counts."""
    # In `FromZero | None` it stands one level down, in the union's first member.
    for part in (hint, *get_args(hint)):
        # Nested Annotated are flattened with the outermost last: an algorithm's own words win.
        for extra in reversed(getattr(part, "__metadata__", ())):
            if isinstance(extra, str):
                return extra
    return ""


def usable(what: str, value: Any, wanted: str, shape: Sequence[int], given: Mapping[str, Any]) -> Any:
    """What a function gave; raises at another shape, and where only the first given has a gradient."""
    gave = tuple(value.shape) if hasattr(value, "requires_grad") else type(value).__name__
    inputs = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in given.items())
    if gave != tuple(shape):
        raise UserError(f"{what} gave {gave} of {inputs}; it gives a tensor {tuple(shape)}, {wanted}")
    source = next(iter(given))
    if given[source].requires_grad and not value.requires_grad:
        raise UserError(
            f"{what} gave {gave} of {inputs} without a gradient, so nothing is learnt from it: compute it "
            f"from {source} by torch alone (detach, item and no_grad cut a gradient off)"
        )
    return value


def cell_settings(cell: Callable[..., Any]) -> dict[str, Any]:
    """The settings that a cell has, with the values that are bound to it."""
    # What a partial has bound by name appears in its signature as a default.
    parts = inspect.signature(cell).parameters.values()
    return {part.name: part.default for part in parts if part.default is not part.empty}


def check_settings(parameters: Mapping[str, Parameter], settings: Mapping[str, Any]) -> None:
    """Raise for a number that a setting cannot be."""
    for name, value in settings.items():
        if (bound := parameters[name].bound) is not None:
            refuse_unless(bound, name, value)


def is_set(value: object) -> bool:
    return value is not None and value != "auto"


P = ParamSpec("P")
"""The settings of the function that makes an algorithm."""
RecordT = TypeVar("RecordT")
"""The record that describes an algorithm; it has a name, a formula and settings."""


def algorithm(function: Callable[P, RecordT]) -> Callable[P, RecordT]:
    """A function that makes an algorithm: its numbers are checked, and what it makes knows what made it."""

    @wraps(function)
    def make(*arguments: P.args, **settings: P.kwargs) -> RecordT:
        described = describe(function)
        bound = inspect.signature(function).bind(*arguments, **settings)
        # With defaults: config.yaml has to say all of what was run, not only what was given.
        bound.apply_defaults()
        check_settings(described.parameters, bound.arguments)
        record: Any = function(*arguments, **settings)
        return dataclasses.replace(
            record, name=described.name, formula=described.formula, settings=dict(bound.arguments)
        )

    return make


def table(*functions: Callable[..., Any]) -> dict[str, Algorithm]:
    return {described.name: described for described in map(describe, functions)}


ModuleT = TypeVar("ModuleT")


class LazyModule(Generic[ModuleT]):
    """A module that is imported when something of it is asked for: a table of names needs no torch."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


def load_object(word: str, option: str) -> object:
    """The object at ``file.py:name`` or ``module:name``; ``option`` begins each complaint."""
    module_path, _, name = word.rpartition(":")
    if not module_path or not name:
        raise UserError(f"{option} {word}: write file.py:name or module:name")
    with located(f"{option} {word}: cannot be had", ImportError, AttributeError, OSError, SyntaxError):
        return getattr(import_user_module(module_path), name)


def load_algorithm(word: str, *records: type, example: str) -> Algorithm:
    """The algorithm of ``file.py:name``: a function with settings, or a record (one of these) without any."""
    loaded = load_object(word, "--algorithm")
    if isinstance(loaded, records):
        record: Any = loaded
        # A record has no settings left to give; a function that takes none stands for it.
        return replace(describe(lambda: record), name=word.rpartition(":")[2], formula=record.formula)
    if not callable(loaded):
        raise UserError(
            f"--algorithm {word} is a {type(loaded).__name__}, and neither a function that makes an "
            f"algorithm nor one: write {example}"
        )
    return describe(algorithm(loaded))


def find_algorithm(algorithms: Mapping[str, Algorithm], name: str, what: str) -> Algorithm:
    """The algorithm of a name; one that is not there is refused with the closest."""
    if name not in algorithms:
        hint = did_you_mean(name, algorithms)
        raise UserError(f"no {what} is called {name!r}: there are {', '.join(algorithms)}{hint}")
    return algorithms[name]


def refusal(algorithms: Mapping[str, Algorithm], name: str, setting: str) -> str:
    """Why an algorithm does not take a setting, and which ones do."""
    readers = [other.name for other in algorithms.values() if setting in other.parameters]
    alternatives = f", or choose among {', '.join(readers)}" if readers else ""
    return f"{setting} is not part of {name}: leave it out{alternatives}"
