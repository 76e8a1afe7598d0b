"""``plaudit collect serve``: people answer over HTTP."""

from __future__ import annotations

import argparse
from urllib.parse import urlsplit

from plaudit.cli.parser import Subparsers, integer
from plaudit.collect.verbs.opening import add_store_option, opened
from plaudit.data.fields import join_names
from plaudit.errors import UserError


def add_parsers(verbs: Subparsers) -> None:
    """Add the verb."""
    serve = verbs.add_parser("serve", help="let people answer over HTTP")
    _add_serve_options(serve)
    add_store_option(serve)
    serve.set_defaults(run_verb=_serve)


def _add_serve_options(serve: argparse.ArgumentParser) -> None:
    add = serve.add_argument
    add("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    add("--port", type=integer, default=8080, metavar="N", help="default: 8080; 0 takes a free one")
    add("--behind", metavar="https://…", help="the address of the proxy in front that encrypts")


def _serve(args: argparse.Namespace) -> None:
    from plaudit.collect.app.server import LOOPBACK, serve

    if args.behind is not None and not args.behind.removeprefix("https://").strip("/"):
        raise UserError(
            f"--behind {args.behind}: expected the address of a proxy, https://labels.example.org"
        )
    if args.behind is not None and not args.behind.startswith("https://"):
        raise UserError(f"--behind {args.behind}: expected https://…, as tokens must not travel in the clear")
    if args.host not in LOOPBACK and args.behind is None:
        raise UserError(
            f"--host {args.host}: other machines could read tokens and answers on the way. Put a proxy that "
            "encrypts in front and say its address with --behind https://…, or leave out --host"
        )
    if args.behind is not None and urlsplit(args.behind).path.strip("/"):
        raise UserError(
            f"--behind {args.behind}: expected an address without a path; the pages stand at its root"
        )
    if not 0 <= args.port <= 65_535:
        raise UserError(f"--port {args.port}: expected 0 to 65535")
    with opened(args) as store:

        def ready(url: str) -> None:
            behind = "" if args.behind is None else f", for people {args.behind}"
            print(f"{store.where}: serving {join_names(store.projects()) or 'no project'} at {url}{behind}")
            # Flushed, as a script that started this waits for the address above.
            print("Ctrl-C ends it; everything acknowledged is on the disk", flush=True)

        serve(store, args.host, args.port, ready, behind=args.behind)
