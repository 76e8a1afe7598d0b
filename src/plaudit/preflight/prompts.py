"""Checks of how a prompt reads: the same in training and in sampling, with no word lost to the template."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from jinja2 import TemplateError

from plaudit.data import records
from plaudit.errors import UserError
from plaudit.preflight import check
from plaudit.preflight.tokenization import (
    EncodedRow,
    abbreviate,
    decode_without_blanks,
    encoded_bare_prompts,
    encoded_rows,
    render_chat,
    strip_end_tokens,
    strip_turn_ends,
    tokenize_with_bos,
)
from plaudit.tokens.encode import Encoder, record_answers
from plaudit.tokens.prompts import encode_prompt

ConversationShape = tuple[records.Message, ...]
"""Who speaks in a conversation, with what calls, and whether the turn says something."""
# Long, with quotes, braces and brackets: what templates cut, escape or take for their own.
_FILLING = "Some words, 'quoted' and {braced}; 1 < 2 & so on.\n" * 40


def check_prompt_prefix(subject: check.PreflightSubject) -> check.Result:
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
            # As one text, BPE may glue the prompt's end to the answer's beginning.
            merged_tokens += ids[: len(row.example.prompt)] != row.example.prompt
        if fault is not None:
            return check.failed(f"{row.record.origin}: {fault}")
    sampler_prompts = list(_sampler_prompts(subject))
    for origin, text, ids in (*encoded_bare_prompts(subject), *sampler_prompts):
        question = text if isinstance(text, str) else render_chat(encoder, text, add_generation_prompt=True)
        fault = _token_mismatch(encoder, _prompt_tokens(encoder, question), ids, "shown to the model")
        if fault is not None:
            return check.failed(f"{origin}: {fault}")
    count = len(rows) + len(encoded_bare_prompts(subject)) + len(sampler_prompts)
    if not count:
        return check.not_applicable("there is no row to look at")
    notes = "".join(_notes(subject, merged_tokens))
    return check.passed(f"{count} prompts have the tokens that they are asked with{notes}")


def _notes(subject: check.PreflightSubject, merged_tokens: int) -> Iterator[str]:
    if merged_tokens:
        yield f"; {merged_tokens} answers are cut apart from a prompt with which they would share a token"
    plain = any(isinstance(record.prompt, str) and record.prompt for record in subject.records)
    if subject.encoder.asks_in_turns and plain:
        yield "; prompts in plain text are a user's turns"


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
    parts = (item[max(0, at - 2) : at + 8] for item in (ids, expected))
    actual, wanted = (abbreviate(encoder.info.decode(part)) for part in parts)
    return f"from token {at + 1} on {actual} is {role}, and transformers asks {wanted}"


def _prompt_and_full_texts(encoder: Encoder, row: EncodedRow) -> tuple[str, list[str]]:
    ends = [str(encoder.info.tokenizer.convert_ids_to_tokens(stop)) for stop in encoder.stop_ids]
    prompt = row.prompt
    if isinstance(prompt, str):
        return prompt, [prompt + strip_end_tokens(records.plain_text(answer), ends) for answer in row.answers]
    conversations: list[tuple[records.Message, ...]] = []
    for answer in row.answers:
        assert not isinstance(answer, str), "an answer of a conversation is a turn"
        conversations.append((*prompt, *strip_turn_ends(answer, ends)))
    # Answers of weight 0, and where only the last is learnt those before it, are part of the question.
    turns = enumerate(conversations[0])
    learnt = [i for i, turn in turns if i >= len(prompt) and turn.role == "assistant" and turn.trained]
    before = conversations[0][: learnt[-1 if encoder.turns == "last" else 0]]
    question = render_chat(encoder, before, add_generation_prompt=True)
    return question, [
        render_chat(encoder, conversation, add_generation_prompt=False) for conversation in conversations
    ]


def _sampler_prompts(subject: check.PreflightSubject) -> Iterator[tuple[str, records.Text, tuple[int, ...]]]:
    """What drawing shows the model; prompts that leave no room for an answer are left out of a run."""
    if subject.sampler is None:
        return
    for prompt in subject.prompts:
        try:
            encoded_prompt = encode_prompt(prompt, subject.encoder)
            [[rollout]] = subject.sampler.generate(
                [encoded_prompt.shown], replace(subject.sampling, max_tokens=1)
            )
        except UserError:
            continue
        text = subject.encoder.prompt_words(subject.encoder.prompt_as_turns(prompt))
        yield f"drawing an answer to {abbreviate(records.plain_text(prompt))}", text, rollout.prompt


def check_chat_template(subject: check.PreflightSubject) -> check.Result:
    """Renders conversations of the kinds that the rows hold (a system turn, an empty one, several), made of
    words that occur nowhere else, with transformers alone: each word must be there once, and in order. A
    system turn may stand later than it was said. Where an answer is asked for, its header must be there."""
    if subject.encoder.chat_format is None:
        return check.not_applicable("the tokenizer has no chat template")
    shapes = _conversation_shapes(subject)
    if not shapes:
        return check.not_applicable("the rows are plain text, which no template touches")
    checked: list[str] = []
    for shape, origin in shapes.items():
        tools, others = records.split_tools(shape)
        marked = (
            replace(turn, content=f"{opens} {_FILLING} {closes}" if turn.content else "")
            for i, turn in enumerate(others)
            for opens, closes in [_turn_marks(i)]
        )
        turns = [*tools, *marked]
        try:
            text = render_chat(subject.encoder, turns, add_generation_prompt=shape[-1].role != "assistant")
        # A template may raise on roles that it does not know: such rows are refused, not garbled.
        except (TemplateError, TypeError, ValueError, LookupError):
            continue
        fault = _template_fault(shape, text)
        if fault is not None:
            return check.failed(f"{origin}: {fault} of a conversation of {_describe_shape(shape)}")
        checked.append(_describe_shape(shape))
    if not checked:
        return check.not_applicable(
            f"the template refuses every kind of row: {_describe_shape(next(iter(shapes)))}"
        )
    unopened = _unopened_answer(subject.encoder)
    if unopened is not None:
        return check.failed(unopened)
    refused_note = "" if len(checked) == len(shapes) else f"; {len(shapes) - len(checked)} kinds are refused"
    return check.passed(f"every word once and in order: {'; '.join(checked)}{refused_note}")


def _unopened_answer(encoder: Encoder) -> str | None:
    """What is wrong where a template does not open the answer that it is asked for."""
    question = records.user_turn("Hello")
    opened, plain = (render_chat(encoder, question, add_generation_prompt=ask) for ask in (True, False))
    answered = render_chat(
        encoder, (*question, *records.assistant_turn("plaudit0opens")), add_generation_prompt=False
    )
    header = answered.removeprefix(opened).partition("plaudit0opens")[0]
    if opened != plain or not answered.startswith(opened) or not header.strip():
        return None
    return (
        f"the template has no generation prompt: it writes {header!r} before an answer and leaves it out "
        "where one is asked for, so it is learnt as words of the answer"
    )


def _conversation_shapes(subject: check.PreflightSubject) -> dict[ConversationShape, str]:
    shapes: dict[ConversationShape, str] = {}
    for record in subject.records:
        prompt = subject.encoder.prompt_as_turns(record.prompt)
        if isinstance(prompt, str):
            continue
        for turns in _conversations(record, prompt, subject.encoder):
            shapes.setdefault(tuple(map(_shape_of, turns)), record.origin)
    return dict(islice(shapes.items(), check.SAMPLE_SIZE))


def _shape_of(turn: records.Message) -> records.Message:
    """The turn as far as templates tell turns apart: with its calls, and one word in place of all words."""
    if turn.role == records.TOOLS_ROLE:
        return turn
    return replace(
        turn, content="said" if records.words_of(turn).strip() else "", reasoning=None, trained=True
    )


def _conversations(
    record: records.Record, prompt: tuple[records.Message, ...], encoder: Encoder
) -> Iterator[tuple[records.Message, ...]]:
    if isinstance(record, records.Steps | records.Prompt):
        yield prompt
        return
    turns = (encoder.answer_as_turns(record.prompt, answer) for answer in record_answers(record))
    yield from ((*prompt, *answer) for answer in turns if not isinstance(answer, str))


def _turn_marks(i: int) -> tuple[str, str]:
    return f"plaudit{i}opens", f"plaudit{i}closes"


def _template_fault(shape: ConversationShape, text: str) -> str | None:
    places: list[int] = []
    for i, turn in enumerate(records.split_tools(shape)[1]):
        for mark in _turn_marks(i) if turn.content else ():
            if text.count(mark) != 1:
                problem = "leaves out words" if mark not in text else "repeats words"
                return f"the template {problem} of turn {i + 1}, the {turn.role} turn"
            if turn.role != "system":
                places.append(text.index(mark))
    return None if places == sorted(places) else "the template changes the order of the turns"


def _describe_shape(shape: ConversationShape) -> str:
    return ", ".join(
        turn.role if turn.content or turn.tool_calls else f"an empty {turn.role} turn" for turn in shape
    )


CHECKS = (
    check.Check(name="prompt-prefix", run=check_prompt_prefix, at_start=True),
    check.Check(name="template", run=check_chat_template, at_start=True),
)
