"""Rewards that a user could write, named on the command line as module:function."""

from plaudit.data.records import Text, plain_text


def longer(prompt: Text, answer: Text) -> float:
    return len(plain_text(answer)) / 20


def shorter(prompt: Text, answer: Text) -> float:
    return -len(plain_text(answer)) / 20


def silent(prompt: Text, answer: Text) -> None:
    """Never a verdict."""


def strange(answer: Text, mood: str) -> float:
    """No reward: nobody says in which mood."""
    return 0.0
