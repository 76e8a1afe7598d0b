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
    """The first rows with pictures go through the processor of the model's own folder as a whole, words and
    pictures at once. Its tokens must be the prompt's, so that every picture has as many places as the tower
    makes features, in order, and none was cut."""
    rows = [row for row in encoded_rows(subject) if pictures(row.record.prompt)]
    if not rows:
        return check.not_applicable(NONE_SHOWN)
    processor: Any = getattr(subject.encoder.read_extras, "processor", None)
    if not hasattr(processor, "image_processor"):
        return check.not_applicable("the folder's processor is not whole here: it needs torchvision")
    for row in rows:
        if (fault := _places_fault(subject, processor, row)) is not None:
            return check.failed(f"{row.record.origin}: {fault}")
    shown = sum(len(pictures(row.record.prompt)) for row in rows)
    return check.passed(
        f"{shown} pictures of {len(rows)} rows have the places that the model's processor gives them"
    )


def _places_fault(subject: check.PreflightSubject, processor: Any, row: EncodedRow) -> str | None:
    assert not isinstance(row.prompt, str), "a picture stands in a turn"
    text = render_marks(subject.encoder, row.prompt)
    sources = [part.source or "" for part in picture_parts(row.prompt)]
    made = processor(
        text=text, images=[[open_picture(source) for source in sources]], add_special_tokens=False
    )
    expected, bos = made["input_ids"][0], subject.encoder.info.bos
    own = list(row.example.prompt)
    if list(expected) == own or [bos, *expected] == own:
        return None
    return f"its prompt has {len(own)} tokens, and the processor makes {len(expected)} of it, or other ones"


def check_seen(subject: check.PreflightSubject) -> check.Result:
    """What the model says of the answers of a few rows, with their own pictures and with those of another
    row. Were it the same, the model would not see them."""
    model = subject.policy or subject.scorer
    pairs = list(_swapped(subject.trained[: check.SAMPLE_SIZE * 4]))[: check.SAMPLE_SIZE]
    if model is None or not pairs:
        return check.not_applicable("no two of the first rows show different pictures of one size")
    own, other = (batch_of([pair[side] for pair in pairs]).to(model.device) for side in (0, 1))
    with torch.no_grad():
        gap_NT = (token_scores(model, own) - token_scores(model, other)).abs().masked_fill(~own.mask_NT, 0.0)
    gap = float(gap_NT.max())
    details = f"with another row's picture scores of {len(pairs)} rows change by up to {gap:.2g}"
    return (
        check.passed(details) if gap > tolerance(model) / 10 else check.failed(f"{details}: it is not seen")
    )


def _swapped(examples: Sequence[Example]) -> Iterator[tuple[Example, Example]]:
    """Rows, each with itself shown the pictures of the next one that has other ones of the same size."""
    shown = [example for example in examples if example.prompt_extras]
    for n, example in enumerate(shown):
        for other in (*shown[n + 1 :], *shown[:n]):
            extras = {name: extra for name, extra in other.prompt_extras.items() if name != POSITIONS}
            own = {name: example.extras[name] for name in extras if name in example.extras}
            alike = own.keys() == extras.keys() and all(
                own[name].value.shape == extras[name].value.shape for name in own
            )
            if alike and own != extras:
                yield example, replace(example, extras={**example.extras, **extras})
                break


CHECKS = (
    check.Check(name="picture-places", run=check_places, at_start=True),
    check.Check(name="picture-seen", run=check_seen, at_start=True),
)
