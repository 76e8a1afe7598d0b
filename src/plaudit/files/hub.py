"""Models and rows from the Hugging Face hub: ``org/name`` becomes a folder of links into the usual cache.

    CACHE/plaudit/hub/models/org/name@COMMIT/                 config, tokenizer, *.safetensors
    CACHE/plaudit/hub/datasets/org/name@COMMIT/CONFIG/SPLIT/  the files with the rows of that split

The path of such a folder says repository and commit, so whatever was read can be named later. It holds what
was asked for and nothing else, whatever other tools put into the cache: no pickled weights, no code.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from plaudit.errors import UserError
from plaudit.files import atomic

Kind = Literal["model", "dataset"]
"""What a repository of the hub holds."""
PREFIX = "hub:"
"""Before a word it says that the hub is meant, whatever lies here under that name."""
ROW_ENDINGS = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".tsv")
"""The files of a data set that are read."""

_REPO = r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)"
_WORDS = {
    "model": re.compile(_REPO + r"(?:@(?P<revision>[^:@\s]+))?"),
    # A revision with slashes is one of the hub's own, as refs/convert/parquet.
    "dataset": re.compile(
        _REPO + r"(?:@(?P<revision>refs/[^/:@\s]+/[^/:@\s]+|[^/:@\s]+))?"
        r"(?::(?P<config>[^/:]+))?(?:/(?P<split>[^/:]+))?"
    ),
}
_FORMS = {"model": "org/name[@revision]", "dataset": "org/name[@revision][:config][/split]"}
_LOCAL_ENDINGS = (*ROW_ENDINGS, ".gz", ".txt", ".yaml", ".yml", ".py", ".bin", ".pt", ".safetensors", ".gguf")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_PLACE = re.compile(r".*/plaudit/hub/(models|datasets)/([^/]+/[^/@]+)@([0-9a-f]{40})(?:/([^/]+)/([^/]+))?/?")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubWord:
    """What ``org/name`` and what stands behind it mean.

    Example: ``HubWord(kind="dataset", repo="org/pairs", revision="main", config=None, split="train")``
    """

    kind: Kind
    """Whether it is a model or a data set."""
    repo: str
    """Organisation and name."""
    revision: str
    """A branch, a tag or a commit."""
    config: str | None = None
    """Which of several tables of a data set."""
    split: str | None = None
    """Which split of it."""

    def __str__(self) -> str:
        revision = "" if self.revision == "main" else f"@{self.revision}"
        config = "" if self.config is None else f":{self.config}"
        return f"{self.repo}{revision}{config}{'' if self.split is None else f'/{self.split}'}"


def hub_word(word: str | os.PathLike[str], kind: Kind) -> HubWord | None:
    """What a word means on the hub; None where it means something on this disk, or can be no name there.

    >>> hub_word("org/pairs@v1:helpful/train", "dataset").config
    'helpful'
    >>> hub_word("/models/base", "model") is None
    True
    """
    text = os.fspath(word)
    forced = text.startswith(PREFIX)
    match = _WORDS[kind].fullmatch(text.removeprefix(PREFIX))
    if match is None:
        if forced:
            raise UserError(f"{text}: no name of the hub; write {PREFIX}{_FORMS[kind]}")
        return None
    if not forced and _is_local(text):
        return None
    return HubWord(kind=kind, **{**match.groupdict(), "revision": match["revision"] or "main"})


def _is_local(text: str) -> bool:
    """Whether a word that could be a name of the hub is, or was to be, a path."""
    if Path(text).exists():
        _say_local(text)
        return True
    # A slip of the pen in runs/first should not be asked of the hub.
    return text.lower().endswith(_LOCAL_ENDINGS) or Path(Path(text).parts[0]).is_dir()


@cache
def _say_local(text: str) -> None:
    """Say which of two is taken, where this machine has had a repository of the same name from the hub."""
    name = Path(text).name
    if any(found for kind in _WORDS for found in (_folder() / f"{kind}s" / text).parent.glob(f"{name}@*")):
        _say(f"{text}: what lies here is taken, and not the hub's; {PREFIX}{text} means the hub's")


def local_path(word: str | os.PathLike[str], kind: Kind, *, split: str | None = None) -> Path:
    """The path of a word: of what lies on this disk, or the folder of what the hub has under that name.

    What the hub has is asked for once in a process; an open run folder names the commit from then on.
    """
    found = hub_word(word, kind)
    if found is None:
        return Path(word)
    if kind == "dataset" and found.split is None:
        found = replace(found, split=split)
    return _fetched(found, _folder())


def name_on_hub(path: str | Path) -> str | None:
    """What a folder of `local_path` is called on the hub, commit and all; None for every other path.

    >>> name_on_hub(f"/home/anna/.cache/plaudit/hub/models/org/base@{'ab' * 20}")
    'org/base@abababababababababababababababababababab'
    """
    match = _PLACE.fullmatch(str(path))
    if match is None:
        return None
    _, repo, commit, config, split = match.groups()
    return f"{repo}@{commit}" + (f":{config}/{split}" if split else "")


def is_commit_name(text: str) -> bool:
    """Whether a text is a name of the hub with a commit, as `name_on_hub` writes it.

    >>> is_commit_name("org/base@" + "ab" * 20), is_commit_name("runs/first")
    (True, False)
    """
    return re.fullmatch(r"[^/@]+/[^/@]+@[0-9a-f]{40}(:.*)?", text) is not None


def short_name(path: str | Path) -> str | None:
    """As `name_on_hub`, for headings: without the commit and without a config that has no name.

    >>> short_name(f"/cache/plaudit/hub/datasets/org/pairs@{'ab' * 20}/default/train")
    'org/pairs/train'
    """
    name = name_on_hub(path)
    return None if name is None else re.sub(r"@[0-9a-f]{40}(:default(?=/))?", "", name)


def pinned(word: str | Path, recorded: str) -> str | None:
    """The recorded name, where it is the same word with the commit that it meant when it was recorded.

    >>> pinned("org/base", "org/base@" + "ab" * 20) == "org/base@" + "ab" * 20
    True
    >>> pinned("org/base@v2", "org/base@" + "ab" * 20) is None
    True
    """
    text = str(word).removeprefix(PREFIX)
    match = re.fullmatch(r"([^@:]+)@([0-9a-f]{40})(.*)", recorded)
    if match is None or "@" in text:
        return None
    repo, _, rest = match.groups()
    tail, known = text.removeprefix(repo), rest.replace(":default", "")
    # The word may leave out the only config and the only split, which the record names.
    same = (
        text.startswith(repo)
        and tail[:1] in ("", ":", "/")
        and (known.startswith(tail) or known.endswith(tail))
    )
    return recorded if same else None


def _folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root).absolute() / "plaudit" / "hub"


@cache
def _fetched(word: HubWord, root: Path) -> Path:
    """The folder of links, made where it is not there yet."""
    if _COMMIT.fullmatch(word.revision) and (place := _known_place(word, word.revision, root)) is not None:
        return place
    with _faults_in_words(word):
        from huggingface_hub import snapshot_download

        api = _client()
        commit = api.resolve_revision(word.repo, repo_type=word.kind, revision=word.revision).resolved
        place = _known_place(word, commit, root)
        if place is None:
            names, note = _names(api, word, commit)
            if word.kind == "model":
                chosen, at = _model_files(word, names), Path()
            else:
                chosen, at = _split_files(word, names, _read_card(word, names, commit))
            # Names are patterns to the client; a file's own brackets are no pattern.
            patterns = [re.sub(r"([\[?*])", r"[\1]", name) for name in chosen]
            snapshot = snapshot_download(
                word.repo, repo_type=word.kind, revision=commit, allow_patterns=patterns
            )
            place = _place(word, commit, root) / at
            _link(place, Path(snapshot), chosen, word)
            _say(f"{word}: commit {commit} of the hub, {len(chosen)} files in {place}{note}")
        else:
            _say(f"{word}: commit {commit} of the hub, found in {place}")
    return place


def _client() -> Any:
    """The hub's own client; it draws bars on a terminal alone."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars

    if not sys.stderr.isatty() and not are_progress_bars_disabled():
        disable_progress_bars()
    return HfApi()


def _place(word: HubWord, commit: str, root: Path) -> Path:
    organisation, _, name = word.repo.partition("/")
    return root / f"{word.kind}s" / organisation / f"{name}@{commit}"


def _known_place(word: HubWord, commit: str, root: Path) -> Path | None:
    """The folder of a commit that was fetched before, whole; of data only where config and split are said."""
    place = _place(word, commit, root)
    if word.kind == "dataset":
        # Which of several is meant takes the list of files, which only the hub or its cache has.
        if word.split is None:
            return None
        place = place / (word.config or "default") / word.split
    files = [*place.iterdir()] if place.is_dir() else []
    # A link whose file was cleared away with the cache points to nothing.
    return place if files and all(file.exists() for file in files) else None


def _names(api: Any, word: HubWord, commit: str) -> tuple[Sequence[str], str]:
    """The files of a commit, from the hub or from what its cache knows of it; and a remark on the latter."""
    from huggingface_hub import constants, get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    if not constants.is_offline_mode():
        return api.list_repo_files(word.repo, repo_type=word.kind, revision=commit), ""
    try:
        tree = get_cached_repo_tree(word.repo, repo_type=word.kind, revision=commit)
    except CachedRepoTreeNotFoundError as error:
        raise UserError(
            f"{word}: HF_HUB_OFFLINE is set, and the cache does not know all files of commit {commit}; unset "
            "it once"
        ) from error
    return [file.path for file in tree], " (offline: the newest commit that is in the cache)"


MODEL_FILES = (".json", ".jinja", ".model", ".txt", ".tiktoken", ".safetensors")
"""The files of a model folder: data alone."""
_OTHER_WEIGHTS = re.compile(r"consolidated.*|.*\.(fp16|bf16|fp32)(-\d+-of-\d+)?\.safetensors")


def _model_files(word: HubWord, names: Sequence[str]) -> list[str]:
    """The files of a model folder: data only, nothing that could run code when it is opened."""
    top = [name for name in names if "/" not in name or name.startswith("additional_chat_templates/")]
    weights = [name for name in top if name.endswith(".safetensors")]
    # The same weights are often there a second time, in another format or precision.
    weights = [name for name in weights if not _OTHER_WEIGHTS.fullmatch(name)] or weights
    if not weights:
        found = ", ".join(sorted(name for name in names if not name.startswith("."))[:6]) or "nothing"
        raise UserError(
            f"{word}: no *.safetensors file lies there (it holds {found}); plaudit opens no pickled weights "
            "(.bin, .pt) and no GGUF. Another revision may have them, as in "
            f"{word.repo}@refs/pr/1, or another repository"
        )
    rest = [name for name in top if name.endswith(MODEL_FILES[:-1]) and not name.startswith("pytorch_model")]
    return [*rest, *weights]


def _read_card(word: HubWord, names: Sequence[str], commit: str) -> Mapping[str, Any]:
    """What the front of a data set's README.md says; nothing where it says nothing."""
    import yaml
    from huggingface_hub import hf_hub_download

    if "README.md" not in names:
        return {}
    path = hf_hub_download(word.repo, "README.md", repo_type=word.kind, revision=commit)
    parts = Path(path).read_text("utf-8", errors="replace").split("---\n", 2)
    if len(parts) < 3 or parts[0].strip():
        return {}
    try:
        front = yaml.safe_load(parts[1])
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{word}: the front of its README.md is no YAML: {error}") from error
    return front if isinstance(front, dict) else {}


Splits = Mapping[str, Sequence[str]]
"""The files of each split."""


def _split_files(word: HubWord, names: Sequence[str], card: Mapping[str, Any]) -> tuple[list[str], Path]:
    """The files of the split that is meant, in order, and where they are to lie."""
    files = sorted(name for name in names if _holds_rows(name))
    if not files:
        raise _no_rows(word, names)
    declared = card.get("configs")
    if declared:
        try:
            configs = {str(config.get("config_name", "default")): config for config in declared}
            config = _picked_config(word, configs)
            splits = _declared_splits(word, configs[config], files)
        except (TypeError, AttributeError) as error:
            raise UserError(
                f"{word}: configs: in its README.md lists no files as the hub wants it"
            ) from error
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


def _holds_rows(name: str) -> bool:
    hidden = any(part.startswith(".") for part in PurePosixPath(name).parts)
    return (
        bool(_ending(name)) and not hidden and not name.endswith(("dataset_infos.json", "dataset_info.json"))
    )


def _ending(name: str) -> str:
    return max((end for end in ROW_ENDINGS if name.lower().endswith(end)), key=len, default="")


def _no_rows(word: HubWord, names: Sequence[str]) -> UserError:
    script = f"{word.repo.partition('/')[2]}.py"
    if script in names:
        return UserError(
            f"{word}: its rows are made by a script, {script}, and scripts are never run; the hub's own copy "
            f"in Parquet may be there: {word.repo}@refs/convert/parquet"
        )
    held = ", ".join(sorted(name for name in names if not name.startswith("."))[:6]) or "nothing"
    return UserError(f"{word}: no file of rows lies there ({', '.join(ROW_ENDINGS)}); it holds {held}")


def _picked_config(word: HubWord, configs: Mapping[str, Mapping[str, Any]]) -> str:
    default = [name for name, config in configs.items() if config.get("default") or name == "default"]
    wanted = word.config or (default[0] if default else None)
    return _picked(replace(word, config=None, split=None), "config", configs, wanted)


def _picked(
    word: HubWord, what: Literal["config", "split"], among: Mapping[str, Any], wanted: str | None
) -> str:
    """The one that is wanted, or the only one; else a refusal that names all."""
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
            found = _matching(files, str(PurePosixPath(folder) / str(pattern)))
            splits.setdefault(str(split or "train"), []).extend(found)
    return {split: list(dict.fromkeys(found)) for split, found in splits.items()}


_GLOB = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _matching(files: Sequence[str], pattern: str) -> list[str]:
    """The files of a pattern in which ** stands for folders and * for a part of one name."""
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", pattern)
    expression = "".join(
        _GLOB.get(piece) or (piece.replace("[!", "[^") if piece.startswith("[") else re.escape(piece))
        for piece in pieces
    )
    return [name for name in files if re.fullmatch(expression, name)]


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


def _link(place: Path, snapshot: Path, names: Sequence[str], word: HubWord) -> None:
    missing = [name for name in names if not (snapshot / name).exists()]
    if missing:
        raise UserError(f"{word}: the cache lacks {missing[0]}, and it could not be fetched")
    atomic.make_folder(place.parent)
    with atomic.atomic_folder(place) as partial:
        for name in names:
            # Rows of two folders lie side by side; a chat template stays in its folder.
            flat = name.replace("/", "__") if word.kind == "dataset" else name
            (partial / flat).parent.mkdir(exist_ok=True)
            (partial / flat).symlink_to((snapshot / name).absolute())


@contextmanager
def _faults_in_words(word: HubWord) -> Iterator[None]:
    """What the client raises, as a sentence."""
    from huggingface_hub import constants, errors

    try:
        yield
    except UserError:
        raise
    except errors.HFValidationError as error:
        raise UserError(f"{word}: no name of the hub ({error}); write {_FORMS[word.kind]}") from error
    except errors.RevisionNotFoundError as error:
        raise UserError(f"{word}: {word.repo} is there, and has no revision {word.revision}") from error
    # The base of all that the client raises about an answer, or in place of one.
    except errors.HTTPError as error:  # pyright: ignore[reportPrivateImportUsage]
        raise UserError(f"{word}: {_http_fault(word, error)}") from error
    except errors.RevisionResolutionError as error:
        offline = "HF_HUB_OFFLINE is set" if constants.is_offline_mode() else f"{_server()} cannot be reached"
        raise UserError(
            f"{word}: nothing of this name lies here, the cache of the hub has no such {_nouns(word)[0]}, "
            f"and {offline}; fetch it once where there is a connection, or give a path"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"{word}: the exchange with the hub failed: {_line(error.__cause__ or error)}"
        ) from error


def push(repo: str, files: Mapping[str, Path], card: str, *, private: bool) -> tuple[str, str]:
    """Put the files and the card into a repository, made where there is none; its commit and its page."""
    with _faults_in_words(HubWord(kind="model", repo=repo, revision="main")):
        from huggingface_hub import CommitOperationAdd, get_token

        if get_token() is None:
            raise UserError(f"{repo}: the hub has to know who you are: {_LOG_IN}")
        api = _client()
        api.create_repo(repo, private=private, exist_ok=True)
        contents: Mapping[str, Path | bytes] = {**files, "README.md": card.encode()}
        additions = [
            CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)
            for name, content in contents.items()
        ]
        done = api.create_commit(repo, additions, commit_message="A run of plaudit")
    return done.oid, f"{_server()}/{repo}"


_LOG_IN = "log in (HF_TOKEN, or hf auth login)"


def _http_fault(word: HubWord, error: Exception) -> str:
    from huggingface_hub import constants, errors, get_token

    page = f"{_server()}/{'' if word.kind == 'model' else 'datasets/'}{word.repo}"
    if isinstance(error, errors.GatedRepoError):
        return f"the hub asks for consent first: accept its terms at {page}, then {_LOG_IN}"
    if isinstance(error, errors.RepositoryNotFoundError):
        who = "this token may not see it" if get_token() else f"it is private (then {_LOG_IN})"
        noun, other = _nouns(word)
        return f"no such path here, and the hub has no {noun} of this name ({page}), or {who}{other}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is None:
        timeout = f" (HF_HUB_DOWNLOAD_TIMEOUT is {constants.HF_HUB_DOWNLOAD_TIMEOUT} s)"
        return f"the hub at {_server()} cannot be reached: {_line(error)}{timeout}"
    hint = f"; {_LOG_IN}, with a token that may do this" if status in (401, 403) else ""
    return f"the hub at {_server()} answers {status}: {_line(error)}{hint}"


def _nouns(word: HubWord) -> tuple[str, str]:
    return ("model", "") if word.kind == "model" else ("data set", "; a data set is not a model of that name")


def _server() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


def _line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _say(sentence: str) -> None:
    # Of several processes that were started together the first speaks for all.
    if os.environ.get("RANK", "0") == "0":
        print(f"plaudit: {sentence}", file=sys.stderr)
