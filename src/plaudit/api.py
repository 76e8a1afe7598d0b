"""Train and evaluate from Python: ``plaudit.train``, ``plaudit.evaluate``.

Settings are those of the commands, checked by the same code; importing this does not import torch.
"""

from __future__ import annotations

import inspect
import os
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from plaudit.config import did_you_mean, missing_settings, read_values, resolve
from plaudit.errors import UserError
from plaudit.files import hub
from plaudit.given import Rows, blend_word, model_word, plain_setting, row_list, rows_file
from plaudit.methods import registry
from plaudit.methods.algorithm import algorithm as from_signature
from plaudit.methods.preference.algorithms import OWN
from plaudit.results import TrainingResult, is_reward, load_any_reward

if TYPE_CHECKING:
    from plaudit.data.records import Record
    from plaudit.evaluation.policies.evaluate import Scorers
    from plaudit.evaluation.policies.result import PolicyEvaluation
    from plaudit.evaluation.reward_models.result import RewardEvaluation
    from plaudit.rewards.base import Reward

Algorithm = str | Callable[..., Any] | Any
"""A method's name, ``file.py:name``, a function that makes an algorithm, or what such a function makes."""


def train(algorithm: Algorithm, *, out: str | os.PathLike[str], **settings: Any) -> TrainingResult:
    """Train by an algorithm into the folder ``out``, or go on there; the settings are those of the command.

    ``plaudit.train("dpo", model="base", data="pairs.jsonl", out="runs/dpo", beta=0.2, lora={"rank": 8})``

    algorithm: a name (``plaudit train --list``), ``mine.py:name``, a function that makes an algorithm such as
    ``plaudit.simpo`` or one of your own, or what it makes: ``plaudit.dpo(beta=0.2)``.
    model: a folder, a finished run, or a model of transformers with ``tokenizer=`` beside it.
    data: a file, a list of dicts or records, a ``datasets.Dataset``, or a frame.
    reward: a folder, a rule, or a function that takes the answer; of a list the mean, by ``reward_weights``.
    held_out: a share, a file or rows. Groups of settings are dicts.
    on_step, on_evaluate: functions that are called with the step's number and its metrics, after each step
    and after each look at held-out rows; what one raises ends the run.
    """
    method, record, settings = _resolve_algorithm(algorithm, dict(settings))
    own = settings.get("algorithm") if method == OWN else None
    kind = _record_entry(record).config_type() if record is not None else registry.config_type(method, own)
    folder = Path(out)
    # One word for all methods in Python: what a policy run calls prompts may be given as data.
    prompts = "prompts" in kind.__dataclass_fields__
    if prompts and "data" in settings and "prompts" not in settings:
        settings["prompts"] = settings.pop("data")
    for name in ("data", "prompts", "held_out"):
        if isinstance(value := settings.get(name), int | float):
            settings[name] = str(value)
        elif value is not None:
            settings[name] = rows_file(value, folder, name)
    if isinstance(settings.get("reward"), list | tuple):
        settings["reward"] = blend_word(settings["reward"], settings.pop("reward_weights", None), folder)
    if "model" in settings:
        settings["model"] = model_word(settings["model"], settings.pop("tokenizer", None), folder)
    given = {name: settings.pop(name) for name in ("on_step", "on_evaluate") if name in settings}
    config = _make_config(kind, {**settings, "out": str(folder)}, method)
    with _telling(given):
        if record is None:
            registry.run_method(method, config)
        else:
            _record_entry(record).run(record, registry.with_local_inputs(config))
    return TrainingResult(folder)


@contextmanager
def _telling(functions: Mapping[str, Callable[..., object]]) -> Iterator[None]:
    from plaudit.engine.sinks.base import STEP_LISTENERS
    from plaudit.files.user_code import call_user_function

    def tell(report: Any) -> None:
        metrics = report.flattened()
        looked = any(name.startswith("held_out/") for name in metrics)
        for name, function in functions.items():
            if looked or name == "on_step":
                where = f"{name}, {getattr(function, '__name__', 'a function')}, step {report.step}"
                call_user_function(where, partial(function, report.step, metrics), {})

    token = STEP_LISTENERS.set((tell,))
    try:
        yield
    finally:
        STEP_LISTENERS.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordEntry:
    """How an algorithm that is given as a record is trained."""

    records: tuple[str, ...]
    config: str
    function: str

    def config_type(self) -> type:
        return registry.load_entry_point(self.config)

    def run(self, record: Any, config: Any) -> Any:
        return registry.load_entry_point(self.function)(record, config)


RECORDS = (
    _RecordEntry(
        records=("PreferenceAlgorithm", "UnpairedAlgorithm"),
        config="preference.config:PreferenceConfig",
        function="preference.run:preference",
    ),
    _RecordEntry(
        records=("PolicyAlgorithm",), config="policy.config:PolicyConfig", function="policy.run:policy"
    ),
)
"""The records that an algorithm can be given as: of which config, and what trains by them."""


def _record_entry(record: object) -> _RecordEntry:
    kind = type(record).__name__
    entry = next((entry for entry in RECORDS if kind in entry.records), None)
    if entry is None:
        wanted = " or a ".join(name for entry in RECORDS for name in entry.records)
        raise UserError(f"plaudit.train: {kind} is no algorithm; give its name, or a {wanted}")
    return entry


def _resolve_algorithm(algorithm: Algorithm, settings: dict[str, Any]) -> tuple[str, Any, dict[str, Any]]:
    """The method's name, the algorithm's record where it is no name, and the settings that are left."""
    if isinstance(algorithm, str):
        if ":" in algorithm:
            return OWN, None, {**settings, "algorithm": algorithm}
        names = registry.config_types()
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
    for table in registry.TABLES:
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
    values = read_values({name: plain_setting(value, name) for name, value in settings.items()}, kind, where)
    missing = [setting.key for setting in missing_settings(kind, values)]
    if missing:
        raise UserError(f"{where}: missing {', '.join(missing)}; give it as {missing[0]}=…")
    return resolve(kind, values, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class _RewardOptions:
    format: str | None = None
    n: int | None = None
    seed: int = 0
    bootstrap: int = 1000
    device: str = "auto"
    dtype: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PolicyOptions:
    judges: Sequence[Any] | Mapping[str, Any] = ()
    reward: str | os.PathLike[str] | None = None
    n: int | None = None
    seed: int = 0
    answers: int = 1
    seeds: int = 1
    right: str | None = None
    pass_at: Sequence[int] = ()
    people: str | os.PathLike[str] | None = None
    card: Sequence[str | os.PathLike[str]] = ()
    max_tokens: int = 64
    temperature: float = 1.0
    bootstrap: int = 1000
    device: str = "auto"
    dtype: str = "auto"


def load_rows(data: Rows, *, format: str | None = None, split: str | None = None) -> list[Record]:
    """The records of a file, a ``datasets.Dataset``, a list of dicts or a frame, as training reads them.

    ``plaudit.load_rows("pairs.jsonl")[0].chosen``. Rows that cannot be read are told by a warning, and above
    1 % an error; ``format`` names a layout (docs/data.md) where it should not be found out.
    """
    from plaudit.data.formats.layout import ReadOptions
    from plaudit.data.read import read_records

    source = data if isinstance(data, str | os.PathLike) else row_list(data, "data")
    result = read_records(cast("Any", source), format=format, options=ReadOptions(split=split))
    if result.problems:
        first = result.problems[0]
        warnings.warn(
            f"{len(result.problems)} of {result.rows} rows were left out; {first.origin}: {first.message}",
            stacklevel=2,
        )
    return list(result.records)


def evaluate(models: Any, *, data: Rows, **settings: Any) -> RewardEvaluation | PolicyEvaluation:
    """How good a reward model is on comparisons, or how good policies are on prompts.

    A reward model is its folder, a rule such as ``"length:1-20"``, ``"mine.py:name"``, or a `Reward`; its
    settings: format, n, seed, bootstrap, device, dtype. Policies are a folder, or several by names of your
    choice, of which the first is what others are compared with; their settings: judges, reward, right,
    pass_at, people, card, n, seed, seeds, answers, max_tokens, temperature, bootstrap, device, dtype. A judge
    may be a function or a `Reward`, and of ``judges={"mine": …}`` each goes by its name. A `TrainingResult`
    stands for its folder.

    ``plaudit.evaluate({"before": "base", "after": run}, data="prompts.jsonl", judges=["length:1-20"])``
    """
    folder = models.folder if isinstance(models, TrainingResult) else models
    scores = not isinstance(folder, Mapping) and is_reward(folder)
    known = [field.name for field in fields(_RewardOptions if scores else _PolicyOptions)]
    for name in settings:
        if name not in known:
            what = f"is no setting of an evaluation of {'a reward model' if scores else 'policies'}"
            raise UserError(f"plaudit.evaluate: {name} {what}{did_you_mean(name, known)}")
    if scores:
        return _evaluate_reward(folder, data, _RewardOptions(**settings))
    return _evaluate_policies(folder, data, _PolicyOptions(**settings))


def _evaluate_reward(model: Any, data: Rows, options: _RewardOptions) -> RewardEvaluation:
    from plaudit.evaluation.reward_models.evaluate import evaluate_reward, read_reward_data
    from plaudit.evaluation.stats import Resampling

    with _as_file(data) as path:
        evidence, _ = read_reward_data(path, format=options.format, n=options.n, seed=options.seed)
    reward = load_any_reward(model, options.device, options.dtype)
    resampling = Resampling(times=options.bootstrap, seed=options.seed)
    return evaluate_reward(reward, evidence, resampling).evaluation


def _evaluate_policies(models: Any, data: Rows, options: _PolicyOptions) -> PolicyEvaluation:
    from plaudit.evaluation.policies.evaluate import check_policies, evaluate_policies
    from plaudit.evaluation.run import requested_prompts, requested_settings

    settings = requested_settings(options)
    named = models if isinstance(models, Mapping) else {Path(models).name: models}
    folders = {
        str(name): model.folder if isinstance(model, TrainingResult) else hub.local_path(model, "model")
        for name, model in cast("Mapping[str, Any]", named).items()
    }
    with _as_file(data) as path:
        prompts = requested_prompts(Namespace(prompts=path, n=options.n, seed=options.seed))
    check_policies(folders, prompts, settings)
    return evaluate_policies(folders, prompts, _scorers(options), settings)


def _scorers(options: _PolicyOptions) -> Scorers:
    from plaudit.evaluation.policies.evaluate import Scorers
    from plaudit.evaluation.policies.judge import load_judge
    from plaudit.rewards.kinds import JudgeSettings

    rewards: dict[str, Reward] = {}
    if options.reward is not None:
        rewards[str(options.reward)] = load_any_reward(options.reward, options.device, options.dtype)
    settings = JudgeSettings(device=options.device, dtype=options.dtype)
    words = options.judges if isinstance(options.judges, Mapping) else {}
    if not words:
        words = {str(plain_setting(judge, "judges")): judge for judge in options.judges or rewards}
    plain = {name: str(plain_setting(judge, "judges")) for name, judge in words.items()}
    right = load_any_reward(options.right, options.device, options.dtype) if options.right else None
    judges = {name: load_judge(word, rewards, settings) for name, word in plain.items()}
    return Scorers(reward=rewards.get(str(options.reward)), right=right, judges=judges)


@contextmanager
def _as_file(rows: Rows) -> Iterator[Path]:
    """The file of the rows; those that were given themselves lie in one for as long as this lasts."""
    # Rows go through a file from Python too: one reader, and so the same checks and messages.
    with TemporaryDirectory() as folder:
        yield Path(rows_file(rows, Path(folder) / "rows", "data"))
