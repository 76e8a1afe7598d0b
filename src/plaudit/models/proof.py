"""Shown at load time, on a few tokens of the user's own model: the fast path says what the model says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from plaudit.batches.pack import Layout
from plaudit.batches.tokens import Completion, Example, TokenBatch, batch_of
from plaudit.errors import UserError
from plaudit.models.attention import PackingError
from plaudit.models.policy import Policy

LENGTHS = ((5, (4, 7)), (9, (3,)))
"""Prompts and completions of the trial: a group of two, so that sharing is tried, and one alone."""
POISON = 0
"""A token that the trial's other texts do not hold."""


def choose_layout(policy: Policy, wanted: Layout) -> tuple[Layout, str | None]:
    """The layout that this model can be trusted with, and a sentence when it is not the wanted one.

    Packing needs attention to go through transformers' common interface; a model with recurrent state or
    an attention of its own gives other numbers, and is padded instead.
    """
    policy.use_layout(wanted)
    objection = _objection(policy)
    if objection is None:
        return wanted, None
    policy.use_layout("right")
    padded = disagreement(policy)
    if padded > tolerance(policy):
        raise UserError(
            f"the log-probs of {type(policy.base).__name__} cannot be computed in blocks: they differ by "
            f"{padded:.2g} from its own logits. Its head does something that plaudit does not know"
        )
    return "right", (
        f"{type(policy.base).__name__} cannot be {_DONE[wanted]} ({objection}): "
        "batches are padded on the right"
    )


_DONE: dict[Layout, str] = {
    "packed": "packed",
    "left": "padded on the left",
    "right": "padded on the right",
}


def _objection(policy: Policy) -> str | None:
    """Why the policy's layout cannot be trusted; None when it can."""
    try:
        apart = disagreement(policy)
        if apart > tolerance(policy):
            return f"log-probs differ by {apart:.2g}"
        return "one conversation reaches into the next" if leaks(policy) else None
    except PackingError as error:
        return str(error)


def leaks(policy: Policy) -> bool:
    """Whether a completion whose last state is not a number makes any other one not a number.

    A difference between log-probs may drown in rounding where weights are small, as in a fresh model;
    this cannot.
    """
    row, *others = _examples(_vocabulary(policy))
    first, *rest = row.completions
    poisoned = replace(first, ids=(*first.ids[:-1], POISON))
    examples = [replace(row, completions=(poisoned, *rest)), *others]
    batch = batch_of(examples).to(policy.device)
    with torch.no_grad(), _poison(policy):
        logp_NT = policy.score(batch).logp_NT
    return bool(logp_NT[1:].isnan().any())


@contextmanager
def _poison(policy: Policy) -> Iterator[None]:
    """While this lasts, the embedding of one token is not a number."""

    def spoil(_: nn.Module, ids: tuple[Any, ...], embedded: Tensor) -> Tensor:
        return embedded.masked_fill((ids[0] == POISON)[..., None], float("nan"))

    handle = policy.base.get_input_embeddings().register_forward_hook(spoil)
    try:
        yield
    finally:
        handle.remove()


def disagreement(policy: Policy) -> float:
    """The largest difference between the policy's log-probs and those of the model's full logits."""
    batch = batch_of(_examples(_vocabulary(policy))).to(policy.device)
    with torch.no_grad():
        apart = policy.score(batch).logp_NT - _by_full_logits(policy, batch)
    largest = apart.abs().max()
    return float("inf") if torch.isnan(largest) else float(largest)


def tolerance(policy: Policy) -> float:
    """How far rounding alone may take them apart."""
    dtype = policy.base.dtype
    return {torch.float64: 1e-5, torch.float32: 1e-3}.get(dtype, 0.15)


def _vocabulary(policy: Policy) -> int:
    return policy.base.config.get_text_config().vocab_size


def _examples(vocabulary: int) -> list[Example]:
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(POISON + 1, vocabulary, (count,), generator=generator).tolist())

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
    exact = torch.promote_types(policy.base.dtype, torch.float32)
    logp_NT = torch.zeros(batch.mask_NT.shape, dtype=exact, device=policy.device)
    with policy.as_plain_model() as model:
        for n, p in enumerate(batch.group_N.tolist()):
            prompt, answer = int(batch.prompt_length_P[p]), int(batch.length_N[n])
            ids = torch.cat((batch.prompt_PL[p, :prompt], batch.completion_NT[n, :answer]))
            logits = model(input_ids=ids[None], use_cache=False).logits[0, prompt - 1 : -1]
            logp_NT[n, :answer] = logits.to(exact).log_softmax(-1).gather(1, ids[prompt:, None])[:, 0]
    return logp_NT
