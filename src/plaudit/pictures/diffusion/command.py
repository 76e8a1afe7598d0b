"""``plaudit diffusion``: models that draw, taught by captioned pictures, by preferences and by rewards."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

from plaudit.cli.parser import Subparsers, add_options, given_path, read_config
from plaudit.pictures.diffusion.config import CONFIGS, DrawSettings

_METHODS = {
    "sft": "learn to draw from captions with pictures; without --model, a new model",
    "dpo": "Diffusion-DPO: from pairs of pictures, of which people prefer one",
    "kto": "Diffusion-KTO: from single pictures that people call good or bad",
    "ddpo": "draw, reward, and learn by policy gradients over the steps of drawing",
    "reward": "a preference model of pictures, from pairs and ties",
}
_EPILOG = "docs/diffusion.md says what rows look like and what every way to learn minimises."


def add_parser(subparsers: Subparsers) -> None:
    diffusion = subparsers.add_parser("diffusion", epilog=_EPILOG)
    verbs = diffusion.add_subparsers(dest="diffusion_verb", required=True, metavar="VERB")
    for name, purpose in _METHODS.items():
        parser = verbs.add_parser(name, help=purpose, description=purpose)
        parser.add_options_on_use = partial(_add_options, config=CONFIGS[name])
    for name, purpose in (
        ("sample", "pictures of captions, with rows that name them"),
        ("eval", "fidelity, preference and diversity of models' pictures, with a page"),
    ):
        parser = verbs.add_parser(name, help=purpose, description=purpose)
        many = "+" if name == "eval" else None
        help_text = "models that draw; each is compared with the first" if many else "the model that draws"
        parser.add_argument(
            "--model", type=given_path, nargs=many, required=True, metavar="DIR", help=help_text
        )
        add_options(parser, DrawSettings)


def _add_options(parser: argparse.ArgumentParser, words: Any, *, config: type) -> None:
    del words
    add_options(parser, config)


def run(args: argparse.Namespace) -> int:
    verb = args.diffusion_verb
    settings = read_config(CONFIGS.get(verb, DrawSettings), args)
    if isinstance(settings, DrawSettings):
        return _draw(verb, args.model, settings)
    from plaudit.engine.step import InterruptedRunError
    from plaudit.pictures.diffusion.run import train

    try:
        summary = train(settings)
    except InterruptedRunError as stop:
        print(f"plaudit: {stop}; the same command goes on from here", file=sys.stderr)
        return 128 + stop.signum
    done = "this run is finished; nothing was done. " if summary is None else ""
    print(f"{done}The model is in {settings.out / 'model'}")
    return 0


def _draw(verb: str, models: Any, settings: DrawSettings) -> int:
    from plaudit.pictures.diffusion.evaluation import evaluate, sample, worth_lines

    if verb == "sample":
        print(sample(models, settings))
        return 0
    print(*worth_lines(evaluate(list[Path](models), settings)), settings.out / "page.html", sep="\n")
    return 0
