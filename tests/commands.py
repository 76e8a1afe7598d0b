"""A command of plaudit as a test gives it: what it prints where all is well, and what it says where not."""

from collections.abc import Callable

import pytest

from plaudit.cli.main import main

Told = Callable[..., str]
"""From what is captured and the words behind the command to what it says."""


def commands(*verb: str, quick: tuple[str, ...] = ()) -> tuple[Told, Told]:
    """How it does well, with some words more that make it quick, and how it refuses."""

    def well(capsys: pytest.CaptureFixture[str], *words: object) -> str:
        assert main([*verb, *map(str, words), *quick]) == 0
        return capsys.readouterr().out

    def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
        assert main([*verb, *map(str, words)]) == 2
        return capsys.readouterr().err

    return well, refused
