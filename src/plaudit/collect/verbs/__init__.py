"""``plaudit collect``: labels by people: a store, its tasks, those who answer, and rows out of it.

Here stand the options alone. What is done lies in the modules beside, which are loaded when a verb is run:
the packages of the store are an extra.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from plaudit.cli.parser import (
    Parser,
    Subparsers,
    add_row_options,
    given_path,
    integer,
    model_path,
    positive_integer,
)
from plaudit.collect.kinds import KINDS
from plaudit.config import did_you_mean
from plaudit.data.records import STORE_FILE
from plaudit.errors import UserError
from plaudit.wings import load

_EXTRAS = {
    "sqlalchemy": "collect",
    "anyio": "collect",
    "argon2": "collect",
    "starlette": "collect",
    "uvicorn": "collect",
    "markdown_it": "collect",
    "nh3": "collect",
    "pygments": "collect",
    "latex2mathml": "collect",
    "pg8000": "postgres",
}
_SOLO = "solo"
"""The verb that may be left out: ``plaudit collect pairs.jsonl --out labels.jsonl``."""


def add_parser(subparsers: Subparsers) -> None:
    collect = subparsers.add_parser(
        "collect", epilog="By yourself, without a verb: plaudit collect FILE --out ROWS"
    )
    _add_verbs(collect)


def _add_verbs(collect: Parser) -> argparse._SubParsersAction[Parser]:
    verbs = collect.add_subparsers(dest="collect_verb", required=True, title="verbs", metavar="VERB")
    for add in (_add_solo, _add_project_verbs, _add_people_verbs, _add_trust_verbs, _add_rows_verbs):
        add(verbs)
    return verbs


def whole_words(words: Sequence[str]) -> list[str]:
    """The words of a command with the verb that may be left out.

    >>> whole_words(["collect", "pairs.jsonl", "--out", "labels.jsonl"])
    ['collect', 'solo', 'pairs.jsonl', '--out', 'labels.jsonl']
    """
    verbs = _add_verbs(Parser()).choices
    first = words[1] if len(words) > 1 else "--help"
    if first in verbs or first in ("-h", "--help"):
        return [*words]
    if not first.startswith("-") and "." not in first and not Path(first).exists():
        raise UserError(
            f"plaudit collect {first}: there is no such file and no such verb{did_you_mean(first, verbs)}"
        )
    return [words[0], _SOLO, *words[1:]]


def run(args: argparse.Namespace) -> int:
    try:
        load(f"plaudit.collect.verbs.{args.run_verb}")(args)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        # A missing module of our own is a fault, and no extra to install.
        if package not in _EXTRAS:
            raise
        raise UserError(
            f'plaudit collect {args.collect_verb} needs {package}: pip install "plaudit[{_EXTRAS[package]}]"'
        ) from error
    return 0


def _of_store(verb: Parser, run_verb: str, *, of_project: bool = True) -> None:
    """Add ``--store`` and ``--project``; ``run_verb`` is a module beside this one and what in it is run."""
    verb.set_defaults(run_verb=run_verb)
    verb.add_argument(
        "--store",
        default=STORE_FILE,
        metavar="FILE",
        help=f"where labels lie; or postgresql+pg8000://… (default: {STORE_FILE})",
    )
    if of_project:
        verb.add_argument("--project", metavar="NAME", help="which one, where the store has several")


def _add_solo(verbs: Subparsers) -> None:
    solo = verbs.add_parser(_SOLO, help="label alone, in the browser: `plaudit collect FILE --out ROWS`")
    solo.set_defaults(run_verb="serving:label_solo")
    kinds = [kind.name for kind in KINDS.values() if kind.conversation is None]
    add = solo.add_argument
    add("rows", type=given_path, nargs="?", metavar="FILE", help="rows of any layout, or tasks")
    add("--out", type=given_path, required=True, metavar="ROWS", help="where labels go: .jsonl or .parquet")
    add("--as", dest="ask", choices=kinds, help="what is asked (default: what the rows are)")
    add("--question", metavar="TEXT", help="what stands above every task")
    add("--guidelines", type=given_path, metavar="FILE", help="a text that says how to judge")
    add("--model", type=model_path, metavar="DIR", help="in place of FILE: who answers --prompts")
    add("--prompts", type=given_path, metavar="ROWS", help="rows with the prompts that the model answers")
    add("--answers", type=positive_integer, metavar="K", help="answers to each (default: 2; 4 to rank)")
    add("--against", nargs="+", metavar="WHO", help="whose the last one is, in turn: policy, written, DIR")
    add("--tasks", type=positive_integer, metavar="N", help="at most so many of the prompts")
    add("--temperature", type=float, default=1.0, metavar="T", help="of the model's answers (default: 1)")
    add("--max-tokens", type=positive_integer, default=64, metavar="N", help="per answer (default: 64)")
    add("--seed", type=integer, default=0, metavar="N", help="of the model's answers (default: 0)")
    add("--port", type=integer, default=0, metavar="N", help="default: a free one")
    add("--no-browser", action="store_true", help="print the address and open nothing")
    add_row_options(add)


def _add_project_verbs(verbs: Subparsers) -> None:
    project = verbs.add_parser("project", help="make or change a project, with its gold and qualifying rows")
    project.add_argument("file", type=given_path, metavar="FILE.yaml", help="its settings")
    _of_store(project, "store:make_project", of_project=False)
    add = verbs.add_parser("add", help="add tasks, or what people filled in in a file of train rlhf")
    add.add_argument("rows", type=given_path, nargs="+", metavar="ROWS", help="rows of any layout, or tasks")
    known = add.add_mutually_exclusive_group()
    known.add_argument(
        "--gold", action="store_true", help="what the rows prefer is right: mixed in as a check"
    )
    known.add_argument("--qualify", action="store_true", help="as --gold, but asked before all other work")
    known.add_argument(
        "--choose", metavar="METHOD", help="only some pairs: d-optimal, disagreement, bald, thompson, random"
    )
    by_help, random_help = "whose scores choose", "the share of them drawn at random, which measures"
    add.add_argument("--by", metavar="REWARD", help=f"with --choose: {by_help}")
    add.add_argument("--most", type=positive_integer, metavar="N", help="with --choose: how many")
    add.add_argument("--random", type=float, metavar="X", help=f"{random_help} (default: 0.2)")
    add.add_argument("--seed", type=integer, metavar="N", help="of the choice (default: 0)")
    add_row_options(add.add_argument)
    _of_store(add, "store:add_rows")
    gold = verbs.add_parser("gold", help="gold items of what most of several reviewers say")
    reviewers_help = "who answered a task, at least (default: 3)"
    gold.add_argument("--reviewers", type=positive_integer, default=3, metavar="N", help=reviewers_help)
    share_help = "of them, who must say the same (default: 0.75)"
    gold.add_argument("--agreement", type=float, default=0.75, metavar="X", help=share_help)
    gold.add_argument("--dry-run", action="store_true", help="say what it would come to, and write nothing")
    _of_store(gold, "store:add_gold")
    status = verbs.add_parser("status", help="say how far all projects of a store are, or one of them")
    # Suppressed: what is not there must not take the place of --store.
    status.add_argument("store", nargs="?", default=argparse.SUPPRESS, metavar="STORE", help="as --store")
    status.add_argument("--json", action="store_true", help="print one JSON object")
    _of_store(status, "store:show_status")


def _add_people_verbs(verbs: Subparsers) -> None:
    invite = verbs.add_parser("invite", help="let somebody in")
    add = invite.add_argument
    add("--role", choices=["annotator", "reviewer", "owner"], default="annotator", help="default: annotator")
    add("--uses", type=positive_integer, default=1, metavar="N", help="how many may join by it (default: 1)")
    add("--days", type=float, default=14, metavar="D", help="how long it works (default: 14)")
    add("--panel", action="store_true", help="for people whom a panel sends with an id of its own")
    add("--code", metavar="CODE", help="with --panel: what its people are shown at the end")
    add(
        "--tasks",
        type=positive_integer,
        metavar="N",
        help="with --panel: after so many answers, not at the end",
    )
    people = verbs.add_parser("people", help="list everybody of a project")
    people.add_argument("--json", action="store_true", help="print one JSON object")
    person = verbs.add_parser("person", help="hand out, end or erase what is stored of somebody")
    _add_person_options(person)
    pay = verbs.add_parser("pay", help="write what everybody did as a sheet to pay by")
    pay.add_argument(
        "--out", type=given_path, required=True, metavar="FILE.csv", help="a new file or an old one"
    )
    _of_store(invite, "people:invite")
    _of_store(people, "people:list_people")
    _of_store(person, "people:manage_person")
    _of_store(pay, "people:write_pay")


def _add_person_options(person: argparse.ArgumentParser) -> None:
    person.add_argument("name", metavar="NAME", help="a name, or what the log calls the person")
    do = person.add_mutually_exclusive_group()
    add = do.add_argument
    add("--export", type=given_path, metavar="FILE.json", help="write all that is stored of the person")
    add("--erase", action="store_true", help="delete name and words; clicks stay, under nobody's name")
    add("--end-sessions", action="store_true", help="sign the person out everywhere; tokens end too")
    add("--suspend", metavar="REASON", help="give no more work, and leave the labels out of exports")
    group_help = "what is known of the person, of the project's groups; an empty VALUE takes it out"
    add("--group", action="append", metavar="NAME=VALUE", help=group_help)
    add("--password", action="store_true", help="set another one, typed or by standard input")


def _add_trust_verbs(verbs: Subparsers) -> None:
    screen = verbs.add_parser("screen", help="rank who tried, and propose whom to keep")
    add = screen.add_argument
    add("--keep", type=positive_integer, default=16, metavar="N", help="how many (default: 16)")
    add("--agreement", type=float, default=0.75, metavar="X", help="with known answers (default: 0.75)")
    add("--flags", type=float, default=0.75, metavar="X", help="with known flags (default: 0.75)")
    add("--score", type=float, default=6.0, metavar="X", help="of demonstrations, 1 to 7 (default: 6)")
    add("--written-in", metavar="NAME", help="the project in which they wrote, by the same names")
    do = screen.add_mutually_exclusive_group()
    do.add_argument("--apply", action="store_true", help="decide as proposed; each decision is logged")
    do.add_argument(
        "--demonstrations",
        type=given_path,
        metavar="FILE.jsonl",
        help="write what people wrote as tasks for a project that asks for rate",
    )
    add("--json", action="store_true", help="print one JSON object")
    _of_store(screen, "quality:screen_people")
    serve = verbs.add_parser("serve", help="let people answer over HTTP")
    serve.add_argument("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    serve.add_argument(
        "--port", type=integer, default=8080, metavar="N", help="default: 8080; 0 takes a free one"
    )
    serve.add_argument("--behind", metavar="https://…", help="address of the proxy in front that encrypts")
    _of_store(serve, "serving:serve_people", of_project=False)
    quality = verbs.add_parser("quality", help="say how far people agree, who reads, and what sways them")
    quality.add_argument("--agreement", action="store_true", help="only how far they agree: the quickest")
    quality.add_argument("--json", action="store_true", help="print one JSON object")
    _of_store(quality, "quality:show_quality")


def _add_rows_verbs(verbs: Subparsers) -> None:
    export = verbs.add_parser("export", help="write labels as rows for training, with their snapshot")
    _add_export_options(export)
    _of_store(export, "store:export_labels")
    snapshot = verbs.add_parser("snapshot", help="write all labels as a table; `quality --store` reads it")
    snapshot.add_argument("--out", type=given_path, required=True, metavar="FILE", help=".parquet")
    _of_store(snapshot, "quality:keep_snapshot")
    route = verbs.add_parser(
        "route", help="say what judges before people would keep and cost, by labels of a random sample"
    )
    _add_route_options(route)
    _of_store(route, "route:show_route")
    trace = verbs.add_parser("trace", help="from a row back to what people did, or from there to rows")
    trace.add_argument("rows", type=given_path, metavar="ROWS", help="what export wrote")
    trace.add_argument("row", type=positive_integer, nargs="?", metavar="N", help="the row; the first is 1")
    trace.add_argument("--event", type=positive_integer, metavar="SEQ", help="which rows an event became")
    _of_store(trace, "store:trace_rows", of_project=False)
    check = verbs.add_parser("check", help="look whether a store is whole and nothing in it was altered")
    check.add_argument("--expect", metavar="SEQUENCE:LINK", help="an event that must still be there")
    check.add_argument("--rebuild", action="store_true", help="first make all tables anew from the log")
    backup = verbs.add_parser("backup", help="copy a store while it is in use; a copy is a store")
    backup.add_argument("target", metavar="TARGET", help="a new file, or the address of an empty database")
    _of_store(check, "store:check_store", of_project=False)
    _of_store(backup, "store:back_up", of_project=False)


def _add_route_options(route: argparse.ArgumentParser) -> None:
    add = route.add_argument
    add("--judge", action="append", required=True, metavar="JUDGE", help="a model; again for a dearer one")
    levels = [0.8, 0.85, 0.9, 0.95]
    add("--agreement", type=float, nargs="+", default=levels, metavar="X", help="wanted of what judges keep")
    add("--risk", type=float, default=0.1, metavar="X", help="chance that it is less (default: 0.1)")
    add("--random", action="store_true", help="the labelled tasks are a random sample, though none says so")
    add("--tasks", type=positive_integer, metavar="N", help="of how many (default: what is open)")
    add("--seconds", type=float, metavar="S", help="that people take for a label (default: assumed)")
    add("--pay", type=float, metavar="P", help="an hour of people, in whatever money (default: 20)")
    add("--most-money", type=float, metavar="X", help="stop before more is spent; needs prices")
    add("--estimate", action="store_true", help="say what asking about the sample costs, and ask nothing")
    add("--json", type=given_path, metavar="FILE", help="write the table there")


def _add_export_options(export: argparse.ArgumentParser) -> None:
    add = export.add_argument
    add("--out", type=given_path, required=True, metavar="ROWS", help=".jsonl, .jsonl.gz or .parquet")
    add("--surplus", action="store_true", help="also labels that came too late to count")
    add("--items", action="store_true", help="also answers to gold, qualifying and repeated items")
    add("--suspended", action="store_true", help="also labels of people suspended or not qualified")
    add("--settled", action="store_true", help="only tasks that want no more labels")
    add(
        "--no-adjudicated",
        action="store_true",
        help="the labels that a reviewer decided about, not the decision",
    )
    add(
        "--soft",
        action="store_true",
        help="one row a pair, with the chance that people prefer the answer, in place of one a label",
    )
    group_help = "whose labels; routed: people's and what judges kept (default: people)"
    add("--group", choices=["people", "ai", "routed"], default="people", help=group_help)
    by_help = "rows name the value of this group that people were asked for, as `train group` reads it"
    add("--by", metavar="NAME", help=by_help)
    add("--position", type=positive_integer, metavar="N", help="as the store was at this event")
