"""A question about answers, as a model is asked it: each text quoted under its header, then what is asked.

Every quoted line begins with a mark and no other line does, and control tokens are taken apart: what is
judged cannot close its quotation, add another answer, end the turn or ask something else. The question is
written for the model that judges: a user's turn where it has a chat template, plain text where it has none,
however the rows are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from plaudit.errors import UserError
from plaudit.records.messages import Message, Text, assistant_says, user_says, words
from plaudit.records.worded_settings import CriticSettings, QuoteSettings, RankerSettings, TextRewardSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a question is put to one model.

    Example: ``Form(quote=QuoteSettings(), chat=True, controls=("<|im_end|>",))``
    """

    quote: QuoteSettings = field(default_factory=QuoteSettings)
    """How texts are quoted."""
    chat: bool = True
    """Whether the model has a chat template."""
    controls: tuple[str, ...] = ()
    """The texts of its control tokens: none of them may come from what is quoted."""

    def question(self, prompt: Text, blocks: Sequence[tuple[str, Text]], ask: str) -> Text:
        """The conversation, then each block under its header, then what is asked."""
        lines = [*self._conversation(prompt), *(line for block in blocks for line in self._block(*block))]
        text = "\n".join([*lines, ask])
        return user_says(text) if self.chat else f"{text}\n"

    def reply(self, word: str) -> Text:
        """What the model says."""
        return assistant_says(word) if self.chat else word

    def quoted(self, text: str) -> Iterator[str]:
        """The lines of a quotation, as many as there are in the text and at least one.

        >>> list(Form().quoted("Yes.\\nAnswer:\\nNo."))
        ['> Yes.', '> Answer:', '> No.']
        """
        return (f"{self.quote.mark}{line}" for line in f"{disarmed(text, self.controls)}\n".splitlines())

    def _conversation(self, prompt: Text) -> Iterator[str]:
        if isinstance(prompt, str):
            prompt = user_says(prompt) if prompt else ()
        for message in prompt:
            yield from self._turn(message)

    def _block(self, header: str, text: Text) -> Iterator[str]:
        """An answer of several turns (the assistant's, a tool's) has the first of them under its header."""
        first, rest = (text, ()) if isinstance(text, str) else (_words(text[:1]), text[1:])
        yield f"{header}:"
        yield from self.quoted(first)
        for message in rest:
            yield from self._turn(message)

    def _turn(self, message: Message) -> Iterator[str]:
        yield f"{self._speaker(message.role)}:"
        yield from self.quoted(_words((message,)))

    def _speaker(self, role: str) -> str:
        named = {"user": self.quote.user, "assistant": self.quote.assistant}
        speaker = named.get(role, role.capitalize())
        taken = (self.quote.answer, self.quote.critique, *named.values())
        if not role.isidentifier() or (role not in named and speaker in taken):
            raise UserError(
                f"the role {role!r} of a turn cannot be a header; use system, user, assistant, tool"
            )
        return speaker


def disarmed(text: str, controls: Sequence[str]) -> str:
    """The text with its control tokens taken apart, so that a tokenizer sees words in their place.

    >>> disarmed("Hi.<|im_end|>", ("<|im_end|>",))
    'Hi.< |im_end|>'
    """
    pattern = _any_of(tuple(controls))
    return text if pattern is None else pattern.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)


@lru_cache(maxsize=64)
def _any_of(controls: tuple[str, ...]) -> re.Pattern[str] | None:
    """The longest first, so that none is taken for the beginning of another."""
    known = sorted((control for control in controls if len(control.strip()) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, known))) if known else None


def ask_good(settings: TextRewardSettings, form: Form, prompt: Text, answer: Text) -> Text:
    """Whether an answer is good.

    >>> print(ask_good(TextRewardSettings(), Form(chat=False), "2 + 2 =", "4"), end="")
    User:
    > 2 + 2 =
    Answer:
    > 4
    Is the answer good? Reply Good or Bad.
    """
    return form.question(prompt, [(form.quote.answer, answer)], settings.asked)


def ask_better(settings: RankerSettings, form: Form, prompt: Text, answers: tuple[Text, Text]) -> Text:
    """Which of two answers is better."""
    labels = (settings.first, settings.second)
    blocks = [(f"{form.quote.answer} {label}", text) for label, text in zip(labels, answers, strict=True)]
    return form.question(prompt, blocks, settings.asked)


def ask_critique(settings: CriticSettings, form: Form, prompt: Text, answer: Text) -> Text:
    """For a critique of an answer."""
    return form.question(prompt, [(form.quote.answer, answer)], settings.ask)


def ask_points(settings: CriticSettings, form: Form, judged: tuple[Text, Text], critique: str) -> Text:
    """For points, given the prompt with its answer and a critique, which is quoted as well."""
    prompt, answer = judged
    blocks = [(form.quote.answer, answer), (form.quote.critique, critique)]
    return form.question(prompt, blocks, settings.asked)


def _words(messages: tuple[Message, ...]) -> str:
    """The words of turns; a picture is refused, for a quotation would drop it in silence."""
    for message in messages:
        if not isinstance(message.content, str) and any(part.kind != "text" for part in message.content):
            raise UserError(
                f"a turn of the {message.role} holds a picture, which cannot be judged in words; "
                "leave the row out, or describe the picture"
            )
    return words(messages)
