"""Rows by their words: several sources with weights, and the files of a data set on the hub.

From words, names and what a data set's README.md or LLaMA-Factory's ``dataset_info.json`` says to names;
nothing is asked of the hub, and no script is ever run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

from plaudit.errors import UserError, located
from plaudit.files import exact_json

if TYPE_CHECKING:
    from plaudit.files.hub import HubWord

ROW_ENDINGS = (
    ".parquet",
    *(f"{kind}{zipped}" for kind in (".jsonl", ".json") for zipped in ("", ".gz", ".zst")),
    ".csv",
    ".tsv",
    ".arrow",
)
Splits = Mapping[str, Sequence[str]]

SEVERAL = " + "
"""Between several sources of rows in one word: ``a.jsonl*2 + org/name/train``."""
MAX_WEIGHT = 1000
"""How often rows may be trained in one pass: beyond it, a slip of the pen."""


def joined(words: Iterable[object]) -> str:
    """Several sources as one word.

    >>> joined(["a.jsonl*2", "b.parquet"])
    'a.jsonl*2 + b.parquet'
    """
    return SEVERAL.join(map(str, words))


def sources_of(word: str | Path) -> tuple[tuple[str, float], ...]:
    """Each source of a word of rows, with how often its rows are trained in one pass; usually one, once.

    >>> sources_of("a.jsonl*2 + org/name/train*0.5 + b.parquet")
    (('a.jsonl', 2.0), ('org/name/train', 0.5), ('b.parquet', 1.0))
    """
    # Where a file is called so, a sign in its name is a sign in its name.
    parts = [str(word)] if Path(word).exists() else str(word).split(SEVERAL)
    return tuple(_source(part) for part in parts)


def _source(part: str) -> tuple[str, float]:
    match = re.fullmatch(r"(.+)\*([0-9.]+)", part)
    if match is None or Path(part).exists():
        return part, 1.0
    try:
        weight = float(match[2])
    except ValueError:
        weight = 0.0
    if not 0 < weight <= MAX_WEIGHT:
        rule = f"how often these rows are trained: above 0, at most {MAX_WEIGHT}"
        raise UserError(f"{part}: *{match[2]} says {rule}")
    return match[1], weight


def split_files(word: HubWord, names: Sequence[str], card: Mapping[str, Any]) -> tuple[list[str], Path]:
    """The files of the split that is meant, in order, and where they are to lie."""
    files = sorted(name for name in names if holds_rows(name))
    if not files:
        raise _no_rows(word, names)
    if card.get("configs"):
        with _faults_in_configs(word):
            configs = _configs(card)
            default = [name for name, config in configs.items() if config.get("default") or name == "default"]
            wanted = word.config or (default[0] if default else None)
            config = _picked(replace(word, config=None, split=None), "config", configs, wanted)
            splits = _declared_splits(word, configs[config], files)
    else:
        config, splits = word.config or "default", _guessed_splits(word, files)
    named = replace(word, config=None if config == "default" and word.config is None else config)
    split = _picked(named, "split", splits, word.split)
    chosen = sorted(splits[split])
    endings = {_ending(name) for name in chosen}
    if not chosen or len(endings) > 1 or "" in endings:
        held = ", ".join(chosen[:6]) or "no file"
        raise UserError(
            f"{replace(named, split=split)}: its files cannot be read as one table: {held}; files of one "
            f"kind are read: {', '.join(ROW_ENDINGS)}"
        )
    return chosen, Path(config) / split


def declared_splits(word: HubWord, names: Sequence[str], card: Mapping[str, Any]) -> Splits:
    """The files of every split that README.md names; of several configs each split is ``config/split``."""
    files = sorted(name for name in names if holds_rows(name))
    with _faults_in_configs(word):
        configs = _configs(card)
        return {
            f"{name}/{split}" if len(configs) > 1 else split: found
            for name, config in configs.items()
            for split, found in _declared_splits(word, config, files).items()
        }


def _configs(card: Mapping[str, Any]) -> dict[str, Any]:
    return {str(config.get("config_name", "default")): config for config in card.get("configs") or ()}


@contextmanager
def _faults_in_configs(word: HubWord) -> Iterator[None]:
    try:
        yield
    except (TypeError, AttributeError) as error:
        raise UserError(f"{word}: configs: in its README.md lists no files as the hub wants it") from error


def card_front(path: Path, name: object) -> Mapping[str, Any]:
    """What the front of a README.md says; nothing where it says nothing."""
    import yaml

    parts = path.read_text("utf-8", errors="replace").split("---\n", 2)
    if len(parts) < 3 or parts[0].strip():
        return {}
    with located(f"{name}: the front of its README.md is no YAML", yaml.YAMLError, RecursionError):
        front = yaml.safe_load(parts[1])
    return front if isinstance(front, dict) else {}


def holds_rows(name: str) -> bool:
    """Whether a file of a repository holds rows: by its ending, not hidden, not about the data set."""
    hidden = any(part.startswith(".") for part in PurePosixPath(name).parts)
    return bool(_ending(name)) and not hidden and PurePosixPath(name).name not in _ABOUT_DATA


def registered_set(path: Path, name: str | None) -> tuple[Path, tuple[str, ...]] | None:
    """The file of a set that LLaMA-Factory's ``dataset_info.json`` lists, and what its fields are called. The
    path is that file or its folder; None where there is no such list; ``datasets`` has files of its name."""
    listed = path if path.name == _LIST_OF_SETS else path / _LIST_OF_SETS
    # Asked of the system like this, a name that is too long is no file, and no error.
    if not os.path.isfile(listed):
        return None
    try:
        sets = exact_json.loads(listed.read_bytes())
    except ValueError as error:
        raise UserError(f"{listed}: not JSON ({error}); mend it") from error
    entries = sets if isinstance(sets, dict) else {}
    if not any(isinstance(entry, dict) and {*entry} & {*_PLACES_OF_SETS} for entry in entries.values()):
        return None
    name = next(iter(entries)) if name is None and len(entries) == 1 else name
    if name not in entries:
        several = "several data sets" if name is None else f"no data set {name!r}"
        names = ", ".join(entries)
        raise UserError(f"{listed}: {several}; say which with --split (in training --rows.split): {names}")
    entry = entries[name]
    if "file_name" not in entry:
        place = " ".join(str(entry[place]) for place in _PLACES_OF_SETS if place in entry)
        raise UserError(f"{listed}: {name} lies elsewhere ({place}); name that itself as the data")
    return listed.parent / entry["file_name"], tuple(_names_of_fields(entry, f"{listed}: {name}"))


def _names_of_fields(entry: Mapping[str, Any], where: str) -> Iterator[str]:
    names = _THEIR_COLUMNS.get(entry.get("formatting", "alpaca"))
    if names is None:
        readable = " and ".join(_THEIR_COLUMNS)
        raise UserError(f"{where}: formatting {entry['formatting']!r}; {readable} are read")
    columns: Mapping[str, str] = entry.get("columns", {})
    if {*columns} == {"prompt"}:
        names = {"prompt": "text"}
    for theirs, field in columns.items():
        ours = "label" if theirs == "kto_tag" else names.get(theirs, theirs)
        if field and ours != field:
            yield f"{ours}={field}"
    tags: Mapping[str, str] = entry.get("tags", {})
    for tag, keys in _KEYS_OF_TURNS.items():
        if tags.get(tag, keys[0]) not in keys:
            raise UserError(f"{where}: {tag} {tags[tag]!r}; turns are read with one of {', '.join(keys)}")
    yield from (f"{role}=role:{tags[tag]}" for tag, role in _THEIR_TAGS.items() if tag in tags)


_LIST_OF_SETS = "dataset_info.json"
_PLACES_OF_SETS = ("file_name", "hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name")
_THEIR_COLUMNS = {
    "alpaca": {"prompt": "instruction", "query": "input", "response": "output"},
    "sharegpt": {"messages": "conversations"},
}
"""What LLaMA-Factory's columns are called in the layouts that they are read as, where that differs."""
_THEIR_TAGS = {
    "user_tag": "user",
    "assistant_tag": "assistant",
    "observation_tag": "tool",
    "system_tag": "system",
}
_KEYS_OF_TURNS = {"role_tag": ("from", "role", "speaker"), "content_tag": ("value", "content", "text")}
_ABOUT_DATA = ("dataset_infos.json", "dataset_info.json", "config.json")


def _ending(name: str) -> str:
    return max((end for end in ROW_ENDINGS if name.lower().endswith(end)), key=len, default="")


def snapshot_path(rows: Path) -> Path:
    """Where it is written down, beside a file of rows, from which labels of which store they were exported.

    >>> snapshot_path(Path("out/labels.v2.jsonl.gz")).name
    'labels.v2.snapshot.json'
    """
    return rows.with_name(f"{rows.name[: len(rows.name) - len(_ending(rows.name))]}.snapshot.json")


_OF_A_SNAPSHOT = ("store", "project", "seq", "link", "sha256")


def exported_from(rows: Path) -> dict[str, Any] | None:
    """The store, project and position of a log that rows were exported from, and the sha256 that they had.
    None for rows of another origin."""
    path = snapshot_path(rows)
    if not (rows.is_file() and path.is_file()):
        return None
    try:
        found = exact_json.loads(path.read_bytes())
        return {name: found[name] for name in _OF_A_SNAPSHOT}
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{path}: not a snapshot that plaudit wrote ({error}); export {rows.name} again, or move it to a "
            "folder of its own"
        ) from error


def _no_rows(word: HubWord, names: Sequence[str]) -> UserError:
    script = f"{word.repo.partition('/')[2]}.py"
    if script in names:
        return UserError(
            f"{word}: its rows are made by a script, {script}, and scripts are never run; the hub's own copy "
            f"in Parquet may be there: {word.repo}@refs/convert/parquet"
        )
    held = ", ".join(sorted(name for name in names if not name.startswith("."))[:6]) or "nothing"
    return UserError(f"{word}: no file of rows lies there ({', '.join(ROW_ENDINGS)}); it holds {held}")


def _picked(
    word: HubWord, what: Literal["config", "split"], among: Mapping[str, Any], wanted: str | None
) -> str:
    if wanted is not None and wanted in among:
        return wanted
    if wanted is None and len(among) == 1:
        return next(iter(among))
    several = f"it has no {what} {wanted}" if wanted else f"it has several {what}s"
    words = ", ".join(str(replace(word, **{what: name})) for name in among)
    raise UserError(f"{word}: {several}; give one of {words}")


def _declared_splits(word: HubWord, config: Mapping[str, Any], files: Sequence[str]) -> Splits:
    """The files of each split as README.md lists them: a pattern, several, or patterns by split."""
    folder = str(config.get("data_dir") or "")
    listed = config.get("data_files")
    if listed is None:
        return _guessed_splits(replace(word, config=folder or None), files)
    if isinstance(listed, dict):
        listed = [{"split": split, "path": path} for split, path in listed.items()]
    entries = [listed] if isinstance(listed, str | dict) else listed
    splits: dict[str, list[str]] = {}
    for entry in entries:
        split, path = (entry.get("split"), entry.get("path")) if isinstance(entry, dict) else ("train", entry)
        for pattern in [path] if isinstance(path, str) else path or ():
            # The files of a pattern in which ** stands for folders and * for a part of one name.
            pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", str(PurePosixPath(folder) / str(pattern)))
            expression = "".join(
                _GLOB.get(piece) or (piece.replace("[!", "[^") if piece.startswith("[") else re.escape(piece))
                for piece in pieces
            )
            found = [name for name in files if re.fullmatch(expression, name)]
            splits.setdefault(str(split or "train"), []).extend(found)
    return {split: list(dict.fromkeys(found)) for split, found in splits.items()}


_GLOB = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


_SHARD = re.compile(r"(?:.*/)?([\w.]+?)-\d{5}-of-\d{5}[^/]*")
_SPLIT_WORDS = {
    "train": "train|training",
    "validation": "validation|valid|dev|val",
    "test": "test|testing|eval|evaluation",
}


def _guessed_splits(word: HubWord, files: Sequence[str]) -> Splits:
    """Splits by the names of files and folders, where README.md names none; a config is then a folder."""
    if word.config is not None:
        folders = sorted({name.split("/", 1)[0] for name in files if "/" in name})
        files = [name for name in files if name.startswith(f"{word.config}/")]
        if not files:
            raise UserError(f"{word}: it has no config {word.config}; its folders are {', '.join(folders)}")
    shards = {name: match[1] for name in files if (match := _SHARD.fullmatch(name))}
    splits: dict[str, list[str]] = {}
    for name in files:
        splits.setdefault(shards[name] if len(shards) == len(files) else _split_word(name), []).append(name)
    return splits


def _split_word(name: str) -> str:
    for split, words in _SPLIT_WORDS.items():
        if re.search(rf"(?:^|[\W_\d])(?:{words})(?:$|[\W_\d])", name.lower()):
            return split
    return "train"
