"""argparse with three habits changed: no abbreviations, `UserError` for a fault, the nearest word in it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias

from plaudit.configs.suggest import did_you_mean
from plaudit.errors import UserError


class Parser(argparse.ArgumentParser):
    """The parser of the command and, since argparse hands the class on, of every verb."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        """As ``argparse.ArgumentParser``; an abbreviation that works today breaks when an option is added."""
        super().__init__(*arguments, **{"allow_abbrev": False} | settings)
        self.fill: Callable[[Parser], None] | None = None
        """What adds the options when they are needed: of fifty methods one is used."""
        # Before Python 3.14 argparse takes -1e-4 for an option.
        self._negative_number_matcher = re.compile(r"-\d*\.?\d+(e[-+]?\d+)?$", re.IGNORECASE)

    def error(self, message: str) -> NoReturn:
        """Ends the parse with what is wrong and where to read on."""
        raise UserError(f"{message}\nSee {self.prog} --help")

    def parse_known_args(self, *arguments: Any, **settings: Any) -> tuple[Any, list[str]]:
        """As argparse, but the parser that knows the options complains about one that does not exist."""
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)
        found, unknown = super().parse_known_args(*arguments, **settings)
        if unknown:
            word = unknown[0].partition("=")[0]
            if word.startswith("-"):
                self.error(f"unknown option {word}{did_you_mean(word, self._option_string_actions)}")
            self.error(f"unexpected argument {word!r}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            hint = did_you_mean(str(value), known) or f"; choose from {', '.join(known)}"
            raise argparse.ArgumentError(action, f"there is no {value!r}{hint}")


Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"
"""Where a verb adds its parser."""
