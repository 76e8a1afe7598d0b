"""The token batch of the whole project: a set of prompts and, for each, its completions.

A completion token is *trained* where the mask is True: the policy chose it, its end-of-turn token
included. Every per-token tensor is aligned to completions, ``[N, T]``: no shifts, no ``-100``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from plaudit.errors import UserError


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

    def __post_init__(self) -> None:
        """Refuse a prompt without a state to predict the first answered token from."""
        if not self.prompt:
            where = f"{self.origin}: " if self.origin else ""
            raise UserError(
                f"{where}the prompt has no tokens, so nothing predicts the answer's first one; "
                "write a prompt, or use a tokenizer that begins every text with a token"
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
    )


def _pad(rows: Sequence[Sequence[int]]) -> Int[Tensor, "R W"]:
    padded = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    for r, row in enumerate(rows):
        padded[r, : len(row)] = torch.tensor(row)
    return padded
