"""Records as plain objects, ready for JSON: what plaudit's own files hold."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import cast

from plaudit.records.feedback import Comparison, Demonstration, Prompt, Ranking, Rating, Record, Steps
from plaudit.records.messages import Message, Part, Text

KINDS: dict[str, type[Record]] = {
    "demonstration": Demonstration,
    "comparison": Comparison,
    "ranking": Ranking,
    "rating": Rating,
    "steps": Steps,
    "prompt": Prompt,
}
"""The name of each kind of record."""


def kind_of(record: Record) -> str:
    """The name of a record's kind.

    >>> kind_of(Prompt(prompt="Hi"))
    'prompt'
    """
    return type(record).__name__.lower()


def as_dict(record: Record) -> dict[str, object]:
    """A record as an object that JSON can hold; fields at their default are left out.

    >>> as_dict(Demonstration(prompt="2 + 2 =", completion=" 4"))
    {'kind': 'demonstration', 'prompt': '2 + 2 =', 'completion': ' 4'}
    """
    plain: dict[str, object] = {"kind": kind_of(record)}
    for part in fields(record):
        value: object = getattr(record, part.name)
        factory = part.default_factory
        if value != (part.default if factory is MISSING else factory()):
            plain[part.name] = _plain(value)
    return plain


def text_as_plain(text: Text) -> object:
    """A string as it is, a conversation as a list of ``{"role": …, "content": …}``.

    >>> text_as_plain((Message(role="user", content="Hi"),))
    [{'role': 'user', 'content': 'Hi'}]
    """
    return _plain(text)


def _plain(value: object) -> object:
    if isinstance(value, Message):
        return {"role": value.role, "content": _plain(value.content)}
    if isinstance(value, Part):
        return (
            {"type": "text", "text": value.text}
            if value.kind == "text"
            else {"type": "image", "image": value.source}
        )
    if isinstance(value, tuple):
        return [_plain(item) for item in cast("tuple[object, ...]", value)]
    return value
