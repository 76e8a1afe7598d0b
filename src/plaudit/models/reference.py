"""The policy that a new one is compared with: beside it in memory, beneath its adapters, or computed before.

A reference says log π_ref of the trained tokens of a batch, without gradient; nothing here learns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.batches.split import in_order
from plaudit.batches.tokens import Example, TokenBatch, batch_of
from plaudit.models.policy import Policy

Products = Callable[[], AbstractContextManager[object]]
"""The context in which products are made: autocast, or nothing."""
Answer = tuple[tuple[int, ...], tuple[int, ...]]
"""A prompt's tokens and those of one answer to it."""


@runtime_checkable
class Reference(Protocol):
    """Says how likely another policy finds answers."""

    def logp(self, examples: Sequence[Example], batch: TokenBatch) -> Float[Tensor, "N T"]:
        """log π_ref of the trained tokens of ``batch``, which was made of ``examples``; 0 elsewhere."""
        ...


@runtime_checkable
class SaysAll(Protocol):
    """A reference that is in memory, and can say how likely any token is."""

    def distributions(self, batch: TokenBatch) -> Float[Tensor, "M V"]:
        """log π_ref over the whole vocabulary at each of the M trained tokens."""
        ...


@runtime_checkable
class Speaks(Protocol):
    """A reference that is in memory as a policy, and can answer."""

    @property
    def policy(self) -> Policy:
        """The one that it is, within `alone`."""
        ...

    def alone(self) -> AbstractContextManager[object]:
        """While this lasts the policy is the reference, and nothing else."""
        ...


class Nobody:
    """No reference: log-probs of 0, so that Δ is the policy's own log-prob."""

    def logp(self, examples: Sequence[Example], batch: TokenBatch) -> Float[Tensor, "N T"]:
        """Zeros."""
        del examples
        return torch.zeros(batch.mask_NT.shape, device=batch.mask_NT.device)


class Beside:
    """A second policy in memory."""

    def __init__(self, policy: Policy, products: Products, *, temperature: int | float = 1.0) -> None:
        """Use a policy that is on its device, frozen and in evaluation mode."""
        self.policy, self._products, self._temperature = policy, products, temperature

    def alone(self) -> AbstractContextManager[object]:
        """It is nothing else anyway."""
        return nullcontext()

    def logp(self, examples: Sequence[Example], batch: TokenBatch) -> Float[Tensor, "N T"]:
        """One pass without gradient."""
        del examples
        with torch.no_grad(), self._products():
            return self.policy.score(batch, temperature=self._temperature).logp_NT

    def distributions(self, batch: TokenBatch) -> Float[Tensor, "M V"]:
        """One pass without gradient."""
        with torch.no_grad(), self._products():
            return self.policy.distributions(batch, temperature=self._temperature)


class Beneath:
    """The policy itself without its adapters: no second model in memory."""

    def __init__(self, policy: Policy, products: Products, *, temperature: int | float = 1.0) -> None:
        """Use a policy that has adapters; they are switched off only while this looks."""
        self.policy, self._products, self._temperature = policy, products, temperature

    def alone(self) -> AbstractContextManager[object]:
        """While this lasts the adapters are off."""
        adapted: Any = self.policy.model
        return adapted.disable_adapter()

    def logp(self, examples: Sequence[Example], batch: TokenBatch) -> Float[Tensor, "N T"]:
        """One pass without adapters and without gradient."""
        del examples
        with self.alone(), torch.no_grad(), self._products():
            return self.policy.score(batch, temperature=self._temperature).logp_NT

    def distributions(self, batch: TokenBatch) -> Float[Tensor, "M V"]:
        """One pass without adapters and without gradient."""
        with self.alone(), torch.no_grad(), self._products():
            return self.policy.distributions(batch, temperature=self._temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Log-probs that were computed before: answers are found by their tokens.

    Example: ``Kept(place={((1, 5), (7, 2)): (0, 2)}, logp_M=torch.tensor([-0.1, -2.0]))``
    """

    place: Mapping[Answer, tuple[int, int]]
    """Where each answer's tokens begin and end."""
    logp_M: Float[Tensor, " M"]
    """log π_ref of every token, on the CPU; 0 where a token is not trained."""

    def logp(self, examples: Sequence[Example], batch: TokenBatch) -> Float[Tensor, "N T"]:
        """Looked up."""
        places = [self.place[answer] for answer in answers_of(examples)]
        rows = [self.logp_M[start:end] for start, end in places]
        padded_NT = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return padded_NT.to(batch.mask_NT.device)


def answers_of(examples: Sequence[Example]) -> list[Answer]:
    """All answers with their prompts, in order.

    >>> from plaudit.batches.tokens import Completion
    >>> one = Completion(ids=(7, 2), mask=(True, True), finished=True)
    >>> answers_of([Example(prompt=(1, 5), completions=(one,))])
    [((1, 5), (7, 2))]
    """
    return [(example.prompt, answer.ids) for example in examples for answer in example.completions]


def places_of(examples: Sequence[Example]) -> dict[Answer, tuple[int, int]]:
    """Where each different answer of these rows stands when all are laid one behind the other."""
    place: dict[Answer, tuple[int, int]] = {}
    end = 0
    for answer in answers_of(examples):
        if answer not in place:
            place[answer] = (end, end + len(answer[1]))
            end += len(answer[1])
    return place


def computed(
    reference: Reference, examples: Sequence[Example], tokens_at_once: int, device: torch.device
) -> list[Float[Tensor, " T"]]:
    """For each answer of these rows its log-probs, on the CPU."""
    found: dict[int, list[Tensor]] = {}
    order = sorted(range(len(examples)), key=lambda n: examples[n].tokens)
    queue = iter(order)
    for piece in in_order([examples[n] for n in order], tokens_at_once):
        batch = batch_of(piece).to(device)
        logp_NT = reference.logp(piece, batch).cpu()
        rows = iter(zip(logp_NT, batch.length_N.tolist(), strict=True))
        for example in piece:
            own = [next(rows) for _ in example.completions]
            found[next(queue)] = [logp_T[:length].clone() for logp_T, length in own]
    return [logp_T for n in range(len(examples)) for logp_T in found[n]]
