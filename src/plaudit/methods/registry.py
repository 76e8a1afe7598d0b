"""Every training method by its name, with its entry point and its config; importing this is quick."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from plaudit.config import load_yaml
from plaudit.errors import UserError
from plaudit.files import hub
from plaudit.files.data_sets import joined, sources_of
from plaudit.files.model_folder import read_json_object
from plaudit.methods.config import ContextConfig, ControlConfig, DistilConfig, SftConfig
from plaudit.methods.iterative.algorithms import ITERATIVE_ALGORITHMS
from plaudit.methods.iterative.config import LoopConfig, RlhfConfig, loop_config_type
from plaudit.methods.policy.config import POLICY, OwnPolicyConfig
from plaudit.methods.preference.config import PREFERENCE, OwnPreferenceConfig
from plaudit.methods.reward_model.config import (
    CriticConfig,
    GroupConfig,
    RankerConfig,
    RewardConfig,
    TextRewardConfig,
)

METHODS: dict[str, tuple[str, str, type]] = {
    "sft": ("supervised.run:sft", "learn to say what demonstrations say", SftConfig),
    "preferred": ("supervised.run:preferred", "learn the answers that were liked", SftConfig),
    "control": ("supervised.run:control", "learn good and bad, told apart by a word", ControlConfig),
    "context": ("supervised.run:context", "answer as if a context had been read", ContextConfig),
    "distil": ("supervised.run:distil", "learn from a teacher's distribution", DistilConfig),
    "group": (
        "reward_model.group_preference:group",
        "learn how groups of people differ in what they prefer",
        GroupConfig,
    ),
    "reward": ("reward_model.run:reward", "learn to score answers as people judged them", RewardConfig),
    "text-reward": (
        "reward_model.model:text_reward",
        "learn to say in a word whether an answer is good",
        TextRewardConfig,
    ),
    "ranker": ("reward_model.model:ranker", "learn to say which of two answers is better", RankerConfig),
    "critic": ("reward_model.model:critic", "learn to write critiques, and points after them", CriticConfig),
    "preference": (
        "preference.run:own_preference",
        "learn from preferences by an algorithm of your own (--algorithm mine.py:name)",
        OwnPreferenceConfig,
    ),
    "policy": (
        "policy.run:own_policy",
        "improve a policy by an algorithm of your own (--algorithm mine.py:name)",
        OwnPolicyConfig,
    ),
    "rlhf": (
        "iterative.rlhf:rlhf",
        "compare its own answers, learn the reward, improve by it; and again",
        RlhfConfig,
    ),
}
"""Each method that is no row of a table: its entry point here, a line for ``--list``, and its config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmTable:
    """A table of algorithms, each row of which is a method without an entry of its own."""

    title: str
    rows: Mapping[str, Any]
    entry_point: str
    """The entry point, as ``module:function`` of this package; it takes a name and a config."""
    config: Callable[[str], type]


TABLES = (
    AlgorithmTable(
        title="Preference optimisation",
        rows=PREFERENCE.algorithms,
        entry_point="preference.run:preference",
        config=PREFERENCE.config_type,
    ),
    AlgorithmTable(
        title="Policy optimisation",
        rows=POLICY.algorithms,
        entry_point="policy.run:policy",
        config=POLICY.config_type,
    ),
    AlgorithmTable(
        title="Loops that make their own rows",
        rows=ITERATIVE_ALGORITHMS,
        entry_point="iterative.run:loop",
        config=loop_config_type,
    ),
)

OWN_ALGORITHMS: Mapping[str, Callable[[str, str | None], type]] = {
    chapter.own_method: chapter.config_type for chapter in (PREFERENCE, POLICY)
}
"""Methods that take an algorithm of the user's own (``--algorithm mine.py:name``), with its config."""
PREFLIGHT_METHODS = ("sft", "preferred", "reward", *OWN_ALGORITHMS)
"""Methods without a table that ``plaudit check`` and ``plaudit plan`` can prepare."""


def config_types() -> dict[str, type]:
    own_methods = {name: config for name, (_, _, config) in METHODS.items()}
    return own_methods | {name: table.config(name) for table in TABLES for name in table.rows}


def config_type(name: str, algorithm: str | None = None) -> type:
    """The config class of a method; ``algorithm`` is the user's own, where one was named."""
    for table in TABLES:
        if name in table.rows:
            return table.config(name)
    return OWN_ALGORITHMS[name](name, algorithm) if name in OWN_ALGORITHMS else METHODS[name][2]


def preflight_methods() -> tuple[str, ...]:
    # Without loops: they are made of runs whose rows and models are not there yet.
    return (*PREFLIGHT_METHODS, *(name for table in TABLES[:-1] for name in table.rows))


_InputTypes = tuple[Literal["model", "reward", "rows"], ...]
_MODEL: _InputTypes = ("model",)
_REWARD: _InputTypes = ("reward",)
_ROWS: _InputTypes = ("rows",)
TRAINING_INPUTS: Mapping[str, _InputTypes] = {
    **dict.fromkeys(("model", "critic.model"), _MODEL + _REWARD),
    **dict.fromkeys(("reference.model", "teacher"), _MODEL),
    **dict.fromkeys(("reward", "judge.by", "process.by", "comparisons", "loop.held_out_judge"), _REWARD),
    **dict.fromkeys(("data", "prompts", "held_out", "reward.normalise"), _ROWS),
    **dict.fromkeys(("ptx.data", "loop.data", "loop.people", "loop.held_out_prompts"), _ROWS),
    **dict.fromkeys(("pretraining.data",), _ROWS),
    "context": (),
}
"""The settings of training that name something outside of it, and what each may name."""


def with_local_inputs(config: Any) -> Any:
    """The config with what its words mean on the hub as folders on this disk, the same on all ranks.
    A run that goes on takes the commits that its folder names, whatever was added to the hub since."""
    inputs = [*_input_words(config)]
    is_single = os.environ.get("WORLD_SIZE", "1") == "1"
    # Several ranks always meet here: one that was given other words than the rest must not wait alone.
    if is_single and all(hub.is_plain_path(word, kind) for _, word, kind in inputs):
        return _with_retained_adapter(config)
    from plaudit.engine.distributed import process_group

    recorded, revisions = _recorded_words(config.out)

    def fetched(key: str, word: str, kind: hub.Kind) -> str:
        recorded_words = [source for name in recorded.get(key, ()) for source, _ in sources_of(name)]
        names = (hub.pinned(word, name, revisions) for name in recorded_words)
        return str(hub.local_path(next(filter(None, names), word), kind, split=config.rows.split))

    with process_group(config.device) as ranks:
        # The first rank downloads, and says to the others which commits it were; they wait here.
        paths = {word: fetched(key, word, kind) for key, word, kind in inputs} if ranks.is_first else {}
        commits = {word: hub.name_on_hub(path) for word, path in paths.items()}
        commits = json.loads(ranks.all_gather_strings([json.dumps(commits)])[0])
        words = [hub.local_word(commits.get(word) or word, kind) for _, word, kind in inputs]
    return _with_retained_adapter(_with_words(config, iter(words), ""))


def _with_retained_adapter(config: Any) -> Any:
    """Of an adapter that is trained on: its own rank, which says from here on that there is one."""
    if not config.lora.keep:
        return config
    if isinstance(config, RewardConfig | GroupConfig | RlhfConfig | LoopConfig):
        raise UserError("--lora.keep: only a policy's own adapter can be trained on; leave it out")
    path = config.model / hub.ADAPTER_FOLDER / "adapter_config.json"
    if not path.is_file():
        raise UserError(f"--lora.keep: {config.model} is no adapter that could be trained on; leave it out")
    rank = read_json_object(path).get("r")
    if config.lora.rank not in (0, rank):
        raise UserError(f"--lora.rank {config.lora.rank}: the kept adapter has rank {rank}; leave it out")
    return replace(config, lora=replace(config.lora, rank=rank))


def _input_words(config: Any, prefix: str = "") -> Iterator[tuple[str, str, hub.Kind]]:
    """Key, word and kind of every setting that names a model or rows."""
    for setting in fields(config):
        key, value = f"{prefix}{setting.name}", getattr(config, setting.name)
        if is_dataclass(value):
            yield from _input_words(value, f"{key}.")
        elif setting.init and TRAINING_INPUTS.get(key) and value is not None:
            kind: hub.Kind = "dataset" if TRAINING_INPUTS[key] == _ROWS else "model"
            for word in value if isinstance(value, tuple) else (value,):
                for source, _ in sources_of(word) if kind == "dataset" else ((word, 1.0),):
                    yield key, str(source), kind


def _with_words(config: Any, words: Iterator[str], prefix: str) -> Any:
    """The config with other words in the places of `_input_words`, in the same order."""
    changed: dict[str, Any] = {}
    for setting in fields(config):
        key, value = f"{prefix}{setting.name}", getattr(config, setting.name)
        if is_dataclass(value):
            changed |= {setting.name: _with_words(value, words, f"{key}.")} if setting.init else {}
        elif setting.init and TRAINING_INPUTS.get(key) and value is not None:
            several = isinstance(value, tuple)
            is_rows = TRAINING_INPUTS[key] == _ROWS
            local = [
                type(word)(_local_sources(word, words) if is_rows else next(words))
                for word in (value if several else (value,))
            ]
            changed[setting.name] = tuple(local) if several else local[0]
    return replace(config, **changed)


def _local_sources(word: str | Path, words: Iterator[str]) -> str:
    """A word of rows with each of its sources as it lies on this disk, under the same weight."""
    sources = sources_of(word)
    return joined(f"{next(words)}{'' if weight == 1 else f'*{weight:g}'}" for _, weight in sources)


def _recorded_words(out: Path) -> tuple[Mapping[str, list[str]], Mapping[str, str]]:
    # Nothing where there is no run yet.
    from plaudit.engine.run_folder import flat_settings, read_lineage

    path, lineage = out / "config.yaml", out / "lineage.json"
    if not path.is_file():
        return {}, {}
    loaded, _ = load_yaml(path)
    settings = flat_settings(loaded) if isinstance(loaded, Mapping) else {}
    several = {name: item if isinstance(item, list) else [item] for name, item in settings.items()}
    words = {name: [*map(str, items)] for name, items in several.items()}
    return words, read_lineage(lineage).revisions if lineage.is_file() else {}


def run_method(name: str, config: Any) -> Any:
    """Call the entry point of a method; None where the run was finished already."""
    config = with_local_inputs(config)
    for table in TABLES:
        if name in table.rows:
            return load_entry_point(table.entry_point)(name, config)
    return load_entry_point(METHODS[name][0])(config)


def load_entry_point(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(import_module(f"plaudit.methods.{module}"), name)
