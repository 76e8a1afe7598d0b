"""Rows with pictures: captions, pairs, thumbs; a picture that cannot be opened is named and never trained."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import combinations
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
_PICTURE = ("picture", "image", "jpg", "image_path")
_LAYOUTS = "a picture; chosen and rejected; jpg_0, jpg_1 and label_0; image_path and human_preference"


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureRow:
    """A caption with one picture, two, or none. Example: see `read_rows`."""

    origin: str
    caption: str
    pictures: tuple[str, ...] = ()
    """Where they are; of a pair the preferred one is the first."""
    label: float = 1.0
    """How much the first is preferred, ½ for a tie; of a single one 1 for good, 0 for bad."""


def read_rows(path: Path, reads: str, *, threshold: float) -> tuple[list[PictureRow], list[str]]:
    """The rows of a file as a way to learn reads them, and what is to be said of those that are left out."""
    rows, bad, passed, total = list[PictureRow](), list[str](), Counter[str](), 0
    for raw in raw_rows(path):
        total += 1
        try:
            if not isinstance(raw.value, Mapping):
                raise UserError(raw.problem.found if raw.problem else "no object")
            read = [*_rows_of(raw.value, raw.origin, path.parent, reads)]
            used = [row for row in read if isinstance(row, PictureRow)]
            for picture in (picture for row in used for picture in row.pictures):
                open_picture(picture)
        except UserError as error:
            bad.append(f"{raw.origin}: {error}")
            continue
        rows += used
        passed.update(row for row in read if isinstance(row, str))
    notes = [f"{path.name}: {len(rows)} {reads} of {total} rows"]
    notes += [f"{path.name}: {count} left out: {why}" for why, count in passed.items()]
    if bad:
        more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
        notes.append(f"{path.name}: {len(bad)} bad rows are left out: {'; '.join(bad[:5])}{more}")
    if not rows or len(bad) > threshold * total:
        limit = f"; more are bad than --threshold {threshold:g} allows" if rows else ": none is left to use"
        raise UserError(f"{'; '.join(notes)}{limit}")
    return rows, notes


def _rows_of(row: Mapping[str, Any], origin: str, folder: Path, reads: str) -> Iterator[PictureRow | str]:
    """What one row of a file becomes; a text says why a part of it is left out."""
    name = next((name for name in _CAPTION if name in row), None)
    if name is None or not isinstance(row[name], str) or not row[name].strip():
        raise UserError(f"a caption is needed that is no empty text, as one of {', '.join(_CAPTION)}")
    plain = PictureRow(origin=origin, caption=row[name].strip())
    rated = [] if reads == "captions" else _rated(row, folder)
    if not rated:
        yield plain
    if len(rated) == 1:
        yield _single(plain, *rated[0], reads)
    for both in combinations(rated, 2):
        pair = _pair(plain, row, both, ties=reads == "pairs and ties")
        if isinstance(pair, str) or reads.startswith("pairs"):
            yield pair
        else:
            yield replace(pair, pictures=pair.pictures[:1])
            if reads == "thumbs":
                yield replace(pair, pictures=pair.pictures[1:], label=0.0)


def _single(plain: PictureRow, source: str, score: float | None, reads: str) -> PictureRow | str:
    if reads.startswith("pairs"):
        raise UserError(f"no pair of pictures (rows have {_LAYOUTS})")
    if reads == "thumbs" and score is None:
        raise UserError("label should be true for a good picture, false for a bad one")
    if reads == "pictures" and score == 0:
        return "called bad"
    return replace(plain, pictures=(source,), label=1.0 if score is None else score)


def _rated(row: Mapping[str, Any], folder: Path) -> list[tuple[str, float | None]]:
    """Every picture of a row, and how much it is preferred."""
    name = next((name for name in (*_PICTURE, "images") if name in row), "picture")
    if "rejected" in row:
        parts: list[Any] = [("chosen", row.get("chosen"), 1), ("rejected", row["rejected"], 0)]
    elif "label_0" in row:
        parts = [(f"jpg_{n}", row.get(f"jpg_{n}"), row.get(f"label_{n}")) for n in (0, 1)]
    elif "human_preference" in row:
        sources, votes = row.get(name), row["human_preference"]
        if not isinstance(sources, list) or not isinstance(votes, list) or len(sources) != len(votes):
            raise UserError("human_preference should be a list of numbers, one for each of image_path")
        parts = [(name, *each) for each in zip(sources, votes, strict=True)]
    else:
        parts = [(name, row.get(name), row.get("label"))]
    for name, _, score in parts:
        if not (isinstance(score, int | float) and 0 <= score <= 1) and (len(parts) > 1 or score is not None):
            raise UserError(f"{name}: how much it is preferred should be a number from 0 to 1, not {score!r}")
    return [(_source(value, name, folder), None if s is None else float(s)) for name, value, s in parts]


def _source(value: Any, name: str, folder: Path) -> str:
    source = value if isinstance(value, str) and value else picture_text(value)
    if source is None:
        raise UserError(f"{name} should be a picture: a path, a data URL or bytes (rows have {_LAYOUTS})")
    return resolved(source, folder)


def _pair(plain: PictureRow, row: Mapping[str, Any], both: Any, *, ties: bool) -> PictureRow | str:
    (first, wins), (second, loses) = both
    if row.get("are_different") is False or row.get("has_label") is False:
        return "nobody preferred one (are_different or has_label is false)"
    if wins == loses and not ties:
        return "a tie"
    # A name tells nothing: one picture may lie in two files.
    if picture_id(first) == picture_id(second):
        return "both pictures are the same"
    share = wins / (wins + loses) if wins + loses else 0.5
    pictures = (first, second) if share >= 0.5 else (second, first)
    return replace(plain, pictures=pictures, label=max(share, 1 - share))


@lru_cache(maxsize=4096)
def pixels_of(source: str, size: int) -> UInt8[Tensor, "3 H W"]:
    """The middle square of a picture, as bytes of so many pixels a side."""
    from PIL import Image, ImageOps

    square = ImageOps.fit(open_picture(source), (size, size), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(square)).permute(2, 0, 1).contiguous()


def pictures_digest(rows: Sequence[PictureRow]) -> str:
    """The hash of all pixels, which a run that goes on wants to be the same."""
    ids = "".join(picture_id(source) for row in rows for source in row.pictures)
    return blake2b(ids.encode(), digest_size=32).hexdigest()
