"""Models and rows from the Hugging Face hub: ``org/name`` becomes a folder of links into the usual cache.

    CACHE/plaudit/hub/models/org/name@COMMIT/                 config, tokenizer, *.safetensors
    CACHE/plaudit/hub/datasets/org/name@COMMIT/CONFIG/SPLIT/  the files with the rows of that split

The path of such a folder says repository and commit, so whatever was read can be named later. It holds what
was asked for and nothing else, whatever other tools put into the cache: no pickled weights, no code.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Timer
from typing import Any, Literal

from plaudit.errors import UserError, first_line, located
from plaudit.files import atomic
from plaudit.files.data_sets import ROW_ENDINGS, SEVERAL, card_front, joined, sources_of, split_files
from plaudit.files.model_folder import adapter_settings
from plaudit.files.stored import cache_folder

Kind = Literal["model", "dataset"]
PREFIX = "hub:"
"""Before a word it says that the hub is meant, whatever lies here under that name."""
SLOW_ANSWER = 2.0
"""Seconds after which a user is told who is waited for."""

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
    """What ``org/name`` and what stands behind it mean."""

    kind: Kind
    repo: str
    revision: str
    config: str | None = None
    """Which of several tables of a data set."""
    split: str | None = None

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


def refuse_address(word: str | os.PathLike[str]) -> None:
    """Complain about an address of the web, where a path or a name of the hub is wanted.

    >>> refuse_address("https://huggingface.co/org/base")
    Traceback (most recent call last):
    plaudit.errors.UserError: https://huggingface.co/org/base: addresses are not read; write org/base
    """
    # As a path an address has lost a stroke.
    match = re.fullmatch(r"(https?:)/+(.+)", os.fspath(word))
    if match is None:
        return
    hosted = re.match(r"huggingface\.co/(?:datasets/)?([^/]+/[^/]+)", match[2])
    advice = f"write {hosted[1]}" if hosted else "fetch the file, and give its path"
    raise UserError(f"{match[1]}//{match[2]}: addresses are not read; {advice}")


def _is_local(text: str) -> bool:
    if Path(text).exists():
        # Say which of two is taken, where this machine has had a repository of the same name from the hub.
        name = Path(text).name
        if any(
            found
            for kind in _WORDS
            for found in (cache_folder() / "hub" / f"{kind}s" / text).parent.glob(f"{name}@*")
        ):
            _say(f"{text}: what lies here is taken, and not the hub's; {PREFIX}{text} means the hub's")
        return True
    # A slip of the pen in runs/first should not be asked of the hub.
    return text.lower().endswith(_LOCAL_ENDINGS) or Path(Path(text).parts[0]).is_dir()


def local_path(word: str | os.PathLike[str], kind: Kind, *, split: str | None = None) -> Path:
    """The path of a word: of what lies on this disk, or the folder of what the hub has under that name.
    What the hub has is asked for once in a process; an open run folder names the commit from then on."""
    found = hub_word(word, kind)
    if found is not None and kind == "dataset" and found.split is None:
        found = replace(found, split=split)
    path = Path(word) if found is None else _fetched(found, cache_folder() / "hub")
    return _on_its_base(path) if kind == "model" and is_adapter(path) else path


def local_word(word: str, kind: Kind) -> str:
    """`local_path` as text; a word that the hub has nothing to do with stays as it is, letter for letter."""
    # Through a path "openai:http://host" would lose a stroke.
    return word if is_plain_path(word, kind) else str(local_path(word, kind))


def is_plain_path(word: str, kind: Kind) -> bool:
    """Whether `local_path` of a word is the word itself."""
    return hub_word(word, kind) is None and not (kind == "model" and is_adapter(Path(word)))


def name_hint(word: str | Path, kind: Kind = "model") -> str:
    """What to say of a word that is nothing here and could be a name of the hub without its owner.

    >>> name_hint("gpt2")
    '; a model of the hub is named with its owner, as org/name: openai-community/gpt2, not gpt2'
    >>> name_hint("runs/first")
    ''
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", str(word)) or str(word).lower().endswith(_LOCAL_ENDINGS):
        return ""
    thing, example = ("model", "openai-community/gpt2") if kind == "model" else ("data set", "openai/gsm8k")
    bare = example.partition("/")[2]
    return f"; a {thing} of the hub is named with its owner, as org/name: {example}, not {bare}"


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter alone, which is a model only on its base."""
    return (folder / "adapter_config.json").is_file() and not (folder / "config.json").exists()


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


def pinned(word: str | Path, recorded: str, revisions: Mapping[str, str] | None = None) -> str | None:
    """The recorded name, where it is the same word with the commit that it meant when it was recorded.
    ``revisions`` are the branches and tags, as `revisions_of` has them; a name without one is of main.

    >>> pinned("org/base", "org/base@" + "ab" * 20) == "org/base@" + "ab" * 20
    True
    >>> pinned("org/base@v2", "org/base@" + "ab" * 20) is None
    True
    >>> name = "org/base@" + "ab" * 20
    >>> pinned("org/base@v2", name, {name: "v2"}) == name
    True
    """
    text = str(word).removeprefix(PREFIX)
    match = re.fullmatch(r"([^@:]+)@([0-9a-f]{40})(.*)", recorded)
    if match is None:
        return None
    repo, commit, rest = match.groups()
    revision = f"{repo}@{(revisions or {}).get(f'{repo}@{commit}', 'main')}"
    text = repo + text.removeprefix(revision) if re.match(rf"{re.escape(revision)}(?![^:/])", text) else text
    if "@" in text or (revision != f"{repo}@main" and "@" not in str(word)):
        return None
    tail, known = text.removeprefix(repo), rest.replace(":default", "")
    # The word may leave out the only config and the only split, which the record names.
    same = (
        text.startswith(repo)
        and tail[:1] in ("", ":", "/")
        and (known.startswith(tail) or known.endswith(tail))
    )
    return recorded if same else None


_revisions: dict[str, str] = {}


def revisions_of(names: Iterable[str]) -> dict[str, str]:
    """For names with commits the branch or tag by which this process asked for them; main goes unsaid."""
    repositories = [name.partition(":")[0] for name in names]
    return {name: _revisions[name] for name in repositories if _revisions.get(name, "main") != "main"}


def say_moved_on(word: str, kind: Kind, pinned_name: str, advice: str) -> None:
    """Say it where the hub has another commit under a word by now than the name that is kept for it."""
    found = hub_word(word, kind)
    if found is None or _COMMIT.fullmatch(found.revision):
        return
    try:
        commit = _commit_of(found)
    except UserError:
        # What is kept is here already: without the hub there is nothing to say, and nothing is amiss.
        return
    if commit not in pinned_name:
        _say(f"{word}: the hub has moved on to commit {commit}, and {pinned_name} is kept; {advice}")


def recorded_name(path: str | Path) -> str:
    """What a run's own files call it: a name of the hub with its commit, an adapter's folder, or the path.
    Of several sources of rows each is named so."""
    if SEVERAL in str(path):
        return joined(
            f"{recorded_name(source)}{'' if weight == 1 else f'*{weight:g}'}"
            for source, weight in sources_of(path)
        )
    origin = Path(path) / _ORIGIN if "/plaudit/adapters/" in str(path) else None
    if origin is not None and origin.is_file():
        return origin.read_text("utf-8").splitlines()[0]
    return name_on_hub(path) or str(path)


def hub_names(path: Path) -> list[str]:
    """The names on the hub, commits and all, of what a folder or file of `local_path` was made of."""
    origin = path / _ORIGIN
    made_of = origin.read_text("utf-8").splitlines() if origin.is_file() else [str(name_on_hub(path))]
    return [name for name in made_of if is_commit_name(name)]


ADAPTER_FOLDER = "plaudit-adapter"
"""In a folder that stands for an adapter on its base: where the adapter is, beside the base's own files."""
_ORIGIN = ".origin"


def _on_its_base(adapter: Path) -> Path:
    """A folder of links to the base model's files, with the adapter in a folder within."""
    base = _base_of(adapter)
    if (base / ADAPTER_FOLDER).exists():
        raise UserError(
            f"{adapter}: its base model, {recorded_name(base)}, is an adapter itself; take the model of its "
            "run, in model/, which has both merged"
        )
    names = [recorded_name(path) if name_on_hub(path) else str(path.resolve()) for path in (adapter, base)]
    key = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    place = cache_folder() / "adapters" / f"{adapter.resolve().name}-{key}"
    links = {f"{ADAPTER_FOLDER}/{file.name}": file for file in _data_files(adapter)}
    links |= {file.name: file for file in _data_files(base)}
    # Whoever has trained tokens of their own has saved the tokenizer beside the adapter.
    if (adapter / "tokenizer_config.json").is_file():
        links |= {file.name: file for file in _data_files(adapter) if not file.name.startswith("adapter_")}
    _say(f"{names[0]}: a LoRA adapter on {names[1]}; it is merged into it unless --lora.keep is given")
    if {name for name in links if (place / name).exists()} != set(links):
        _write_links(place, links, origin="\n".join(names))
    return place


def _data_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.is_file() and path.name.endswith(MODEL_FILES)]


def _base_of(adapter: Path) -> Path:
    """The base model that an adapter names: a folder, as seen from here or from it, or one of the hub."""
    path = adapter / "adapter_config.json"
    settings = adapter_settings(path)
    name, kind = settings.get("base_model_name_or_path"), settings.get("peft_type")
    if not isinstance(name, str):
        raise UserError(
            f"{path}: does not say on which model the adapter stands (base_model_name_or_path is "
            f"{json.dumps(name)}); mend it"
        )
    whole = adapter.parent / "model"
    is_whole = (whole / "config.json").is_file()
    if settings.get("task_type") == "SEQ_CLS":
        raise _reward_adapter(adapter, whole if is_whole else None)
    if kind != "LORA":
        raise UserError(f"{path}: an adapter of type {kind!r}, and only LORA can be merged into its base")
    if not (adapter / "adapter_model.safetensors").is_file():
        raise UserError(
            f"{adapter}: no adapter_model.safetensors; plaudit does not open pickled weights (.bin), which "
            "can run code: convert them first"
        )
    here = next((base for base in (Path(name), adapter / name) if (base / "config.json").is_file()), None)
    revision = settings.get("revision")
    word = f"{name}@{revision}" if revision and "@" not in name else name
    merged = f"; the two merged lie in {whole}: give that" if is_whole else ""
    with located(f"{path}: its base model cannot be had{merged}"):
        base = local_path(word, "model") if here is None else here
    if not (base / "config.json").is_file():
        raise UserError(
            f"{path}: its base model is {name!r}, and no model lies there{merged}; write its folder, or "
            "org/name of the hub, into base_model_name_or_path"
        )
    return base


def _reward_adapter(adapter: Path, whole: Path | None) -> UserError:
    """What to say of the adapter of a reward model: its base has no head, and no level of scores."""
    instead = "merge it into its base first (merge_and_unload of PEFT), and give the folder that this saves"
    if whole is not None:
        instead = f"the two merged lie in {whole}: give that"
    return UserError(
        f"{adapter}: the adapter of a reward model, and adapters of language models alone are merged; "
        f"{instead}"
    )


@cache
def _fetched(word: HubWord, root: Path) -> Path:
    if _COMMIT.fullmatch(word.revision) and (place := _known_place(word, word.revision, root)) is not None:
        return place
    with faults_in_words(word):
        from huggingface_hub import snapshot_download

        api = client()
        commit = _commit_of(word)
        _revisions[f"{word.repo}@{commit}"] = word.revision
        place = _known_place(word, commit, root)
        if place is None:
            names, note = _names(api, word, commit)
            if word.kind == "model":
                chosen, at = _model_files(word, names), Path()
            else:
                chosen, at = split_files(word, names, _read_card(word, names, commit))
            # Names are patterns to the client; a file's own brackets are no pattern.
            patterns = [re.sub(r"([\[?*])", r"[\1]", name) for name in chosen]
            snapshot = snapshot_download(
                word.repo, repo_type=word.kind, revision=commit, allow_patterns=patterns
            )
            place = _place(word, commit, root) / at
            if missing := [name for name in chosen if not Path(snapshot, name).exists()]:
                raise UserError(f"{word}: the cache lacks {missing[0]}, and it could not be fetched")
            # Rows of two folders lie side by side; a chat template stays in its folder.
            flat = word.kind == "dataset"
            links = {name.replace("/", "__") if flat else name: Path(snapshot, name) for name in chosen}
            _write_links(place, links)
            count = "1 file" if len(chosen) == 1 else f"{len(chosen)} files"
            _say(f"{word}: commit {commit} of the hub, {count} in {place}{note}")
        else:
            _say(f"{word}: commit {commit} of the hub, found in {place}")
    return place


def _commit_of(word: HubWord) -> str:
    with faults_in_words(word), _named_when_slow():
        found = client().resolve_revision(word.repo, repo_type=word.kind, revision=word.revision)
    return str(found.resolved)


def client(*, waits: bool = False) -> Any:
    """The hub's own client, with bars on a terminal alone; it ``waits`` for answers as long as they take."""
    from huggingface_hub import HfApi, get_session
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars

    hooks = get_session().event_hooks
    others = [hook for hook in hooks["request"] if hook is not _bound_wait]
    get_session().event_hooks = {**hooks, "request": others if waits else [*others, _bound_wait]}
    if not sys.stderr.isatty() and not are_progress_bars_disabled():
        disable_progress_bars()
    return HfApi()


def _bound_wait(request: Any) -> None:
    """Where the client would wait for an answer for ever, it waits as long as for a piece of a file."""
    from huggingface_hub import constants

    if (request.extensions.get("timeout") or {}).get("read") is None:
        parts = ("connect", "read", "write", "pool")
        request.extensions["timeout"] = dict.fromkeys(parts, float(constants.HF_HUB_DOWNLOAD_TIMEOUT))


@contextmanager
def _named_when_slow() -> Iterator[None]:
    timer = Timer(SLOW_ANSWER, _say, (f"asking {server()} …",))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
    from huggingface_hub import hf_hub_download

    if "README.md" not in names:
        return {}
    path = hf_hub_download(word.repo, "README.md", repo_type=word.kind, revision=commit)
    return card_front(Path(path), word)


def _write_links(place: Path, targets: Mapping[str, Path], origin: str | None = None) -> None:
    atomic.make_folder(place.parent)
    with atomic.atomic_folder(place) as partial:
        for name, target in targets.items():
            (partial / name).parent.mkdir(exist_ok=True)
            (partial / name).symlink_to(target.absolute())
        if origin is not None:
            (partial / _ORIGIN).write_text(f"{origin}\n", encoding="utf-8")


@contextmanager
def faults_in_words(word: HubWord) -> Iterator[None]:
    """Within the block, what the hub or its client refuses is a `UserError`."""
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
        offline = "HF_HUB_OFFLINE is set" if constants.is_offline_mode() else f"{server()} cannot be reached"
        raise UserError(
            f"{word}: no such {_here(word)} here, the cache of the hub has no such {_nouns(word)[0]}, "
            f"and {offline}; fetch it once where there is a connection, or give a path"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        reason = first_line(error.__cause__ or error)
        raise UserError(f"{word}: the exchange with the hub failed: {reason}") from error


LOG_IN = "log in (HF_TOKEN, or hf auth login)"


def _http_fault(word: HubWord, error: Exception) -> str:
    from huggingface_hub import constants, errors, get_token

    page = f"{server()}/{'' if word.kind == 'model' else 'datasets/'}{word.repo}"
    if isinstance(error, errors.GatedRepoError):
        return f"the hub asks for consent first: accept its terms at {page}, then {LOG_IN}"
    if isinstance(error, errors.RepositoryNotFoundError):
        who = "this token may not see it" if get_token() else f"it is private (then {LOG_IN})"
        noun, other = _nouns(word)
        return f"no such {_here(word)} here, and the hub has no {noun} of this name ({page}), or {who}{other}"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is None:
        timeout = f" (HF_HUB_DOWNLOAD_TIMEOUT is {constants.HF_HUB_DOWNLOAD_TIMEOUT} s)"
        return f"the hub at {server()} cannot be reached: {first_line(error)}{timeout}"
    hint = f"; {LOG_IN}, with a token that may do this" if status in (401, 403) else ""
    return f"the hub at {server()} answers {status}: {first_line(error)}{hint}"


def _here(word: HubWord) -> str:
    return "folder" if word.kind == "model" else "file"


def _nouns(word: HubWord) -> tuple[str, str]:
    return ("model", "") if word.kind == "model" else ("data set", "; a data set is not a model of that name")


def server() -> str:
    from huggingface_hub import constants

    return str(constants.ENDPOINT)


@cache
def _say(sentence: str) -> None:
    # Of several processes that were started together the first speaks for all.
    if os.environ.get("RANK", "0") == "0":
        print(f"plaudit: {sentence}", file=sys.stderr)
