"""Train, evaluate and run pipelines from Python: ``plaudit.train``, ``plaudit.evaluate``, ``plaudit.run``.

Settings are those of the commands, checked by the same code; importing this does not import torch.
"""

from __future__ import annotations

import html
import inspect
import json
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from plaudit.config import did_you_mean, missing_settings, read_values, resolve, to_plain_data
from plaudit.errors import UserError
from plaudit.methods.algorithm import algorithm as from_signature
from plaudit.methods.preference.algorithms import OWN
from plaudit.methods.registry import TABLES, config_type, config_types, run_method

if TYPE_CHECKING:
    from plaudit.data.records import Record
    from plaudit.evaluation.policies.evaluate import Scorers
    from plaudit.evaluation.policies.result import PolicyEvaluation
    from plaudit.evaluation.reward_models.result import RewardEvaluation
    from plaudit.models.policy import Policy
    from plaudit.report.pipeline.data import PipelineData
    from plaudit.rewards.base import Reward

Rows = str | os.PathLike[str] | Sequence["Mapping[str, Any] | Record"]
"""A file of rows, or the rows themselves: dicts as a file has them, or records."""
Algorithm = str | Callable[..., Any] | Any
"""A method's name, ``file.py:name``, a function that makes an algorithm, or what such a function makes."""


class Table(list[dict[str, Any]]):
    """Rows with the same columns: a list of dicts that prints as a table and goes to pandas and Arrow.

    >>> print(Table([{"step": 1, "loss": 0.693147}, {"step": 2, "loss": 0.5}]))
    step  loss
    1     0.6931
    2     0.5
    """

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in the order in which they first appear."""
        return list(dict.fromkeys(name for row in self for name in row))

    def column(self, name: str) -> list[Any]:
        """The values of a column; None where a row has none.

        >>> Table([{"loss": 0.5, "held_out/loss": 0.6}, {"loss": 0.4}]).column("held_out/loss")
        [0.6, None]
        """
        if name not in self.columns:
            raise UserError(f"there is no column {name}{did_you_mean(name, self.columns)}")
        return [row.get(name) for row in self]

    def select(self, *names: str) -> Table:
        """The table with these columns only."""
        columns = {name: self.column(name) for name in names}
        return Table({name: values[at] for name, values in columns.items()} for at in range(len(self)))

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        return _import_library("pandas", "to_pandas").DataFrame(list(self), columns=self.columns)

    def to_arrow(self) -> Any:
        """The table as an Arrow table."""
        columns = {name: self.column(name) for name in self.columns}
        return _import_library("pyarrow", "to_arrow").table(columns)

    def _cells(self) -> list[list[str]]:
        names = self.columns
        return [names, *([_cell(row.get(name)) for name in names] for row in self)]

    def __str__(self) -> str:
        """The table as text, with aligned columns."""
        widths = [max(map(len, column)) for column in zip(*self._cells(), strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for row in self._cells()
        )
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        """The table as notebooks show it."""
        rows = [
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
            for tag, row in zip(["th", *["td"] * len(self)], self._cells(), strict=True)
        ]
        return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _import_library(name: str, method: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(f"{method} needs {name}: pip install {name}") from error


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What a training run left in its folder.

    Example: ``plaudit.train("dpo", model="base", data="pairs.jsonl", out="runs/dpo").metrics``
    """

    folder: Path
    """The run folder; ``plaudit.TrainingResult(Path("runs/dpo"))`` opens one that was trained before."""

    @property
    def metrics(self) -> Table:
        """A row for each step: loss, rewards, KL and whatever else the method reports (docs/metrics.md)."""
        from plaudit.engine.sinks.files import read_reports

        return Table({"step": report.step, **report.flattened()} for report in read_reports(self.folder))

    @property
    def summary(self) -> Mapping[str, Any]:
        """Its last and best figures, and its notes: summary.json."""
        return json.loads((self.folder / "summary.json").read_text("utf-8"))

    @property
    def model_folder(self) -> Path:
        """The model, as a Hugging Face folder."""
        from plaudit.rewards.load import model_folder

        return model_folder(self.folder)

    @property
    def report(self) -> Path:
        """The page of the run."""
        return self.folder / "report.html"

    def load(self, *, device: str = "auto") -> Policy | Reward:
        """What was trained: a `Policy`, or a `Reward` where answers are scored."""
        if _is_reward(self.folder):
            from plaudit.rewards.load import load_reward

            return load_reward(self.folder, device=device)
        from plaudit.models.load import device_of, load_model, precision
        from plaudit.models.policy import Policy

        place = device_of(device)
        dtype = precision("auto", place).weights
        return Policy(load_model(self.model_folder, dtype=dtype, device=place))


def train(algorithm: Algorithm, *, out: str | os.PathLike[str], **settings: Any) -> TrainingResult:
    """Train by an algorithm into the folder ``out``, or go on there; the settings are those of the command.

    ``plaudit.train("dpo", model="base", data="pairs.jsonl", out="runs/dpo", beta=0.2, lora={"rank": 8})``

    algorithm: a name (``plaudit train --list``), ``mine.py:name``, a function that makes an algorithm such as
    ``plaudit.simpo`` or one of your own, or what it makes: ``plaudit.dpo(beta=0.2)``.
    data: a file, or rows. Groups of settings are dicts.
    """
    method, record, settings = _resolve_algorithm(algorithm, dict(settings))
    own = settings.get("algorithm") if method == OWN else None
    kind = _record_entry(record).config_type() if record is not None else config_type(method, own)
    folder = Path(out)
    # One word for all methods in Python: what a policy run calls prompts may be given as data.
    prompts = "prompts" in kind.__dataclass_fields__
    if prompts and "data" in settings and "prompts" not in settings:
        settings["prompts"] = settings.pop("data")
    for name in ("data", "prompts"):
        if name in settings:
            settings[name] = _rows_file(settings[name], folder, name)
    config = _make_config(kind, {**settings, "out": str(folder)}, method)
    if record is None:
        run_method(method, config)
    else:
        _record_entry(record).run(record, config)
    return TrainingResult(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordEntry:
    """How an algorithm that is given as a record is trained."""

    records: tuple[str, ...]
    config: str
    function: str

    def config_type(self) -> type:
        return _load(self.config)

    def run(self, record: Any, config: Any) -> Any:
        return _load(self.function)(record, config)


RECORDS = (
    _RecordEntry(
        records=("PreferenceAlgorithm", "UnpairedAlgorithm"),
        config="plaudit.methods.preference.config:PreferenceConfig",
        function="plaudit.methods.preference.run:preference",
    ),
    _RecordEntry(
        records=("PolicyAlgorithm",),
        config="plaudit.methods.policy.config:PolicyConfig",
        function="plaudit.methods.policy.run:policy",
    ),
)
"""The records that an algorithm can be given as: of which config, and what trains by them."""


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _record_entry(record: object) -> _RecordEntry:
    kind = type(record).__name__
    entry = next((entry for entry in RECORDS if kind in entry.records), None)
    if entry is None:
        wanted = " or a ".join(name for entry in RECORDS for name in entry.records)
        raise UserError(f"plaudit.train: a {kind} is no algorithm; give its name, or a {wanted}")
    return entry


def _resolve_algorithm(algorithm: Algorithm, settings: dict[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    """The method's name, the algorithm's record where it is no name, and the settings that are left."""
    if isinstance(algorithm, str):
        if ":" in algorithm:
            return OWN, None, {**settings, "algorithm": algorithm}
        names = config_types()
        if algorithm not in names:
            raise UserError(
                f"plaudit.train: there is no method {algorithm!r}{did_you_mean(algorithm, names)}; plaudit "
                "train --list says which there are"
            )
        return algorithm, None, settings
    if is_dataclass(algorithm) or not callable(algorithm):
        _record_entry(algorithm)
        return str(getattr(algorithm, "name", "own")), algorithm, settings
    name = getattr(algorithm, "__name__", "own")
    for table in TABLES:
        # `plaudit.simpo` itself means the method "simpo" with all its
        # settings, not one call with its defaults.
        found = [row for row in table.rows.values() if getattr(row, "function", None) is algorithm]
        if found:
            return found[0].name, None, settings
    parameters = inspect.signature(algorithm).parameters
    required = [parameter.name for parameter in parameters.values() if parameter.default is parameter.empty]
    if required:
        raise UserError(
            f"plaudit.train: {name} wants {', '.join(required)}, so it is no function that makes an "
            f"algorithm. Is it a loss? Then give plaudit.PreferenceAlgorithm(loss={name}, beta=0.1)"
        )
    own = {key: settings.pop(key) for key in list(settings) if key in parameters}
    return name, from_signature(algorithm)(**own), settings


def _make_config(kind: type, settings: Mapping[str, Any], method: str) -> Any:
    where = f"plaudit.train({method!r})"
    values = read_values({name: _plain(value, name) for name, value in settings.items()}, kind, where)
    missing = [setting.key for setting in missing_settings(kind, values)]
    if missing:
        raise UserError(f"{where}: missing {', '.join(missing)}; give it as {missing[0]}=…")
    return resolve(kind, values, {})


def _plain(value: Any, name: str) -> Any:
    """A setting as a YAML file would hold it."""
    if isinstance(value, Mapping):
        return {key: _plain(item, f"{name}.{key}") for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item, name) for item in cast("Sequence[Any]", value)]
    if callable(value):
        function = getattr(value, "__name__", "function")
        raise UserError(f"{name}: a function is named by its file, {name}='mine.py:{function}'")
    return to_plain_data(value) if is_dataclass(value) else _path_text(value)


def _path_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _rows_file(rows: Rows, folder: Path, name: str) -> str:
    """The file of the rows; rows that were given themselves are written beside the run folder."""
    if isinstance(rows, str | os.PathLike):
        return os.fspath(rows)
    from plaudit.data.write import write_records
    from plaudit.files import atomic

    # Beside the run folder: a file in one that has not begun would be refused as somebody else's.
    path = folder.with_name(f"{folder.name}.{name}.jsonl")
    atomic.make_folder(path.parent)
    given = list(rows)
    if all(is_dataclass(row) for row in given):
        write_records(cast("Iterable[Record]", given), path)
    else:
        atomic.write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in given))
    return str(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RewardOptions:
    """Of an evaluation of a reward model."""

    format: str | None = None
    n: int | None = None
    seed: int = 0
    bootstrap: int = 1000
    device: str = "auto"
    dtype: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PolicyOptions:
    """Of an evaluation of policies."""

    judges: Sequence[str] = ()
    reward: str | os.PathLike[str] | None = None
    n: int | None = None
    seed: int = 0
    answers: int = 1
    max_tokens: int = 64
    temperature: float = 1.0
    bootstrap: int = 1000
    device: str = "auto"
    dtype: str = "auto"


def evaluate(models: Any, *, data: Rows, **settings: Any) -> RewardEvaluation | PolicyEvaluation:
    """How good a reward model is on comparisons, or how good policies are on prompts.

    A reward model is its folder, a rule such as ``"length:1-20"``, ``"mine.py:name"``, or a `Reward`; its
    settings: format, n, seed, bootstrap, device, dtype. Policies are a folder, or several by names of your
    choice, of which the first is what others are compared with; their settings: judges, reward, n, seed,
    answers, max_tokens, temperature, bootstrap, device, dtype. A `TrainingResult` stands for its folder.

    ``plaudit.evaluate({"before": "base", "after": run}, data="prompts.jsonl", judges=["length:1-20"])``
    """
    folder = models.folder if isinstance(models, TrainingResult) else models
    is_reward = not isinstance(folder, Mapping) and _is_reward(folder)
    kind = _RewardOptions if is_reward else _PolicyOptions
    known = [field.name for field in fields(kind)]
    for name in settings:
        if name not in known:
            what = f"is no setting of an evaluation of {'a reward model' if is_reward else 'policies'}"
            raise UserError(f"plaudit.evaluate: {name} {what}{did_you_mean(name, known)}")
    if is_reward:
        return _evaluate_reward(folder, data, _RewardOptions(**settings))
    return _evaluate_policies(folder, data, _PolicyOptions(**settings))


def _is_reward(model: Any) -> bool:
    """Whether a model scores answers: a reward's folder, the words of a rule or a function, or a `Reward`."""
    if not isinstance(model, str | os.PathLike):
        return hasattr(model, "scores")
    folder = Path(model)
    if not folder.exists():
        # What is no folder is a rule ("length:1-20") or a function ("mine.py:name"): both have a colon.
        return ":" in str(model)
    from plaudit.rewards.load import check_reward

    try:
        check_reward(folder)
    except UserError:
        return False
    return True


def _evaluate_reward(model: Any, data: Rows, options: _RewardOptions) -> RewardEvaluation:
    from plaudit.evaluation.reward_models.evaluate import evaluate_reward, read_reward_data
    from plaudit.evaluation.stats import Resampling

    with _as_file(data) as path:
        source = read_reward_data(path, format=options.format, n=options.n, seed=options.seed)
    reward = _load_reward(model, options.device, options.dtype)
    resampling = Resampling(times=options.bootstrap, seed=options.seed)
    return evaluate_reward(reward, source.data, resampling).evaluation


def _load_reward(model: Any, device: str, dtype: str) -> Reward:
    if not isinstance(model, str | os.PathLike):
        return model
    from plaudit.rewards.load import load_reward
    from plaudit.rewards.registry import resolve_reward

    folder = Path(model)
    return load_reward(folder, device=device, dtype=dtype) if folder.exists() else resolve_reward(str(model))


def _evaluate_policies(models: Any, data: Rows, options: _PolicyOptions) -> PolicyEvaluation:
    from plaudit.evaluation.policies.evaluate import EvaluationSettings, check_policies, evaluate_policies
    from plaudit.evaluation.policies.generate import GenerationSettings
    from plaudit.evaluation.stats import Resampling
    from plaudit.rollouts.sampler import SamplingSettings

    settings = EvaluationSettings(
        drawing=GenerationSettings(
            sampling=SamplingSettings(temperature=options.temperature, max_tokens=options.max_tokens),
            answers=options.answers,
            seeds=(options.seed,),
            device=options.device,
            dtype=options.dtype,
        ),
        resampling=Resampling(times=options.bootstrap, seed=options.seed),
    )
    folders, prompts = _policy_folders(models), _evaluation_prompts(data, options.n, options.seed)
    check_policies(folders, prompts, settings)
    return evaluate_policies(folders, prompts, _scorers(options), settings)


def _policy_folders(models: Any) -> dict[str, Path]:
    named = models if isinstance(models, Mapping) else {Path(models).name: models}
    return {
        str(name): model.folder if isinstance(model, TrainingResult) else Path(model)
        for name, model in cast("Mapping[str, Any]", named).items()
    }


def _evaluation_prompts(data: Rows, n: int | None, seed: int) -> tuple[Any, ...]:
    from plaudit.data.read import read_records
    from plaudit.evaluation.policies.generate import evaluation_prompts

    with _as_file(data) as path:
        prompts = evaluation_prompts(read_records(path).records)
    if n is None or n >= len(prompts):
        return prompts
    # A generator of its own, so that n changes nothing else;
    # sorted, so that prompts keep the file's order.
    chosen = sorted(random.Random(f"prompts {seed}").sample(range(len(prompts)), n))
    return tuple(prompts[index] for index in chosen)


def _scorers(options: _PolicyOptions) -> Scorers:
    from plaudit.evaluation.policies.evaluate import Scorers
    from plaudit.evaluation.policies.judge import JudgeSettings, load_judge

    rewards: dict[str, Reward] = {}
    if options.reward is not None:
        rewards[str(options.reward)] = _load_reward(options.reward, options.device, options.dtype)
    settings = JudgeSettings(device=options.device, dtype=options.dtype)
    words = [str(judge) for judge in options.judges] or list(rewards)
    return Scorers(
        reward=rewards.get(str(options.reward)),
        judges={word: load_judge(word, rewards, settings) for word in words},
    )


@contextmanager
def _as_file(rows: Rows) -> Iterator[Path]:
    """The file of the rows; those that were given themselves lie in one for as long as this lasts."""
    # Rows go through a file from Python too: one reader, and so the same checks and messages.
    with TemporaryDirectory() as folder:
        yield Path(_rows_file(rows, Path(folder) / "rows", "data"))


@dataclass(frozen=True, slots=True)
class PipelineResult:
    """What a pipeline left in its folder.

    Example: ``plaudit.run("pipeline.yaml", out="runs/mine").training("dpo").metrics``
    """

    folder: Path
    """The pipeline's folder; ``plaudit.PipelineResult(Path("runs/mine"))`` opens one that was run before."""

    @property
    def report(self) -> Path:
        """The page with all stages, curves and comparisons."""
        return self.folder / "report.html"

    @property
    def evaluation(self) -> PolicyEvaluation | None:
        """How its policies compare; None where no stage evaluates them."""
        return self._data.evaluation

    def training(self, stage: str) -> TrainingResult:
        """What a stage trained: its metrics, its summary, its model."""
        stages = {found.name: found for found in self._data.stages}
        if stage not in stages:
            raise UserError(f"{self.folder}: there is no stage {stage!r}{did_you_mean(stage, stages)}")
        folder = stages[stage].folder / "run"
        if not (folder / "metrics.jsonl").exists():
            raise UserError(f"{self.folder}: stage {stage} trains nothing, or has not run")
        return TrainingResult(folder)

    @property
    def _data(self) -> PipelineData:
        from plaudit.report.pipeline.data import read_pipeline_folder

        return read_pipeline_folder(self.folder)


def run(
    config: str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    only: Sequence[str] = (),
    fresh: bool = False,
    seed: int | None = None,
    jobs: int | None = None,
) -> PipelineResult:
    """Run a pipeline, from rows to a report; a stage that is finished is kept.

    ``plaudit.run("pipeline.yaml", settings={"dpo.beta": 0.2}, only=["dpo"])``. Without a config it is the
    embedded world's own.
    """
    from plaudit.pipeline.read import DEFAULT_CONFIG, read_pipeline
    from plaudit.pipeline.run import StageSelection, run_pipeline
    from plaudit.report.pipeline.data import read_pipeline_folder
    from plaudit.report.pipeline.page import write_report, write_summary

    changes = [f"{name}={json.dumps(_plain(value, name))}" for name, value in (settings or {}).items()]
    path = DEFAULT_CONFIG if config is None else Path(config)
    pipeline = read_pipeline(path, changes=changes, seed=seed, jobs=jobs)
    selection = StageSelection(only=tuple(only), fresh=fresh)
    folder = run_pipeline(pipeline, Path(out or Path("runs") / pipeline.name), selection).path
    write_summary(read_pipeline_folder(folder))
    write_report(folder)
    return PipelineResult(folder)
