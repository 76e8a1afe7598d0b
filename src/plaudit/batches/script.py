"""A conversation as text in pieces: the prompt as it is asked, then who said what.

Nothing here looks at tokens. Where an answer lies is found by rendering the conversation twice, once
with a word in the answer's place that occurs nowhere else: what stands before and after that word is
the template's doing, whatever it trims, adds or moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from plaudit.batches.render import ChatTemplate, check_roles, mark_for, plain
from plaudit.batches.seam import Piece
from plaudit.errors import UserError
from plaudit.records.messages import Message

Turns = Literal["all", "last"]
"""Which answers of a longer conversation are trained."""

MOVED = "the template moves a turn to another place (as it does when the model is asked)"
"""Said of a row whose turns the template reorders."""
TRAILING = "turns after the last answer were left out"
"""Said of a row that goes on after its last answer."""
BARE_END = "an earlier answer has no token that ends it: its words are trained, its end is not"
"""Said of a row with an earlier answer that the template does not close."""
DOUBLE_END = "an answer carried its own end-of-turn token; the template's is the only one kept"
"""Said of a row whose answer was closed by hand."""
CONTROL = "a turn holds the text of a control token, which the model reads as that token"
"""Said of a row whose words look like control tokens."""

_ONE_BY_ONE = "train only the last answer (turns='last'), or make one row of every answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The token that ends an answer.

    Example: ``Ending(id=7, text="<|im_end|>", by_template=True)``
    """

    id: int
    """The token."""
    text: str
    """Its text."""
    by_template: bool
    """Whether the template writes it behind a last answer; if not, it is added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a model's conversations are written: its template, its end of turn, its other control tokens.

    Example: ``Manner(template=template, ending=ending, stops=("</s>",), specials=("<s>", "</s>"))``
    """

    template: ChatTemplate
    """The effective chat template."""
    ending: Ending
    """What ends the last answer."""
    stops: tuple[str, ...]
    """The texts of the tokens that stop the model."""
    specials: tuple[str, ...]
    """The texts of all control tokens, longest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One conversation as text.

    Example: ``Script(prompt="<s>[INST] Hi [/INST]", pieces=(Piece(text=" Hello </s>", trained=True),))``
    """

    prompt: str
    """What the model is asked."""
    pieces: tuple[Piece, ...]
    """What follows; the first and the last piece are trained."""
    chat: bool = False
    """Whether this is a conversation; plain text otherwise."""
    end: str | None = None
    """The token that the last piece ends with; None when none is written."""
    notes: tuple[str, ...] = ()
    """What had to be decided."""


def turns_named(name: str) -> Turns:
    """The setting by its name."""
    match name:
        case "all" | "last":
            return name
        case _:
            raise UserError(
                f"turns is {name!r}; it is 'all' (train every answer of a conversation) or 'last'"
            )


def special_after(text: str, specials: Sequence[str]) -> str | None:
    """The control token that the text begins with, blanks aside.

    >>> special_after("\\n</s>[INST]", ("</s>",))
    '</s>'
    """
    return next((token for token in specials if text.lstrip().startswith(token)), None)


def script_of(
    manner: Manner, prompt: Sequence[Message], completion: Sequence[Message], turns: Turns
) -> Script:
    """The conversation as text, cut right behind the last answer's end-of-turn token."""
    told, notes = _told(manner, prompt, completion)
    answers = [i for i in range(len(prompt), len(told)) if told[i].role == "assistant"]
    answers = answers[-1:] if turns == "last" else answers
    if not check_roles(manner.template, tuple(message.role for message in told)):
        notes.append(MOVED)
    asked = manner.template.render(told[: answers[0]], ask=True)
    full = manner.template.render(told, ask=False)
    if len(answers) == 1 and not full.startswith(asked):
        full = _reopened(manner, told, asked)
    pieces: list[Piece] = []
    here, token = len(asked), None
    for i in answers:
        start, end, token = _answer(manner, told, i, full)
        if start > here:
            pieces.append(Piece(text=full[here:start], trained=False))
        pieces.append(Piece(text=full[start:end], trained=True))
        here = end
        if token is None and i != answers[-1]:
            notes.append(BARE_END)
    return Script(prompt=asked, pieces=tuple(pieces), chat=True, end=token, notes=tuple(dict.fromkeys(notes)))


def without_end(words: str, tokens: Sequence[str]) -> str:
    """The words without any end-of-turn token that the row itself brought along.

    >>> without_end("Paris.</s>\\n", ("</s>",))
    'Paris.'
    """
    token = next((token for token in tokens if token and words.rstrip().endswith(token)), None)
    return words if token is None else without_end(words.rstrip().removesuffix(token), tokens)


def _told(
    manner: Manner, prompt: Sequence[Message], completion: Sequence[Message]
) -> tuple[tuple[Message, ...], list[str]]:
    """All turns up to the last answer, as plain text, no answer with an end-of-turn token of its own."""
    roles = [message.role for message in completion]
    if not roles or roles[0] != "assistant":
        found = repr(roles[0]) if roles else "no turn"
        raise UserError(
            f"an answer begins with {found}, not with a turn of the assistant; move it to the prompt"
        )
    last = max(i for i, role in enumerate(roles) if role == "assistant")
    notes = [TRAILING] if last + 1 < len(roles) else []
    told = [replace(message, content=plain(message)) for message in (*prompt, *completion[: last + 1])]
    for i in range(len(prompt), len(told)):
        if told[i].role == "assistant":
            words = without_end(plain(told[i]), (manner.ending.text, *manner.stops))
            if words != told[i].content:
                told[i] = replace(told[i], content=words)
                notes.append(DOUBLE_END)
    if any(token in plain(message) for message in told for token in manner.specials):
        notes.append(CONTROL)
    return tuple(told), notes


def _answer(manner: Manner, told: Sequence[Message], i: int, full: str) -> tuple[int, int, str | None]:
    """Where answer ``i`` begins and ends in the whole text, and the token that ends it."""
    asked = manner.template.render(told[:i], ask=True)
    if not full.startswith(asked):
        raise UserError(
            f"the chat template rewrites turn {i + 1} or what stands before it once the conversation goes "
            f"on, so the model would be trained on a prompt that it never sees; {_ONE_BY_ONE}"
        )
    before, after = _around(manner, told, i)
    if not full.endswith(after):
        raise UserError(
            f"the chat template writes what follows turn {i + 1} differently for different answers"
        )
    content_end = len(full) - len(after)
    opened = len(before) if asked.startswith(before) else len(asked)
    if _squeezed(plain(told[i])) not in _squeezed(full[opened:content_end]):
        raise UserError(
            f"the chat template leaves out a part of the answer in turn {i + 1} (often the thinking of an "
            f"earlier turn), so it would not be trained; {_ONE_BY_ONE}"
        )
    token = special_after(after, manner.specials)
    if token is None or not _ends(manner, token, last=i == len(told) - 1):
        return len(asked), content_end, None
    return len(asked), full.index(token, content_end) + len(token), token


def _ends(manner: Manner, token: str, *, last: bool) -> bool:
    """Whether a control token behind an answer is its end, not a header or a mark that only history has."""
    return last or token == manner.ending.text or token in manner.stops


def _reopened(manner: Manner, told: Sequence[Message], asked: str) -> str:
    """The text of an answer whose prompt already opens it, such as prompts that end in ``<think>``."""
    before, after = _around(manner, told, len(told) - 1)
    opening = asked.removeprefix(before)
    words = plain(told[-1]).lstrip()
    if not opening.strip() or not asked.startswith(before):
        raise UserError(
            "the chat template asks in one way and writes the answered conversation in another (the text "
            f"that asks ends in {asked[-40:]!r}), so no prompt is right for both; give a template whose "
            "question is the beginning of its answer"
        )
    if not words.startswith(opening.strip()):
        raise UserError(
            f"the chat template's question ends in {opening!r}, but the answer does not begin with "
            f"{opening.strip()!r}: the model would learn to answer where it should think; give answers with "
            "their thinking, or a template that does not open it"
        )
    rest = (
        words.removeprefix(opening)
        if words.startswith(opening)
        else words.removeprefix(opening.strip()).lstrip()
    )
    return asked + rest + after


def _around(manner: Manner, told: Sequence[Message], i: int) -> tuple[str, str]:
    """What the template writes before and after the words of turn ``i``."""
    mark = mark_for("".join(plain(message) for message in told))
    marked = [*told[:i], replace(told[i], content=mark), *told[i + 1 :]]
    text = manner.template.render(marked, ask=False)
    before, found, after = text.partition(mark)
    if not found or mark in after:
        raise UserError(f"the chat template does not write the words of turn {i + 1} exactly once")
    return before, after


def _squeezed(text: str) -> str:
    return "".join(text.split())
