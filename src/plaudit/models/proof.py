"""Shown at load time, on a few tokens of the user's own model: the fast path says what the model says."""

from __future__ import annotations

import torch
from torch import Tensor

from plaudit.batches.pack import Layout
from plaudit.batches.tokens import Completion, Example, TokenBatch, batch_of
from plaudit.errors import UserError
from plaudit.models.policy import Policy

LENGTHS = ((5, (4, 7)), (9, (3,)))
"""Prompts and completions of the trial: a group of two, so that sharing is tried, and one alone."""


def choose_layout(policy: Policy, wanted: Layout) -> tuple[Layout, str | None]:
    """The layout that this model can be trusted with, and a sentence when it is not the wanted one.

    Packing needs attention to go through transformers' common interface; a model with recurrent state or
    an attention of its own gives other numbers, and is padded instead.
    """
    policy.use_layout(wanted)
    apart = disagreement(policy)
    if apart <= tolerance(policy):
        return wanted, None
    policy.use_layout("right")
    padded = disagreement(policy)
    if padded > tolerance(policy):
        raise UserError(
            f"the log-probs of {type(policy.base).__name__} cannot be computed in blocks: they differ by "
            f"{padded:.2g} from its own logits. Its head does something that plaudit does not know"
        )
    return "right", (
        f"{type(policy.base).__name__} cannot be packed (log-probs differ by {apart:.2g}): "
        "batches are padded on the right"
    )


def disagreement(policy: Policy) -> float:
    """The largest difference between the policy's log-probs and those of the model's full logits."""
    batch = batch_of(_examples(policy.base.config.get_text_config().vocab_size)).to(policy.device)
    with torch.no_grad():
        apart = policy.score(batch).logp_NT - _by_full_logits(policy, batch)
    largest = apart.abs().max()
    return float("inf") if torch.isnan(largest) else float(largest)


def tolerance(policy: Policy) -> float:
    """How far rounding alone may take them apart."""
    dtype = policy.base.dtype
    return {torch.float64: 1e-5, torch.float32: 1e-3}.get(dtype, 0.15)


def _examples(vocabulary: int) -> list[Example]:
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(vocabulary, (count,), generator=generator).tolist())

    return [
        Example(
            prompt=tokens(prompt),
            completions=tuple(
                Completion(ids=tokens(length), mask=(True,) * length, finished=True) for length in answers
            ),
        )
        for prompt, answers in LENGTHS
    ]


def _by_full_logits(policy: Policy, batch: TokenBatch) -> Tensor:
    logp_NT = torch.zeros(batch.mask_NT.shape, device=policy.device)
    with policy.as_plain_model() as model:
        for n, p in enumerate(batch.group_N.tolist()):
            prompt, answer = int(batch.prompt_length_P[p]), int(batch.length_N[n])
            ids = torch.cat((batch.prompt_PL[p, :prompt], batch.completion_NT[n, :answer]))
            logits = model(input_ids=ids[None], use_cache=False).logits[0, prompt - 1 : -1]
            logp_NT[n, :answer] = logits.float().log_softmax(-1).gather(1, ids[prompt:, None])[:, 0]
    return logp_NT
