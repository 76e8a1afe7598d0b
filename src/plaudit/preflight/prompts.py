"""Questions as the model reads them: the same in training and in sampling, and no word of them lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from jinja2 import TemplateError

from plaudit.data.records import (
    Comparison,
    Demonstration,
    Message,
    Prompt,
    Ranking,
    Rating,
    Record,
    Steps,
    Text,
    plain_text,
)
from plaudit.errors import UserError
from plaudit.preflight.check import Check, Result, failed, not_applicable, passed
from plaudit.preflight.subject import SAMPLE_SIZE, PreflightSubject
from plaudit.preflight.tokenization import (
    EncodedRow,
    abbreviate,
    as_turns,
    decode_without_blanks,
    encoded_bare_prompts,
    encoded_rows,
    render_chat,
    strip_end_tokens,
    strip_turn_ends,
    tokenize_with_bos,
)
from plaudit.tokens.encode import Encoder
from plaudit.tokens.prompts import encode_prompt

ConversationShape = tuple[tuple[str, bool], ...]
"""Who speaks in a conversation, and whether the turn says something."""
_FILLING = "Some words, 'quoted' and {braced}; 1 < 2 & so on.\n" * 40


def check_prompt_prefix(subject: PreflightSubject) -> Result:
    """Renders and cuts the prompts of the first rows with transformers alone, and compares the tokens with
    those that are trained; a row's whole text must go on from there. Where answers are drawn, it compares
    them with the tokens that the sampler shows the model."""
    encoder = subject.encoder
    rows = encoded_rows(subject)
    merged_tokens = 0
    for row in rows:
        question, wholes = _prompt_and_full_texts(encoder, row)
        fault = _token_mismatch(encoder, _prompt_tokens(encoder, question), row.example.prompt, "trained")
        for whole, answer in zip(wholes, row.example.completions, strict=True):
            ids = (
                tokenize_with_bos(encoder, whole)
                if tokenize_with_bos(encoder, question)
                else _with_first_token(encoder, whole)
            )
            last = answer.ids[-1] in encoder.stop_ids
            expected_start = decode_without_blanks(
                encoder, (*row.example.prompt, *(answer.ids[:-1] if last else answer.ids))
            )
            if whole.startswith(question) and not decode_without_blanks(encoder, ids).startswith(
                expected_start
            ):
                fault = (
                    fault or f"prompt and answer do not go on from one another: {abbreviate(expected_start)}"
                )
            merged_tokens += ids[: len(row.example.prompt)] != row.example.prompt
        if fault is not None:
            return failed(f"{row.record.origin}: {fault}")
    sampler_prompts = list(_sampler_prompts(subject))
    for origin, text, ids in (*encoded_bare_prompts(subject), *sampler_prompts):
        question = text if isinstance(text, str) else render_chat(encoder, text, add_generation_prompt=True)
        fault = _token_mismatch(encoder, _prompt_tokens(encoder, question), ids, "shown to the model")
        if fault is not None:
            return failed(f"{origin}: {fault}")
    count = len(rows) + len(encoded_bare_prompts(subject)) + len(sampler_prompts)
    if not count:
        return not_applicable("there is no row to look at")
    return passed(
        f"{count} prompts have the tokens that they are asked "
        f"with{_boundary_note(merged_tokens)}{_plain_text_note(subject)}"
    )


def _boundary_note(merged_tokens: int) -> str:
    return (
        f"; {merged_tokens} answers are cut apart from a prompt with which they would share a token"
        if merged_tokens
        else ""
    )


def _plain_text_note(subject: PreflightSubject) -> str:
    chats = subject.encoder.chat_format is not None
    plain = any(isinstance(one.prompt, str) and not isinstance(one, Prompt) for one in subject.records)
    return "; rows are plain text, and a string that this model is asked is a user's turn" * (chats and plain)


def _prompt_tokens(encoder: Encoder, question: str) -> tuple[int, ...]:
    """The tokens of a question; one without any begins like a document."""
    return tokenize_with_bos(encoder, question) or _with_first_token(encoder, "")


def _with_first_token(encoder: Encoder, text: str) -> tuple[int, ...]:
    first = encoder.info.eos if encoder.info.bos is None else encoder.info.bos
    return (*(() if first is None else (first,)), *tokenize_with_bos(encoder, text))


def _token_mismatch(
    encoder: Encoder, expected: tuple[int, ...], ids: tuple[int, ...], role: str
) -> str | None:
    if expected == ids:
        return None
    same = next((n for n, (a, b) in enumerate(zip(expected, ids, strict=False)) if a != b), -1)
    at = min(len(expected), len(ids)) if same < 0 else same
    parts = (abbreviate(encoder.info.decode(one[max(0, at - 2) : at + 8])) for one in (ids, expected))
    found_text, expected_text = parts
    return f"from token {at + 1} on {found_text} is {role}, and transformers asks {expected_text}"


def _prompt_and_full_texts(encoder: Encoder, row: EncodedRow) -> tuple[str, list[str]]:
    """The question as text, and with it each answer."""
    ends = [str(encoder.info.tokenizer.convert_ids_to_tokens(stop)) for stop in encoder.stop_ids]
    prompt = row.prompt
    if isinstance(prompt, str):
        return prompt, [prompt + strip_end_tokens(plain_text(answer), ends) for answer in row.answers]
    conversations: list[tuple[Message, ...]] = []
    for answer in row.answers:
        assert not isinstance(answer, str), "an answer of a conversation is a turn"
        conversations.append((*prompt, *strip_turn_ends(answer, ends)))
    before = conversations[0][:-1] if encoder.turns == "last" else prompt
    question = render_chat(encoder, before, add_generation_prompt=True)
    return question, [
        render_chat(encoder, conversation, add_generation_prompt=False) for conversation in conversations
    ]


def _sampler_prompts(subject: PreflightSubject) -> Iterator[tuple[str, Text, tuple[int, ...]]]:
    """What drawing shows the model; prompts that leave no room for an answer are left out of a run."""
    if subject.sampler is None:
        return
    chats = subject.encoder.chat_format is not None
    for prompt in subject.prompts:
        try:
            question = encode_prompt(prompt, subject.encoder)
            [[rollout]] = subject.sampler.generate([question.shown], replace(subject.sampling, max_tokens=1))
        except UserError:
            continue
        text = subject.encoder.prompt_words(as_turns(prompt) if chats else prompt)
        yield f"drawing an answer to {abbreviate(plain_text(prompt))}", text, rollout.prompt


def check_chat_template(subject: PreflightSubject) -> Result:
    """Renders conversations of the kinds that the rows hold (a system turn, an empty one, several), made of
    words that occur nowhere else, with transformers alone: each word must be there once, and in order. A
    system turn may stand later than it was said."""
    if subject.encoder.chat_format is None:
        return not_applicable("the tokenizer has no chat template")
    shapes = _conversation_shapes(subject)
    if not shapes:
        return not_applicable("the rows are plain text, which no template touches")
    checked: list[str] = []
    for shape, origin in shapes.items():
        turns = [_marked_turn(i, role, speaks) for i, (role, speaks) in enumerate(shape)]
        try:
            text = render_chat(subject.encoder, turns, add_generation_prompt=shape[-1][0] != "assistant")
        except (TemplateError, TypeError, ValueError, LookupError):
            continue
        fault = _template_fault(shape, text)
        if fault is not None:
            return failed(f"{origin}: {fault} of a conversation of {_describe_shape(shape)}")
        checked.append(_describe_shape(shape))
    if not checked:
        return not_applicable(
            f"the template refuses every kind of row: {_describe_shape(next(iter(shapes)))}"
        )
    refused_note = "" if len(checked) == len(shapes) else f"; {len(shapes) - len(checked)} kinds are refused"
    return passed(f"every word once and in order: {'; '.join(checked)}{refused_note}")


def _conversation_shapes(subject: PreflightSubject) -> dict[ConversationShape, str]:
    """The kinds of conversations that are trained or asked, each with the first row that is one."""
    shapes: dict[ConversationShape, str] = {}
    for record in subject.records:
        if isinstance(record.prompt, str) and not isinstance(record, Prompt):
            continue
        prompt = as_turns(record.prompt)
        for turns in _conversations(record, prompt):
            shape = tuple((turn.role, bool(plain_text((turn,)).strip())) for turn in turns)
            shapes.setdefault(shape, record.origin)
    return dict(islice(shapes.items(), SAMPLE_SIZE))


def _conversations(record: Record, prompt: tuple[Message, ...]) -> Iterator[tuple[Message, ...]]:
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


def _marked_turn(i: int, role: str, speaks: bool) -> Message:
    opens, closes = _turn_marks(i)
    return Message(role=role, content=f"{opens} {_FILLING} {closes}" if speaks else "")


def _turn_marks(i: int) -> tuple[str, str]:
    return f"plaudit{i}opens", f"plaudit{i}closes"


def _template_fault(shape: ConversationShape, text: str) -> str | None:
    places: list[int] = []
    for i, (role, speaks) in enumerate(shape):
        for mark in _turn_marks(i) if speaks else ():
            if text.count(mark) != 1:
                problem = "leaves out words" if mark not in text else "repeats words"
                return f"the template {problem} of turn {i + 1}, the {role} turn"
            if role != "system":
                places.append(text.index(mark))
    return None if places == sorted(places) else "the template changes the order of the turns"


def _describe_shape(shape: ConversationShape) -> str:
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
        run=check_prompt_prefix,
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
        run=check_chat_template,
        at_start=True,
    ),
)
"""Checks of prompts."""
