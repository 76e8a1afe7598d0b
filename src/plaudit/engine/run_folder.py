"""The folder of one run: where everything lies, who may use it, and what the run was made of.

The lineage names data, model, code and versions, so that two runs can be told apart later and a resumed run
is refused when its ingredients have changed. Content is named by its sha256: a renamed file is the same data,
and an edited one is not.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence, Set as AbstractSet
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

import plaudit
from plaudit.engine.step_report import current_metric_name
from plaudit.errors import UserError
from plaudit.files import atomic, exact_json, hub, lock
from plaudit.files.data_sets import exported_from, sources_of
from plaudit.releases import installed_version, untried_releases

if TYPE_CHECKING:
    from plaudit.engine.distributed import Ranks

_LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "peft", "datasets")
_TOKENIZER_FILES = (
    *("added_tokens.json", "merges.txt", "sentencepiece.bpe.model", "special_tokens_map.json"),
    *("spiece.model", "tokenizer.json", "tokenizer.model", "tokenizer_config.json"),
    *("vocab.json", "vocab.txt"),
)
_RESULT_KEYS = ("method", "hub", "data", "model", "template", "tokenizer", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    data: Mapping[str, str]
    """Each data file or folder, as it was named, with the sha256 of its content."""
    model: str | None
    template: str | None
    tokenizer: str | None
    seed: int
    method: str = ""
    hub: Mapping[str, str] = field(default_factory=dict[str, str])
    """The commit of each repository of the Hugging Face hub that something was read from."""
    revisions: Mapping[str, str] = field(default_factory=dict[str, str])
    """The branch or tag of each of these that was asked for by one, under its name with the commit."""
    snapshots: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Of each data file that was exported from a store of labels: the store, the project, the log's position
    and link, and the sha256 that the file had then."""
    code: Mapping[str, Any]
    """plaudit's version; in a checkout also the commit and whether files differed from it."""
    libraries: Mapping[str, str]
    untried: Sequence[str] = field(default_factory=list[str])
    """Which of them are newer than what this version was tried with, in words."""
    machine: Mapping[str, Any]


def gather_lineage(
    *,
    data: Sequence[Path],
    seed: int,
    model: Path | None = None,
    tokenizer: Path | None = None,
    template: str | None = None,
    method: str = "",
) -> Lineage:
    """The lineage of a run that is about to start; large files are hashed in pieces."""
    data = [Path(source) for path in data for source, _ in sources_of(path)]
    names = [name for path in (*data, model) if path is not None for name in hub.hub_names(path)]
    words = {hub.name_on_hub(path) or str(path): path for path in data}
    return Lineage(
        data={word: hash_path(path) for word, path in words.items()},
        hub={repo: commit[:40] for repo, _, commit in (name.partition("@") for name in names)},
        revisions=hub.revisions_of(names),
        snapshots={word: snapshot for word, path in words.items() if (snapshot := exported_from(path))},
        model=None if model is None else hash_path(model),
        template=None if template is None else hashlib.sha256(template.encode()).hexdigest(),
        tokenizer=None if tokenizer is None else _hash_tokenizer(tokenizer),
        seed=seed,
        method=method,
        code=code_version(),
        libraries=_library_versions(),
        untried=[*untried_releases()],
        machine=_machine_info(),
    )


def changed_exports(lineage: Lineage) -> tuple[str, ...]:
    """Which data files are no more what was exported from a store of labels, in words."""
    return tuple(
        f"{name}: changed after it was exported from {snapshot['store']} (project {snapshot['project']}, "
        f"position {snapshot['seq']}); what was learnt from it cannot be traced to its labels"
        for name, snapshot in lineage.snapshots.items()
        if lineage.data[name] != snapshot["sha256"]
    )


def write_lineage(path: Path, lineage: Lineage) -> None:
    atomic.write_json(path, asdict(lineage))


def read_lineage(path: Path) -> Lineage:
    """The lineage in a ``lineage.json``; raises where it was damaged."""
    try:
        return Lineage(**exact_json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise UserError(
            f"{path}: not a lineage that plaudit wrote: {error}. Restore it, or choose another folder."
        ) from error


def compare_lineages(old: Lineage, new: Lineage) -> tuple[str, ...]:
    """What differs around a run that goes on (versions, machine), in words.
    Another method, base model, template, tokenizer or seed, or other data, is a `UserError`: another run."""
    # Flat keys name the one file that changed; a nested comparison could say only that the data did.
    before, after = _flatten(asdict(old)), _flatten(asdict(new))
    changed = [
        key
        for key in {**before, **after}
        # A run that goes on asks for commits, and the words by which they were found first stay. Of an export
        # the content decides, which is compared as data, and not where its store lies today.
        if before.get(key) != after.get(key) and not key.startswith(("revisions", "snapshots", "untried"))
    ]
    lines = {key: f"{key}: {_short_hash(before.get(key))} → {_short_hash(after.get(key))}" for key in changed}
    # What decides the result is refused; versions and machines only change last bits, and are said.
    content = [lines[key] for key in changed if key.split(": ")[0] in _RESULT_KEYS]
    if content:
        raise UserError(
            "what the run was started with has changed since (then → now):\n"
            + "".join(f"  {line}\n" for line in content)
            + "To go on: restore it, or start another run with `--out` elsewhere."
        )
    return tuple(f"{line}; results may differ in the last bits" for line in lines.values())


def refuse_differing_ranks(ranks: Ranks, facts: Mapping[str, object], inputs: Mapping[str, Path]) -> None:
    """Refuses a start whose ranks do not all have the same settings, versions and content of files.
    They would train on without a word: each rank its own rows at its own rate, the gradients added up."""
    if ranks.world_size == 1:
        return
    version = f"{plaudit.__version__} {code_version()['commit'] or ''}".strip()
    versions = {**_library_versions(), "plaudit": version}
    _refuse_differences(ranks, {name: str(value) for name, value in facts.items()} | versions)
    # Of one and the same file on one machine nobody has to read the content.
    stamps = _gathered(ranks, {name: _file_stamp(path) for name, path in inputs.items()})
    unsure = [name for name in inputs if len({stamp[name] for stamp in stamps}) > 1]
    found = {name: hash_path(inputs[name]) if inputs[name].exists() else "missing" for name in unsure}
    _refuse_differences(ranks, found)


def _refuse_differences(ranks: Ranks, rank_facts: Mapping[str, str]) -> None:
    of_ranks = _gathered(ranks, rank_facts)
    names = dict.fromkeys(name for of_rank in of_ranks for name in of_rank)
    lines: list[str] = []
    for name in names:
        holders: dict[str, list[str]] = {}
        for rank, of_rank in enumerate(of_ranks):
            holders.setdefault(of_rank.get(name, "nothing"), []).append(str(rank))
        if len(holders) > 1:
            values = (f"{_short_hash(value)} on rank {', '.join(who)}" for value, who in holders.items())
            lines.append(f"  {name}: {'; '.join(values)}\n")
    if lines:
        raise UserError(
            f"the ranks of this run are not started with the same:\n{''.join(lines)}"
            "Start all of them with one command, on the same files and versions."
        )


def _gathered(ranks: Ranks, rank_facts: Mapping[str, str]) -> list[dict[str, str]]:
    return [json.loads(text) for text in ranks.all_gather_strings([json.dumps(dict(rank_facts))])]


def _file_stamp(path: Path) -> str:
    """What two ranks agree on only where they read the same files of the same machine."""
    if not path.exists():
        return "missing"
    files = _files_below(path, ()) if path.is_dir() else iter([path])
    stats = [(str(file.resolve()), file.stat()) for file in files]
    marks = [(name, at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns) for name, at in stats]
    return json.dumps([platform.node(), marks])


def hash_file(path: Path) -> str:
    if not path.exists():
        hint = hub.name_hint(path, "dataset")
        raise UserError(f"{path}: there is no such file or folder. Check the name{hint or '.'}")
    if not path.is_file():
        raise UserError(f"{path}: neither a file nor a folder, so its content cannot be recorded.")
    with open(path, "rb") as file:
        # `file_digest` reads in pieces: a shard of 50 GB never has to fit into memory.
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_path(path: Path, of_file: Callable[[Path], str] = hash_file) -> str:
    """The sha256 of a file's content, or of a folder's: every file's name within it and content, in order.
    Names that start with a dot (caches, version control) do not count; links count as what they point to.
    ``of_file`` may know the hash of a large file already."""
    return _hash_files(path, _files_below(path, ()), of_file) if path.is_dir() else of_file(path)


def _hash_files(top: Path, files: Iterator[Path], of_file: Callable[[Path], str] = hash_file) -> str:
    digest = hashlib.sha256()
    for path in files:
        # The name is hashed itself, so that its length is fixed and no two listings can read the same.
        digest.update(hashlib.sha256(path.relative_to(top).as_posix().encode()).digest())
        # A content hash has a fixed length too: name and content of two files cannot slide into one another.
        digest.update(bytes.fromhex(of_file(path)))
    return digest.hexdigest()


def _files_below(folder: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    # Compared with the folders above only: the same folder linked twice side by side is no loop.
    real = folder.resolve()
    if real in above:
        raise UserError(f"{folder}: a link that leads back to a folder above it; remove it.")
    # Sorted, since the order of `iterdir` is the file system's and differs between machines.
    for path in sorted(folder.iterdir(), key=lambda item: item.name):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _files_below(path, (*above, real))
        else:
            yield path


def _hash_tokenizer(folder: Path) -> str:
    files = [folder / name for name in _TOKENIZER_FILES if (folder / name).is_file()]
    if not files:
        raise UserError(f"{folder}: holds no tokenizer (looked for {', '.join(_TOKENIZER_FILES)}).")
    return _hash_files(folder, iter(files))


def code_version() -> dict[str, Any]:
    """plaudit's version; in a checkout also the commit and whether files differ from it."""
    source = Path(plaudit.__file__)
    code: dict[str, Any] = {"plaudit": plaudit.__version__, "commit": None, "changed": None}
    # Installed inside somebody else's repository, git would answer with their commit: is the file tracked?
    if _git(source.parent, "ls-files", "--error-unmatch", source.name) is not None:
        code["commit"] = _git(source.parent, "rev-parse", "HEAD")
        # Untracked files do not count: a checkout in use has notebooks and run folders lying about.
        code["changed"] = bool(_git(source.parent, "status", "--porcelain", "--untracked-files=no", "."))
    return code


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _library_versions() -> dict[str, str]:
    return {name: version for name in _LIBRARIES if (version := installed_version(name))}


def _machine_info() -> dict[str, Any]:
    import torch

    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        # Kernels are chosen by it and by the number of threads, and a float sum depends on its order.
        "processor": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def _short_hash(value: object) -> str:
    """A hash by its first digits, as people compare them; anything else as it is."""
    text = str(value)
    return f"{text[:12]}…" if re.fullmatch(r"[0-9a-f]{64}", text) else text


def _flatten(lineage: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in lineage.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}: {name}": item for name, item in value.items()}
        else:
            flat[key] = value
    return flat


_MISSING = object()
_RESULT_NAMES = ("model", "adapter", "summary.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    """An open run folder; only the process that holds its lock has one."""

    path: Path
    resumed: bool
    """Whether the folder holds a checkpoint or a result of an earlier start."""
    notes: tuple[str, ...]
    """What the user should hear: leftovers removed, settings that changed, a run that was killed."""
    verify: Callable[[], tuple[str, ...]] = tuple
    """Raises where another folder is under this name, or none; returns what it mended, in words."""

    @property
    def config(self) -> Path:
        """The settings, resolved: enough to run again."""
        return self.path / "config.yaml"

    @property
    def lineage(self) -> Path:
        return self.path / "lineage.json"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The result, as a Hugging Face folder."""
        return self.path / "model"


@contextmanager
def open_run_folder(
    path: Path,
    *,
    config: Mapping[str, Any],
    may_change: AbstractSet[str] = frozenset(),
    defaults: Mapping[str, Any] | None = None,
) -> Iterator[RunFolder]:
    """Opens the folder for a new run, or for the run that it holds if the config is still the same.

    ``config`` is plain data (it goes through YAML). A key in ``may_change`` (nested: ``data.workers``; a
    section's name stands for all of it) may differ on resume and is then brought up to date; any other
    difference is a `UserError` that names each key with both values. ``defaults`` are what keys had been,
    by dotted name, when they did not exist yet. Before its first checkpoint a run has
    nothing to lose, so a start that failed can be repeated with other settings. A summary goes when a
    setting changes: it vouches for a result that was made with the settings beside it. Refused as well: a
    folder in use, and one that holds something else.
    """
    # Compared as YAML gives it back: a tuple is a list there, and would differ from the file for ever.
    resolved = _yaml_round_trip(config)
    # Before anything is made or locked: a mistyped `--out` must leave somebody else's folder untouched.
    _refuse_foreign(path)
    atomic.make_folder(path)
    with lock.hold_lock(path) as held:
        # Only under the lock: without it, these could be the work in progress of a run that is alive.
        notes = list(atomic.remove_leftovers(path))
        folder = RunFolder(path=path, resumed=_has_checkpoint_or_result(path), notes=())
        if held.previous is not None:
            notes.append(f"{path}: the last run here ({held.previous}) did not end in good order")
        changes: list[str] = []
        if folder.resumed:
            changes = _config_changes(folder.config, resolved, may_change, defaults or {})
        notes += changes
        atomic.make_folder(folder.checkpoints)
        notes += atomic.remove_leftovers(folder.checkpoints)
        if changes or not folder.resumed:
            with atomic.disk_errors_explained(folder.summary):
                # It goes first: a kill in between leaves no result beside settings that did not make it.
                folder.summary.unlink(missing_ok=True)
        if not folder.resumed or _read_config(folder.config) != resolved:
            atomic.write_text(folder.config, _yaml_of(resolved))
        yield replace(folder, notes=tuple(notes), verify=held.verify)


def _refuse_foreign(path: Path) -> None:
    if not path.is_dir() or (path / "config.yaml").exists():
        return
    # Before config.yaml is there, a run that was killed can leave only these.
    foreign = sorted(
        item.name
        for item in path.iterdir()
        if item.name not in (lock.LOCK_NAME, "checkpoints") and not item.name.endswith(".partial")
    )
    if foreign:
        names_text = ", ".join(foreign[:5]) + (", …" if len(foreign) > 5 else "")
        raise UserError(
            f"{path}: this folder is not a run (it has no config.yaml) and is not empty: {names_text}. "
            "Choose an empty or new folder with `--out`."
        )


def _has_checkpoint_or_result(path: Path) -> bool:
    checkpoints = path / "checkpoints"
    saved = checkpoints.is_dir() and any(not item.name.endswith(".partial") for item in checkpoints.iterdir())
    saved = saved or any((path / name).exists() for name in _RESULT_NAMES)
    return saved and (path / "config.yaml").exists()


def _config_changes(
    path: Path, resolved: Mapping[str, Any], may_change: AbstractSet[str], defaults: Mapping[str, Any]
) -> list[str]:
    new = flat_settings(resolved)
    old = {name: defaults[name] for name in new if name in defaults} | flat_settings(_read_config(path))
    if isinstance(best := old.get("keep.best"), str):
        old["keep.best"] = current_metric_name(best)
    keys = [
        key for key in {**old, **new} if not _equal_values(old.get(key, _MISSING), new.get(key, _MISSING))
    ]
    changes = {key: f"{key}: {_value_text(old, key)} → {_value_text(new, key)}" for key in keys}
    fixed = [key for key in keys if not _is_changeable(key, may_change)]
    if fixed:
        raise UserError(
            f"{path}: the config no longer matches the run in this folder (then → now):\n"
            + "".join(f"  {changes[key]}\n" for key in fixed)
            + f"May change when a run goes on: {', '.join(sorted(may_change)) or 'nothing'}.\n"
            + _advice_for_changes(path.parent)
        )
    return [f"{path}: changed for the rest of the run: {text}" for text in changes.values()]


def _advice_for_changes(folder: Path) -> str:
    if (folder / "summary.json").exists() and (folder / "model").is_dir():
        return (
            "This run is finished and takes no further steps: its learning rates were laid out over those "
            f"that it had. To train on from its result: start another run with `--model {folder / 'model'}` "
            "and `--out` elsewhere. To train anew with these settings: `--out` elsewhere."
        )
    return "To go on: restore the values above, or start another run with `--out` elsewhere."


def _is_changeable(key: str, may_change: AbstractSet[str]) -> bool:
    names = key.split(".")
    return any(".".join(names[:depth]) in may_change for depth in range(1, len(names) + 1))


def flat_settings(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings of all groups by their dotted names.

    >>> flat_settings({"seed": 0, "lora": {"rank": 2}})
    {'seed': 0, 'lora.rank': 2}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= flat_settings(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _equal_values(old: object, new: object) -> bool:
    # NaN differs from itself, which would refuse every resume.
    if isinstance(old, float) and isinstance(new, float) and math.isnan(old) and math.isnan(new):
        return True
    # In Python True == 1, and `save: 1` is not `save: true`.
    return old == new and isinstance(old, bool) == isinstance(new, bool)


def _value_text(flat: Mapping[str, Any], key: str) -> str:
    return repr(flat[key]) if key in flat else "(not set)"


def _read_config(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not readable as YAML: {error}. Restore it, or choose another.") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: holds no settings. Restore it, or choose another folder with `--out`.")
    return content


def _yaml_round_trip(config: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return yaml.safe_load(_yaml_of(_plain_data(config)))
    except yaml.YAMLError as error:
        raise ValueError(f"a config must be plain data (mappings, lists, text, numbers): {error}") from error


def _plain_data(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain_data(item) for key, item in value.items()}
    return [_plain_data(item) for item in value] if isinstance(value, list | tuple) else value


def _yaml_of(config: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
