"""Rows in batches: no answer loses its end for want of room, and no padding is taken for words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import torch

from plaudit.batches import pack, tokens
from plaudit.batches.pack import Arrangement, Layout
from plaudit.batches.template import answers_of
from plaudit.batches.tokens import Completion, Example, TokenBatch
from plaudit.checks.check import Check, Result, failed, not_applicable, passed
from plaudit.checks.subject import FEW, Subject
from plaudit.checks.written import all_ends, asked, written
from plaudit.errors import UserError
from plaudit.records.feedback import Prompt, Record, Steps
from plaudit.records.messages import words

LOOKED = 24
"""Rows that are encoded to see how many are too long, evenly among those that could be."""
MOST = 0.5
"""From this share of rows on, what is cut is the usual row and no exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cuts:
    """What want of room does to rows.

    Example: ``_Cuts(rows=1000, longer=40, looked=24, left_out=2, cut=20)``
    """

    rows: int
    """All that there are."""
    longer: int
    """Those whose text could be too long."""
    looked: int
    """Those of them that were looked at."""
    left_out: int
    """Of these, those whose answer does not fit."""
    cut: int
    """And those whose prompt loses its beginning."""

    @property
    def share(self) -> float:
        """Of all rows, about how many are cut or left out."""
        return self.longer / self.rows * (self.left_out + self.cut) / max(1, self.looked)


def room(subject: Subject) -> Result:
    """Goes through all trained rows: none is longer than max_length, and every answer has its end. Of rows
    whose text could be too long it encodes some, evenly chosen, and counts those whose answer alone does not
    fit (they are left out) and those whose prompt is cut. It fails when that is more than half of all
    rows."""
    if not subject.trained:
        return not_applicable("answers are drawn, each with room of its own (draw.max_tokens)")
    most, ends = subject.max_length, all_ends(subject.encoder)
    for example in subject.trained:
        for answer in example.completions:
            length = len(example.prompt) + len(answer.ids)
            if length > most:
                return failed(f"{example.origin}: a row of {length:,} tokens, and max_length is {most:,}")
            if answer.ids[-1] not in ends:
                return failed(
                    f"{example.origin}: an answer was cut after {len(answer.ids):,} tokens, without end"
                )
    cuts = _cuts(subject)
    if not cuts.longer:
        return passed(f"all {cuts.rows:,} rows fit in {most:,} tokens")
    seen = (
        f"of {cuts.rows:,} rows {cuts.longer:,} could be longer than {most:,} tokens, and of "
        f"{cuts.looked} of them {cuts.left_out} have an answer that does not fit and are left out, "
        f"{cuts.cut} a prompt that is cut"
    )
    return failed(seen) if cuts.share > MOST else passed(seen)


def _cuts(subject: Subject) -> _Cuts:
    rows = [record for record in subject.records if not isinstance(record, Prompt)]
    slack = max((_slack(subject, one.record, one.example) for one in written(subject)), default=0)
    longer = [record for record in rows if _size(record) + slack > subject.max_length]
    looked = left_out = cut = 0
    for record in longer[:: max(1, len(longer) // LOOKED)][:LOOKED]:
        try:
            example = _encoded(subject, record)
        except UserError:
            continue
        answer = max(len(one.ids) for one in example.completions)
        least = 1 + (subject.encoder.info.bos is not None and example.prompt[0] == subject.encoder.info.bos)
        looked += 1
        if answer + min(least, len(example.prompt)) > subject.max_length:
            left_out += 1
        elif len(example.prompt) + answer > subject.max_length:
            cut += 1
    return _Cuts(
        rows=len(rows), longer=len(longer) if looked else 0, looked=looked, left_out=left_out, cut=cut
    )


def _encoded(subject: Subject, record: Record) -> Example:
    [one] = written(replace(subject, records=[record]))
    return one.example


def _slack(subject: Subject, record: Record, example: Example) -> int:
    """Characters that the template adds to a row, as an upper bound of the tokens that it adds."""
    decode = subject.encoder.info.decode
    return max(
        len(decode((*example.prompt, *one.ids)).encode()) - _size(record) for one in example.completions
    )


def _size(record: Record) -> int:
    """An upper bound of a row's tokens without its template: its bytes."""
    match record:
        case Steps():
            answers = ["\n".join(record.steps)]
        case Prompt():
            answers = [""]
        case _:
            answers = [words(answer) for answer in answers_of(record)]
    return _bytes(words(record.prompt)) + max(map(_bytes, answers))


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", errors="replace"))


def pad_not_trained(subject: Subject) -> Result:
    """Makes a batch of rows of different lengths and of one whose answer holds the padding token, or EOS
    where that pads, and lays it out packed, padded on the left and on the right: all words must lie where the
    run looks for them, be trained as before, and no place without a word be trained."""
    rows = list(subject.trained[:: max(1, len(subject.trained) // FEW)][:FEW])
    if not rows:
        end = subject.encoder.stop_ids[:1]
        rows = [
            Example(prompt=ids, completions=(_all_trained((*ids[-1:], *end)),), origin=origin)
            for origin, _, ids in asked(subject)
        ]
    if not rows:
        return not_applicable("there is no row to look at")
    info = subject.encoder.info
    pads = dict.fromkeys(pad for pad in (info.pad, info.eos, 0) if pad is not None)
    rows += [_with_pad(rows[0], pad) for pad in pads]
    batch = tokens.batch_of(rows)
    fault = _batch_fault(rows, batch)
    for layout in get_args(Layout):
        fault = fault or _layout_fault(rows, batch, pack.arrange(batch, layout), layout)
    if fault is not None:
        return failed(fault)
    places = batch.mask_NT.numel() - int(batch.length_N.sum())
    same = ", and pad is EOS" if info.pad == info.eos else ""
    return passed(f"{len(batch.origin_N)} answers with {places} places of padding: none is trained{same}")


def _all_trained(ids: Sequence[int]) -> Completion:
    return Completion(ids=tuple(ids), mask=(True,) * len(ids), finished=True)


def _with_pad(example: Example, pad: int) -> Example:
    """The same prompt with an answer that says the padding token twice and goes on, and as its end."""
    ids = example.completions[0].ids
    said = _all_trained((*ids[:1], pad, pad, *ids[1:], pad))
    return replace(example, completions=(said,), origin=f"an answer that says token {pad}")


def _told(rows: Iterable[Example]) -> Iterable[tuple[Example, Completion]]:
    return ((example, answer) for example in rows for answer in example.completions)


def _batch_fault(rows: Sequence[Example], batch: TokenBatch) -> str | None:
    for n, (example, answer) in enumerate(_told(rows)):
        length = len(answer.ids)
        mask_T = batch.mask_NT[n].tolist()
        if any(mask_T[length:]):
            return f"{example.origin}: {sum(mask_T[length:])} places of padding are trained"
        if int(batch.length_N[n]) != length or batch.completion_NT[n, :length].tolist() != list(answer.ids):
            return f"{example.origin}: {length} tokens became {int(batch.length_N[n])}: some count as padding"
        if mask_T[:length] != list(answer.mask):
            return f"{example.origin}: {sum(answer.mask)} tokens are trained alone, {sum(mask_T)} in a batch"
    return None


def _layout_fault(rows: Sequence[Example], batch: TokenBatch, laid: Arrangement, layout: str) -> str | None:
    ids_S, position_S = laid.ids_RS.flatten(), laid.position_RS.flatten()
    real_S = torch.ones_like(ids_S, dtype=torch.bool) if laid.real_RS is None else laid.real_RS.flatten()
    for n, (example, answer) in enumerate(_told(rows)):
        length = len(answer.ids)
        own_T, state_T = laid.own_NT[n, :length], laid.state_NT[n, :length]
        before = [example.prompt[-1], *answer.ids[:-1]]
        if ids_S[own_T].tolist() != list(answer.ids) or ids_S[state_T].tolist() != before:
            return f"{example.origin}: laid out {layout}, an answer is read in other places than it stands"
        start = len(example.prompt)
        if position_S[own_T].tolist() != list(range(start, start + length)):
            return f"{example.origin}: laid out {layout}, padding is counted as part of the text"
        if not bool(real_S[own_T].all()) or not bool(real_S[state_T].all()):
            return f"{example.origin}: laid out {layout}, words count as padding"
    return None if laid.real_RS is None else _padding_fault(rows, laid, layout)


def _padding_fault(rows: Sequence[Example], laid: Arrangement, layout: str) -> str | None:
    assert laid.real_RS is not None, "a layout with padding"
    for n, (example, answer) in enumerate(_told(rows)):
        seen, real = int(laid.real_RS[n].sum()), len(example.prompt) + len(answer.ids)
        if seen != real:
            return f"{example.origin}: laid out {layout}, {seen} tokens are read where there are {real}"
    return None


CHECKS = (
    Check(
        name="room",
        proves="No answer is cut so that it cannot end, no row is too long, and few rows lose a part.",
        matters="An answer that is cut teaches the model to break off, or never to stop (torchtune#2967). "
        "Where pairs are cut by their longer answer, the shorter one is left empty and its loss is not a "
        "number (TRL#6548). Here a prompt gives way from its start, and an answer that does not fit is left "
        "out.",
        mend="Raise --max-length, shorten the answers, or leave out the longest rows.",
        look=room,
        at_start=True,
    ),
    Check(
        name="pad-not-trained",
        proves="In a batch no place of padding is trained, and no token of an answer is taken for padding.",
        matters="Shorter rows are filled up to the longest. Where padding is found by its token's number, a "
        "model whose padding is its EOS loses its ends, or is scored at the wrong place: TRL#3750, "
        "transformers#35352. Here lengths decide, so the number does not matter.",
        mend="This is a fault of plaudit's own batches and not of your rows: please report it with the row "
        "that is named.",
        look=pad_not_trained,
        at_start=True,
    ),
)
"""Checks of rows in batches."""
