"""Exact sampling probabilities from transformers' own logits, to compare samplers with.

Top-k, top-p and min-p are written out in full. A policy's weights can be perturbed for a while and are
restored bit by bit afterwards.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from plaudit.models.backbone import token_types
from plaudit.models.policy import Policy
from plaudit.models.verify import tolerance
from plaudit.preflight.check import PreflightSubject
from plaudit.rollouts.sampler import Rollout, SamplingSettings
from plaudit.tokens.batch import Completion, Example, batch_of
from plaudit.tokens.microbatch import layout_batch
from plaudit.tokens.prompts import EncodedPrompt

HALF_PRECISION_NATS = 0.2
"""Nats between two log-probs of one token where products are made in 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogprobErrors:
    """How far a sampler's log-probs lie from recomputed ones, in nats."""

    logp_T: Float[Tensor, " T"]
    """Error of each token's log-prob among the tokens that the sampling settings allow."""
    whole_T: Float[Tensor, " T"]
    """Error of each token's log-prob among all tokens."""
    excluded_tokens: int
    """Sampled tokens that the sampling settings exclude."""


def require_policy(subject: PreflightSubject) -> Policy:
    assert subject.policy is not None, "a run with a policy"
    return subject.policy


def transformers_logits(
    subject: PreflightSubject, prompt: EncodedPrompt, ids: Sequence[int]
) -> Float[Tensor, "T V"]:
    """What transformers' own forward pass predicts before each of these tokens, the row alone."""
    policy = require_policy(subject)
    answer = Completion(ids=tuple(ids), mask=(True,) * len(ids), finished=False)
    example = Example(prompt=prompt.prompt, completions=(answer,), extras=prompt.extras)
    inputs = layout_batch(batch_of([example]).to(policy.device), "right")
    row_1L = inputs.ids_RS
    extras = {**inputs.extras, **token_types(policy.base, row_1L, inputs.extras)}
    with torch.no_grad(), policy.as_plain_model() as plain:
        passed = {"input_ids": row_1L, "attention_mask": torch.ones_like(row_1L), "use_cache": False}
        logits_1LV = plain(**passed, **extras).logits
    # A position's logits predict the next token, hence from the prompt's last to the answer's last but one.
    # float64, so that the comparison adds no rounding of its own.
    return logits_1LV[0, len(prompt.prompt) - 1 : -1].double().cpu()


def logprob_tolerance(subject: PreflightSubject, settings: SamplingSettings) -> float:
    """How far rounding may take two log-probs of one token apart; a low temperature stretches it."""
    policy = require_policy(subject)
    half = policy.backbone.compute_dtype not in (torch.float32, torch.float64)
    nats = max(tolerance(policy), HALF_PRECISION_NATS) if half else tolerance(policy)
    return nats / min(1.0, settings.temperature or 1.0)


def logprob_errors(
    logits_TV: Float[Tensor, "T V"], rollout: Rollout, settings: SamplingSettings, slack: float
) -> LogprobErrors:
    """Both log-probs of a rollout against the logits.
    Where a token lies on the border of top-k, top-p or min-p, rounding may leave it in or out: what is told
    may then lie anywhere between the log-probs of the two."""
    logq_TV = logprobs_at_temperature(logits_TV, settings)
    token_logp_T = logq_TV.gather(1, torch.tensor(rollout.ids)[:, None])[:, 0]
    whole_error_T = (torch.tensor(rollout.whole_logp, dtype=torch.float64) - token_logp_T).abs()
    sampler_logp_T = torch.tensor(rollout.logp, dtype=torch.float64)
    sorted_TV = logq_TV.sort(dim=-1, descending=True).values
    if settings.greedy:
        # The likeliest is taken with certainty: its log-prob among what can be drawn is 0.
        outside_T = token_logp_T < sorted_TV[:, 0] - slack
        logp_T = sampler_logp_T.abs()
        return LogprobErrors(logp_T=logp_T, whole_T=whole_error_T, excluded_tokens=int(outside_T.sum()))
    strict_TV, loose_TV = (sampling_filter_mask(sorted_TV, settings, sign * slack) for sign in (-1, 1))
    # Fewer tokens are less mass to divide by, so the strict filter gives the higher log-prob.
    highest_T, lowest_T = (token_logp_T - _log_mass(sorted_TV, one_TV) for one_TV in (strict_TV, loose_TV))
    border_T = sorted_TV.masked_fill(~loose_TV, math.inf).amin(-1)
    error_T = torch.maximum(lowest_T - sampler_logp_T, sampler_logp_T - highest_T).clamp(min=0)
    return LogprobErrors(
        logp_T=error_T,
        whole_T=whole_error_T,
        # Both the token and the border may be off by the slack.
        excluded_tokens=int((token_logp_T < border_T - 2 * slack).sum()),
    )


def logprobs_at_temperature(
    logits_TV: Float[Tensor, "T V"], settings: SamplingSettings
) -> Float[Tensor, "T V"]:
    """Log-probs of all tokens at the temperature; at 1 where the likeliest is taken.

    >>> logprobs_at_temperature(torch.tensor([[2.0, 0.0]]), SamplingSettings(temperature=2)).exp()[0,
    ...     0].item() > 0.7
    True
    """
    return (logits_TV / (settings.temperature or 1.0)).log_softmax(-1)


def sampling_filter_mask(
    sorted_TV: Float[Tensor, "T V"], settings: SamplingSettings, slack: int | float = 0
) -> Bool[Tensor, "T V"]:
    """True for tokens, sorted by probability, that top-k, top-p and min-p allow; slack allows more, or fewer.

    >>> sampling_filter_mask(torch.tensor([[0.6, 0.3, 0.1]]).log(), SamplingSettings(top_p=0.8)).tolist()
    [[True, True, False]]
    """
    rank_V = torch.arange(sorted_TV.shape[1], device=sorted_TV.device)
    allowed_TV = (rank_V < (settings.top_k or len(rank_V))).expand(sorted_TV.shape)
    if settings.top_p < 1:
        # top-p is of what top-k leaves; the sum on the right stands for a renormalisation.
        p_TV = sorted_TV.exp() * allowed_TV
        # The mass BEFORE a token decides, so the one that crosses the threshold is still drawn.
        before_TV = p_TV.cumsum(-1) - p_TV
        allowed_TV = allowed_TV & (
            before_TV < settings.top_p * math.exp(2 * slack) * p_TV.sum(-1, keepdim=True)
        )
    if settings.min_p:
        threshold_T1 = sorted_TV[:, :1] + math.log(settings.min_p) - 2 * slack
        allowed_TV = allowed_TV & (sorted_TV >= threshold_T1)
    # The likeliest stays in any case, or rounding could leave nothing to draw.
    return allowed_TV | (rank_V == 0)


def sampling_probabilities(
    logits_1V: Float[Tensor, "1 V"], settings: SamplingSettings
) -> Float[Tensor, " V"]:
    sorted_1V, word_1V = logprobs_at_temperature(logits_1V, settings).sort(dim=-1, descending=True)
    p_1V = (
        sorted_1V - _log_mass(sorted_1V, allowed_1V := sampling_filter_mask(sorted_1V, settings))[:, None]
    ).exp() * allowed_1V
    # From the order of probability back to that of token ids.
    return torch.zeros_like(p_1V).scatter_(1, word_1V, p_1V)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChiSquareTest:
    """Pearson's chi-square test of counts against probabilities."""

    chi_square: float
    """Σ (seen − expected)² / expected, over cells of at least five expected draws."""
    cells: int
    p: float
    """The probability of counts at least this far from the expected ones if the probabilities are right."""


def chi_square_test(count_V: Tensor, p_V: Float[Tensor, " V"]) -> ChiSquareTest:
    """Pearson's test; tokens share a cell, the likeliest ones first, until five of its draws are expected.

    >>> chi_square_test(torch.tensor([50, 50]), torch.tensor([0.5, 0.5])).p
    1.0
    """
    from scipy.stats import chi2

    sorted_V, word_V = p_V.double().sort(descending=True)
    expected_V, observed_V = sorted_V * int(count_V.sum()), count_V[word_V].double()
    cells: list[list[float]] = [[0.0, 0.0]]
    for expected, observed in zip(expected_V.tolist(), observed_V.tolist(), strict=True):
        if cells[-1][0] >= 5 and (expected or observed):
            cells.append([0.0, 0.0])
        cells[-1][0] += expected
        cells[-1][1] += observed
    if len(cells) > 1 and cells[-1][0] < 5:
        expected, observed = cells.pop()
        cells[-1][0] += expected
        cells[-1][1] += observed
    chi_square = math.fsum((observed - expected) ** 2 / expected for expected, observed in cells)
    p = 1.0 if len(cells) == 1 else float(chi2.sf(chi_square, len(cells) - 1))
    return ChiSquareTest(chi_square=chi_square, cells=len(cells), p=p)


def _log_mass(sorted_TV: Tensor, allowed_TV: Tensor) -> Float[Tensor, " T"]:
    return sorted_TV.masked_fill(~allowed_TV, -math.inf).logsumexp(-1)


FIRST_SHARE, SHARE_GROWTH, MAX_TRIES = 0.02, 3.0, 6
"""The first move as a share of each weight's own size, by how much the next is larger, how many there are."""


@contextmanager
def perturbed_weights(
    subject: PreflightSubject, text: Sequence[int], *, min_shift: int | float
) -> Iterator[float]:
    """While this lasts, all weights that learn are moved at random, so far that log-probs change clearly.
    Gives by how many nats they change on average, over the tokens of a text and all that could follow
    each."""
    weights = [weight for weight in require_policy(subject).parameters() if weight.requires_grad]
    # On the CPU: a large model has no room for a second copy beside it.
    originals = [weight.detach().to("cpu", copy=True) for weight in weights]
    before_TV = _all_logps(subject, text)
    shift, share = 0.0, FIRST_SHARE
    try:
        for _ in range(MAX_TRIES):
            # From the originals each time, so that the shift follows from the share alone.
            _perturb(weights, originals, share)
            shift = float((_all_logps(subject, text) - before_TV).abs().mean())
            if shift >= min_shift:
                break
            share *= SHARE_GROWTH
        # A sampler that keeps a copy has to fetch these weights now, and the old ones again afterwards.
        _refresh_sampler(subject)
        yield shift
    finally:
        with torch.no_grad():
            for weight, original in zip(weights, originals, strict=True):
                weight.copy_(original)
        _refresh_sampler(subject)


def _refresh_sampler(subject: PreflightSubject) -> None:
    subject.weights.moved()
    if subject.sampler is not None:
        subject.sampler.refresh()


def _perturb(weights: Sequence[nn.Parameter], originals: Sequence[Tensor], share: float) -> None:
    """Each by a share of its own size; what is still zero, as fresh adapters are, by that of the others."""
    sizes = [float(original.float().square().mean().sqrt()) for original in originals]
    typical_size = sum(sizes) / max(1, sum(size > 0 for size in sizes)) or 1.0
    # Drawn on the CPU, so that the move is the same on every device.
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight, original, size in zip(weights, originals, sizes, strict=True):
            step = torch.randn(original.shape, generator=generator) * (share * (size or typical_size))
            weight.copy_(
                (original.float() + step).to(original.dtype)
                if original.dtype != torch.float64
                else original + step
            )


def _all_logps(subject: PreflightSubject, text: Sequence[int]) -> Tensor:
    first = EncodedPrompt(text="", prompt=tuple(text[:1]))
    return transformers_logits(subject, first, text[1:] or text[:1]).log_softmax(-1)
