"""Programs that a model writes, run against unit tests in the sandbox: 1.0 where all pass, else 0.0.

The tests are in the task's facts, under ``tests``: a list of Python statements that assert something of what
the program defines, or a list of ``{"input": …, "output": …}``, each a run of the program with that on its
standard input. Tests that the program has to see itself to pass are none: it runs in a process that holds
neither tests nor expected results.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

from plaudit.data.records import Task, plain_text
from plaudit.errors import UserError
from plaudit.rewards.base import RewardTraits, ScoreOrReason, TaskScores, binary_score
from plaudit.rewards.sandbox.sandbox import ProgramResult, Sandbox, SandboxError

NO_TESTS = "the row has no unit tests (its field `tests`)"

_FENCED_BLOCK = re.compile(r"^[ \t]*+```[ \t]*+(\w*+)[^\n]*+\n(.*?)^[ \t]*+```", re.DOTALL | re.MULTILINE)
"""Possessive, so that a line that never ends is looked at once."""
_PYTHON_LANGUAGES = ("", "python", "py", "python3")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOutputTest:
    stdin: str
    expected_stdout: str
    """What it has to print on standard output; spaces at the ends of lines do not count."""


UnitTests = tuple[str, ...] | tuple[InputOutputTest, ...]
"""The unit tests of one row: assert statements, or input/output pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeReward:
    sandbox: Sandbox
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    name: str = "code"
    traits: ClassVar[RewardTraits] = RewardTraits(exact=True)
    refused: Counter[str] = field(default_factory=Counter[str], compare=False)

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise UserError(f"code: {self.workers} programs at once; give 1 or more")

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """A row for each task; None where there are no tests or the sandbox failed."""
        answers = [(task, plain_text(answer)) for task in tasks for answer in task.answers]
        # Threads will do: each waits for processes of its own, and `map` keeps the order of the answers.
        with ThreadPoolExecutor(self.workers) as pool:
            results = pool.map(self._score, *zip(*answers, strict=True)) if answers else iter(())
            rows = [tuple(next(results) for _ in task.answers) for task in tasks]
        # Counted here in one thread, since adding to a Counter is not atomic.
        for score in (item for row in rows for item in row):
            if isinstance(score, str):
                self.refused[score] += 1
        return tuple(tuple(None if isinstance(item, str) else item for item in row) for row in rows)

    def _score(self, task: Task, answer: str) -> ScoreOrReason:
        tests = parse_unit_tests(task.metadata.get("tests"))
        if not tests:
            return NO_TESTS
        try:
            outcome = passes_tests(self.sandbox, extract_program(answer), tests)
        except SandboxError as error:
            return str(error)
        return outcome if isinstance(outcome, str) else binary_score(outcome[0])


def passes_tests(sandbox: Sandbox, code: str, tests: UnitTests) -> tuple[bool, str] | str:
    """Whether the program passes all the tests and why not, or the reason for having no verdict."""
    io_tests = tuple(test for test in tests if isinstance(test, InputOutputTest))
    if not io_tests:
        statements = tuple(test for test in tests if isinstance(test, str))
        return _examiner_verdict(sandbox.run_tests(code, statements))
    for n, io_test in enumerate(io_tests, 1):
        result = sandbox.run_program(code, io_test.stdin.encode())
        if result.stop_reason or result.exit_code:
            return False, result.stop_reason or f"run {n}: it ended with code {result.exit_code}"
        if _comparable_lines(result.stdout.decode(errors="replace")) != _comparable_lines(
            io_test.expected_stdout
        ):
            return False, f"run {n}: it printed something else"
    return True, ""


def extract_program(answer: str) -> str:
    """The program in an answer: its last fenced block of Python, or all of it where there is none."""
    blocks = [
        code for language, code in _FENCED_BLOCK.findall(answer) if language.lower() in _PYTHON_LANGUAGES
    ]
    return blocks[-1] if blocks else answer


def parse_unit_tests(value: object) -> UnitTests:
    """The tests as a row has them: a list, a text of one, or JSON of either; nothing where there are none."""
    if isinstance(value, str):
        value = _parse_json_text(value)
    if value is None or value in ("", []):
        return ()
    items: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    if all(isinstance(item, str) for item in items):
        return tuple(str(item) for item in items)
    if all(isinstance(item, Mapping) and {"input", "output"} <= {*item} for item in items):
        return tuple(
            InputOutputTest(stdin=str(item["input"]), expected_stdout=str(item["output"])) for item in items
        )
    raise UserError(
        f"tests {str(value)[:80]!r}: expected a list of assert statements, or a list of "
        '{"input": …, "output": …}'
    )


def _parse_json_text(text: str) -> object:
    if text.lstrip()[:1] not in ("[", "{"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _examiner_verdict(result: ProgramResult) -> tuple[bool, str] | str:
    if result.stop_reason:
        return False, result.stop_reason
    # Whatever ended the tests, the program had its part in it: killed for time or memory it is wrong, or an
    # answer that nobody can judge would be a way round every verdict.
    if not result.verdict:
        return False, f"the tests did not come to an end (code {result.exit_code})"
    report = json.loads(result.verdict)
    # None: the tests themselves are broken, which says nothing of the program.
    return report["why"] if report["passed"] is None else (report["passed"] is True, report["why"])


def _comparable_lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]
