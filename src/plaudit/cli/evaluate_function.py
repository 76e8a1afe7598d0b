"""A user's own function as a reward: ``module:function``."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from typing import cast

from plaudit.errors import UserError
from plaudit.records.messages import Text
from plaudit.rewards.reward import FunctionReward

Scorer = Callable[[Text, Text], float | None]
"""A prompt and an answer to a score, or None."""


def function_reward(path: str) -> FunctionReward:
    """The function of that name, called with a prompt and an answer.

    >>> function_reward("operator:countOf").name
    'operator:countOf'
    """
    module, _, name = path.partition(":")
    if not {"", os.getcwd()} & {*sys.path}:
        # An installed command does not look in the present folder, where a user's own module lies.
        sys.path.append(os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(
            f"{path!r} cannot be imported: {error}; modules are looked for in the present folder and among "
            "those installed"
        ) from error
    if not callable(found):
        raise UserError(f"{path!r} is a {type(found).__name__}, and a function is needed")
    try:
        inspect.signature(found).bind("", "")
    except TypeError as error:
        raise UserError(f"{path!r} is called as f(prompt, answer): {error}") from error
    return FunctionReward(name=path, function=cast("Scorer", found))
