"""Models that draw, taught by captioned pictures, by preferences and by rewards."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from examples.diffusion.config import CONFIGS, DrawSettings
from plaudit.cli.parser import Parser, add_options, given_path, read_config
from plaudit.errors import UserError

_VERBS = {
    "sft": "learn to draw from captions with pictures; without --model, a new model",
    "dpo": "Diffusion-DPO: from pairs of pictures, of which people prefer one",
    "kto": "Diffusion-KTO: from single pictures that people call good or bad",
    "ddpo": "draw, reward, and learn by policy gradients over the steps of drawing",
    "reward": "a preference model of pictures, from pairs and ties",
    "sample": "pictures of captions, with rows that name them",
    "eval": "fidelity, preference and diversity of models' pictures, with a page",
}


def make_parser() -> Parser:
    diffusion = Parser(
        prog="python -m examples.diffusion",
        description=__doc__,
        epilog="docs/diffusion.md says what rows look like",
    )
    verbs = diffusion.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, purpose in _VERBS.items():
        parser = verbs.add_parser(name, help=purpose, description=purpose)
        parser.add_options_on_use = partial(_add_options, verb=name)
    return diffusion


def _add_options(parser: argparse.ArgumentParser, words: Any, *, verb: str) -> None:
    del words
    if verb not in CONFIGS:
        how: Any = {"nargs": "+" if verb == "eval" else 1, "type": given_path, "metavar": "DIR"}
        parser.add_argument("--model", required=True, help="what draws; of several, against the first", **how)
    add_options(parser, CONFIGS.get(verb, DrawSettings))


def main(words: Sequence[str] | None = None) -> int:
    """Do as the words say; a fault that the user can mend is said in a sentence."""
    try:
        return run(make_parser().parse_args(words))
    except UserError as error:
        print(f"diffusion: {error}", file=sys.stderr)
        return 2


def run(args: argparse.Namespace) -> int:
    """Train, draw or measure, and print where the result is."""
    settings = read_config(CONFIGS.get(args.verb, DrawSettings), args)
    if isinstance(settings, DrawSettings):
        from examples.diffusion.evaluation import evaluate, sample

        if args.verb == "sample":
            print(sample(args.model[0], settings))
        else:
            lines = [worth.line() for worth in evaluate(args.model, settings)]
            print(*lines, settings.out / "page.html", sep="\n")
        return 0
    from examples.diffusion.run import train
    from plaudit.engine.step import InterruptedRunError

    try:
        trained = train(settings)
    except InterruptedRunError as stop:
        print(f"diffusion: {stop}; the same command goes on from here", file=sys.stderr)
        return 128 + stop.signum
    print(f"{'' if trained else 'this run is finished; nothing was done. '}{settings.out / 'model'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
