"""Shown at load time, on a few tokens of the user's own model: the fast path says what the model says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from plaudit.batches.pack import Layout
from plaudit.batches.tokens import Completion, Example, TokenBatch, batch_of
from plaudit.errors import UserError
from plaudit.models.attention_rule import PackingError
from plaudit.models.head import backbone_of
from plaudit.models.policy import Policy
from plaudit.models.reward import RewardModel

Provable = Policy | RewardModel
"""What is proven: log-probs of a policy, states of a reward model."""

LENGTHS = ((5, (4, 7)), (9, (3,)))
"""Prompts and completions of the trial: a group of two, so that sharing is tried, and one alone."""
POISON = 0
"""A token that the trial's other texts do not hold."""


def choose_layout(model: Provable, wanted: Layout) -> tuple[Layout, str | None]:
    """The layout that this model can be trusted with, and a sentence when it is not the wanted one.

    Packing needs attention to go through transformers' common interface; a model with recurrent state or
    an attention of its own gives other numbers, and is padded instead.
    """
    model.use_layout(wanted)
    objection = _objection(model)
    if objection is None:
        return wanted, None
    model.use_layout("right")
    padded = disagreement(model)
    if padded > tolerance(model):
        raise UserError(_refusal(model, padded))
    return "right", (
        f"{type(model.base).__name__} cannot be {_DONE[wanted]} ({objection}): "
        "batches are padded on the right"
    )


def _refusal(model: Provable, apart: float) -> str:
    if isinstance(model, Policy):
        return (
            f"the log-probs of {type(model.base).__name__} cannot be computed in blocks: they differ by "
            f"{apart:.2g} from its own logits. Its head does something that plaudit does not know"
        )
    return (
        f"the states of {type(model.base).__name__} differ by {apart:.2g} (relative to their size) in a "
        "padded batch: a token sees what follows it, so this is no causal model and cannot be scored in "
        "batches"
    )


_DONE: dict[Layout, str] = {
    "packed": "packed",
    "left": "padded on the left",
    "right": "padded on the right",
}


def _objection(model: Provable) -> str | None:
    """Why the model's layout cannot be trusted; None when it can."""
    try:
        apart = disagreement(model)
        if apart > tolerance(model):
            return f"{'log-probs' if isinstance(model, Policy) else 'states'} differ by {apart:.2g}"
        return "one conversation reaches into the next" if leaks(model) else None
    except PackingError as error:
        return str(error)


def leaks(model: Provable) -> bool:
    """Whether a completion whose last state is not a number makes any other one not a number.

    A difference between log-probs may drown in rounding where weights are small, as in a fresh model;
    this cannot.
    """
    row, *others = _examples(_vocabulary(model))
    first, *rest = row.completions
    poisoned = replace(first, ids=(*first.ids[:-1], POISON))
    examples = [replace(row, completions=(poisoned, *rest)), *others]
    batch = batch_of(examples).to(model.device)
    with torch.no_grad(), _poison(model):
        told = _told(model, batch)
    return bool(told[1:].isnan().any())


@contextmanager
def _poison(model: Provable) -> Iterator[None]:
    """While this lasts, the embedding of one token is not a number."""

    def spoil(_: nn.Module, ids: tuple[Any, ...], embedded: Tensor) -> Tensor:
        return embedded.masked_fill((ids[0] == POISON)[..., None], float("nan"))

    handle = model.base.get_input_embeddings().register_forward_hook(spoil)
    try:
        yield
    finally:
        handle.remove()


def disagreement(model: Provable) -> float:
    """The largest difference between what is told by the fast path and by plain passes, one at a time."""
    batch = batch_of(_examples(_vocabulary(model))).to(model.device)
    with torch.no_grad():
        apart = _told(model, batch) - _told_plainly(model, batch)
    largest = apart.abs().max()
    return float("inf") if torch.isnan(largest) else float(largest)


def tolerance(model: Provable) -> float:
    """How far rounding alone may take them apart."""
    dtype = model.base.dtype
    return {torch.float64: 1e-5, torch.float32: 1e-3}.get(dtype, 0.15)


def _vocabulary(model: Provable) -> int:
    return model.base.config.get_text_config().vocab_size


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


def _told(model: Provable, batch: TokenBatch) -> Tensor:
    """Log-probs ``[N, T]`` of a policy; directions of the states ``[N, T, H]`` that a reward is read in."""
    if isinstance(model, Policy):
        return model.score(batch).logp_NT
    hidden_MH = model.trunk.states(batch, lambda inputs: inputs.own_NT[batch.mask_NT])
    told_NTH = hidden_MH.new_zeros(*batch.mask_NT.shape, hidden_MH.shape[-1])
    told_NTH[batch.mask_NT] = _direction(hidden_MH)
    return told_NTH


def _told_plainly(model: Provable, batch: TokenBatch) -> Tensor:
    rows: list[Tensor] = []
    with model.as_plain_model() as plain:
        for n, p in enumerate(batch.group_N.tolist()):
            prompt, answer = int(batch.prompt_length_P[p]), int(batch.length_N[n])
            ids = torch.cat((batch.prompt_PL[p, :prompt], batch.completion_NT[n, :answer]))
            rows.append(_told_of_one(model, plain, ids, prompt))
    return pad_sequence(rows, batch_first=True)


def _told_of_one(model: Provable, plain: Any, ids: Tensor, prompt: int) -> Tensor:
    if isinstance(model, Policy):
        logits = plain(input_ids=ids[None], use_cache=False).logits[0, prompt - 1 : -1]
        exact = torch.promote_types(model.base.dtype, torch.float32)
        return logits.to(exact).log_softmax(-1).gather(1, ids[prompt:, None])[:, 0]
    output = backbone_of(model.base)(input_ids=ids[None], use_cache=False)
    return _direction(output.last_hidden_state[0, prompt:])


def _direction(hidden_MH: Tensor) -> Tensor:
    """Each state with a mean square of one, so that one tolerance fits models of any scale."""
    return hidden_MH * hidden_MH.square().mean(-1, keepdim=True).clamp(min=1e-30).rsqrt()
