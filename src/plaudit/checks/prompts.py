"""Questions as the model reads them: the same in training and in sampling, and no word of them lost."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from jinja2 import TemplateError

from plaudit.batches.template import Encoder
from plaudit.checks.check import Check, Result, failed, not_applicable, passed
from plaudit.checks.subject import FEW, Subject
from plaudit.checks.written import (
    Written,
    as_turns,
    asked,
    cut_up,
    rendered,
    said,
    shortened,
    unended,
    unended_turns,
    written,
)
from plaudit.errors import UserError
from plaudit.records.feedback import Comparison, Demonstration, Prompt, Ranking, Rating, Record, Steps
from plaudit.records.messages import Message, Text, words
from plaudit.rollouts.local import LocalSampler

Shape = tuple[tuple[str, bool], ...]
"""Who speaks in a conversation, and whether the turn says something."""
_FILLING = "Some words, 'quoted' and {braced}; 1 < 2 & so on.\n" * 40


def prompt_prefix(subject: Subject) -> Result:
    """Renders and cuts the prompts of the first rows with transformers alone, and compares the tokens with
    those that are trained; a row's whole text must go on from there. Where answers are drawn, it compares
    them with the tokens that the sampler shows the model."""
    encoder = subject.encoder
    rows = written(subject)
    glued = 0
    for row in rows:
        question, wholes = _texts(encoder, row)
        fault = _other(encoder, _shown(encoder, question), row.example.prompt, "trained")
        for whole, answer in zip(wholes, row.example.completions, strict=True):
            ids = cut_up(encoder, whole) if cut_up(encoder, question) else _opened(encoder, whole)
            last = answer.ids[-1] in encoder.stop_ids
            told = said(encoder, (*row.example.prompt, *(answer.ids[:-1] if last else answer.ids)))
            if whole.startswith(question) and not said(encoder, ids).startswith(told):
                fault = fault or f"prompt and answer do not go on from one another: {shortened(told)}"
            glued += ids[: len(row.example.prompt)] != row.example.prompt
        if fault is not None:
            return failed(f"{row.record.origin}: {fault}")
    drawn = list(_drawn(subject))
    for origin, text, ids in (*asked(subject), *drawn):
        question = text if isinstance(text, str) else rendered(encoder, text, ask=True)
        fault = _other(encoder, _shown(encoder, question), ids, "shown to the model")
        if fault is not None:
            return failed(f"{origin}: {fault}")
    count = len(rows) + len(asked(subject)) + len(drawn)
    if not count:
        return not_applicable("there is no row to look at")
    return passed(f"{count} prompts have the tokens that they are asked with{_seams(glued)}{_plain(subject)}")


def _seams(glued: int) -> str:
    return (
        f"; {glued} answers are cut apart from a prompt with which they would share a token" if glued else ""
    )


def _plain(subject: Subject) -> str:
    chats = subject.encoder.manner is not None
    plain = any(isinstance(one.prompt, str) and not isinstance(one, Prompt) for one in subject.records)
    return "; rows are plain text, and a string that this model is asked is a user's turn" * (chats and plain)


def _shown(encoder: Encoder, question: str) -> tuple[int, ...]:
    """The tokens of a question; one without any begins like a document."""
    return cut_up(encoder, question) or _opened(encoder, "")


def _opened(encoder: Encoder, text: str) -> tuple[int, ...]:
    first = encoder.info.eos if encoder.info.bos is None else encoder.info.bos
    return (*(() if first is None else (first,)), *cut_up(encoder, text))


def _other(encoder: Encoder, wanted: tuple[int, ...], ids: tuple[int, ...], what: str) -> str | None:
    if wanted == ids:
        return None
    same = next((n for n, (a, b) in enumerate(zip(wanted, ids, strict=False)) if a != b), -1)
    at = min(len(wanted), len(ids)) if same < 0 else same
    parts = (shortened(encoder.info.decode(one[max(0, at - 2) : at + 8])) for one in (ids, wanted))
    here, there = parts
    return f"from token {at + 1} on {here} is {what}, and transformers asks {there}"


def _texts(encoder: Encoder, row: Written) -> tuple[str, list[str]]:
    """The question as text, and with it each answer."""
    ends = [str(encoder.info.tokenizer.convert_ids_to_tokens(stop)) for stop in encoder.stop_ids]
    prompt = row.record.prompt
    if isinstance(prompt, str):
        return prompt, [prompt + unended(words(answer), ends) for answer in row.answers]
    tellings: list[tuple[Message, ...]] = []
    for answer in row.answers:
        assert not isinstance(answer, str), "an answer of a conversation is a turn"
        tellings.append((*prompt, *unended_turns(answer, ends)))
    before = tellings[0][:-1] if encoder.turns == "last" else prompt
    question = rendered(encoder, before, ask=True)
    return question, [rendered(encoder, telling, ask=False) for telling in tellings]


def _drawn(subject: Subject) -> Iterator[tuple[str, Text, tuple[int, ...]]]:
    """What drawing would show the model; prompts that leave no room for an answer are left out of a run."""
    if not isinstance(subject.sampler, LocalSampler):
        return
    chats = subject.encoder.manner is not None
    for prompt in subject.prompts:
        try:
            [one] = subject.sampler.wanted([prompt], subject.sampling, 1)
        except UserError:
            continue
        asks = as_turns(prompt) if chats else prompt
        yield f"drawing an answer to {shortened(words(prompt))}", asks, one.prompt


def template(subject: Subject) -> Result:
    """Renders conversations of the kinds that the rows hold (a system turn, an empty one, several), made of
    words that occur nowhere else, with transformers alone: each word must be there once, and in order. A
    system turn may stand later than it was said."""
    if subject.encoder.manner is None:
        return not_applicable("the tokenizer has no chat template")
    shapes = _shapes(subject)
    if not shapes:
        return not_applicable("the rows are plain text, which no template touches")
    looked: list[str] = []
    for shape, origin in shapes.items():
        turns = [_marked(i, role, speaks) for i, (role, speaks) in enumerate(shape)]
        try:
            text = rendered(subject.encoder, turns, ask=shape[-1][0] != "assistant")
        except (TemplateError, TypeError, ValueError, LookupError):
            continue
        fault = _lost(shape, text)
        if fault is not None:
            return failed(f"{origin}: {fault} of a conversation of {_named(shape)}")
        looked.append(_named(shape))
    if not looked:
        return not_applicable(f"the template refuses every kind of row: {_named(next(iter(shapes)))}")
    left = "" if len(looked) == len(shapes) else f"; {len(shapes) - len(looked)} kinds are refused"
    return passed(f"every word once and in order: {'; '.join(looked)}{left}")


def _shapes(subject: Subject) -> dict[Shape, str]:
    """The kinds of conversations that are trained or asked, each with the first row that is one."""
    found: dict[Shape, str] = {}
    for record in subject.records:
        if isinstance(record.prompt, str) and not isinstance(record, Prompt):
            continue
        prompt = as_turns(record.prompt)
        for turns in _tellings(record, prompt):
            shape = tuple((turn.role, bool(words((turn,)).strip())) for turn in turns)
            found.setdefault(shape, record.origin)
    return dict(islice(found.items(), FEW))


def _tellings(record: Record, prompt: tuple[Message, ...]) -> Iterator[tuple[Message, ...]]:
    match record:
        case Comparison():
            answers = (record.chosen, record.rejected)
        case Ranking():
            answers = record.completions
        case Demonstration() | Rating():
            answers = (record.completion,)
        case Steps() | Prompt():
            answers = ()
            yield prompt
    yield from ((*prompt, *answer) for answer in answers if not isinstance(answer, str))


def _marked(i: int, role: str, speaks: bool) -> Message:
    opens, closes = _marks(i)
    return Message(role=role, content=f"{opens} {_FILLING} {closes}" if speaks else "")


def _marks(i: int) -> tuple[str, str]:
    return f"plaudit{i}opens", f"plaudit{i}closes"


def _lost(shape: Shape, text: str) -> str | None:
    places: list[int] = []
    for i, (role, speaks) in enumerate(shape):
        for mark in _marks(i) if speaks else ():
            if text.count(mark) != 1:
                how = "leaves out words" if mark not in text else "repeats words"
                return f"the template {how} of turn {i + 1}, the {role} turn"
            if role != "system":
                places.append(text.index(mark))
    return None if places == sorted(places) else "the template changes the order of the turns"


def _named(shape: Shape) -> str:
    return ", ".join(role if speaks else f"an empty {role} turn" for role, speaks in shape)


CHECKS = (
    Check(
        name="prompt-prefix",
        proves="A prompt has the same tokens in training as when the model is asked, and its answer follows "
        "them.",
        matters="A model that is trained on other tokens than it is asked with learns answers to questions "
        "that nobody asks. Texts that are joined and cut into tokens again do not give the tokens that were "
        "sampled: TRL#5224, SkyRL#123, slime#117, prime-rl#1352.",
        mend="Use a chat template whose question is the beginning of its answered conversation, and the same "
        "template for training and for sampling. In plain text, leave no blank at the end of a prompt.",
        look=prompt_prefix,
        at_start=True,
    ),
    Check(
        name="template",
        proves="The chat template writes every word of the turns that your rows have, once and in order.",
        matters="A template is a small program, and nobody reads its output. One that drops a turn, cuts a "
        "long one or changes their order hides words from the model; the loss still falls. Templates that "
        "break with the kind of turns in the rows: marin#7237, TRL#5224.",
        mend="Give the model a template that knows these turns (chat_template in tokenizer_config.json, or "
        "chat_template.jinja). Or reshape the rows: put system words at the start of the first user turn.",
        look=template,
        at_start=True,
    ),
)
"""Checks of prompts."""
