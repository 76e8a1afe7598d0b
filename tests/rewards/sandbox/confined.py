"""The sandbox of the tests: short limits; skipped by name where this machine cannot confine a program."""

import functools

import pytest

from plaudit.errors import UserError
from plaudit.rewards.sandbox.sandbox import ProgramResult, Sandbox, SandboxLimits

SHORT = SandboxLimits(cpu_seconds=2, wall_seconds=6, memory_mb=256, file_mb=2, output_kb=64)
"""Enough for what is right, and short for what is not."""


@functools.cache
def _why_not() -> str:
    try:
        Sandbox(SHORT)
    except UserError as error:
        return str(error)
    return ""


def sandbox(limits: SandboxLimits = SHORT) -> Sandbox:
    """The sandbox, or the test is skipped with the reason."""
    if _why_not():
        pytest.skip(f"this machine cannot confine a program: {_why_not()}")
    return Sandbox(limits)


def ran(code: str, given: str = "", limits: SandboxLimits = SHORT) -> ProgramResult:
    return sandbox(limits).run_program(code, given.encode())


def attempted(code: str) -> str:
    """What a program prints that tries something: the name of the error that it met, or what it reached."""
    indented = "\n".join("    " + line for line in code.strip().splitlines())
    caught = "except BaseException as error:\n    print(type(error).__name__)\nelse:\n    print('DONE')"
    whole = f"try:\n{indented}\n{caught}"
    result = ran(whole)
    return (
        result.stdout.decode() or f"{result.stop_reason} {result.exit_code} {result.stderr.decode()[-300:]}"
    )
