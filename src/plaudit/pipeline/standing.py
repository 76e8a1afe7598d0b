"""Where a stage stands: finished and kept, half done, or to be run, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from plaudit.configs.suggest import did_you_mean
from plaudit.errors import UserError
from plaudit.pipeline.fingerprints import Fingerprints
from plaudit.pipeline.folder import Folder, code_now, read_begun, read_seal, refuse_changed
from plaudit.pipeline.keys import Decided, decided
from plaudit.pipeline.stage import Pipeline, Stage

State = Literal["kept", "taken back", "goes on", "runs", "waits"]
"""What is to be done: nothing; nothing but to move a folder; the rest; all; not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where one stage stands.

    Example: ``Standing(stage=stage, state="runs", why="never run", decided=found, result=None)``
    """

    stage: Stage
    """The stage."""
    state: State
    """What is to be done."""
    why: str
    """In words."""
    decided: Decided | None
    """What decides its result; None while a stage above it has none."""
    result: str | None = None
    """The hash of its result, where that is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A pipeline in its folder.

    Example: ``Place(folder=folder, pipeline=pipeline, prints=Fingerprints(file))``
    """

    folder: Folder
    """Where it lies."""
    pipeline: Pipeline
    """What it is."""
    prints: Fingerprints
    """The content of what it reads from outside."""


def standing(place: Place, stage: Stage, results: Mapping[str, str], forced: Mapping[str, str]) -> Standing:
    """What is to be done about a stage, given the results of those above it.

    ``forced`` has the stages that run whatever is there, with the reason. A result that is kept is checked.
    """
    found = decided(stage, place.pipeline, results, place.prints)
    if found is None:
        above = ", ".join(name for name in stage.needs if name not in results)
        return Standing(stage=stage, state="waits", why=f"after {above}", decided=None)
    if stage.name in forced:
        return Standing(stage=stage, state="runs", why=forced[stage.name], decided=found)
    return _as_it_lies(place.folder, stage, found)


def _as_it_lies(folder: Folder, stage: Stage, found: Decided) -> Standing:
    here, aside = folder.stage(stage.name), folder.aside(stage.name, found.key)
    seal = read_seal(here)
    if seal is not None and seal["key"] == found.key:
        refuse_changed(here, seal)
        return Standing(stage=stage, state="kept", why=_code(seal), decided=found, result=seal["result"])
    if goes_on(folder, stage, found.key):
        why = "was stopped; it goes on from its last checkpoint"
        return Standing(stage=stage, state="goes on", why=why, decided=found)
    old = read_seal(aside)
    if old is not None and old["key"] == found.key:
        refuse_changed(aside, old)
        why = "these settings have been run before"
        return Standing(stage=stage, state="taken back", why=why, decided=found, result=old["result"])
    never = "was stopped" if here.exists() else "never run"
    why = never if seal is None else _difference(seal, found)
    return Standing(stage=stage, state="runs", why=why, decided=found)


def _code(seal: Mapping[str, Any]) -> str:
    """What is to be said of a result that other code has made."""
    made, now = seal["code"], code_now()
    names = ("plaudit", "commit")
    if all(made.get(name) == now[name] for name in names):
        return ""
    return f"made by plaudit {made.get('plaudit')} at {str(made.get('commit'))[:12]}; --fresh makes it anew"


def goes_on(folder: Folder, stage: Stage, key: str) -> bool:
    """Whether training is half done, of this key, and in the place where it began."""
    here = folder.stage(stage.name)
    begun = read_begun(here)
    if read_seal(here) is not None:
        return False
    return stage.kind.trains and begun.get("key") == key and begun.get("place") == str(here)


def _difference(seal: Mapping[str, Any], found: Decided) -> str:
    """What has changed since the stage was run, in words."""
    before, after = _flat(seal["settings"]), _flat(found.settings)
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    words = [f"{name}: {before.get(name)} → {after.get(name)}" for name in changed]
    for name in {**seal["inputs"], **found.inputs}:
        old, new = (inputs.get(name, {}).get("hash") for inputs in (seal["inputs"], found.inputs))
        if old != new and name not in changed:
            words.append(f"{name} has another content")
    return "; ".join(words) or "it was made in another way"


def _flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return flat


def refuse_unknown(pipeline: Pipeline, names: Sequence[str], option: str) -> None:
    """Complain about stages that there are not."""
    known = [stage.name for stage in pipeline.stages]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f"; they are {', '.join(known)}"
            raise UserError(f"{option} {name}: there is no such stage{hint}")
