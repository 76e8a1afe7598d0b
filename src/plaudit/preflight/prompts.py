"""Checks of how a prompt reads, the same in training and in sampling, and of how rows lie in a batch.

No word is lost to the template, no answer loses its end for want of room, no padding is taken for words.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import get_args

import torch
from jinja2 import TemplateError

from plaudit.data import records
from plaudit.data.records import Prompt, Record, answers_of, plain_text
from plaudit.errors import UserError
from plaudit.preflight import check
from plaudit.preflight.samples import answers_in_row, shortest_prompts
from plaudit.preflight.tokenization import (
    EncodedRow,
    abbreviate,
    decode_without_blanks,
    encoded_bare_prompts,
    encoded_rows,
    end_tokens,
    render_chat,
    strip_end_tokens,
    strip_turn_ends,
    tokenize_with_bos,
)
from plaudit.tokens import batch as token_batch, microbatch
from plaudit.tokens.batch import POSITIONS, Completion, Example, TokenBatch
from plaudit.tokens.encode import Encoder
from plaudit.tokens.microbatch import ForwardInputs, Layout
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
    content = "said" if records.words_of(turn).strip() else ""
    return replace(turn, content=content, reasoning=None, trained=True)


def _conversations(
    record: records.Record, prompt: tuple[records.Message, ...], encoder: Encoder
) -> Iterator[tuple[records.Message, ...]]:
    if isinstance(record, records.Steps | records.Prompt):
        yield prompt
        return
    turns = (encoder.answer_as_turns(record.prompt, answer) for answer in answers_of(record))
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


MAX_ENCODED_ROWS = 24
"""Rows that are encoded to see how many are too long, evenly among those that could be."""
# Where answers have room for more tokens none is drawn to see whether they end; and the prompts answered.
MAX_DRAWN, DRAWN_PROMPTS = 12, 4
MAX_TRUNCATED_SHARE = 0.5
"""From this share of rows on, what is cut is the usual row and no exception."""


def check_truncation(subject: check.PreflightSubject) -> check.Result:
    """Goes through all trained rows: none is longer than max_length, and every answer has its end. Of rows
    whose text could be too long it encodes some, evenly chosen, and counts those whose answer alone does not
    fit (they are left out) and those whose prompt is cut. It fails when that is more than half of all
    rows. Where answers are drawn, with room for twelve tokens or fewer, a few are, and it warns where all of
    them are cut."""
    if not subject.trained:
        return _check_drawn(subject)
    max_length, ends = subject.max_length, end_tokens(subject.encoder)
    for example in subject.trained:
        for answer in example.completions:
            length = len(example.prompt) + len(answer.ids)
            if length > max_length:
                return check.failed(
                    f"{example.origin}: a row of {length:,} tokens, and max_length is {max_length:,}"
                )
            if answer.ids[-1] not in ends:
                return check.failed(
                    f"{example.origin}: an answer was cut after {len(answer.ids):,} tokens, without end"
                )
    return _check_cuts(subject)


def _check_drawn(subject: check.PreflightSubject) -> check.Result:
    own = "answers are drawn, each with room of its own (draw.max_tokens)"
    room = subject.sampling.max_tokens
    rows = shortest_prompts(subject, DRAWN_PROMPTS, room) if subject.sampler and room <= MAX_DRAWN else []
    if subject.sampler is None or not rows:
        return check.not_applicable(own)
    groups = subject.sampler.generate([row.prompt.shown for row in rows], subject.sampling, n=4)
    answers = [rollout.answer for group in groups for rollout in group]
    cut = sum(not answer.ended for answer in answers)
    details = f"{cut} of {len(answers)} drawn answers are cut at {room} tokens (draw.max_tokens)"
    return check.warned(f"{details}: none ends") if cut == len(answers) else check.passed(details)


def _check_cuts(subject: check.PreflightSubject) -> check.Result:
    rows = [record for record in subject.records if not isinstance(record, Prompt)]
    slack = max(
        (_template_overhead(subject, row.record, row.example) for row in encoded_rows(subject)), default=0
    )
    possibly_long = [record for record in rows if _byte_size(record) + slack > subject.max_length]
    encoded = dropped = truncated = 0
    for record in possibly_long[:: max(1, len(possibly_long) // MAX_ENCODED_ROWS)][:MAX_ENCODED_ROWS]:
        try:
            [item] = encoded_rows(replace(subject, records=[record]))
            example = item.example
        except UserError:
            continue
        answer = max(len(completion.ids) for completion in example.completions)
        # The least that cutting leaves of a prompt: a BOS, and one token behind it.
        min_prompt_tokens = 1 + (
            subject.encoder.info.bos is not None and example.prompt[0] == subject.encoder.info.bos
        )
        encoded += 1
        if answer + min(min_prompt_tokens, len(example.prompt)) > subject.max_length:
            dropped += 1
        elif len(example.prompt) + answer > subject.max_length:
            truncated += 1
    if not encoded:
        return check.passed(f"all {len(rows):,} rows fit in {subject.max_length:,} tokens")
    details = (
        f"of {len(rows):,} rows {len(possibly_long):,} could be longer than {subject.max_length:,} tokens, "
        f"and of {encoded} of them {dropped} have an answer that does not fit and are left out, {truncated} "
        "a prompt that is cut"
    )
    affected_share = len(possibly_long) / len(rows) * (dropped + truncated) / encoded
    return check.failed(details) if affected_share > MAX_TRUNCATED_SHARE else check.passed(details)


def _template_overhead(subject: check.PreflightSubject, record: Record, example: Example) -> int:
    """Characters that the template adds to a row, as an upper bound of the tokens that it adds."""
    decode = subject.encoder.info.decode
    return max(
        len(decode((*example.prompt, *completion.ids)).encode()) - _byte_size(record)
        for completion in example.completions
    )


def _byte_size(record: Record) -> int:
    """An upper bound of a row's tokens without its template: its bytes."""
    answers = (_utf8_length(plain_text(answer)) for answer in answers_in_row(record))
    return _utf8_length(plain_text(record.prompt)) + max(answers, default=0)


def _utf8_length(text: str) -> int:
    # ASCII has as many bytes as characters, which spares the copy.
    return len(text) if text.isascii() else len(text.encode("utf-8", errors="replace"))


def check_padding_untrained(subject: check.PreflightSubject) -> check.Result:
    """Makes a batch of rows of different lengths and of one whose answer holds the padding token, or EOS
    where that pads, and lays it out packed, padded on the left and on the right: all words must lie where the
    run looks for them, be trained as before, and no place without a word be trained."""
    rows = list(subject.trained[:: max(1, len(subject.trained) // check.SAMPLE_SIZE)][: check.SAMPLE_SIZE])
    if not rows:
        end = subject.encoder.stop_ids[:1]
        rows = [
            Example(prompt=ids, completions=(_fully_trained_completion((*ids[-1:], *end)),), origin=origin)
            for origin, _, ids in encoded_bare_prompts(subject)
        ]
    if not rows:
        return check.not_applicable("there is no row to look at")
    info = subject.encoder.info
    pads = dict.fromkeys(pad for pad in (info.pad, info.eos, 0) if pad is not None)
    # The first row's prompt with an answer that says the padding token twice and goes on, and as its end.
    prompt, ids = rows[0].prompt, rows[0].completions[0].ids
    rows += [
        Example(
            prompt=prompt,
            completions=(_fully_trained_completion((*ids[:1], pad, pad, *ids[1:], pad)),),
            origin=f"an answer that says token {pad}",
        )
        for pad in pads
    ]
    batch = token_batch.batch_of(rows)
    fault = _batch_fault(rows, batch)
    for layout in get_args(Layout):
        fault = fault or _layout_fault(rows, microbatch.layout_batch(batch, layout), layout)
    if fault is not None:
        return check.failed(fault)
    places = batch.mask_NT.numel() - int(batch.length_N.sum())
    same = ", and pad is EOS" if info.pad == info.eos else ""
    return check.passed(
        f"{len(batch.origin_N)} answers with {places} places of padding: none is trained{same}"
    )


def _fully_trained_completion(ids: Sequence[int]) -> Completion:
    return Completion(ids=tuple(ids), mask=(True,) * len(ids), finished=True)


def _completions_of(rows: Iterable[Example]) -> Iterable[tuple[Example, Completion]]:
    return ((example, answer) for example in rows for answer in example.completions)


def _batch_fault(rows: Sequence[Example], batch: TokenBatch) -> str | None:
    for n, (example, answer) in enumerate(_completions_of(rows)):
        length = len(answer.ids)
        mask_T = batch.mask_NT[n].tolist()
        if any(mask_T[length:]):
            return f"{example.origin}: {sum(mask_T[length:])} places of padding are trained"
        if int(batch.length_N[n]) != length or batch.completion_NT[n, :length].tolist() != list(answer.ids):
            return f"{example.origin}: {length} tokens became {int(batch.length_N[n])}: some count as padding"
        if mask_T[:length] != list(answer.mask):
            return f"{example.origin}: {sum(answer.mask)} tokens are trained alone, {sum(mask_T)} in a batch"
    return None


def _layout_fault(rows: Sequence[Example], arrangement: ForwardInputs, layout: str) -> str | None:
    ids_S = arrangement.ids_RS.flatten()
    # One row, or three where time, rows and columns of pictures are counted: in words they are alike.
    position_XS = arrangement.position_RS.reshape(-1, len(ids_S))
    real_RS = arrangement.real_RS
    real_S = torch.ones_like(ids_S, dtype=torch.bool) if real_RS is None else real_RS.flatten()
    for n, (example, answer) in enumerate(_completions_of(rows)):
        length = len(answer.ids)
        token_T, state_T = arrangement.own_NT[n, :length], arrangement.state_NT[n, :length]
        # A token is predicted at the place before it: the first one at the prompt's last.
        before = [example.prompt[-1], *answer.ids[:-1]]
        if ids_S[token_T].tolist() != list(answer.ids) or ids_S[state_T].tolist() != before:
            return f"{example.origin}: laid out {layout}, an answer is read in other places than it stands"
        start = len(example.prompt)
        places = example.extras.get(POSITIONS)
        first = start if places is None else int(places.value.max()) + 1
        if any(
            position_S[token_T].tolist() != list(range(first, first + length)) for position_S in position_XS
        ):
            return f"{example.origin}: laid out {layout}, padding is counted as part of the text"
        if not bool(real_S[token_T].all()) or not bool(real_S[state_T].all()):
            return f"{example.origin}: laid out {layout}, words count as padding"
        if real_RS is not None and (read := int(real_RS[n].sum())) != start + length:
            real = start + length
            return f"{example.origin}: laid out {layout}, {read} tokens are read where there are {real}"
    return None


CHECKS = (
    check.Check(name="prompt-prefix", run=check_prompt_prefix, at_start=True),
    check.Check(name="template", run=check_chat_template, at_start=True),
    check.Check(name="truncation", run=check_truncation, at_start=True),
    check.Check(name="pad-not-trained", run=check_padding_untrained, at_start=True),
)
