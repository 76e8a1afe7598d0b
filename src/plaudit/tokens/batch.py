"""The token batch of the whole project: a set of prompts and, for each, its completions.

A completion token is *trained* where the mask is True: the policy chose it, its end-of-turn token
included. Every per-token tensor is aligned to completions, ``[N, T]``: no shifts, no ``-100``.

A row is known by its content hash, never by its tokens alone: two prompts of equal tokens may show different
pictures. Where a row came from is no part of what it is.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from plaudit.errors import UserError
from plaudit.tokens.extras import (
    BatchExtra,
    Extra,
    Extras,
    collate_extras,
    digest,
    extras_digest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer as tokens.

    Example: ``Completion(ids=(9, 4, 2), mask=(True, True, True), finished=True)``
    """

    ids: tuple[int, ...]
    """The tokens, from the first one after the prompt to the end-of-turn token."""
    mask: tuple[bool, ...]
    """True where the policy chose the token (its end-of-turn token too)."""
    finished: bool
    """True when the answer ended by itself; False when it was cut."""

    def __post_init__(self) -> None:
        """Refuse what no model can score."""
        if not self.ids:
            raise UserError(
                "a completion needs at least one token; an empty answer still has its end of turn"
            )
        if len(self.ids) != len(self.mask):
            raise UserError(f"a completion of {len(self.ids)} tokens has a mask of {len(self.mask)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One prompt and its K completions, as tokens.

    Example: ``Example(prompt=(1, 5, 6), completions=(Completion(ids=(7, 2), ...),), origin="a.jsonl:3")``
    """

    prompt: tuple[int, ...]
    """The prompt's tokens: exactly those that the model sees before it answers; never empty."""
    completions: tuple[Completion, ...]
    """The K answers."""
    origin: str = ""
    """File and row."""
    extras: Extras = field(default_factory=dict[str, Extra], hash=False)
    """What the model takes beside tokens, by the name of its argument."""
    _prompt_id: str | None = field(default=None, init=False, repr=False, compare=False)
    _completion_ids: tuple[str, ...] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse a prompt without a state to predict the first answered token from."""
        if not self.prompt:
            where = f"{self.origin}: " if self.origin else ""
            raise UserError(
                f"{where}the prompt has no tokens, so nothing predicts the answer's first one; "
                "write a prompt, or use a tokenizer that begins every text with a token"
            )
        for name, extra in self.extras.items():
            if extra.axis == "completion" and len(extra.value) != len(self.completions):
                raise UserError(
                    f"{self.origin or 'a row'}: the extra {name!r} has {len(extra.value)} rows for "
                    f"{len(self.completions)} completions; give it one for each"
                )

    @property
    def id(self) -> str:
        """The content hash of prompt, completions, masks and extras; ``origin`` is no part of it."""
        return digest(self.prompt_id, *self.completion_ids)

    @property
    def prompt_id(self) -> str:
        """The content hash of the prompt alone, what it shows beside tokens included."""
        if self._prompt_id is None:
            object.__setattr__(self, "_prompt_id", prompt_id(self.prompt, self.extras))
        assert self._prompt_id is not None
        return self._prompt_id

    @property
    def completion_ids(self) -> tuple[str, ...]:
        """The content hash of each completion together with its prompt."""
        if self._completion_ids is None:
            ids = tuple(
                digest(
                    self.prompt_id,
                    token_bytes(completion.ids),
                    bytes(completion.mask),
                    bytes([completion.finished]),
                    extras_digest(self.completion_extras([k]), ("completion",)),
                )
                for k, completion in enumerate(self.completions)
            )
            object.__setattr__(self, "_completion_ids", ids)
        assert self._completion_ids is not None
        return self._completion_ids

    @property
    def prompt_extras(self) -> Extras:
        """The extras of the prompt, its items included."""
        return {name: extra for name, extra in self.extras.items() if extra.axis != "completion"}

    def completion_extras(self, indices: Sequence[int]) -> Extras:
        """The extras of these completions."""
        return {
            name: extra.select(indices) for name, extra in self.extras.items() if extra.axis == "completion"
        }

    def select(self, indices: Sequence[int]) -> Example:
        """The same prompt with only these completions, in this order."""
        return self.with_completions_of(self, indices)

    def with_completions_of(self, other: Example, indices: Sequence[int]) -> Example:
        """This prompt with these completions of another row."""
        return replace(
            self,
            completions=tuple(other.completions[k] for k in indices),
            extras={**self.prompt_extras, **other.completion_extras(indices)},
        )

    @property
    def trained_tokens(self) -> int:
        """How many tokens of all completions are trained."""
        return sum(sum(completion.mask) for completion in self.completions)

    @property
    def tokens(self) -> int:
        """How many tokens have to be computed when the prompt is shared."""
        return len(self.prompt) + sum(len(completion.ids) for completion in self.completions)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatch:
    """P prompts and their N completions, right-padded with zeros.

    Example: ``batch_of([example, example])`` with K = 2 each has ``prompt_PL`` of two rows and
    ``completion_NT`` of four, ``group_N = [0, 0, 1, 1]``.
    """

    prompt_PL: Int[Tensor, "P L"]
    """Prompt tokens."""
    prompt_length_P: Int[Tensor, " P"]
    """How many of them are real."""
    completion_NT: Int[Tensor, "N T"]
    """Completion tokens."""
    length_N: Int[Tensor, " N"]
    """How many of them are real."""
    mask_NT: Bool[Tensor, "N T"]
    """True where the policy chose the token."""
    group_N: Int[Tensor, " N"]
    """Which prompt each completion answers; never falls from left to right."""
    finished_N: Bool[Tensor, " N"]
    """Whether each completion ended by itself."""
    origin_N: tuple[str, ...]
    """File and row of each completion."""
    extras: Mapping[str, BatchExtra] = field(default_factory=dict[str, BatchExtra])
    """What the model takes beside tokens, by the name of its argument."""

    def to(self, device: torch.device | str) -> TokenBatch:
        """The same batch on another device."""
        return TokenBatch(
            prompt_PL=self.prompt_PL.to(device),
            prompt_length_P=self.prompt_length_P.to(device),
            completion_NT=self.completion_NT.to(device),
            length_N=self.length_N.to(device),
            mask_NT=self.mask_NT.to(device),
            group_N=self.group_N.to(device),
            finished_N=self.finished_N.to(device),
            origin_N=self.origin_N,
            extras={name: extra.to(device) for name, extra in self.extras.items()},
        )


def batch_of(examples: Sequence[Example]) -> TokenBatch:
    """The examples as one batch of padded tensors.

    >>> one = Completion(ids=(7, 2), mask=(True, True), finished=True)
    >>> batch_of([Example(prompt=(1, 5), completions=(one, one))]).group_N.tolist()
    [0, 0]
    """
    completions = [completion for example in examples for completion in example.completions]
    if not completions:
        raise UserError("a batch needs at least one completion")
    groups = [p for p, example in enumerate(examples) for _ in example.completions]
    return TokenBatch(
        prompt_PL=_pad([example.prompt for example in examples]),
        prompt_length_P=torch.tensor([len(example.prompt) for example in examples]),
        completion_NT=_pad([completion.ids for completion in completions]),
        length_N=torch.tensor([len(completion.ids) for completion in completions]),
        mask_NT=_pad([completion.mask for completion in completions]).bool(),
        group_N=torch.tensor(groups),
        finished_N=torch.tensor([completion.finished for completion in completions]),
        origin_N=tuple(example.origin for example in examples for _ in example.completions),
        extras=collate_extras(
            [example.extras for example in examples], [example.origin for example in examples]
        ),
    )


def prompt_id(prompt: Sequence[int], extras: Extras) -> str:
    """The content hash of a prompt: its tokens, and what it shows beside them."""
    return digest(token_bytes(prompt), extras_digest(extras, ("prompt", "item")))


def token_bytes(ids: Sequence[int]) -> bytes:
    """Token ids as bytes, the same on every machine."""
    packed = array("q", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def join_completions(examples: Sequence[Example]) -> Example:
    """Rows of one and the same prompt as one row with all their completions.

    >>> answer = Completion(ids=(7, 2), mask=(True, True), finished=True)
    >>> row = Example(prompt=(1, 5), completions=(answer,))
    >>> len(join_completions([row, row]).completions)
    2
    """
    first = examples[0]
    if any(example.prompt_id != first.prompt_id for example in examples[1:]):
        raise ValueError("these rows have different prompts, so their completions are not of one row")
    if len({frozenset(example.completion_extras([])) for example in examples}) > 1:
        raise UserError(f"{first.origin or 'a row'}: completions of one prompt have different extras")
    completion_extras = {
        name: replace(extra, value=torch.cat([example.extras[name].value for example in examples]))
        for name, extra in first.extras.items()
        if extra.axis == "completion"
    }
    return replace(
        first,
        completions=tuple(completion for example in examples for completion in example.completions),
        extras={**first.prompt_extras, **completion_extras},
    )


def _pad(rows: Sequence[Sequence[int]]) -> Int[Tensor, "R W"]:
    padded = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    for r, row in enumerate(rows):
        padded[r, : len(row)] = torch.tensor(row)
    return padded
