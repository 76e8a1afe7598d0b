"""What a model takes beside tokens (pictures, say), along a declared axis, so that a row keeps its own.

An extra belongs to a prompt, to each of its completions, or is a list of items of the prompt, as many as it
has. A batch stacks those of prompts and completions and puts items one behind the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from plaudit.data.records import Text
from plaudit.errors import UserError

Axis = Literal["prompt", "completion", "item"]
"""What the rows of an extra are: one for a prompt, one for each completion, any number for a prompt."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Extra:
    """What one row hands to the model under a name; two are equal when every bit is.

    Example: ``Extra(value=torch.zeros(2, 3, 224, 224), axis="item")``: the prompt shows two pictures.
    """

    value: Tensor
    """The numbers, never changed afterwards: ``[…]`` of a prompt, ``[K, …]`` of K completions, ``[I, …]``."""
    axis: Axis
    """What its rows are."""
    pad: bool | int | float | None = None
    """What fills up shorter rows of a batch on the right; None: all have the same shape. Not for items."""
    _id: str | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Take an array too."""
        object.__setattr__(self, "value", torch.as_tensor(self.value))
        if self.axis != "prompt" and self.value.ndim == 0:
            raise UserError(
                f"an extra of axis {self.axis!r} needs a row for each {self.axis}, not one number"
            )

    @property
    def id(self) -> str:
        """The hash of its bits, type, shape and axis."""
        if self._id is None:
            value = self.value.detach().cpu().contiguous()
            bits = value.reshape(-1).view(torch.uint8).numpy()
            facts = f"{self.axis}/{value.dtype}/{tuple(value.shape)}/{self.pad!r}"
            object.__setattr__(self, "_id", digest(facts, bits.tobytes()))
        assert self._id is not None
        return self._id

    def select(self, rows: Sequence[int]) -> Extra:
        """The same of these completions only."""
        return replace(self, value=self.value[list(rows)])

    def __eq__(self, other: object) -> bool:
        """Whether every bit, the type, the shape and the axis are the same."""
        return isinstance(other, Extra) and self.id == other.id

    def __hash__(self) -> int:
        """Equal extras have equal hashes."""
        return hash(self.id)


Extras = Mapping[str, Extra]
"""What a row hands to the model beside tokens, by the name of the model's argument."""
NO_EXTRAS: Extras = {}
"""Tokens alone."""
ExtrasReader = Callable[[Text], tuple[Text, Extras]]
"""From a prompt to its words, with whatever stands there for a picture, and what they are shown with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchExtra:
    """One extra of all rows of a batch.

    Example: ``batch.extras["pixel_values"].value`` is ``[I, 3, 224, 224]`` for the I pictures of all prompts.
    """

    value: Tensor
    """``[P, …]`` of prompts, ``[N, …]`` of completions, ``[I, …]`` of items."""
    axis: Axis
    """What its rows are."""
    prompt_I: Int[Tensor, " I"] | None
    """The prompt of each item; None where rows are prompts or completions."""

    def to(self, device: torch.device | str) -> BatchExtra:
        """The same on another device."""
        prompt_I = None if self.prompt_I is None else self.prompt_I.to(device)
        return BatchExtra(value=self.value.to(device), axis=self.axis, prompt_I=prompt_I)

    def rows_for(self, prompts: Sequence[int]) -> Tensor:
        """What a model is handed that reads these prompts in this order, each as often as it is named.

        Completions are read in their own order, whatever is computed once.
        """
        device = self.value.device
        if self.axis == "completion":
            return self.value
        if self.prompt_I is None:
            return self.value[torch.tensor(prompts, device=device)]
        return self.value[torch.cat([(self.prompt_I == p).nonzero()[:, 0] for p in prompts])]


def digest(*parts: bytes | str) -> str:
    """A content hash of 128 bits, the same in every process; where one part ends and the next begins counts.

    >>> digest("ab", "c") == digest("a", "bc")
    False
    """
    state = blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def extras_digest(extras: Extras, axes: Sequence[Axis]) -> str:
    """The hash of the extras of these axes; empty where there are none."""
    named = sorted((name, extra.id) for name, extra in extras.items() if extra.axis in axes)
    return digest(*(part for pair in named for part in pair)) if named else ""


def collate_extras(rows: Sequence[Extras], origins: Sequence[str]) -> dict[str, BatchExtra]:
    """The extras of a batch's prompts with their completions; ``origins`` name the rows in errors.

    A row without items has none of them; an extra of prompts or completions has to be there in every row.
    """
    names = dict.fromkeys(name for extras in rows for name in extras)
    return {name: _collate(name, [extras.get(name) for extras in rows], origins) for name in names}


def _collate(name: str, column: Sequence[Extra | None], origins: Sequence[str]) -> BatchExtra:
    first = next(extra for extra in column if extra is not None)
    for extra, origin in zip(column, origins, strict=True):
        where = f"{origin or 'a row'}: the extra {name!r}"
        if extra is None and first.axis != "item":
            raise UserError(f"{where} is missing, and other rows of its batch have it; give it to all rows")
        if extra is not None and (extra.axis, extra.value.dtype) != (first.axis, first.value.dtype):
            raise UserError(
                f"{where} is of axis {extra.axis!r} in {extra.value.dtype}, and in another row of its batch "
                f"of axis {first.axis!r} in {first.value.dtype}; declare it alike in all rows"
            )
    present = [(p, extra.value) for p, extra in enumerate(column) if extra is not None]
    if first.axis == "prompt":
        return BatchExtra(
            value=_joined(name, [value[None] for _, value in present], first.pad),
            axis="prompt",
            prompt_I=None,
        )
    value = _joined(name, [value for _, value in present], None if first.axis == "item" else first.pad)
    items = torch.tensor([p for p, rows in present for _ in rows], dtype=torch.int64)
    return BatchExtra(value=value, axis=first.axis, prompt_I=items if first.axis == "item" else None)


def _joined(name: str, rows: Sequence[Tensor], pad: bool | int | float | None) -> Tensor:
    """The rows one behind the other, each filled up on the right to the shape of the largest."""
    shapes = {tuple(value.shape[1:]) for value in rows}
    if len(shapes) == 1:
        return torch.cat(list(rows))
    if pad is None or len({len(shape) for shape in shapes}) > 1:
        raise UserError(
            f"the extra {name!r} has rows of the shapes {sorted(shapes)} in one batch; give them the same "
            "shape, or declare what fills them up (pad), which items cannot have"
        )
    largest = [max(sizes) for sizes in zip(*shapes, strict=True)]
    joined = rows[0].new_full((sum(map(len, rows)), *largest), pad)
    start = 0
    for value in rows:
        joined[(slice(start, start + len(value)), *map(slice, value.shape[1:]))] = value
        start += len(value)
    return joined
