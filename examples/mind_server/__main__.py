"""An OpenAI-compatible server whose models judge, criticise, revise and attack as well as is set.

usage: python -m examples.mind_server [--port 8008] [--mind small,accuracy=0.7,place=0.3 ...]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from examples.mind_server.server import MindServer, serve_minds
from plaudit.cli.parser import integer
from plaudit.errors import UserError
from plaudit.lab.world.minds import Mind, parse_mind

_MIND_HELP = {
    "accuracy": "how often it reads rightly (default: 0.85)",
    "place": "share of pairs that the first shown wins; below 0 the second (default: 0)",
    "length": "share of pairs that the longer wins; below 0 the shorter (default: 0)",
    "sureness": "what its log-odds are multiplied by; 1 is calibrated (default: 1)",
    "refusals": "share of questions that it refuses (default: 0)",
    "unreadable": "share of replies that cannot be read (default: 0)",
    "faults": "share of requests that fail on the way (default: 0)",
    "delay": "seconds before a reply, more or less (default: 0)",
}
_MIND_DEFAULTS = {"accuracy": 0.85, "sureness": 1.0}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.mind_server")
    add = parser.add_argument
    for name, text in _MIND_HELP.items():
        add(f"--{name}", type=float, default=_MIND_DEFAULTS.get(name, 0.0), metavar="X", help=text)
    add("--no-logprobs", action="store_true", help="give no log-probs")
    add(
        "--tokens",
        choices=("plain", "spaced", "piece", "bold"),
        default="plain",
        help="how letters are written (default: plain)",
    )
    add("--price", default="0/0", metavar="IN/OUT", help="of a million tokens (default: nothing)")
    add("--seed", type=integer, default=0, help="of every draw (default: 0)")
    add(
        "--mind",
        action="append",
        default=[],
        metavar="NAME,KEY=X,…",
        help="another model, small,accuracy=0.7,place=0.3; may be repeated (default: world alone)",
    )
    add("--host", default="127.0.0.1", help="where to listen (default: 127.0.0.1)")
    add("--port", type=integer, default=8008, metavar="N", help="default: 8008; 0 takes a free one")
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Serve as the words say; what cannot be served is said in a sentence."""
    try:
        return serve(make_parser().parse_args(words))
    except UserError as error:
        print(f"mind_server: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def serve(args: argparse.Namespace) -> int:
    if not 0 <= args.port <= 65_535:
        raise UserError(f"--port {args.port}: expected 0 to 65535")
    settings = {name: getattr(args, name) for name in (*_MIND_HELP, "tokens", "price", "seed")}
    base = Mind(logprobs=not args.no_logprobs, **settings)
    server = MindServer(
        [parse_mind(word, base) for word in args.mind] or [base], host=args.host, port=args.port
    )

    def ready(url: str) -> None:
        for name in server.minds:
            print(f"openai:{url}#{name}")
        # Flushed, as a script that started this waits for the address above.
        print(f"What it was asked: {url.removesuffix('/v1')}/counts; Ctrl-C ends it", flush=True)

    serve_minds(server, ready)
    return 0


if __name__ == "__main__":
    sys.exit(main())
