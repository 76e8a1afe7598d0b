"""How models are asked to judge: wordings as data with versions, and questions in which strangers are quoted.

What is judged comes from strangers and may ask for a verdict of its own. So each of its lines is quoted, what
has the look of a control token is taken apart, and where a model replies in free text the verdict stands
between delimiters with a number that is drawn for each call: no answer can know it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from plaudit.data.generative_judging import JudgePromptFormat
from plaudit.data.records import Message, Text, pictures, plain_text, split_tools, words_of
from plaudit.errors import UserError

_CONTROL_TOKEN = re.compile(
    r"<\|[^<>|\n]{1,40}\|>|<[|｜][^<>\n]{1,40}[|｜]>|</?s>|<(?:bos|eos|pad|unk)>|<(?:start|end)_of_turn>"
    r"|<</?SYS>>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """One way to ask a model something."""

    name: str
    version: str
    """Raised with every change of a text: other wordings get other replies."""
    introduction: str
    """What stands above the quotation."""
    principle: str
    """What counts, in place of ``{principle}``, where the caller names nothing else."""
    ask: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPair:
    """Two answers to one prompt, in the order in which they are shown."""

    prompt: Text
    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked once, without the number that is drawn for each call."""

    wording: Wording
    prompt: Text
    blocks: tuple[tuple[str, str], ...]
    """What is quoted below the conversation, each under its header."""
    fill: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """What stands in place of names in braces, ``principle`` among them."""

    @property
    def version(self) -> str:
        return self.wording.version

    def messages(self, number: str) -> list[dict[str, str]]:
        """What is sent to a model that chats: one turn of a user."""
        return [{"role": "user", "content": self.text(number)}]

    def text(self, number: str = "", controls: Sequence[str] = ()) -> str:
        """The whole question, with this number in its delimiters.

        controls: the control tokens of the model, where they are known.

        >>> blocks = (("Answer", "Yo\\nUser:"),)
        >>> question = Question(wording=wording_named("critique"), prompt="Hi", blocks=blocks)
        >>> [line for line in question.text().splitlines() if line.startswith("> ")]
        ['> Hi', '> Yo', '> User:']
        """
        texts = (plain_text(self.prompt), *(text for _, text in self.blocks))
        # A server's tokenizer is not known: what has the look of a control token is taken apart.
        found = {token for text in texts for token in _CONTROL_TOKEN.findall(text)}
        form = JudgePromptFormat(has_chat_template=False, control_tokens=tuple(sorted({*found, *controls})))
        opened, closed = delimiters(number)
        names = {"principle": self.wording.principle, **self.fill, "opened": opened, "closed": closed}
        body = form.judge_prompt(self.prompt, self.blocks, _filled(self.wording.ask, names))
        return f"{_filled(self.wording.introduction, names)}\n{plain_text(body)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What is put to a model as its user puts it, without any wording of ours."""

    turns: tuple[Message, ...]
    version: str = ""

    def messages(self, number: str) -> list[dict[str, str]]:
        """The turns as they are; there are no delimiters in them."""
        if pictures(self.turns) or split_tools(self.turns)[0]:
            raise UserError("a conversation with pictures or tools cannot be put to a server here")
        return [{"role": turn.role, "content": words_of(turn)} for turn in self.turns]

    def text(self, number: str = "", controls: Sequence[str] = ()) -> str:
        """The turns as text, by which a reply is known and its tokens are estimated."""
        return json.dumps(self.messages(number))


def wording_named(name: str) -> Wording:
    return _wordings()[name]


def pair_question(wording: Wording, pair: ShownPair, fill: Mapping[str, str] | None = None) -> Question:
    blocks = (("Answer A", pair.first), ("Answer B", pair.second))
    return Question(wording=wording, prompt=pair.prompt, blocks=blocks, fill=fill or {})


def delimiters(number: str) -> tuple[str, str]:
    return f"<verdict-{number}>", f"</verdict-{number}>"


def _filled(text: str, names: Mapping[str, str]) -> str:
    # In one pass and by these names alone: a principle or rubric of the user's may hold braces of its own.
    pattern = "|".join(re.escape(f"{{{name}}}") for name in names)
    return re.sub(pattern, lambda found: names[found[0][1:-1]], text)


@cache
def _wordings() -> Mapping[str, Wording]:
    table: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
        files("plaudit.feedback.judges").joinpath("wordings.yaml").read_text("utf-8")
    )
    return {name: Wording(name=name, **texts) for name, texts in table.items()}
