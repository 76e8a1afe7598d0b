"""Numbers on the command line, refused in words."""

from __future__ import annotations

import argparse


def whole(word: str) -> int:
    """A whole number."""
    try:
        return int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {word!r}") from None


def count(word: str) -> int:
    """A whole number of things, at least one."""
    number = whole(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {number}")
    return number
