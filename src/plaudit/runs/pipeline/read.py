"""A pipeline from its YAML file: names, settings, references and files, all checked before anything runs."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

from plaudit.config import (
    Setting,
    all_settings,
    did_you_mean,
    item_type,
    load_yaml,
    nearest_word,
    read_values,
    resolve,
)
from plaudit.errors import UserError, located
from plaudit.evaluation.policies import PolicyWord
from plaudit.methods.registry import METHODS, OWN_ALGORITHMS, config_type
from plaudit.rewards.word_files import word_from
from plaudit.runs.pipeline.kinds import FIELD_NAMES, StageKind
from plaudit.runs.pipeline.spec import (
    HELPER,
    PROMPTED,
    PROMPTED_PARTS,
    START_MODEL,
    WORLD,
    HubNames,
    Pipeline,
    PipelineSettings,
    Stage,
    absolute_word,
    flatten,
    is_shipped,
    names_helper,
    reference_in,
    with_helper,
    word_path,
)
from plaudit.runs.pipeline.stages import stage_kinds

DEFAULT_CONFIG = Path(__file__).with_name("default.yaml")
"""The YAML file of the pipeline that runs without a CONFIG."""
SHIPPED = {
    "default": DEFAULT_CONFIG,
    **{name: Path(__file__).with_name(f"{name}.yaml") for name in ("constitutional", "pictures")},
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_STAGES_EXAMPLE = "stages: [{sft: {do: sft, model: $model, data: rows.jsonl}}, …]"
_ARTICLES = {"rows": "rows", "groups": "groups", "evaluation": "an evaluation"}

_OWN_NAMES = (START_MODEL, HELPER)
_HELPED = "by"
"""The setting that may name the pipeline's helper."""
FlatSettings = dict[str, Any]


def config_path(config: str | PathLike[str] | None) -> Path:
    """The file of a pipeline: as it is named, or one that comes with plaudit where no such file exists.

    >>> config_path("constitutional").name, config_path("own.yaml").name, config_path(None).name
    ('constitutional.yaml', 'own.yaml', 'default.yaml')
    """
    if config is None:
        return DEFAULT_CONFIG
    word, path = str(config), Path(config)
    if path.exists():
        return path
    if word not in SHIPPED and (hint := did_you_mean(word, SHIPPED)):
        raise UserError(f"{word}: no such file, and no pipeline that comes with plaudit is called so{hint}")
    return SHIPPED.get(word, path)


def read_pipeline(
    path: Path,
    *,
    changes: Sequence[str] = (),
    recorded: Callable[[str], Mapping[str, str]] = lambda name: {},
    on_head: Callable[[PipelineSettings], None] = lambda head: None,
    **given: Any,
) -> Pipeline:
    """The pipeline of a file; ``changes`` are as ``stage.setting=value`` and beat it.
    What is ``given`` beats what it says of all stages (`PipelineSettings`); None is as if it were not.
    ``recorded`` gives, for the pipeline's name, the commits that its folder has (`read_hub_names`).
    ``on_head`` is told what holds for all stages before these are read, which takes seconds."""
    loaded, node = load_yaml(path)
    if not isinstance(loaded, dict) or not isinstance(loaded.get("stages") or None, list | dict):
        raise UserError(f"{path}: a pipeline has a list of stages: {_STAGES_EXAMPLE}{_meant_words(loaded)}")
    head_values = {name: value for name, value in loaded.items() if name != "stages"}
    bodies, places = dict[str, FlatSettings](), dict[str, str]()
    for name, body, where in _stage_entries(loaded["stages"], node, path):
        if name in bodies:
            raise UserError(f"{where}: another stage is called {name}; give one of them another name")
        bodies[name], places[name] = _flat_settings(body, where), where
    _apply_changes(head_values, bodies, changes)
    head_values |= {name: value for name, value in given.items() if value is not None}
    names = HubNames(recorded=recorded(str(head_values.get("name") or path.stem)))
    head = _read_head(head_values, path, names)
    on_head(head)
    reader = _StageReader(head, [*bodies], names)
    for name, body in bodies.items():
        reader.read(name, body, places[name])
    if head.helper is not None and not reader.helped:
        raise UserError(f"{path}: helper {head.helper}: no stage has by: ${HELPER}, so it would do nothing")
    model = head.model if head.model is None or is_shipped(head.model) else str(Path(head.model).absolute())
    values = asdict(head) | {"name": head.name or path.stem, "model": model}
    return Pipeline(**values, stages=tuple(reader.stages.values()), hub_names=names.used)


def pipeline_yaml(pipeline: Pipeline) -> str:
    """The pipeline as YAML with absolute paths: it means the same from any folder."""
    import yaml

    head = {field.name: getattr(pipeline, field.name) for field in fields(PipelineSettings)}
    stages = [
        {
            stage.name: {
                **{"do": stage.kind.name, "weight": stage.weight},
                **({} if stage.processes is None else {"processes": stage.processes}),
                **_nest(stage.raw_settings),
            }
        }
        for stage in pipeline.stages
    ]
    document = {name: value for name, value in head.items() if value is not None} | {"stages": stages}
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def _stage_entries(stages: object, node: Any, path: Path) -> Iterator[tuple[str, dict[Any, Any], str]]:
    # Name, settings, and file, line and name of each stage.
    stages_node = next(value for key, value in node.value if key.value == "stages")
    items = [{name: body} for name, body in stages.items()] if isinstance(stages, dict) else stages
    for item, item_node in zip(items if isinstance(items, list) else [], stages_node.value, strict=True):
        first = item_node[0] if isinstance(item_node, tuple) else item_node
        where = f"{path}:{first.start_mark.line + 1}"
        if not isinstance(item, dict) or len(item) != 1:
            raise UserError(f"{where}: a stage is a name with its settings: {_STAGES_EXAMPLE}")
        [(name, body)] = item.items()
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _OWN_NAMES:
            own = " or ".join(map(repr, _OWN_NAMES))
            raise UserError(f"{where}: stage {name!r}: use letters, digits, - and _, and not {own}")
        if not isinstance(body, dict):
            raise UserError(f"{where}: stage {name}: expected settings (name: value), got {body!r}")
        yield name, body, f"{where}: stage {name}"


def _flat_settings(body: Mapping[Any, Any], where: str) -> FlatSettings:
    # Settings by whole names, whether a group is written ``policy.beta`` or has its own lines.
    # Refuses two spellings of one name, and a value beside settings of the group of that name.
    keys = [key for key, _ in flatten(body)]
    for key in keys:
        if keys.count(key) > 1 or any(other.startswith(f"{key}.") for other in keys):
            raise UserError(f"{where}: {key} is set twice; keep one of the two")
    return dict(flatten(body))


def _nest(settings: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        *groups, last = key.split(".")
        target = nested
        for group in groups:
            target = target.setdefault(group, {})
        target[last] = value
    return nested


def _apply_changes(
    head_values: FlatSettings, bodies: Mapping[str, FlatSettings], changes: Sequence[str]
) -> None:
    import yaml

    for change in changes:
        key, equals, word = change.partition("=")
        stage_name, dot, setting = key.partition(".")
        if not equals:
            raise UserError(f"--set {change}: write stage.setting=value")
        try:
            value = yaml.safe_load(word)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise UserError(f"--set {change}: {word[:60]!r} is not YAML") from error
        if dot and stage_name not in bodies:
            raise UserError(
                f"--set {change}: there is no stage {stage_name!r}{did_you_mean(stage_name, bodies)}"
            )
        target, name = (bodies[stage_name], setting.replace("-", "_")) if dot else (head_values, key)
        target[name] = value


def _read_head(head_values: Mapping[str, Any], path: Path, names: HubNames) -> PipelineSettings:
    head = resolve(PipelineSettings, read_values(head_values, PipelineSettings, str(path)), {})
    for name, value in (("jobs", head.jobs), ("threads", head.threads), ("processes", head.processes)):
        if value is not None and value < 1:
            raise UserError(f"{path}: {name} must be at least 1, not {value}")
    if head.name and not _NAME.fullmatch(head.name):
        raise UserError(f"{path}: name {head.name!r}: use letters, digits, - and _")
    if head.model is not None and not is_shipped(head.model):
        head = replace(head, model=names.local_word(str(head.model), "model"))
        if not word_path(str(head.model)).is_dir():
            raise UserError(f"{path}: model: {head.model}: there is no such folder; {WORLD} is plaudit's own")
    return head if head.helper is None else replace(head, helper=word_from(head.helper, Path.cwd()))


class _StageReader:
    """Reads stages one after another: each may name those that were read before it."""

    def __init__(self, head: PipelineSettings, names: Sequence[str], hub_names: HubNames) -> None:
        self._head, self._names, self._hub_names = head, names, hub_names
        self.stages: dict[str, Stage] = {}
        self.helped = False

    def read(self, name: str, body: FlatSettings, where: str) -> None:
        """Add the stage, checked as far as can be without running anything."""
        with located(where):
            kind, weight = _kind_and_weight(body)
            processes = _own_processes(body)
            settings = {k: v for k, v in body.items() if k not in ("do", "weight", "processes")}
            if kind.trains and "out" in settings:
                raise UserError("out: the pipeline says where a run lies; leave it out")
            inputs = self._read_inputs(name, kind, settings)
            settings |= _absolute_store(settings)
            prompted = self._read_prompted(name, kind, settings)
        # Rows of several sources are one file when the stage runs.
        lists = {setting.key for setting in all_settings(kind.settings) if item_type(setting.value_type)}
        single = {key: words[0] for key, words in inputs.items() if key not in lists}
        if any(len(inputs[key]) > 1 for key in single) and any(map(settings.get, FIELD_NAMES)):
            raise UserError(
                f"{where}: {' and '.join(FIELD_NAMES)} are about one file, and several stand here; give each "
                "file a stage of its own (do: rows, data: FILE, columns: [prompt=question]) and name these"
            )
        values = read_values(_nest(settings | single), kind.settings, where)
        for key, value in ((".".join(path), value) for path, value in values.items()):
            if key not in kind.accepts and str(value).startswith("$"):
                raise UserError(f"{where}: {key}: takes no stage's result, and {value} stands there")
        own_paths = {setting.path for setting in all_settings(kind.settings)}
        for path, value in ((("seed",), self._head.seed), (("device",), self._head.device)):
            if path in own_paths:
                values.setdefault(path, value)
        inputs |= {PROMPTED: prompted} if prompted else {}
        checked = {"values": values, "inputs": inputs, "where": where, "weight": weight}
        self.stages[name] = stage = Stage(
            name=name, kind=kind, raw_settings=settings, processes=processes, **checked
        )
        stage.config({})
        if (stage.processes or 1) > 1 and not stage.divides:
            raise UserError(f"{where}: processes: what it does is done by one process; leave it out")

    def _read_inputs(self, name: str, kind: StageKind, settings: FlatSettings) -> dict[str, tuple[str, ...]]:
        # The words of what lies outside of the stage; they replace those in ``settings``, absolute.
        # One word may stand for a list of one.
        inputs: dict[str, tuple[str, ...]] = {}
        for setting in all_settings(kind.settings):
            key, value = setting.key, settings.get(setting.key)
            if value is None or setting.group is not None:
                continue
            takes_list = item_type(setting.value_type) is not None
            if takes_list and not isinstance(value, list):
                settings[key] = value = [value]
            if key not in kind.accepts:
                continue
            given = [str(word) for word in (value if isinstance(value, list) else [value])]
            words = [self._helped(word, key) for word in given]
            named = [policy.name for policy in _prompted_policies(kind, settings)]
            checked = [
                word
                if key == "against" and word in named
                else self._checked_word(word, name, setting, kind.accepts[key], kind.words.get(key, ()))
                for word in words
            ]
            if not takes_list and len(words) > 1 and kind.accepts[key] != ("rows",):
                raise UserError(f"{key}: {', '.join(checked)}: only rows can be several")
            # A pipeline that is written down still says that it is the helper, so that another may be named.
            shown = [old if names_helper(old) else new for old, new in zip(given, checked, strict=True)]
            settings[key] = shown if takes_list or len(shown) > 1 else shown[0]
            if checked:
                inputs[key] = tuple(checked)
        return inputs

    def _read_prompted(self, name: str, kind: StageKind, settings: FlatSettings) -> tuple[str, ...]:
        # What the words of prompted policies name; they replace the words in ``settings``, absolute.
        found: list[str] = []
        policies = [*_prompted_policies(kind, settings)]
        for number, policy in enumerate(policies):
            setting = next(setting for setting in all_settings(kind.settings) if setting.key == "policy")
            for part, word in policy.inputs.items():
                found.append(self._checked_word(word, name, setting, PROMPTED_PARTS[part]))
                policies[number] = replace(policies[number], **{part: found[-1]})
        settings |= {"policy": [*map(str, policies)]} if policies else {}
        return tuple(found)

    def _helped(self, word: str, key: str) -> str:
        if key != _HELPED or not names_helper(word):
            return word
        if self._head.helper is None:
            raise UserError(
                f"{key}: ${HELPER} is who judges, revises and attacks here, and none is named: add helper: "
                "openai:http://host/v1#model, or give --helper"
            )
        self.helped = True
        return with_helper(word, self._head.helper)

    def _checked_word(
        self, word: str, name: str, setting: Setting, accepted: Sequence[str], own: tuple[str, ...] = ()
    ) -> str:
        """The word as it can be read from anywhere, or the reference, where that may stand here."""
        key = setting.key
        reference, may_judge = reference_in(word), not accepted or "reward" in accepted
        if reference is None or not (reference.is_whole or may_judge):
            return absolute_word(word, setting, self._hub_names, rows=tuple(accepted) == ("rows",), own=own)
        result_type = self._result_type(reference.name, name, key)
        if not reference.is_whole:
            from plaudit.evaluation.policies.judge import check_judge

            word, accepted = word_from(word, Path.cwd()), ("model",)
            # Its settings, with a folder that is there in place of one that is still to come.
            check_judge(f"model:.{reference.behind}", has_gold=False)
        if result_type not in accepted:
            expected = " or ".join(accepted) or "no stage's result, but a file"
            given = _ARTICLES.get(result_type, f"a {result_type}")
            hint = f"; as a judge write model:{word}" if key == _HELPED and result_type == "model" else ""
            raise UserError(f"{key}: {word} gives {given}, and this takes {expected}{hint}")
        return word

    def _result_type(self, name: str, here: str, key: str) -> str:
        if name in self.stages:
            return self.stages[name].kind.produces
        has_model = self._head.model is not None
        if name == START_MODEL and has_model:
            return "model"
        if names_helper(f"${name}"):
            raise UserError(f"{key}: ${HELPER} is who judges, revises and attacks: {_HELPED} takes it")
        if name == START_MODEL:
            reason = "is the pipeline's own model, and none is named: add model: world"
        elif name == here:
            reason = "is this stage itself; name a stage above it"
        elif name in self._names:
            reason = "comes later; a stage reads what stands above it"
        else:
            known = [START_MODEL, *self.stages] if has_model else self.stages
            raise UserError(f"{key}: there is no stage ${name}{did_you_mean(name, known)}")
        raise UserError(f"{key}: ${name} {reason}")


def _absolute_store(settings: FlatSettings) -> FlatSettings:
    # The file of a label store, or of an archive of attacks, as it can be opened from any folder.
    named = {
        key: settings[key] for key in ("store", "loop.store", "archive") if isinstance(settings.get(key), str)
    }
    return {key: str(Path(word).absolute()) for key, word in named.items() if "://" not in word}


def _prompted_policies(kind: StageKind, settings: FlatSettings) -> Iterator[PolicyWord]:
    words = settings.get("policy") if kind.prompted else None
    for word in words if isinstance(words, list) else [] if words is None else [words]:
        yield PolicyWord.parse(str(word))


def _kind_and_weight(body: FlatSettings) -> tuple[StageKind, int | float]:
    name, kinds = body.get("do"), stage_kinds()
    if name is None:
        raise UserError("say what it does, as in do: sft")
    if name not in kinds:
        without_table = ", ".join((*(kind.name for kind in kinds.values() if not kind.trains), *METHODS))
        hint = did_you_mean(str(name), kinds) or f"; there are {without_table} and the algorithms"
        raise UserError(f"there is no kind of stage {name!r}{hint} (plaudit train --list)")
    weight = body.get("weight", kinds[name].weight)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or weight <= 0:
        raise UserError(f"weight is a number above 0, not {weight!r}")
    own = body.get("algorithm")
    if name in OWN_ALGORITHMS and isinstance(own, str):
        return replace(kinds[name], settings=config_type(name, own)), weight
    return kinds[name], weight


def _own_processes(body: FlatSettings) -> int | None:
    processes = body.get("processes")
    if processes is None:
        return None
    if type(processes) is not int or processes < 1:
        raise UserError(f"processes is a whole number from 1, not {processes!r}")
    return processes


def _meant_words(loaded: object) -> str:
    names = [str(name) for name in loaded] if isinstance(loaded, dict) else []
    if {"model", "data"} <= set(names):
        return ". This is a config of one run: plaudit train METHOD --config FILE"
    near = next((name for name in names if nearest_word(name, ["stages"])), None)
    return "" if near is None or near == "stages" else f" (here {near!r}; did you mean stages?)"
