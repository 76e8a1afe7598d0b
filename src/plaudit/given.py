"""What is given in Python where a command takes a word: functions, rows and models, each by a name or a file.

A config is text: it is kept with the run and compared when the run goes on. So a function is held here under
a word that changes when its source does; rows and models are written beside the run's folder.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from plaudit.config import to_plain_data
from plaudit.errors import UserError, located
from plaudit.files.data_sets import joined
from plaudit.results import LanguageModel, TrainingResult

if TYPE_CHECKING:
    from plaudit.data.records import Record

Rows = str | os.PathLike[str] | Iterable["Mapping[str, Any] | Record"]
"""A file of rows, or the rows: dicts as a file has them, records, a ``datasets.Dataset``, a frame."""

_held: dict[str, object] = {}
"""Functions and rewards by the last part of their word."""


def hold(value: Any) -> str:
    """The word by which this process finds a function or a reward again.

    >>> def polite(answer):
    ...     return float("please" in answer)
    >>> hold(polite).startswith("plaudit.given:polite_"), hold(polite) == hold(polite)
    (True, True)
    """
    title = str(getattr(value, "__name__", None) or type(value).__name__)
    name = title if title.isidentifier() else "function"
    key = f"{name}_{blake2b(_source(value).encode(), digest_size=4).hexdigest()}"
    _held[key] = value
    return f"{__name__}:{key}"


def _source(value: Any) -> str:
    """What changes when the function does: its source, or its code where that is nowhere."""
    described = value if callable(value) else type(value)
    try:
        return inspect.getsource(described)
    except (OSError, TypeError):
        code = getattr(described, "__code__", None)
        return repr(described) if code is None else f"{code.co_code!r}{code.co_consts!r}{code.co_names!r}"


def __getattr__(name: str) -> object:
    """A function that was given, by its key: words are ``module:name``, and this is the module."""
    if re.fullmatch(r"\w+_[0-9a-f]{8}", name) is None:
        raise AttributeError(name)
    if name not in _held:
        raise UserError(
            f"{name.rpartition('_')[0]} was given to plaudit.train in Python and is not in this process, or "
            "was changed since: make the same call from Python again, or name it by a file, mine.py:name"
        )
    return _held[name]


def plain_setting(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: plain_setting(item, f"{name}.{key}") for key, item in items}
    if isinstance(value, list | tuple):
        return [plain_setting(item, name) for item in cast("Sequence[Any]", value)]
    if isinstance(value, TrainingResult | LanguageModel):
        return os.fspath(value.folder if isinstance(value, LanguageModel) else value.model_folder)
    if isinstance(value, str | os.PathLike):
        word = os.fspath(cast("str | os.PathLike[str]", value))
        # A run's folder stands for its model.
        is_run = name.endswith("model") and (Path(word) / "model" / "config.json").is_file()
        return os.fspath(Path(word) / "model") if is_run else word
    # A reward may be a dataclass, and a class of settings can be called: what scores is held, and so is what
    # is a function.
    if hasattr(value, "scores") or (callable(value) and not is_dataclass(value)):
        return hold(value)
    return to_plain_data(value) if is_dataclass(value) else value


def model_word(model: Any, tokenizer: Any, folder: Path) -> str:
    """A model's word; a model of transformers is saved beside the run's folder, with its tokenizer."""
    if not hasattr(model, "save_pretrained"):
        if tokenizer is not None:
            raise UserError("tokenizer: it is given beside a model that is in memory; a folder has its own")
        word = plain_setting(model, "model")
        if not isinstance(word, str):
            raise UserError(f"model: it is a folder, org/name of the hub, a run or a model, not {word!r}")
        return word
    if tokenizer is None:
        raise UserError("model: a model in memory needs its tokenizer: give tokenizer=… beside it")
    from plaudit.files import atomic

    path = folder.with_name(f"{folder.name}.model")
    atomic.make_folder(path.parent)
    with atomic.atomic_folder(path) as partial:
        model.save_pretrained(partial, safe_serialization=True)
        tokenizer.save_pretrained(partial)
    return str(path)


def blend_word(rewards: Sequence[Any], weights: Sequence[float] | None, folder: Path) -> str:
    """The word of the mean of several rewards by their weights; it names a file beside the run."""
    from plaudit.files import atomic

    if weights is not None and len(weights) != len(rewards):
        raise UserError(f"reward_weights: {len(rewards)} rewards want as many weights, not {len(weights)}")
    counted = weights or [1.0] * len(rewards)
    if len(rewards) == 1:
        return plain_setting(rewards[0], "reward")
    if not rewards or min(counted) < 0 or not sum(counted):
        raise UserError("reward: of several give at least two, with weights of 0 or more that are not all 0")
    members = [
        {"reward": plain_setting(reward, "reward"), "weight": weight / sum(counted)}
        for reward, weight in zip(rewards, counted, strict=True)
    ]
    path = folder.with_name(f"{folder.name}.reward.json")
    atomic.make_folder(path.parent)
    # JSON, which a reader of YAML reads as well.
    atomic.write_text(path, json.dumps(members, indent=1) + "\n")
    return f"blend:{path}"


def rows_file(rows: Rows, folder: Path, name: str) -> str:
    """The file of the rows; rows that were given themselves are written beside the run folder."""
    if isinstance(rows, str | os.PathLike):
        return os.fspath(rows)
    from plaudit.data.write import write_records
    from plaudit.files import atomic

    # Beside the run folder: a file in one that has not begun would be refused as somebody else's.
    path = folder.with_name(f"{folder.name}.{name}.jsonl")
    atomic.make_folder(path.parent)
    given = row_list(rows, name)
    if not given:
        raise UserError(f"{name}: there is no row in what was given")
    if all(isinstance(row, str | os.PathLike) for row in given):
        return joined(map(os.fspath, given))
    if all(is_dataclass(row) for row in given):
        write_records(cast("Iterable[Record]", given), path)
    else:
        atomic.write_text(path, "".join(_row_line(row, name, n) for n, row in enumerate(given, 1)))
    return str(path)


def row_list(rows: Any, name: str) -> list[Any]:
    """The rows of a list, a Dataset, a generator, or a frame of pandas, polars or Arrow."""
    if isinstance(rows, Mapping):
        keys = ", ".join(map(repr, cast("Mapping[Any, Any]", rows)))
        raise UserError(f"{name}: this is a dict of {keys}; give a list of rows, or one of these by its name")
    convert = next((getattr(rows, way) for way in ("to_dicts", "to_pylist") if hasattr(rows, way)), None)
    if convert is not None:
        return convert()
    if hasattr(rows, "to_dict") and hasattr(rows, "notna"):
        # An empty cell of pandas is NaN, which is no JSON; here it is a field that the row has not.
        return rows.astype(object).where(rows.notna(), None).to_dict("records")
    if not isinstance(rows, Iterable):
        raise UserError(f"{name}: rows are a file or a list of dicts, not {type(rows).__name__}")
    return list(cast("Iterable[Any]", rows))


def _row_line(row: Any, name: str, number: int) -> str:
    def convert(value: Any) -> Any:
        for way in ("tolist", "isoformat"):
            if hasattr(value, way):
                return getattr(value, way)()
        raise TypeError(f"a {type(value).__name__} is no text, number, list or dict")

    with located(f"{name}: row {number} cannot be written", TypeError, ValueError):
        return json.dumps(row, ensure_ascii=False, default=convert) + "\n"
