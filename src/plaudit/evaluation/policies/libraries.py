"""What judging policies needs beyond what is always installed."""

from __future__ import annotations

from importlib.util import find_spec

from plaudit.errors import UserError

NEEDED = ("scipy", "statsmodels", "evalica", "sacrebleu")
"""The libraries of the extra ``eval``."""


def check_libraries() -> None:
    """Complain about the first that is not installed, before anything is computed.

    >>> check_libraries()
    """
    missing = next((name for name in NEEDED if find_spec(name) is None), None)
    if missing is not None:
        raise UserError(f'judging policies needs {missing}; it is missing: pip install "plaudit[eval]"')
