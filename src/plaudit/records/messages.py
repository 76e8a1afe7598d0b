"""What is said: a string, or a conversation of messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece of a message that is more than a string.

    Example: ``Part(kind="text", text="What is in this picture?")``
    """

    kind: Literal["text", "image"]
    """What the piece is."""
    text: str | None = None
    """The words, when ``kind`` is text."""
    source: str | None = None
    """Where the picture is (a path or URL), when ``kind`` is image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation.

    Example: ``Message(role="user", content="Name three fruits.")``
    """

    role: str
    """Who speaks: system, user, assistant or tool."""
    content: str | tuple[Part, ...]
    """The words, or the pieces."""


Text = str | tuple[Message, ...]
"""A plain string, or a conversation; the two sides of one record are of the same kind."""


def words(text: Text) -> str:
    """The words of a text without its roles: for lengths, emptiness, comparison and display.

    >>> words((Message(role="user", content="Hi"), Message(role="assistant", content="Hello")))
    'Hi\\nHello'
    """
    if isinstance(text, str):
        return text
    return "\n".join(_words_of(message.content) for message in text)


def user_says(content: str) -> tuple[Message, ...]:
    """A conversation of one user turn.

    >>> user_says("Hi")[0].role
    'user'
    """
    return (Message(role="user", content=content),)


def assistant_says(content: str) -> tuple[Message, ...]:
    """A conversation of one assistant turn.

    >>> assistant_says("Hello")[0].role
    'assistant'
    """
    return (Message(role="assistant", content=content),)


def _words_of(content: str | Iterable[Part]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.text or "" for part in content)
