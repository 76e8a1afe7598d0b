"""A regular expression as a reward; it is matched in a process of its own, so that none can hang a run.

Some expressions take exponentially long on some texts, and a policy that is being optimised finds them.
Whether an expression can is not decidable by a look at it, so time decides: what has not matched in time has
no verdict.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from plaudit.errors import UserError
from plaudit.records.judging import Task
from plaudit.records.messages import words
from plaudit.rewards.reward import Row
from plaudit.rewards.rule import verdict

TOO_SLOW = "the pattern did not decide in time; make it simpler (no repetition within a repetition)"
"""Said of an answer that the pattern takes too long on."""
_HELPER = """
import json, re, sys
told = json.load(sys.stdin)
pattern = re.compile(told["pattern"])
for text in told["texts"]:
    print(int(pattern.search(text) is not None), flush=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternReward:
    r"""1.0 where the expression matches somewhere in the answer, else 0.0; anchor it for all of the answer.

    Example: ``PatternReward(pattern=r"(?i)^yes\b")``
    """

    pattern: str
    """In the syntax of Python's `re`."""
    seconds: int | float = 2
    """For all the answers of one call, to which each that hangs adds as much again."""
    reasons: Counter[str] = field(default_factory=Counter[str], compare=False)
    """Filled as answers come."""

    def __post_init__(self) -> None:
        """Refuse what is no expression."""
        try:
            re.compile(self.pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise UserError(f"pattern:{self.pattern}: this is no regular expression: {error}") from error
        if not self.seconds > 0:
            raise UserError(f"pattern: {self.seconds} seconds to match; give more than 0")

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        return f"pattern:{self.pattern}"

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers it held for so far."""
        return dict(self.reasons)

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task."""
        found = self._found([words(answer) for task in tasks for answer in task.answers])
        return tuple(tuple(next(found) for _ in task.answers) for task in tasks)

    def _found(self, texts: Sequence[str]) -> Iterator[float | None]:
        left = list(texts)
        while left:
            matched, in_time = self._matched(left)
            yield from (verdict(one == "1") for one in matched)
            left = left[len(matched) :]
            if not in_time and left:
                self.reasons[TOO_SLOW] += 1
                yield None
                left = left[1:]

    def _matched(self, texts: Sequence[str]) -> tuple[list[str], bool]:
        """As far as it comes in time."""
        told = json.dumps({"pattern": self.pattern, "texts": texts}).encode()
        command = [sys.executable, "-I", "-S", "-c", _HELPER]
        try:
            done = subprocess.run(command, input=told, capture_output=True, timeout=self.seconds, check=False)
        except subprocess.TimeoutExpired as slow:
            return (slow.stdout or b"").decode().split(), False
        found = done.stdout.decode().split()
        if len(found) != len(texts):
            said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise UserError(f"{self.name}: matching failed: {' '.join(said) or done.returncode}")
        return found, True
