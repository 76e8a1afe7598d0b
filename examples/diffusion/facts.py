"""What a picture shows of the picture world: of each cell, the thing that it looks most like."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from plaudit.errors import UserError
from plaudit.pictures.world.scenes import COLOURS, PLACES, SHAPES, SIZES, Scene, Thing, render

_KINDS = (SIZES, COLOURS, SHAPES, sorted(PLACES, key=len, reverse=True))
_PHRASE = re.compile("an? " + " ".join(f"({'|'.join(words)})" for words in _KINDS))


def fidelity(captions: Sequence[str], pictures: UInt8[Tensor, "N 3 H W"]) -> list[float]:
    """How much of each caption is in its picture, from 0 to 1: of every thing that is wanted or there, the
    share of four facts that hold (that it is there, its size, colour and shape)."""
    both = zip(captions, _things_there(pictures), strict=True)
    return [_share(things_of(caption), there) for caption, there in both]


def things_of(caption: str) -> Mapping[int, Thing]:
    """What a caption of the picture world says is there, by cells; signs are passed over.

    >>> things_of("a big orange star in the middle")[4].name
    'orange star'
    """
    facts = [
        (size, colour, shape, PLACES.index(place)) for size, colour, shape, place in _PHRASE.findall(caption)
    ]
    if not facts:
        raise UserError(f"no caption of the picture world, whose things could be looked for: {caption[:80]}")
    return {
        cell: Thing(size=size, colour=colour, shape=shape, cell=cell) for size, colour, shape, cell in facts
    }


def _share(wanted: Mapping[int, Thing], there: Mapping[int, Thing]) -> float:
    both = [(thing, there[cell]) for cell, thing in wanted.items() if cell in there]
    facts = ("size", "colour", "shape")
    right = sum(1 + sum(getattr(x, fact) == getattr(y, fact) for fact in facts) for x, y in both)
    return right / (4 * len({*wanted, *there}))


def _things_there(pictures: UInt8[Tensor, "N 3 H W"]) -> list[dict[int, Thing]]:
    looks, templates = _templates(pictures.shape[-1])
    pairs = zip(_cells(pictures), templates, strict=True)
    nearest = zip(*(torch.cdist(cell, like).argmin(1).tolist() for cell, like in pairs), strict=True)
    # The first template is an empty cell.
    return [{cell: looks[at - 1] for cell, at in enumerate(cells) if at} for cells in nearest]


@lru_cache(maxsize=4)
def _templates(size: int) -> tuple[list[Thing], list[Tensor]]:
    """Every thing, and for each cell its pixels when it is empty or shows one of them."""
    names = [(size, colour, shape) for size in SIZES for colour in COLOURS for shape in SHAPES]
    looks = [Thing(size=size, colour=colour, shape=shape, cell=0) for size, colour, shape in names]
    scenes = [Scene(things=()), *(Scene(things=tuple(replace(x, cell=n) for n in range(9))) for x in looks)]
    pictures = np.stack([np.array(render(scene, size)) for scene in scenes])
    return looks, _cells(torch.from_numpy(pictures).permute(0, 3, 1, 2))


def _cells(pictures: UInt8[Tensor, "N 3 H W"]) -> list[Tensor]:
    edges = [round(pictures.shape[-1] * edge / 3) for edge in range(4)]
    spans = [slice(*edges[n : n + 2]) for n in range(3)]
    return [pictures[:, :, row, column].flatten(1).float() for row in spans for column in spans]
