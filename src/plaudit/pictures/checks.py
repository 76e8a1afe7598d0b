"""Checks of pictures: each has its places among the tokens, and what is said of it hangs on what it shows."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from plaudit.data.records import picture_parts, pictures
from plaudit.files.pictures import open_picture
from plaudit.models.verify import tolerance
from plaudit.preflight import check
from plaudit.preflight.logprobs import token_scores
from plaudit.preflight.tokenization import EncodedRow, encoded_rows, render_marks
from plaudit.tokens.batch import POSITIONS, Example, batch_of

NONE_SHOWN = "the first rows show no pictures"


def check_places(subject: check.PreflightSubject) -> check.Result:
    """Whether the processor of the model's folder makes the same tokens of words and pictures."""
    rows = [row for row in encoded_rows(subject) if pictures(row.record.prompt)]
    if not rows:
        return check.not_applicable(NONE_SHOWN)
    processor: Any = getattr(subject.encoder.read_extras, "processor", None)
    if not hasattr(processor, "image_processor"):
        return check.not_applicable("the folder's processor is not whole here: it needs torchvision")
    for row in rows:
        if (fault := _places_fault(subject, processor, row)) is not None:
            return check.failed(f"{row.record.origin}: {fault}")
    count = sum(len(pictures(row.record.prompt)) for row in rows)
    return check.passed(
        f"{count} pictures of {len(rows)} rows have the places that the model's processor gives them"
    )


def _places_fault(subject: check.PreflightSubject, processor: Any, row: EncodedRow) -> str | None:
    assert not isinstance(row.prompt, str), "a picture stands in a turn"
    text = render_marks(subject.encoder, row.prompt)
    sources = [part.source or "" for part in picture_parts(row.prompt)]
    made = processor(
        text=text, images=[[open_picture(source) for source in sources]], add_special_tokens=False
    )
    expected, bos = made["input_ids"][0], subject.encoder.info.bos
    prompt = list(row.example.prompt)
    if list(expected) == prompt or [bos, *expected] == prompt:
        return None
    return (
        f"its prompt has {len(prompt)} tokens, and the processor makes {len(expected)} of it, or other ones"
    )


def check_matters(subject: check.PreflightSubject) -> check.Result:
    """Whether another row's pictures change what the model says of answers."""
    model = subject.policy or subject.scorer
    pairs = list(_swapped(subject.trained[: check.SAMPLE_SIZE * 4]))[: check.SAMPLE_SIZE]
    if model is None or not pairs:
        return check.not_applicable("no two of the first rows show different pictures of one size")
    first, second = (batch_of([pair[side] for pair in pairs]).to(model.device) for side in (0, 1))
    with torch.no_grad():
        gap_NT = token_scores(model, first) - token_scores(model, second)
    gap = float(gap_NT.abs().masked_fill(~first.mask_NT, 0.0).max())
    details = f"with another row's picture scores of {len(pairs)} rows change by up to {gap:.2g}"
    return (
        check.passed(details) if gap > tolerance(model) / 10 else check.failed(f"{details}: it is not seen")
    )


def _swapped(examples: Sequence[Example]) -> Iterator[tuple[Example, Example]]:
    """Rows, each with itself shown the pictures of the next one that has other ones of the same size."""
    pictured = [example for example in examples if example.prompt_extras]
    for n, example in enumerate(pictured):
        for other in (*pictured[n + 1 :], *pictured[:n]):
            extras = {name: extra for name, extra in other.prompt_extras.items() if name != POSITIONS}
            before = {name: example.extras[name] for name in extras if name in example.extras}
            alike = before.keys() == extras.keys() and all(
                before[name].value.shape == extras[name].value.shape for name in before
            )
            if alike and before != extras:
                yield example, replace(example, extras={**example.extras, **extras})
                break
