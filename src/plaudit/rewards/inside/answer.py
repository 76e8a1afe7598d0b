"""The process that a model's program runs in: as a program of its own, or to be called by an examiner.

It holds nothing worth stealing: no test, no expected value. It may say what it likes; what is true of its
words is decided elsewhere.
"""

from __future__ import annotations

import sys
from typing import Any

from plaudit.rewards.inside.operations import OPERATIONS
from plaudit.rewards.inside.start import begin, line

NAME = "answer"
"""What the program is called when it is called by an examiner, so that its own main part does not run."""


def main() -> None:
    """Run what was told."""
    told = begin()
    sys.argv[:] = ["answer.py"]
    code: str = told["code"]
    if "reads" not in told:
        exec(compile(code, "answer.py", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
        return
    space: dict[str, Any] = {"__name__": NAME, "__builtins__": __builtins__}

    def serve(do: str, given: list[object], named: dict[str, object]) -> object:
        match do, given:
            case "load", []:
                exec(compile(code, "answer.py", "exec"), space)
                return [name for name in space if not name.startswith("__")]
            case "global", [str(name)]:
                return space[name]
            case _:
                return OPERATIONS[do](*given, **named)

    line(told, serve).serve()
