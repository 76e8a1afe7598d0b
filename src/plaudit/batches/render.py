"""A chat template as a function from turns to text, and what can be known of it without a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

from plaudit.errors import UserError
from plaudit.records.messages import Message

_MARK = "plauditMarksThis"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChatTemplate:
    """A Jinja chat template and the values that it may use.

    Example: ``ChatTemplate(source="{% for m in messages %}…", variables={"bos_token": "<s>"})``
    """

    source: str
    """The template."""
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The special tokens by name, and the user's own settings such as ``enable_thinking``."""

    def render(self, messages: Sequence[Message], *, ask: bool) -> str:
        """The turns as text; with ``ask``, up to where the assistant would begin to speak."""
        turns = [{"role": message.role, "content": plain(message)} for message in messages]
        return self._rendered(turns, ask=ask, marked=False)[0]

    def marked_spans(self, messages: Sequence[Message]) -> tuple[tuple[int, int], ...]:
        """What the template's own ``{% generation %}`` markers enclose, in characters."""
        turns = [{"role": message.role, "content": plain(message)} for message in messages]
        return self._rendered(turns, ask=False, marked=True)[1]

    def _rendered(
        self, turns: list[dict[str, str]], *, ask: bool, marked: bool
    ) -> tuple[str, tuple[tuple[int, int], ...]]:
        try:
            texts, spans = render_jinja_template(
                conversations=[turns],
                chat_template=self.source,
                add_generation_prompt=ask,
                return_assistant_tokens_mask=marked,
                **self.variables,
            )
        except (TemplateError, TypeError, ValueError, LookupError) as error:
            roles = ", ".join(turn["role"] for turn in turns) or "none"
            raise UserError(
                f"the chat template refuses this conversation (roles: {roles}): {error}; "
                "reshape the rows to what the model knows, or give another template"
            ) from error
        return texts[0], tuple((int(start), int(end)) for start, end in spans[0]) if marked else ()


def plain(message: Message) -> str:
    """The words of one turn; a picture is refused, since text templates would drop it in silence."""
    if isinstance(message.content, str):
        return message.content
    for part in message.content:
        if part.kind != "text":
            raise UserError(
                f"a turn of the {message.role} holds an {part.kind} part; only text parts can be tokenised: "
                "remove the row, or describe the picture in words"
            )
    return "".join(part.text or "" for part in message.content)


def mark_for(text: str) -> str:
    """A word that does not occur in the text."""
    mark = _MARK
    while mark in text:
        mark += "X"
    return mark


@lru_cache(maxsize=1024)
def check_roles(template: ChatTemplate, roles: tuple[str, ...]) -> bool:
    """Whether every turn of such a conversation is rendered in its place; a lost one is an error.

    A template may move a turn on purpose (some put the system turn before the *last* question);
    then the answer is False. One that drops or repeats a turn would hide words from the model.
    """
    marks = [f"{_MARK}{i}End" for i in range(len(roles))]
    turns = [Message(role=role, content=mark) for role, mark in zip(roles, marks, strict=True)]
    text = template.render(turns, ask=False)
    shape = ", ".join(roles)
    for i, (role, mark) in enumerate(zip(roles, marks, strict=True)):
        if mark not in text:
            raise UserError(
                f"the chat template leaves out turn {i + 1}, the {role} turn of a conversation of {shape}, "
                f"so the model would never see its words; {_advice(role)}"
            )
        if text.count(mark) > 1:
            raise UserError(
                f"the chat template repeats turn {i + 1}, the {role} turn of a conversation of {shape}; "
                "give a template that renders every turn once"
            )
    places = [text.index(mark) for mark in marks]
    return places == sorted(places)


def _advice(role: str) -> str:
    if role == "system":
        return "put the system words at the start of the first user turn, or give a template that knows them"
    return f"give a template that knows the role '{role}', or remove such turns"
