"""A pipeline from its YAML file: names, settings, references and files, all checked before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plaudit.configs.config_file import load_yaml, read_values
from plaudit.configs.resolve import resolve
from plaudit.configs.suggest import did_you_mean
from plaudit.errors import UserError
from plaudit.pipeline.stage import START, Pipeline, Stage
from plaudit.pipeline.stage_reading import Around, Written, read_stage
from plaudit.pipeline.words import WORLD, path_of

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSettings:
    """What a pipeline says beside its stages.

    Example: ``HeadSettings(name="valley", model="world", jobs=2, threads=1)``
    """

    name: str | None = None
    """What its folder is called; none: as the file."""
    seed: int = 0
    """Of every stage that names none."""
    model: str | None = None
    """What $model means: a folder, or world for the model that comes with plaudit."""
    jobs: int = 1
    """How many stages run side by side, each in a process of its own."""
    threads: int | None = None
    """Threads of each stage; none: as many as there are cores."""

    def __post_init__(self) -> None:
        """Refuse what cannot run."""
        for name in ("jobs", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}")
        if self.name is not None and not _NAME.fullmatch(self.name):
            raise UserError(f"name {self.name!r}: use letters, digits, - and _")


def read_pipeline(
    path: Path, *, changes: Sequence[str] = (), seed: int | None = None, jobs: int | None = None
) -> Pipeline:
    """The pipeline of a file; ``changes`` are as ``stage.setting=value`` and beat it."""
    loaded, node = load_yaml(path)
    if not isinstance(loaded, dict) or not loaded.get("stages"):
        raise UserError(f"{path}: a pipeline has a list of stages: {_SHAPE}")
    rest = {name: value for name, value in loaded.items() if name != "stages"}
    written = list(_written(loaded["stages"], _lines(node), path))
    _refuse_equal_names(written)
    _change(rest, {one.name: one.body for one in written}, changes)
    said = {"seed": seed, "jobs": jobs}
    rest |= {name: value for name, value in said.items() if value is not None}
    head = _head(rest, path)
    start, every = _start(head, path), [one.name for one in written]
    stages: dict[str, Stage] = {}
    for one in written:
        around = Around(seed=head.seed, start=start is not None, above=stages, every=every)
        stages[one.name] = read_stage(one, around)
    return Pipeline(
        name=head.name or path.stem,
        seed=head.seed,
        model=start,
        jobs=head.jobs,
        threads=head.threads,
        stages=tuple(stages.values()),
    )


def as_written(pipeline: Pipeline) -> str:
    """The pipeline as YAML that means the same from any folder."""
    import yaml

    head = {"name": pipeline.name, "seed": pipeline.seed, "model": pipeline.model}
    how = {"jobs": pipeline.jobs, "threads": pipeline.threads}
    stages = [
        {stage.name: {"do": stage.kind.name, "weight": stage.weight, **stage.said}}
        for stage in pipeline.stages
    ]
    whole = {name: value for name, value in (head | how).items() if value is not None} | {"stages": stages}
    return yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=100)


_SHAPE = "stages: [{sft: {do: sft, model: $model, data: rows.jsonl}}, …]"


def _lines(node: Any) -> list[int]:
    """The line of each stage."""
    found = next(value for key, value in node.value if key.value == "stages")
    return [(item[0] if isinstance(item, tuple) else item).start_mark.line + 1 for item in found.value]


def _written(stages: object, lines: Sequence[int], path: Path) -> Iterator[Written]:
    items = [{name: body} for name, body in stages.items()] if isinstance(stages, dict) else stages
    for item, line in zip(items if isinstance(items, list) else [], lines, strict=True):
        where = f"{path}:{line}"
        if not isinstance(item, dict) or len(item) != 1:
            raise UserError(f"{where}: a stage is a name with its settings: {_SHAPE}")
        [(name, body)] = item.items()
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == START:
            raise UserError(f"{where}: stage {name!r}: use letters, digits, - and _, and not {START!r}")
        where = f"{where}: stage {name}"
        if not isinstance(body, dict):
            raise UserError(f"{where}: expected settings (name: value), got {body!r}")
        yield Written(name=name, body=_nested(body, where), where=where)


def _refuse_equal_names(written: Sequence[Written]) -> None:
    seen: set[str] = set()
    for one in written:
        if one.name in seen:
            raise UserError(f"{one.where}: another stage is called {one.name}; give one of them another name")
        seen.add(one.name)


def _nested(said: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """Names with underscores, and ``policy.beta`` as a setting in a group."""
    found: dict[str, Any] = {}
    for name, value in said.items():
        inside = _nested(value, where) if isinstance(value, dict) else value
        *groups, last = str(name).replace("-", "_").split(".")
        place = found
        for group in groups:
            place = place.setdefault(group, {})
        if isinstance(inside, dict) and isinstance(place.get(last), dict):
            place[last] |= inside
        elif last in place:
            raise UserError(f"{where}: {name} is set twice; keep one of the two")
        else:
            place[last] = inside
    return found


def _change(rest: dict[str, Any], bodies: Mapping[str, dict[str, Any]], changes: Sequence[str]) -> None:
    """Write what the command line says over what the file says."""
    import yaml

    for change in changes:
        key, equals, word = change.partition("=")
        first, dot, setting = key.partition(".")
        if not equals:
            raise UserError(f"--set {change}: write stage.setting=value")
        try:
            value = yaml.safe_load(word)
        except yaml.YAMLError as error:
            raise UserError(f"--set {change}: {word!r} is not YAML") from error
        if not dot:
            rest[key] = value
            continue
        if first not in bodies:
            raise UserError(f"--set {change}: there is no stage {first!r}{did_you_mean(first, bodies)}")
        *groups, last = setting.replace("-", "_").split(".")
        place = bodies[first]
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value


def _head(rest: Mapping[str, Any], path: Path) -> HeadSettings:
    try:
        return resolve(HeadSettings, read_values(rest, HeadSettings, str(path)), {})
    except UserError as error:
        raise UserError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def _start(head: HeadSettings, path: Path) -> str | None:
    if head.model is None or head.model == WORLD:
        return head.model
    if not path_of(head.model).is_dir():
        raise UserError(f"{path}: model: {head.model}: there is no such folder; {WORLD} is plaudit's own")
    return str(Path(head.model).absolute())
