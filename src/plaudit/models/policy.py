"""A causal language model that scores completions, and the reference that it is compared with.

``policy.score(batch).logp_NT`` has a gradient. A reference says log π_ref of the trained tokens of a batch
and has none: it lies beside the policy in memory, beneath its adapters, or was computed before.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from plaudit.models.backbone import Head, LaidOutModel, head_of
from plaudit.models.precision import compute_in
from plaudit.tensors.divergences import Readout
from plaudit.tensors.logprobs import Extra, refuse_unknown_tokens, score_tokens, score_tokens_equally_weighted
from plaudit.tokens.batch import Example, TokenBatch, batch_of
from plaudit.tokens.microbatch import Layout, micro_batches_in_order

StateReader = Callable[[Tensor, Head, TokenBatch], tuple[Tensor, ...]]
"""What is read off the states ``[M, H]`` that predict the M trained tokens of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenScores:
    """What a policy thinks of the tokens of a batch.

    Example: ``TokenScores(logp_NT=…, greedy_NT=…, entropy_NT=None)``; zero wherever the batch's mask is
        False.
    """

    logp_NT: Float[Tensor, "N T"]
    """Log-probability of each trained token."""
    greedy_NT: Bool[Tensor, "N T"]
    """Whether it was the likeliest token."""
    entropy_NT: Float[Tensor, "N T"] | None = None
    """Entropy of the distribution that it was chosen from."""
    repeat_NT: Float[Tensor, "N T"] | None = None
    """log Σ_v π_v² of that distribution, without gradient."""
    read: tuple[Tensor, ...] = ()
    """What each of the caller's state readers made of the same states: a critic's values ``[N, T]``, say."""


class Policy(LaidOutModel):
    """A Hugging Face causal language model, and how batches are laid out for it."""

    def __init__(
        self,
        model: nn.Module,
        *,
        layout: Layout = "packed",
        share_prompts: bool = True,
        attention: str | None = None,
    ):
        """Wrap a PreTrainedModel, or one in PEFT's wrapper, that is already on its device.

        ``attention`` is transformers' name of the one that serves padded batches and sampling.
        """
        super().__init__(model, layout=layout, share_prompts=share_prompts, attention=attention)

    def compute_in(self, dtype: torch.dtype, *, frozen: bool = True) -> None:
        """Compute in these numbers, whatever weights are kept in (`precision.compute_in`)."""
        self.backbone.narrowed = compute_in(self, dtype, layers=self.backbone.repeated_layers, frozen=frozen)

    @property
    def logp_dtype(self) -> torch.dtype:
        """What log-probs come in: float32 at least."""
        return torch.promote_types(self.backbone.compute_dtype, torch.float32)

    def score(
        self,
        batch: TokenBatch,
        *,
        also: Sequence[Extra] = (),
        temperature: float = 1.0,
        state_readers: Sequence[StateReader] = (),
    ) -> TokenScores:
        """Log-probs (and more) of the trained tokens; the vocabulary is projected to only there.

        Each of ``state_readers`` reads something of a token off the same states: a critic that shares them.
        """
        read = _ScoreReader(also=tuple(also), temperature=temperature, state_readers=tuple(state_readers))
        logp_NT, greedy_NT, *more = (scatter_to_mask(value_M, batch) for value_M in self(batch, read))
        # What readers made comes last, and leaves before entropy and repeat are told apart by their ends.
        more, made = more[: len(also)], tuple(more[len(also) :])
        return TokenScores(
            logp_NT=logp_NT,
            greedy_NT=greedy_NT,
            entropy_NT=more[0] if "entropy" in also else None,
            # Both scores may have been asked for: then entropy is first and repeat last; alone, each is both.
            repeat_NT=more[-1] if "repeat" in also else None,
            read=made,
        )

    def score_equally_weighted(self, batch: TokenBatch) -> TokenScores:
        """`score`, faster, for a loss that counts all tokens the same (`score_tokens_equally_weighted`)."""
        values = self(batch, read_equally_weighted)
        logp_NT, greedy_NT = (scatter_to_mask(value_M, batch) for value_M in values)
        return TokenScores(logp_NT=logp_NT, greedy_NT=greedy_NT)

    def distributions(self, batch: TokenBatch, *, temperature: float = 1.0) -> Float[Tensor, "M V"]:
        """log π over the whole vocabulary at each of the M trained tokens: for small vocabularies."""

        def read(hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
            logits_MV = replace(head.rule, temperature=temperature).apply(head.layer(hidden_MH))
            # Float32 before the softmax: the head's product may come in bfloat16.
            return (logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32)).log_softmax(-1),)

        [logp_MV] = self(batch, read)
        return logp_MV

    def forward(self, batch: TokenBatch, read: StateReader) -> tuple[Tensor, ...]:
        """Whatever ``read`` makes of the states; inside this call sharded weights are whole."""

        # Trained tokens only: of [N·T, H] states the head sees M rows; padding and a tool's words are free.
        def read_own(hidden_MH: Tensor, own_m: Tensor | None) -> tuple[Tensor, ...]:
            return read(hidden_MH, head_of(self.base), batch if own_m is None else batch.training_only(own_m))

        with self.backbone.computing():
            return self.backbone.read(batch, lambda inputs: inputs.state_NT[batch.host.mask_NT], read_own)


def readout_of(hidden_MH: Tensor, head: Head, temperature: int | float) -> Readout:
    """The states of trained tokens with the head, for what asks about whole distributions."""
    rule = replace(head.rule, temperature=float(temperature))
    return Readout(hidden_MH=hidden_MH, weight_VH=head.layer.weight, bias_V=head.layer.bias, rule=rule)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScoreReader:
    also: tuple[Extra, ...]
    temperature: float
    state_readers: tuple[StateReader, ...] = ()

    def __call__(self, hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
        scores = score_tokens(
            hidden_MH,
            head.layer.weight,
            _targets(batch, head),
            bias_V=head.layer.bias,
            # Of the distribution that was sampled: without its temperature PPO's ratio would not begin at 1.
            rule=replace(head.rule, temperature=self.temperature),
            extras=self.also,
        )
        more = (value_M for value_M in (scores.entropy_M, scores.repeat_M) if value_M is not None)
        read = (value_M for reader in self.state_readers for value_M in reader(hidden_MH, head, batch))
        return scores.logp_M, scores.greedy_M, *more, *read


def read_equally_weighted(hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, Tensor]:
    """log π of the trained tokens and whether each is the likeliest, for a loss that counts all the same."""
    scores = score_tokens_equally_weighted(
        hidden_MH, head.layer.weight, _targets(batch, head), bias_V=head.layer.bias, rule=head.rule
    )
    return scores.logp_M, scores.greedy_M


def _targets(batch: TokenBatch, head: Head) -> Tensor:
    """The trained tokens, all of them in the vocabulary: on a device nobody looks at that any more."""
    host = batch.host
    refuse_unknown_tokens(host.completion_NT[host.mask_NT], head.layer.weight.shape[0])
    return batch.completion_NT.flatten()[batch.trained_M]


def scatter_to_mask(value_M: Tensor, batch: TokenBatch) -> Tensor:
    """Values of the trained tokens, one or several each, at their places in ``[N, T, …]``, zero elsewhere."""
    each = value_M.shape[1:]
    empty = torch.zeros((batch.mask_NT.numel(), *each), dtype=value_M.dtype, device=value_M.device)
    # By place and not by mask: backward through a mask would count it again, and wait for the device.
    return empty.index_copy(0, batch.trained_M, value_M).view(*batch.mask_NT.shape, *each)


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
        """The one that it is, within `activate`."""
        ...

    def activate(self) -> AbstractContextManager[object]:
        """While this lasts, ``policy`` computes as the reference does."""
        ...


class NoReference:
    """No reference: log-probs of 0, so that Δ is the policy's own log-prob."""

    def logp(self, examples: Sequence[Example], batch: TokenBatch) -> Float[Tensor, "N T"]:
        """Zeros of the batch's shape ``[N, T]``."""
        return torch.zeros(batch.mask_NT.shape, device=batch.mask_NT.device)


class ModelReference:
    """A reference that is a second, frozen policy in memory."""

    def __init__(self, policy: Policy, *, temperature: int | float = 1.0) -> None:
        """Use a policy that is on its device, frozen and in evaluation mode, or one that has adapters."""
        self.policy, self._temperature = policy, temperature

    def activate(self) -> AbstractContextManager[object]:
        """Does nothing: the policy is the reference at all times."""
        return nullcontext()

    def logp(self, examples: Sequence[Example], batch: TokenBatch) -> Float[Tensor, "N T"]:
        """log π_ref of the trained tokens, by one forward pass without gradient."""
        with self.activate(), torch.no_grad():
            return self.policy.score(batch, temperature=self._temperature).logp_NT

    def distributions(self, batch: TokenBatch) -> Float[Tensor, "M V"]:
        """One pass without gradient."""
        with self.activate(), torch.no_grad():
            return self.policy.distributions(batch, temperature=self._temperature)


class AdapterOffReference(ModelReference):
    """The policy itself without its adapters: no second model in memory."""

    def activate(self) -> AbstractContextManager[object]:
        adapted: Any = self.policy.model
        # A context and not a flag: a fault in the reference's pass must not leave the policy without them.
        return adapted.disable_adapter()


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedReference:
    """Log-probs that were computed before: completions are found by their content hashes."""

    span_by_id: Mapping[str, tuple[int, int]]
    """Where the tokens of each completion begin and end (`Example.completion_ids`)."""
    logp_M: Float[Tensor, " M"]
    """log π_ref of every token, on the CPU; 0 where a token is not trained."""

    def logp(self, examples: Sequence[Example], batch: TokenBatch) -> Float[Tensor, "N T"]:
        """The cached log-probs of these examples, padded to ``[N, T]``."""
        rows = [
            self.logp_M[slice(*self.span_by_id[completion_id])]
            # A muted stand-in has another content hash, by its mask: it was never scored, nor will it count.
            if any(completion.mask)
            else self.logp_M.new_zeros(len(completion.ids))
            for example in examples
            for completion_id, completion in zip(example.completion_ids, example.completions, strict=True)
        ]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(batch.mask_NT.device)


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
    # By length, so that micro-batches pad little; the order is undone below, by `queue`.
    order = sorted(range(len(examples)), key=lambda n: examples[n].tokens)
    queue = iter(order)
    for micro_batch in micro_batches_in_order([examples[n] for n in order], tokens_at_once):
        batch = batch_of(micro_batch).to(device)
        rows = iter(zip(reference.logp(micro_batch, batch).cpu(), batch.length_N.tolist(), strict=True))
        for example in micro_batch:
            row_logps = [next(rows) for _ in example.completions]
            # Cloned: a view of its row would keep the whole padded [N, T] table alive.
            logps_by_example[next(queue)] = [logp_T[:length].clone() for logp_T, length in row_logps]
    return [logp_T for n in range(len(examples)) for logp_T in logps_by_example[n]]


def log_ratio_tolerance(policy: Policy) -> float:
    """How far two computations of one log-prob may lie apart in the numbers at hand."""
    return {torch.float64: 1e-8, torch.float32: 2e-3}.get(policy.backbone.compute_dtype, 0.2)
