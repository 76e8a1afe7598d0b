"""Rows with pictures: captions, pairs, thumbs; a picture that cannot be opened is named and never trained."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from plaudit.data.files import raw_rows
from plaudit.errors import UserError
from plaudit.files.pictures import open_picture, picture_id, picture_text, resolved

_CAPTION = ("caption", "prompt", "text")
_PICTURE = ("picture", "image", "jpg", "image_path", "jpg_0")
_IN_MEMORY = 2**30
"""Bytes of pixels up to which all pictures stay in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureRow:
    """A caption with one picture, two, or none.

    Example: ``PictureRow(origin="pairs.jsonl:3", caption="a red ring", pictures=("a.png", "b.png"), label=1.0)``
    """

    origin: str
    caption: str
    pictures: tuple[str, ...] = ()
    """Where they are; of a pair the preferred one is the first."""
    label: float = 1.0
    """How much the first is preferred, ½ for a tie; of a single one 1 for good, 0 for bad."""


class _UnfitError(ValueError):
    """What is wrong with a row, in words."""


def read_rows(path: Path, reads: str, *, threshold: float) -> tuple[list[PictureRow], list[str]]:
    """The rows of a file as this way to learn reads them, and what is to be said of the others."""
    rows, bad, passed, total = list[PictureRow](), list[str](), Counter[str](), 0
    for raw in raw_rows(path):
        total += 1
        try:
            if not isinstance(raw.value, Mapping):
                raise _UnfitError(raw.problem.found if raw.problem else "no object")
            rows += _refuse_damaged(_READERS[reads](raw.value, raw.origin, path.parent), passed)
        except (_UnfitError, UserError) as error:
            bad.append(f"{raw.origin}: {error}")
    notes = [f"{path.name}: {len(rows)} {reads} of {total} rows"]
    notes += [f"{path.name}: {count} rows are left out: {why}" for why, count in passed.items()]
    if bad:
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        notes.append(f"{path.name}: {len(bad)} bad rows are left out: {'; '.join(bad[:5])}{more}")
    if not rows or len(bad) > threshold * total:
        limit = "" if not rows else f", more than --threshold {threshold:g} allows"
        raise UserError("; ".join([f"{path}: {len(rows)} rows can be used{limit}", *notes[1:]]))
    return rows, notes


def _refuse_damaged(rows: Iterator[PictureRow | str], passed: Counter[str]) -> Iterator[PictureRow]:
    for row in rows:
        if isinstance(row, str):
            passed[row] += 1
            continue
        for picture in row.pictures:
            open_picture(picture)
        # A name tells nothing: one picture may lie in two files.
        if len(row.pictures) == 2 and picture_id(row.pictures[0]) == picture_id(row.pictures[1]):
            passed["both pictures are the same"] += 1
            continue
        yield row


def _caption(row: Mapping[str, Any]) -> str:
    name = next((name for name in _CAPTION if name in row), None)
    if name is None:
        raise _UnfitError(f"no caption (looked for {', '.join(_CAPTION)})")
    if not isinstance(row[name], str) or not row[name].strip():
        raise _UnfitError(f"{name} should be a text that is not empty")
    return row[name].strip()


def _picture(value: Any, name: str, folder: Path) -> str:
    source = value if isinstance(value, str) and value else picture_text(value)
    if source is None:
        raise _UnfitError(f"{name} should be a picture: a path, a data URL or bytes")
    return resolved(source, folder)


def _captions(row: Mapping[str, Any], origin: str, folder: Path) -> Iterator[PictureRow | str]:
    yield PictureRow(origin=origin, caption=_caption(row))


def _pairs(
    row: Mapping[str, Any], origin: str, folder: Path, *, ties: bool = False
) -> Iterator[PictureRow | str]:
    caption = _caption(row)
    for (name, first, wins), (other, second, loses) in _rated_pairs(row):
        if row.get("are_different") is False or row.get("has_label") is False:
            yield "nobody preferred one (are_different or has_label is false)"
        elif wins == loses and not ties:
            yield "a tie"
        else:
            pictures = _picture(first, name, folder), _picture(second, other, folder)
            label = wins / (wins + loses) if wins + loses else 0.5
            pictures = pictures if label >= 0.5 else pictures[::-1]
            yield PictureRow(origin=origin, caption=caption, pictures=pictures, label=max(label, 1 - label))


def _rated_pairs(row: Mapping[str, Any]) -> Iterator[tuple[tuple[str, Any, float], ...]]:
    """Two pictures, each with its name and how much it is preferred."""
    if "chosen" in row and "rejected" in row:
        yield ("chosen", row["chosen"], 1.0), ("rejected", row["rejected"], 0.0)
    elif "jpg_0" in row and "label_0" in row:
        yield tuple((f"jpg_{n}", row.get(f"jpg_{n}"), _number(row, f"label_{n}")) for n in (0, 1))
    elif "human_preference" in row:
        votes, name = row["human_preference"], next(n for n in ("image_path", "image", "images") if n in row)
        if not isinstance(votes, list) or len(votes) != len(row[name]) or len(votes) < 2:
            raise _UnfitError(f"human_preference should be a number for each of {name}")
        rated = [(name, *each) for each in zip(row[name], map(float, votes), strict=True)]
        yield from ((one, two) for at, one in enumerate(rated) for two in rated[at + 1 :])
    else:
        raise _UnfitError(
            "no pair (chosen and rejected; jpg_0, jpg_1, label_0; image_path, human_preference)"
        )


def _number(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name, 1 - row["label_0"] if isinstance(row["label_0"], int | float) else None)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _UnfitError(f"{name} should be a number from 0 to 1")
    return float(value)


def _thumbs(row: Mapping[str, Any], origin: str, folder: Path) -> Iterator[PictureRow | str]:
    name = next((name for name in _PICTURE if name in row), None)
    if isinstance(row.get("label"), bool | int) and name is not None:
        picture, label = _picture(row[name], name, folder), float(row["label"])
        yield PictureRow(origin=origin, caption=_caption(row), pictures=(picture,), label=label)
        return
    for pair in _pairs(row, origin, folder):
        if isinstance(pair, str):
            yield pair
        else:
            yield from (replace(pair, pictures=(x,), label=y) for x, y in zip(pair.pictures, (1.0, 0.0)))


def _singles(row: Mapping[str, Any], origin: str, folder: Path) -> Iterator[PictureRow | str]:
    # Of a pair, or of a picture that is called good, what people preferred is a demonstration.
    rated = isinstance(row.get("label"), bool | int) or not {
        "rejected",
        "label_0",
        "human_preference",
    }.isdisjoint(row)
    name = None if rated else next((name for name in _PICTURE if name in row), None)
    if name is None:
        for single in _thumbs(row, origin, folder):
            if isinstance(single, str) or single.label:
                yield single
    else:
        yield PictureRow(origin=origin, caption=_caption(row), pictures=(_picture(row[name], name, folder),))


_READERS: Mapping[str, Callable[..., Iterator[PictureRow | str]]] = {
    "pictures": _singles,
    "pairs": _pairs,
    "pairs and ties": partial(_pairs, ties=True),
    "thumbs": _thumbs,
    "captions": _captions,
}


class Pixels:
    """Pictures as a model of one size takes them: their middle square, as bytes; kept where there is room."""

    def __init__(self, rows: Sequence[PictureRow], size: int) -> None:
        self._size = size
        count = len({source for row in rows for source in row.pictures})
        self._kept: dict[str, Tensor] | None = {} if count * 3 * size**2 < _IN_MEMORY else None

    def __call__(self, sources: Sequence[str]) -> UInt8[Tensor, "N 3 H W"]:
        return torch.stack([self._one(source) for source in sources])

    def _one(self, source: str) -> Tensor:
        from PIL import Image, ImageOps

        if self._kept is not None and source in self._kept:
            return self._kept[source]
        square = ImageOps.fit(open_picture(source), (self._size, self._size), Image.Resampling.BICUBIC)
        pixels = torch.from_numpy(np.array(square)).permute(2, 0, 1).contiguous()
        if self._kept is not None:
            self._kept[source] = pixels
        return pixels


def pictures_digest(rows: Sequence[PictureRow]) -> str:
    """The hash of all pixels, which a run that goes on wants to be the same."""
    ids = (picture_id(source) for row in rows for source in row.pictures)
    return blake2b("".join(ids).encode(), digest_size=32).hexdigest()
