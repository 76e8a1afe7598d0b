"""Wings: what parts of plaudit that the core does not know, and packages of other people, bring to it.

A distribution names its wing among its entry points, in the group ``plaudit.wings``, by a line such as
``polite = "polite.wing:WING"``. The wing says by name what it brings and where that lies, as ``module:name``.
It is imported whenever the command starts, what it points to only when somebody calls for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

from plaudit.errors import UserError

GROUP = "plaudit.wings"
"""The group of entry points that wings stand in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb of the command: a module with ``add_parser(subparsers)`` and ``run(arguments)``."""

    module: str
    purpose: str


def verbs_in(package: str, **purposes: str) -> Mapping[str, Verb]:
    """Verbs, each a module of its name in the package, by what they are for."""
    return {name: Verb(module=f"{package}.{name}", purpose=purpose) for name, purpose in purposes.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wing:
    """All that a wing brings, by name."""

    verbs: Mapping[str, Verb] = field(default_factory=dict)
    """What may follow ``plaudit`` on the command line."""
    plans: Mapping[str, Verb] = field(default_factory=dict)
    """What may follow ``plaudit plan``, beside the methods of training."""
    stages: Mapping[str, str] = field(default_factory=dict)
    """Kinds of stages, by what ``do:`` calls them in a pipeline: each a `plaudit.runs.StageKind`."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Sets of prompts with the true worth of answers: each a `plaudit.evaluation.prompt_sets.PromptSet`."""
    page_sections: Mapping[str, str] = field(default_factory=dict)
    """Sections of a pipeline's page, by their anchors there: each a `plaudit.runs.PageSection`."""
    offers: Mapping[str, str] = field(default_factory=dict)
    """What the core and other wings may call of it, by the name that it has there."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Models that come along: each the `Path` of a Hugging Face folder."""
    rewards: Mapping[str, str] = field(default_factory=dict)
    """Kinds of rewards, by what their words begin with: each a `plaudit.rewards.kinds.RewardMaker`."""
    judges: Mapping[str, str] = field(default_factory=dict)
    """Kinds of judges, by what their words begin with: each a `plaudit.rewards.kinds.JudgeKind`."""


@cache
def wings() -> Mapping[str, Wing]:
    """Every wing that is installed, by the name of its entry point."""
    return {point.name: _wing_of(point) for point in sorted(entry_points(group=GROUP))}


def _wing_of(point: EntryPoint) -> Wing:
    try:
        wing = point.load()
    except (ImportError, AttributeError) as error:
        home = f"{point.dist.name} {point.dist.version}" if point.dist else "a package"
        raise UserError(
            f"{home} names {point.value} as a wing of plaudit, and it cannot be loaded ({error}): "
            "install that package again, or remove it"
        ) from error
    if not isinstance(wing, Wing):
        raise UserError(f"{point.value} is no plaudit.wings.Wing, though an entry point {GROUP} names it")
    return wing


@cache
def everything(kind: str) -> Mapping[str, Any]:
    """What all wings bring of a ``kind``, a field of `Wing`, by name; two of the same name are refused."""
    homes: dict[str, str] = {}
    brought: dict[str, Any] = {}
    for home, wing in wings().items():
        for name, thing in getattr(wing, kind).items():
            if name in homes:
                raise UserError(f"the wings {homes[name]} and {home} both bring {name!r} among their {kind}")
            homes[name], brought[name] = home, thing
    return brought


def offered(name: str, *, of: str | None = None) -> Any:
    """What some wing offers by this name; ``of`` names the wing that is missed where none does."""
    offers = everything("offers")
    if name not in offers:
        if of is not None:
            refuse_missing(of, name)
        raise UserError(f"this needs {name}, which no wing of plaudit that is installed here brings")
    return load(offers[name])


def refuse_missing(wing: str, what: str) -> NoReturn:
    """Say that ``what`` comes with a wing that is not installed."""
    there = ", ".join(wings()) or "none"
    raise UserError(
        f"{what} comes with the wing {wing} of plaudit, which is not installed here (installed: {there}); "
        "install plaudit with all its parts, or do without"
    )


def offered_if_any(name: str) -> Any:
    """What some wing offers by this name, None where nobody does."""
    return offered(name) if name in everything("offers") else None


def load(reference: str) -> Any:
    """What stands at ``module:name``."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
