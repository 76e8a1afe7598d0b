"""Words in front of a prompt: a context that is to be distilled, or a control word.

The same function serves training and asking, so the model is asked exactly as it was trained.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from plaudit.errors import UserError
from plaudit.records.feedback import Demonstration
from plaudit.records.messages import Message, Part, Text

Place = Literal["system", "user"]
"""Where words go in a conversation: to its system turn, or to the start of its first user turn."""


def with_context(record: Demonstration, context: str, place: Place = "system") -> Demonstration:
    """The same answer, to the prompt with a context in front.

    >>> with_context(Demonstration(prompt="Hi.", completion="Hello."), "Be kind.").prompt
    'Be kind.\\n\\nHi.'
    """
    if not context.strip():
        raise UserError("the context is empty: there is nothing to distil")
    return replace(record, prompt=in_front(record.prompt, context, place))


def in_front(prompt: Text, words: str, place: Place = "system") -> Text:
    """Words and an empty line before a prompt: the same in training and when the model is asked.

    A conversation gets them at the start of its system turn, or of its first user turn where the chat
    template knows no system turn; a conversation without such a turn gets one.

    >>> in_front((Message(role="user", content="Hi."),), "GOOD")[0]
    Message(role='system', content='GOOD')
    """
    if isinstance(prompt, str):
        return f"{words}\n\n{prompt}"
    places = [i for i, message in enumerate(prompt) if message.role == place]
    if not places or (place == "system" and places[0] != 0):
        first = 1 if place == "user" and prompt and prompt[0].role == "system" else 0
        return (*prompt[:first], Message(role=place, content=words), *prompt[first:])
    held = prompt[places[0]]
    content: str | tuple[Part, ...]
    if isinstance(held.content, str):
        content = f"{words}\n\n{held.content}"
    else:
        content = (Part(kind="text", text=f"{words}\n\n"), *held.content)
    return (*prompt[: places[0]], replace(held, content=content), *prompt[places[0] + 1 :])
