"""``plaudit collect invite``: the people of a project."""

from __future__ import annotations

import argparse
import json
import sys

from plaudit.cli.collect.opening import ACTOR, STORE, add_project_option, opened, project_name
from plaudit.cli.parser import Subparsers, positive_integer


def add_parsers(verbs: Subparsers) -> None:
    """Add the verbs."""
    invite = verbs.add_parser("invite", help="let somebody in")
    _add_invite_options(invite)
    add_project_option(invite)
    invite.set_defaults(run_verb=_invite)


def _add_invite_options(invite: argparse.ArgumentParser) -> None:
    add = invite.add_argument
    add("--role", choices=["annotator", "reviewer", "owner"], default="annotator", help="default: annotator")
    add("--uses", type=positive_integer, default=1, metavar="N", help="how many may join by it (default: 1)")
    add("--days", type=float, default=14, metavar="D", help="how long it works (default: 14)")


def _invite(args: argparse.Namespace) -> None:
    with opened(args) as store:
        name = project_name(store, args.project)
        secret = store.invite(name, role=args.role, uses=args.uses, days=args.days, actor=ACTOR)
        store_option = "" if args.store == STORE else f" --store {store.where}"
    times = "once" if args.uses == 1 else f"{args.uses} times"
    body = json.dumps({"invite": "SECRET", "name": "NAME"})
    # The secret alone goes where a script reads it.
    print(secret)
    for line in (
        f"It lets in as {args.role} of {name}, {times}, for {args.days:g} days. Nothing shows it again.",
        f"To join, at the address of `plaudit collect serve{store_option}`:",
        f"  curl ADDRESS/api/v1/join -H 'Content-Type: application/json' -d '{body}'",
        "or in Python: plaudit.labelling.client.LabelClient(ADDRESS).join(SECRET, NAME)",
    ):
        print(line, file=sys.stderr)
