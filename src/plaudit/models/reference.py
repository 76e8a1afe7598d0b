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

from plaudit.models.policy import Policy
from plaudit.tokens.batch import Example, TokenBatch, batch_of
from plaudit.tokens.microbatch import micro_batches_in_order

PrecisionContext = Callable[[], AbstractContextManager[object]]
"""The context in which products are made: autocast, or nothing."""


@runtime_checkable
class Reference(Protocol):
    """Says how likely another policy finds answers."""

    def logp(self, examples: Sequence[Example], batch: TokenBatch) -> Float[Tensor, "N T"]:
        """log π_ref of the trained tokens of ``batch``, which was made of ``examples``; 0 elsewhere."""
        ...


@runtime_checkable
class FullDistributionReference(Protocol):
    """A reference that is in memory, and can say how likely any token is."""

    def distributions(self, batch: TokenBatch) -> Float[Tensor, "M V"]:
        """log π_ref over the whole vocabulary at each of the M trained tokens."""
        ...


@runtime_checkable
class GeneratingReference(Protocol):
    """A reference that is in memory as a policy, and can answer."""

    @property
    def policy(self) -> Policy:
        """The one that it is, within `alone`."""
        ...

    def activate(self) -> AbstractContextManager[object]:
        """While this lasts, ``policy`` computes as the reference does."""
        ...


class NoReference:
    """No reference: log-probs of 0, so that Δ is the policy's own log-prob."""

    def logp(self, examples: Sequence[Example], batch: TokenBatch) -> Float[Tensor, "N T"]:
        """Zeros of the batch's shape ``[N, T]``."""
        del examples
        return torch.zeros(batch.mask_NT.shape, device=batch.mask_NT.device)


class ModelReference:
    """A reference that is a second, frozen policy in memory."""

    def __init__(self, policy: Policy, products: PrecisionContext, *, temperature: int | float = 1.0) -> None:
        """Use a policy that is on its device, frozen and in evaluation mode."""
        self.policy, self._products, self._temperature = policy, products, temperature

    def activate(self) -> AbstractContextManager[object]:
        """Does nothing: the policy is the reference at all times."""
        return nullcontext()

    def logp(self, examples: Sequence[Example], batch: TokenBatch) -> Float[Tensor, "N T"]:
        """log π_ref of the trained tokens, by one forward pass without gradient."""
        del examples
        with torch.no_grad(), self._products():
            return self.policy.score(batch, temperature=self._temperature).logp_NT

    def distributions(self, batch: TokenBatch) -> Float[Tensor, "M V"]:
        """One pass without gradient."""
        with torch.no_grad(), self._products():
            return self.policy.distributions(batch, temperature=self._temperature)


class AdapterOffReference:
    """The policy itself without its adapters: no second model in memory."""

    def __init__(self, policy: Policy, products: PrecisionContext, *, temperature: int | float = 1.0) -> None:
        """Use a policy that has adapters; they are switched off only while this looks."""
        self.policy, self._products, self._temperature = policy, products, temperature

    def activate(self) -> AbstractContextManager[object]:
        """While this lasts the adapters are off."""
        adapted: Any = self.policy.model
        return adapted.disable_adapter()

    def logp(self, examples: Sequence[Example], batch: TokenBatch) -> Float[Tensor, "N T"]:
        """log π_ref of the trained tokens, by one forward pass without adapters and without gradient."""
        del examples
        with self.activate(), torch.no_grad(), self._products():
            return self.policy.score(batch, temperature=self._temperature).logp_NT

    def distributions(self, batch: TokenBatch) -> Float[Tensor, "M V"]:
        """One pass without adapters and without gradient."""
        with self.activate(), torch.no_grad(), self._products():
            return self.policy.distributions(batch, temperature=self._temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedReference:
    """Log-probs that were computed before: completions are found by their content hashes.

    Example: ``CachedReference(span_by_id=completion_spans([row]), logp_M=torch.tensor([-0.1, -2.0]))``
    """

    span_by_id: Mapping[str, tuple[int, int]]
    """Where the tokens of each completion begin and end (`Example.completion_ids`)."""
    logp_M: Float[Tensor, " M"]
    """log π_ref of every token, on the CPU; 0 where a token is not trained."""

    def logp(self, examples: Sequence[Example], batch: TokenBatch) -> Float[Tensor, "N T"]:
        """The cached log-probs of these examples, padded to ``[N, T]``."""
        rows = [
            self.logp_M[slice(*self.span_by_id[completion_id])]
            if any(completion.mask)
            else self.logp_M.new_zeros(len(completion.ids))
            for example in examples
            for completion_id, completion in zip(example.completion_ids, example.completions, strict=True)
        ]
        padded_NT = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        return padded_NT.to(batch.mask_NT.device)


def completion_spans(examples: Sequence[Example]) -> dict[str, tuple[int, int]]:
    """Where the tokens of each distinct completion lie when all are concatenated.

    >>> from plaudit.tokens.batch import Completion
    >>> one = Completion(ids=(7, 2), mask=(True, True), finished=True)
    >>> list(completion_spans([Example(prompt=(1, 5), completions=(one, one))]).values())
    [(0, 2)]
    """
    span_by_id: dict[str, tuple[int, int]] = {}
    end = 0
    for example in examples:
        for completion_id, completion in zip(example.completion_ids, example.completions, strict=True):
            if completion_id not in span_by_id:
                span_by_id[completion_id] = (end, end + len(completion.ids))
                end += len(completion.ids)
    return span_by_id


def compute_reference_logps(
    reference: Reference, examples: Sequence[Example], tokens_at_once: int, device: torch.device
) -> list[Float[Tensor, " T"]]:
    """The reference's log-probs of every completion of these examples, on the CPU, in their order."""
    logps_by_example: dict[int, list[Tensor]] = {}
    order = sorted(range(len(examples)), key=lambda n: examples[n].tokens)
    queue = iter(order)
    for micro_batch in micro_batches_in_order([examples[n] for n in order], tokens_at_once):
        batch = batch_of(micro_batch).to(device)
        logp_NT = reference.logp(micro_batch, batch).cpu()
        rows = iter(zip(logp_NT, batch.length_N.tolist(), strict=True))
        for example in micro_batch:
            row_logps = [next(rows) for _ in example.completions]
            logps_by_example[next(queue)] = [logp_T[:length].clone() for logp_T, length in row_logps]
    return [logp_T for n in range(len(examples)) for logp_T in logps_by_example[n]]


def log_ratio_tolerance(policy: Policy, autocast: PrecisionContext) -> float:
    """How far two computations of one log-prob may lie apart in the numbers at hand."""
    with autocast():
        device = policy.device.type
        half = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) != torch.float32
    if half:
        return 0.2
    return 1e-8 if policy.base.dtype == torch.float64 else 2e-3
