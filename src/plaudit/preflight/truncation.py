"""Rows in batches: no answer loses its end for want of room, and no padding is taken for words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import get_args

import torch

from plaudit.data.records import Prompt, Record, plain_text
from plaudit.errors import UserError
from plaudit.preflight import check
from plaudit.preflight.samples import answers_in_row, shortest_prompts
from plaudit.preflight.tokenization import encoded_bare_prompts, encoded_rows, end_tokens
from plaudit.tokens import batch as token_batch, microbatch
from plaudit.tokens.batch import Completion, Example, TokenBatch
from plaudit.tokens.microbatch import ForwardInputs, Layout

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
    groups = subject.sampler.generate([row.prompt.prompt for row in rows], subject.sampling, n=4)
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
    ids_S, position_S, real_RS = (
        arrangement.ids_RS.flatten(),
        arrangement.position_RS.flatten(),
        arrangement.real_RS,
    )
    real_S = torch.ones_like(ids_S, dtype=torch.bool) if real_RS is None else real_RS.flatten()
    for n, (example, answer) in enumerate(_completions_of(rows)):
        length = len(answer.ids)
        token_T, state_T = arrangement.own_NT[n, :length], arrangement.state_NT[n, :length]
        # A token is predicted at the place before it: the first one at the prompt's last.
        before = [example.prompt[-1], *answer.ids[:-1]]
        if ids_S[token_T].tolist() != list(answer.ids) or ids_S[state_T].tolist() != before:
            return f"{example.origin}: laid out {layout}, an answer is read in other places than it stands"
        start = len(example.prompt)
        if position_S[token_T].tolist() != list(range(start, start + length)):
            return f"{example.origin}: laid out {layout}, padding is counted as part of the text"
        if not bool(real_S[token_T].all()) or not bool(real_S[state_T].all()):
            return f"{example.origin}: laid out {layout}, words count as padding"
        if real_RS is not None and (read := int(real_RS[n].sum())) != start + length:
            real = start + length
            return f"{example.origin}: laid out {layout}, {read} tokens are read where there are {real}"
    return None


CHECKS = (
    check.Check(name="truncation", run=check_truncation, at_start=True),
    check.Check(name="pad-not-trained", run=check_padding_untrained, at_start=True),
)
