"""``plaudit push``: the model of a run onto the Hugging Face hub, with a card made from the run."""

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from plaudit.cli.parser import Subparsers
from plaudit.errors import UserError
from plaudit.files import atomic, exact_json, hub
from plaudit.wings import offered

PUSHED_FILE = "pushed.json"
"""Where a run folder says where its model was put, and as which commit."""
_EPILOG = """\
What is pushed is RUN/model (safetensors, configuration, tokenizer) and a README.md that is made from the
run's own files; --dry-run prints both and asks the hub nothing. HF_TOKEN or hf auth login says who you are.
docs/hub.md"""


def add_parser(subparsers: Subparsers) -> None:
    push = subparsers.add_parser("push", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EPILOG)
    push.add_argument("run", type=Path, metavar="RUN", help="the folder of a finished training run")
    push.add_argument("repo", metavar="ORG/NAME", help="the repository; it is made where there is none")
    push.add_argument("--licence", metavar="ID", help="as the hub names it: apache-2.0, mit, llama3.2, other")
    push.add_argument("--private", action="store_true", help="for your own eyes, where it is made now")
    push.add_argument(
        "--evaluation", type=Path, metavar="DIR", help="what plaudit eval policy --out wrote: win rates"
    )
    push.add_argument("--dry-run", action="store_true", help="show the card and the files, and push nothing")


def run(args: argparse.Namespace) -> int:
    files = _files(args.run)
    if hub.hub_word(hub.PREFIX + args.repo, "model") != hub.HubWord(
        kind="model", repo=args.repo, revision="main"
    ):
        raise UserError(f"{args.repo}: no name of the hub; write org/name")
    if args.licence is None:
        raise UserError(
            "--licence: say under which licence the model may be used (apache-2.0, mit, other …); those of "
            "its base model and of the data say what is possible"
        )
    card = offered("model_card")(args.run, args.repo, licence=args.licence, evaluation=args.evaluation)
    if args.dry_run:
        print(card)
        for name, path in files.items():
            print(f"{name}  {path.stat().st_size:,} bytes")
        return 0
    commit, url = _push(args.repo, files, card, private=args.private)
    _record(args.run / PUSHED_FILE, repo=args.repo, commit=commit, licence=args.licence, url=url)
    print(f"{url}: commit {commit}")
    return 0


def _push(repo: str, files: Mapping[str, Path], card: str, *, private: bool) -> tuple[str, str]:
    with hub.faults_in_words(hub.HubWord(kind="model", repo=repo, revision="main")):
        from huggingface_hub import CommitOperationAdd, get_token

        if get_token() is None:
            raise UserError(f"{repo}: the hub has to know who you are: {hub.LOG_IN}")
        # The hub may take its time over a commit of large files.
        api = hub.client(waits=True)
        api.create_repo(repo, private=private, exist_ok=True)
        contents: Mapping[str, Path | bytes] = {**files, "README.md": card.encode()}
        additions = [
            CommitOperationAdd(path_in_repo=name, path_or_fileobj=content)
            for name, content in contents.items()
        ]
        done = api.create_commit(repo, additions, commit_message="A run of plaudit")
    return done.oid, f"{hub.server()}/{repo}"


def _files(folder: Path) -> dict[str, Path]:
    model = folder / "model"
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder. Name the folder that was `--out`")
    if not (folder / "summary.json").is_file() or not any(model.glob("*.safetensors")):
        what = "not finished" if (folder / "config.yaml").is_file() else "no training run"
        raise UserError(
            f"{folder}: {what}: model/ or summary.json is not there; only a finished run is pushed"
        )
    files = sorted(path for path in model.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(model).as_posix(): path for path in files if path.name.endswith(hub.MODEL_FILES)}


def _record(path: Path, **facts: str) -> None:
    """One entry more: a run may be pushed again, or to another place."""
    before = exact_json.loads(path.read_bytes()) if path.is_file() else []
    atomic.write_json(path, [*before, {**facts, "at": datetime.now(UTC).isoformat(timespec="seconds")}])
