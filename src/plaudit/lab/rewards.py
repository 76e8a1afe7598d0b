"""Rewards that are wrong on purpose."""

from __future__ import annotations

from plaudit.records.messages import Text, words


def long(answer: Text) -> float:
    """One point for every hundred letters, whatever they say.

    >>> long("The owl eats mice.")
    0.18
    """
    return len(words(answer)) / 100
