"""Programs that a model writes, run against unit tests in the sandbox: 1.0 where all pass, else 0.0.

The tests are in the task's facts, under ``tests``: a list of Python statements that assert something of what
the program defines, or a list of ``{"input": …, "output": …}``, each a run of the program with that on its
standard input. Tests that the program has to see itself to pass are none: it runs in a process that holds
neither tests nor expected results.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from plaudit.errors import UserError
from plaudit.records.judging import Task
from plaudit.records.messages import words
from plaudit.rewards.reward import Row
from plaudit.rewards.rule import Found, verdict
from plaudit.rewards.sandbox import Ran, Sandbox, SandboxError

NO_TESTS = "the row has no unit tests (its field `tests`)"
"""Said where there is nothing to run."""

_FENCED = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_PYTHON = ("", "python", "py", "python3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A program's input and what it has to print.

    Example: ``Run(given="2 3\\n", expected="5\\n")``
    """

    given: str
    """On standard input."""
    expected: str
    """On standard output, but for spaces at the ends of lines."""


Tests = tuple[str, ...] | tuple[Run, ...]
"""Statements, or runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeReward:
    """Unit tests in the sandbox, as a reward.

    Example: ``CodeReward(sandbox=Sandbox(), workers=4)``
    """

    sandbox: Sandbox
    """Where programs run."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Programs at once."""
    name: str = "code"
    """What tables and pages call it."""
    reasons: Counter[str] = field(default_factory=Counter[str], compare=False)
    """Filled as answers come."""

    def __post_init__(self) -> None:
        """Refuse to run nothing at a time."""
        if self.workers < 1:
            raise UserError(f"code: {self.workers} programs at once; give 1 or more")

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers it held for so far."""
        return dict(self.reasons)

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task; None where there are no tests or the sandbox failed."""
        asked = [(task, words(answer)) for task in tasks for answer in task.answers]
        with ThreadPoolExecutor(self.workers) as pool:
            found = pool.map(self._score, *zip(*asked, strict=True)) if asked else iter(())
            rows = [tuple(next(found) for _ in task.answers) for task in tasks]
        for said in (one for row in rows for one in row):
            if isinstance(said, str):
                self.reasons[said] += 1
        return tuple(tuple(None if isinstance(one, str) else one for one in row) for row in rows)

    def _score(self, task: Task, answer: str) -> Found:
        tests = unit_tests(task.facts.get("tests"))
        if not tests:
            return NO_TESTS
        try:
            found = judged(self.sandbox, program_of(answer), tests)
        except SandboxError as error:
            return str(error)
        if isinstance(found, str):
            return found
        return verdict(found[0])


def judged(sandbox: Sandbox, code: str, tests: Tests) -> tuple[bool, str] | str:
    """Whether the program passes all the tests and why not, or the reason for having no verdict."""
    runs = tuple(test for test in tests if isinstance(test, Run))
    if not runs:
        statements = tuple(test for test in tests if isinstance(test, str))
        return _examined(sandbox.examined(code, statements))
    for n, run in enumerate(runs, 1):
        ran = sandbox.program(code, run.given.encode())
        if ran.ending or ran.code:
            return False, ran.ending or f"run {n}: it ended with code {ran.code}"
        if _lines(ran.output.decode(errors="replace")) != _lines(run.expected):
            return False, f"run {n}: it printed something else"
    return True, ""


def program_of(answer: str) -> str:
    """The program in an answer: its last fenced block of Python, or all of it where there is none.

    >>> program_of("Here:\\n```python\\nx = 1\\n```\\nDone.")
    'x = 1\\n'
    """
    blocks = [code for language, code in _FENCED.findall(answer) if language.lower() in _PYTHON]
    return blocks[-1] if blocks else answer


def unit_tests(said: object) -> Tests:
    """The tests as a row has them: a list, a text of one, or JSON of either; nothing where there are none.

    >>> unit_tests('[{"input": "2", "output": "4"}]')
    (Run(given='2', expected='4'),)
    """
    if isinstance(said, str):
        said = _from_json(said)
    if said is None or said in ("", []):
        return ()
    many: Sequence[Any] = said if isinstance(said, list | tuple) else [said]
    if all(isinstance(one, str) for one in many):
        return tuple(str(one) for one in many)
    if all(isinstance(one, Mapping) and {"input", "output"} <= {*one} for one in many):
        return tuple(Run(given=str(one["input"]), expected=str(one["output"])) for one in many)
    raise UserError(
        f"tests {str(said)[:80]!r}: expected a list of assert statements, or a list of "
        '{"input": …, "output": …}'
    )


def _from_json(text: str) -> object:
    """What the text is as JSON, where it is a list or an object; else the text."""
    if text.lstrip()[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _examined(ran: Ran) -> tuple[bool, str] | str:
    if ran.ending:
        return False, ran.ending
    if not ran.verdict:
        # Nobody in the sandbox can kill the examiner; what it was killed by was short of something.
        return f"the examiner was killed (signal {-ran.code})" if ran.code == -9 else (False, _ended(ran))
    said = json.loads(ran.verdict)
    return said["why"] if said["passed"] is None else (said["passed"] is True, said["why"])


def _ended(ran: Ran) -> str:
    return f"the tests did not come to an end (code {ran.code})"


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
