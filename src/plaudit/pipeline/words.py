"""Words in a config that name something outside of it: paths, rules, functions, and the word world."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from plaudit.configs.settings import Setting
from plaudit.errors import UserError
from plaudit.world.shipped import base_folder

WORLD = "world"
"""The word for the model that comes with plaudit."""
_NO_REWARDS = ("gold", "people")
_PLACES = ("policies", "against", "members")


def path_of(word: str) -> Path:
    """The folder or file of a word; world is the shipped model, unless a folder is called so."""
    return base_folder() if word == WORLD and not Path(word).exists() else Path(word)


def outside(word: str, setting: Setting) -> str:
    """The word of an input as it can be read from any folder; complains about what is not there."""
    file = file_of(word)
    if word == WORLD or file is None:
        if _is_place(word, setting):
            raise UserError(f"{setting.key}: {word}: there is no such file or folder")
        _refuse_unknown_reward(word, setting)
        return word
    rest = word[len(str(file)) :] if word.startswith(str(file)) else ""
    return f"{file.absolute()}{rest}"


def file_of(word: str) -> Path | None:
    """The file or folder that a word means, where it means one: ``file.py:function`` means its file.

    >>> file_of("number") is None
    True
    """
    if Path(word).exists():
        return Path(word)
    file, colon, _ = word.rpartition(":")
    return Path(file) if colon and file.endswith(".py") and Path(file).is_file() else None


def _is_place(word: str, setting: Setting) -> bool:
    """Whether the word can only be a path."""
    if word == WORLD:
        return False
    if setting.key == "held_out":
        return not _is_number(word)
    members: tuple[Any, ...] = get_args(setting.wanted) or (setting.wanted,)
    return Path in members or setting.key in _PLACES


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _refuse_unknown_reward(word: str, setting: Setting) -> None:
    """Rules and functions are looked up now, so that a slip of the pen does not show after an hour."""
    if setting.key in ("held_out", "model", *_PLACES) or word in _NO_REWARDS or "://" in word:
        return
    if setting.key == "comparisons":
        return
    from plaudit.rewards.named import reward_named

    try:
        reward_named(word)
    except UserError as error:
        raise UserError(f"{setting.key}: {error}") from error
