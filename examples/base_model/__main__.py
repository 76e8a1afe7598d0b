"""Trains the world's base model again, from a seed: ten to fourteen minutes on one core.

usage: python -m examples.base_model --out DIR [--seed 0] [--epochs 6]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.base_model.model import build_base
from plaudit.cli.parser import integer
from plaudit.errors import UserError


def main(words: Sequence[str] | None = None) -> int:
    """Build it as the words say; what cannot be built is said in a sentence."""
    parser = argparse.ArgumentParser(prog="python -m examples.base_model")
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="where its run lies")
    add("--seed", type=integer, default=0, help="default: 0")
    add("--epochs", type=float, default=6.0, help="how often it reads the corpus (default: 6)")
    args = parser.parse_args(words)
    try:
        model = build_base(args.out, seed=args.seed, epochs=args.epochs)
    except UserError as error:
        print(f"base_model: {error}", file=sys.stderr)
        return 2
    print(f"{model}: the base model")
    return 0


if __name__ == "__main__":
    sys.exit(main())
