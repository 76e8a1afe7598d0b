"""Ways to ask a model what it says of the tokens of rows, and how far two of them lie apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from plaudit.batches.pack import Layout
from plaudit.batches.tokens import Example, TokenBatch
from plaudit.models.head import backbone_of
from plaudit.models.policy import Policy
from plaudit.models.reward import RewardModel

Model = Policy | RewardModel
"""What is looked at: log-probs of a policy, rewards at every token of a reward model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """How far two looks at the same tokens lie apart.

    Example: ``Apart(largest=2e-6, mean=3e-7, origin="rows.jsonl:3")``
    """

    largest: float
    """The largest difference of a token."""
    mean: float
    """That of all tokens on average."""
    origin: str
    """The row of the largest."""


@contextmanager
def laid_out(model: Model, layout: Layout, *, share: bool) -> Iterator[None]:
    """While this lasts batches are laid out like this."""
    was, shared = model.layout, model.trunk.share_prompts
    model.use_layout(layout)
    model.trunk.share_prompts = share
    try:
        yield
    finally:
        model.use_layout(was)
        model.trunk.share_prompts = shared


def told(model: Model, batch: TokenBatch) -> Tensor:
    """What it says of each trained token, ``[N, T]``, in its present layout."""
    return model.score(batch).logp_NT if isinstance(model, Policy) else model.values(batch)


def told_plainly(model: Model, examples: Sequence[Example]) -> Tensor:
    """The same by transformers' own pass over one answer at a time, ``[N, T]``."""
    rows: list[Tensor] = []
    with model.as_plain_model() as plain:
        for example in examples:
            for answer in example.completions:
                ids = torch.tensor([*example.prompt, *answer.ids], device=model.device)
                rows.append(_told_of_one(model, plain, ids, len(example.prompt)))
    return pad_sequence(rows, batch_first=True)


def _told_of_one(model: Model, plain: Any, ids: Tensor, prompt: int) -> Tensor:
    if isinstance(model, Policy):
        logits = plain(input_ids=ids[None], use_cache=False).logits[0, prompt - 1 : -1]
        exact = torch.promote_types(logits.dtype, torch.float32)
        return logits.to(exact).log_softmax(-1).gather(1, ids[prompt:, None])[:, 0]
    score: Any = model.base.score
    hidden = backbone_of(model.base)(input_ids=ids[None], use_cache=False).last_hidden_state
    return model.normalisation.of(score(hidden)[0, prompt:, 0])


def apart(one_NT: Tensor, other_NT: Tensor, batch: TokenBatch) -> Apart:
    """How far they lie apart where a token is trained; what is no number is infinitely far."""
    apart_NT = (one_NT - other_NT).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    apart_NT = apart_NT.masked_fill(~batch.mask_NT, 0.0)
    worst = int(apart_NT.amax(-1).argmax())
    return Apart(
        largest=float(apart_NT.max()),
        mean=float(apart_NT.sum()) / max(1, int(batch.mask_NT.sum())),
        origin=batch.origin_N[worst] or "a row",
    )
