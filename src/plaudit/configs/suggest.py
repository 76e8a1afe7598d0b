"""The nearest thing that exists, for a word that does not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was most likely meant.

    >>> nearest("--lerning_rate", ["--learning-rate", "--warmup"])
    '--learning-rate'
    >>> nearest("--beta2", ["--optimizer.beta1", "--optimizer.beta2"])
    '--optimizer.beta2'
    """
    names = list(known)
    plain = {name: _plain(name) for name in names}
    wanted = _plain(word)
    for name in names:
        if plain[name].rpartition(".")[2] == wanted:
            return name
    close = get_close_matches(wanted, plain.values(), n=1)
    return next((name for name in names if close and plain[name] == close[0]), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The sentence to put behind a complaint; an empty string when nothing is near.

    >>> did_you_mean("trian", ["data", "train"])
    '; did you mean train?'
    """
    found = nearest(word, known)
    return f"; did you mean {found}?" if found else ""


def _plain(name: str) -> str:
    return name.lstrip("-").replace("_", "-").lower()
