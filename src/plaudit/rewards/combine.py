"""``combined.json``: the file that makes a folder a reward put together from others.

Four kinds: members and how they are combined; a policy and its reference (the implicit reward of DPO); a
process reward model and how its steps are read; a group and what is known of it. Paths in it are relative to
the folder for what lies in it or beside it, so that both can be moved together, and absolute for the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from plaudit.errors import UserError
from plaudit.models.reward import Normalisation
from plaudit.rewards.implicit import refuse_beta
from plaudit.rewards.manners import Combination, Manner
from plaudit.rewards.steps import Reading
from plaudit.sources.atomic import AtomicFile

COMBINED = "combined.json"
"""Its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Rewards that are combined.

    Example: ``Members(folders=(Path("a"), Path("b")), combination=Combination(how="mean"))``
    """

    folders: tuple[Path, ...]
    """Each is a reward's folder."""
    combination: Combination
    """How they become one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """A policy, and what it was trained against.

    Example: ``Policies(policy=Path("runs/dpo"), reference=Path("runs/sft"), beta=0.1)``
    """

    policy: Path
    """The folder of the trained policy."""
    reference: Path | None
    """The folder of its reference; None where likelihood alone is the reward."""
    beta: int | float
    """The β of its training."""

    def __post_init__(self) -> None:
        """Refuse what turns the reward round, or into nothing."""
        refuse_beta(self.beta)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The policy's, and its reference's where it has one."""
        return (self.policy,) if self.reference is None else (self.policy, self.reference)

    @property
    def sentence(self) -> str:
        """What the reward is, in words."""
        if self.reference is None:
            return f"{self.beta:g} times how likely {self.policy} finds an answer"
        return f"{self.beta:g} times how much likelier {self.policy} finds an answer than {self.reference}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process reward model.

    Example: ``Process(model=Path("runs/steps"), reading="product")``
    """

    model: Path
    """Its folder."""
    reading: Reading
    """How its steps become one number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taste:
    """A group, by some of its comparisons.

    Example: ``Taste(module=Path("run"), embedder=Path("base"), context=Path("few.jsonl"), group=None)``
    """

    module: Path
    """The folder of a group preference module."""
    embedder: Path
    """The folder of the language model that it was trained beside."""
    context: Path
    """The comparisons."""
    group: str | None
    """Whose of them count; None for all."""


Facts = Members | Policies | Process | Taste
"""What the file can say."""

_KEYS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "implicit": (frozenset(["policy", "beta"]), frozenset(["reference"])),
    "steps": (frozenset(["model", "reading"]), frozenset()),
    "group": (frozenset(["module", "embedder", "context"]), frozenset(["group"])),
    **{
        how: (frozenset(["members"]), frozenset(["weights", "k", "gate", "below", "normal"]))
        for how in get_args(Manner)
    },
}
"""What the file must hold beside ``how``, and what it may."""


def save_combination(folder: Path, members: Sequence[Path], combination: Combination) -> Path:
    """Make the folder a reward of these members, each a reward's folder that is there already.

    Returns the file that was written.
    """
    combination.refuse_members(len(members))
    for member in members:
        _refuse_missing(folder, member)
        if folder.resolve() in _reached(member, ()):
            raise UserError(f"{member}: this reward is made of {folder}, so it cannot be a member of it")
    facts = {name: value for name, value in asdict(combination).items() if value is not None}
    return _write(folder, {**facts, "members": [_spelled(folder, member) for member in members]})


def save_implicit(folder: Path, facts: Policies) -> Path:
    """Make the folder the implicit reward of a policy, β (log π − log π_ref) or β log π; returns the file."""
    for model in _paths(facts):
        _refuse_missing(folder, model)
    named = {} if facts.reference is None else {"reference": _spelled(folder, facts.reference)}
    return _write(
        folder, {"how": "implicit", "policy": _spelled(folder, facts.policy), **named, "beta": facts.beta}
    )


def save_steps(folder: Path, *, model: Path, reading: Reading) -> Path:
    """Make the folder the reward that a process reward model gives to whole answers; returns the file."""
    _refuse_missing(folder, model)
    return _write(folder, {"how": "steps", "model": _spelled(folder, model), "reading": reading})


def save_taste(folder: Path, taste: Taste) -> Path:
    """Make the folder the taste of a group; returns the file."""
    for model in (taste.module, taste.embedder):
        _refuse_missing(folder, model)
    paths = {name: _spelled(folder, getattr(taste, name)) for name in ("module", "embedder", "context")}
    named = {} if taste.group is None else {"group": taste.group}
    return _write(folder, {"how": "group", **paths, **named})


def read_combination(folder: Path) -> Facts:
    """What the folder's file says, its paths made whole; every one of them is there."""
    path = folder / COMBINED
    facts = _facts_of(path)
    try:
        found = _read(folder, facts)
    except (KeyError, TypeError, ValueError) as error:
        said = error if isinstance(error, UserError) else f"a value is not of its kind ({error})"
        raise UserError(f"{path}: {said}") from error
    for other in _paths(found):
        _refuse_missing(path, other)
    return found


def _facts_of(path: Path) -> dict[str, Any]:
    """The file's own words: an object that holds what its ``how`` takes, and nothing else."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON: {error}") from error
    how = facts.get("how") if isinstance(facts, dict) else None
    if not isinstance(how, str) or how not in _KEYS:
        raise UserError(f"{path}: its how is {how!r}; it is one of {', '.join(_KEYS)}")
    needed, allowed = _KEYS[how]
    missing, unknown = sorted(needed - set(facts)), sorted(set(facts) - needed - allowed - {"how"})
    if missing:
        raise UserError(f"{path}: {', '.join(missing)} is missing; {how} needs it")
    if unknown:
        raise UserError(
            f"{path}: {how} knows no {', '.join(unknown)}; take it out, or look for a slip of the pen"
        )
    return facts


def _read(folder: Path, facts: Mapping[str, Any]) -> Facts:
    if facts["how"] == "implicit":
        reference = _whole(folder, facts["reference"]) if "reference" in facts else None
        policy = _whole(folder, facts["policy"])
        return Policies(policy=policy, reference=reference, beta=_number(facts["beta"]))
    if facts["how"] == "steps":
        if facts["reading"] not in get_args(Reading):
            raise UserError(f"steps are read by {', '.join(get_args(Reading))}, not by {facts['reading']!r}")
        return Process(model=_whole(folder, facts["model"]), reading=facts["reading"])
    if facts["how"] == "group":
        module, embedder, context = (
            _whole(folder, facts[name]) for name in ("module", "embedder", "context")
        )
        named = facts.get("group")
        if named is not None and not isinstance(named, str):
            raise TypeError(f"{named!r} is not the name of a group")
        return Taste(module=module, embedder=embedder, context=context, group=named)
    weights, normal, gate = facts.get("weights"), facts.get("normal"), facts.get("gate")
    combination = Combination(
        how=facts["how"],
        weights=None if weights is None else tuple(map(_number, weights)),
        k=None if facts.get("k") is None else _number(facts["k"]),
        gate=None if gate is None else _place(gate),
        below=None if facts.get("below") is None else _number(facts["below"]),
        normal=None if normal is None else tuple(map(_normalisation, normal)),
    )
    members = tuple(_whole(folder, member) for member in facts["members"])
    combination.refuse_members(len(members))
    return Members(folders=members, combination=combination)


def _number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return value


def _place(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _normalisation(facts: Mapping[str, Any]) -> Normalisation:
    return Normalisation(**{name: _number(value) for name, value in facts.items()})


def _paths(facts: Facts) -> tuple[Path, ...]:
    match facts:
        case Members():
            return facts.folders
        case Policies():
            return facts.folders
        case Process():
            return (facts.model,)
        case Taste():
            return (facts.module, facts.embedder)


def _reached(folder: Path, trail: tuple[Path, ...]) -> Iterator[Path]:
    """The folder and all that it is made of."""
    here = folder.resolve()
    yield here
    if (folder / COMBINED).is_file() and here not in trail:
        for path in _paths(read_combination(folder)):
            yield from _reached(path, (*trail, here))


def _refuse_missing(where: Path, folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(f"{where}: it is made of {folder}, and there is no such folder")


def _whole(folder: Path, spelled: object) -> Path:
    if not isinstance(spelled, str):
        raise TypeError(f"{spelled!r} is not a path")
    return folder / spelled


def _spelled(folder: Path, other: Path) -> str:
    """Relative for what lies in the folder or beside it."""
    here, there = folder.resolve(), other.resolve()
    if there.is_relative_to(here):
        return there.relative_to(here).as_posix()
    if there.is_relative_to(here.parent):
        return f"../{there.relative_to(here.parent).as_posix()}"
    return str(there)


def _write(folder: Path, facts: Mapping[str, object]) -> Path:
    path = folder / COMBINED
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}); choose another place") from error
    with AtomicFile(path) as file:
        file.stream.write((json.dumps(facts, indent=2) + "\n").encode())
    return path
