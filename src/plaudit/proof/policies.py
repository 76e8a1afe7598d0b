"""The policies that learn in the lab: a table with a logit for every answer, and a tiny transformer.

Both say the log-prob of each token of each answer. The table can be any distribution there is, so it shows
what a loss wants; the transformer goes through the code that training uses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from plaudit.batches.tokens import Completion, Example, TokenBatch, batch_of
from plaudit.models.policy import Policy
from plaudit.proof.language import END, Language, conditional


@runtime_checkable
class Speaker(Protocol):
    """Whatever has weights and a log-prob for every token of every answer."""

    def __call__(self) -> Float[Tensor, "P Y T"]:
        """log π of each token; 0 behind the end."""
        ...

    def weights(self) -> list[Tensor]:
        """What is learnt."""
        ...


class Table:
    """A policy with one logit for each answer to each prompt; it starts as the given distribution."""

    def __init__(self, spoken: Language, logp_PY: Float[Tensor, "P Y"] | None = None) -> None:
        self.spoken = spoken
        start_PY = spoken.ref_logp_PY if logp_PY is None else logp_PY
        self.logit_PY = start_PY.detach().clone().requires_grad_()

    def __call__(self) -> Float[Tensor, "P Y T"]:
        """log π of each token, from the shares of the answers that begin alike."""
        return conditional(self.logit_PY.log_softmax(-1), self.spoken)[0]

    def weights(self) -> list[Tensor]:
        """The logits."""
        return [self.logit_PY]


class Transformer:
    """A Llama of some thousand random weights in float64 that scores answers as training does."""

    def __init__(self, spoken: Language, *, seed: int = 0) -> None:
        self.policy = Policy(_llama(spoken.symbols + 1, seed))
        self.batch = batch_of_all(spoken)
        self.shape = spoken.ref_logp_PYT.shape

    def __call__(self) -> Float[Tensor, "P Y T"]:
        """log π of each token, from the project's own policy."""
        return self.policy.score(self.batch).logp_NT.view(self.shape)

    def weights(self) -> list[Tensor]:
        """All weights of the model."""
        return list(self.policy.parameters())


def batch_of_all(spoken: Language) -> TokenBatch:
    """Every answer to every prompt as one token batch.

    >>> from plaudit.proof.language import language
    >>> batch_of_all(language(seed=0)).completion_NT.shape
    torch.Size([30, 3])
    """
    completions = tuple(
        Completion(ids=response, mask=(True,) * len(response), finished=response[-1] == END)
        for response in spoken.responses
    )
    return batch_of([Example(prompt=prompt, completions=completions) for prompt in spoken.prompts])


def with_reference(spoken: Language, speaker: Speaker) -> Language:
    """The same language with the speaker, as it is now, for a reference."""
    with torch.no_grad():
        return replace(spoken, ref_logp_PYT=speaker().detach().clone())


def _llama(vocabulary: int, seed: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        # Large enough for the reference to prefer some answers, as a trained one does.
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).double()
