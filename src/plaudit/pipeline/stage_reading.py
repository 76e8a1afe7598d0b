"""One stage from what was written down: its kind, its settings, and what its words refer to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plaudit.configs.config_file import read_values
from plaudit.configs.settings import Names, Setting, all_settings
from plaudit.configs.suggest import did_you_mean
from plaudit.configs.values import item_of
from plaudit.errors import UserError
from plaudit.pipeline.kinds import Kind, kinds, plain_names
from plaudit.pipeline.stage import START, Stage
from plaudit.pipeline.words import outside

OWN = ("do", "weight")
"""What a stage says of itself, beside the settings of its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A stage as it stands in the file.

    Example: ``Written(name="sft", body={"do": "sft", "data": "$rows"}, where="a.yaml:3: stage sft")``
    """

    name: str
    """What it is called."""
    body: dict[str, Any]
    """What stands there: names with underscores, groups inside each other."""
    where: str
    """File, line and name, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a stage can refer to.

    Example: ``Around(seed=0, start=True, above={"rows": rows}, every=("rows", "sft"))``
    """

    seed: int
    """Of a stage that names none."""
    start: bool
    """Whether there is a ``$model``."""
    above: Mapping[str, Stage]
    """The stages that stand above it."""
    every: Sequence[str]
    """The names of all stages."""


def read_stage(one: Written, around: Around) -> Stage:
    """The stage, checked as far as can be without running anything."""
    kind = _kind(one)
    body = {name: value for name, value in one.body.items() if name not in OWN}
    if kind.trains and "out" in body:
        raise UserError(f"{one.where}: out: the pipeline says where a run lies; leave it out")
    leaves = {setting.key: setting for setting in all_settings(kind.settings) if setting.group is None}
    inputs: dict[str, tuple[str, ...]] = {}
    for setting in leaves.values():
        words = _listed(body, setting, several=setting.key in kind.takes)
        if words:
            checked = [_word(word, one, setting, kind, around) for word in words]
            inputs[setting.key] = tuple(checked)
            alone = len(checked) == 1 and item_of(setting.wanted) is None
            _put(body, setting.path, checked[0] if alone else checked)
    values = read_values(_one_each(body, leaves, inputs, one), kind.settings, one.where)
    _refuse_references_elsewhere(values, kind, one)
    if "seed" in leaves:
        values.setdefault(("seed",), around.seed)
    stage = Stage(
        name=one.name,
        kind=kind,
        said=body,
        values=values,
        inputs=inputs,
        where=one.where,
        weight=_weight(one, kind),
    )
    stage.config({})
    return stage


def _kind(one: Written) -> Kind:
    do, known = one.body.get("do"), kinds()
    if do is None:
        raise UserError(f"{one.where}: say what it does, as in do: sft")
    if do not in known:
        hint = did_you_mean(str(do), known) or f"; there are {', '.join(plain_names())} and the algorithms"
        raise UserError(f"{one.where}: there is no kind of stage {do!r}{hint} (plaudit train --list)")
    return known[do]


def _weight(one: Written, kind: Kind) -> int | float:
    weight = one.body.get("weight", kind.weight)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or weight <= 0:
        raise UserError(f"{one.where}: weight is a number above 0, not {weight!r}")
    return weight


def _listed(body: dict[str, Any], setting: Setting, *, several: bool) -> list[str]:
    """The words of a setting; one word becomes a list of one where a list is wanted."""
    value = _get(body, setting.path)
    if value is None:
        return []
    if item_of(setting.wanted) is not None and not isinstance(value, list):
        value = [value]
        _put(body, setting.path, value)
    if not several:
        return []
    return [str(word) for word in value] if isinstance(value, list) else [str(value)]


def _word(word: str, one: Written, setting: Setting, kind: Kind, around: Around) -> str:
    """The word as it can be read from anywhere, or the reference, where that may stand here."""
    try:
        if not word.startswith("$"):
            return outside(word, setting)
        _refuse_wrong_reference(word[1:], one, setting, kind, around)
    except UserError as error:
        raise UserError(f"{one.where}: {error}") from error
    return word


def _refuse_wrong_reference(name: str, one: Written, setting: Setting, kind: Kind, around: Around) -> None:
    wanted, key = kind.takes[setting.key], setting.key
    if name == START and around.start:
        sort = "model"
    elif name == START:
        raise UserError(f"{key}: ${START} is the pipeline's own model, and none is named: add model: world")
    elif name == one.name:
        raise UserError(f"{key}: ${name} is this stage itself; name a stage above it")
    elif name in around.above:
        sort = around.above[name].kind.gives
    elif name in around.every:
        raise UserError(f"{key}: ${name} comes later; a stage reads what stands above it")
    else:
        known = [START, *around.above] if around.start else [*around.above]
        raise UserError(f"{key}: there is no stage ${name}{did_you_mean(name, known)}")
    if sort not in wanted:
        asked = " or ".join(wanted) or "no stage's result, but a file"
        raise UserError(f"{key}: ${name} gives {_article(sort)}, and this takes {asked}")


def _article(sort: str) -> str:
    return sort if sort in ("rows", "groups") else f"an {sort}" if sort == "evaluation" else f"a {sort}"


def _one_each(
    body: Mapping[str, Any],
    leaves: Mapping[str, Setting],
    inputs: Mapping[str, tuple[str, ...]],
    one: Written,
) -> dict[str, Any]:
    """The settings as the kind knows them: rows of several sources are one file when it runs."""
    found = _copied(body)
    for key, words in inputs.items():
        setting = leaves[key]
        if item_of(setting.wanted) is not None or len(words) == 1:
            continue
        if kinds()[one.body["do"]].takes[key] != ("rows",):
            raise UserError(f"{one.where}: {key}: {', '.join(words)}: only rows can be several")
        _put(found, setting.path, words[0])
    return found


def _refuse_references_elsewhere(values: Mapping[Names, object], kind: Kind, one: Written) -> None:
    for path, value in values.items():
        key = ".".join(path)
        if key not in kind.takes and str(value).startswith("$"):
            raise UserError(f"{one.where}: {key}: takes no stage's result, and {value} stands there")


def _get(body: Mapping[str, Any], path: Names) -> Any:
    place: Any = body
    for name in path:
        place = place.get(name) if isinstance(place, dict) else None
    return place


def _put(body: dict[str, Any], path: Names, value: object) -> None:
    place = body
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value


def _copied(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) if isinstance(value, dict) else value for name, value in body.items()}
