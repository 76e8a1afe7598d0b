"""``combined.json``: the file that makes a folder a reward put together from others.

Four kinds: members and how they are combined; a policy and its reference (the implicit reward of DPO); a
process reward model and how its steps are read; a group and what is known of it. Paths in it are relative to
the folder for what lies in it or beside it, so that both can be moved together, and absolute for the rest.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, get_args

from plaudit.errors import UserError
from plaudit.files.atomic import write_text
from plaudit.files.model_folder import read_json_object
from plaudit.models.reward_model import Normalisation
from plaudit.rewards.combine.aggregate import Aggregation, Combination
from plaudit.rewards.learned.process import StepAggregation
from plaudit.rewards.learned.scalar import refuse_beta

COMBINED_FILE = "combined.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinationManifest:
    folders: tuple[Path, ...]
    combination: Combination


@dataclass(frozen=True, slots=True, kw_only=True)
class ImplicitManifest:
    """A policy, and what it was trained against."""

    how: ClassVar[str] = "implicit"
    policy: Path
    reference: Path | None
    """The folder of its reference; None where likelihood alone is the reward."""
    beta: int | float

    def __post_init__(self) -> None:
        refuse_beta(self.beta)

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.policy,) if self.reference is None else (self.policy, self.reference)

    def describe(self, policy: str = "", reference: str = "") -> str:
        """What the reward is, in words; models are called by their folders unless they have names."""
        policy_prefers = f"{policy or self.policy} finds an answer"
        if self.reference is None:
            return f"{self.beta:g} times how likely {policy_prefers}"
        return f"{self.beta:g} times how much likelier {policy_prefers} than {reference or self.reference}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessManifest:
    how: ClassVar[str] = "steps"
    model: Path
    reading: StepAggregation

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.model,)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupManifest:
    how: ClassVar[str] = "group"
    module: Path
    embedder: Path
    """The folder of the language model that it was trained beside."""
    context: Path
    group: str | None
    """Whose of them count; None for all."""

    @property
    def folders(self) -> tuple[Path, ...]:
        return (self.module, self.embedder)


RewardManifest = CombinationManifest | ImplicitManifest | ProcessManifest | GroupManifest

_MANIFEST_KEYS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "implicit": (frozenset(["policy", "beta"]), frozenset(["reference"])),
    "steps": (frozenset(["model", "reading"]), frozenset()),
    "group": (frozenset(["module", "embedder", "context"]), frozenset(["group"])),
    **{
        how: (frozenset(["members"]), frozenset(["weights", "k", "gate", "below", "normal"]))
        for how in get_args(Aggregation)
    },
}
"""What the file must hold beside ``how``, and what it may."""


def save_combination(folder: Path, members: Sequence[Path], combination: Combination) -> Path:
    """Make the folder a reward of these members, each a reward's folder that is there already.
    Returns the file that was written."""
    combination.refuse_members(len(members))
    for member in members:
        _refuse_missing(folder, member)
        # Before anything is written: what contains itself could never be loaded again.
        if folder.resolve() in _reachable_folders(member, ()):
            raise UserError(f"{member}: this reward is made of {folder}, so it cannot be a member of it")
    fields = {name: value for name, value in asdict(combination).items() if value is not None}
    return _write_manifest(
        folder, {**fields, "members": [_relative_path(folder, member) for member in members]}
    )


def save_manifest(folder: Path, manifest: ImplicitManifest | ProcessManifest | GroupManifest) -> Path:
    """Make the folder the reward that the manifest says; returns the file."""
    for model in manifest.folders:
        _refuse_missing(folder, model)
    fields = {
        name: _relative_path(folder, value) if isinstance(value, Path) else value
        for name, value in asdict(manifest).items()
        if value is not None
    }
    return _write_manifest(folder, {"how": manifest.how, **fields})


def read_manifest(folder: Path) -> RewardManifest:
    """What the folder's file says, its paths made whole; every one of them is there."""
    path = folder / COMBINED_FILE
    # The file's JSON object, checked to hold what its ``how`` takes and nothing else.
    fields = read_json_object(path)
    how = fields.get("how")
    if not isinstance(how, str) or how not in _MANIFEST_KEYS:
        raise UserError(f"{path}: its how is {how!r}; it is one of {', '.join(_MANIFEST_KEYS)}")
    needed, allowed = _MANIFEST_KEYS[how]
    missing, unknown = sorted(needed - set(fields)), sorted(set(fields) - needed - allowed - {"how"})
    if missing:
        raise UserError(f"{path}: {', '.join(missing)} is missing; {how} needs it")
    if unknown:
        raise UserError(
            f"{path}: {how} knows no {', '.join(unknown)}; take it out, or look for a slip of the pen"
        )
    try:
        manifest = _parse_manifest(folder, fields)
    except (KeyError, TypeError, ValueError) as error:
        reason = error if isinstance(error, UserError) else f"a value is not of its kind ({error})"
        raise UserError(f"{path}: {reason}") from error
    for other in manifest.folders:
        _refuse_missing(path, other)
    return manifest


def _parse_manifest(folder: Path, fields: Mapping[str, Any]) -> RewardManifest:
    if fields["how"] == "implicit":
        reference = _resolve_path(folder, fields["reference"]) if "reference" in fields else None
        policy = _resolve_path(folder, fields["policy"])
        return ImplicitManifest(policy=policy, reference=reference, beta=_parse_number(fields["beta"]))
    if fields["how"] == "steps":
        if fields["reading"] not in get_args(StepAggregation):
            raise UserError(
                f"steps are read by {', '.join(get_args(StepAggregation))}, not by {fields['reading']!r}"
            )
        return ProcessManifest(model=_resolve_path(folder, fields["model"]), reading=fields["reading"])
    if fields["how"] == "group":
        module, embedder, context = (
            _resolve_path(folder, fields[name]) for name in ("module", "embedder", "context")
        )
        group = fields.get("group")
        if group is not None and not isinstance(group, str):
            raise TypeError(f"{group!r} is not the name of a group")
        return GroupManifest(module=module, embedder=embedder, context=context, group=group)
    weights, normal, gate = fields.get("weights"), fields.get("normal"), fields.get("gate")
    combination = Combination(
        how=fields["how"],
        weights=None if weights is None else tuple(map(_parse_number, weights)),
        k=None if fields.get("k") is None else _parse_number(fields["k"]),
        gate=None if gate is None else _parse_integer(gate),
        below=None if fields.get("below") is None else _parse_number(fields["below"]),
        normal=None if normal is None else tuple(map(_parse_normalisation, normal)),
    )
    members = tuple(_resolve_path(folder, member) for member in fields["members"])
    combination.refuse_members(len(members))
    return CombinationManifest(folders=members, combination=combination)


def _parse_number(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return value


def _parse_integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _parse_normalisation(fields: Mapping[str, Any]) -> Normalisation:
    return Normalisation(**{name: _parse_number(value) for name, value in fields.items()})


def _reachable_folders(folder: Path, trail: tuple[Path, ...]) -> Iterator[Path]:
    resolved = folder.resolve()
    yield resolved
    # The trail ends the walk where files written by hand make a circle.
    if (folder / COMBINED_FILE).is_file() and resolved not in trail:
        for path in read_manifest(folder).folders:
            yield from _reachable_folders(path, (*trail, resolved))


def _refuse_missing(where: Path, folder: Path) -> None:
    if not folder.is_dir():
        raise UserError(f"{where}: it is made of {folder}, and there is no such folder")


def _resolve_path(folder: Path, relative: object) -> Path:
    if not isinstance(relative, str):
        raise TypeError(f"{relative!r} is not a path")
    return folder / relative


def _relative_path(folder: Path, other: Path) -> str:
    base, target = folder.resolve(), other.resolve()
    # Within the folder or beside it: the two can move together and still find each other.
    if target.is_relative_to(base):
        return target.relative_to(base).as_posix()
    if target.is_relative_to(base.parent):
        return f"../{target.relative_to(base.parent).as_posix()}"
    return str(target)


def _write_manifest(folder: Path, fields: Mapping[str, object]) -> Path:
    path = folder / COMBINED_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}); choose another place") from error
    write_text(path, json.dumps(fields, indent=2) + "\n")
    return path
