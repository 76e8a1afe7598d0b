"""What the model says now, to a few held-out prompts: greedy, so that only learning changes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.models.policy import Policy
from plaudit.recipes.config import SampleSettings
from plaudit.training.plan import Pause
from plaudit.training.shards import gathered, is_sharded
from plaudit.training.sinks.sink import Sample


def sampler(
    policy: Policy, encoder: Encoder, examples: Sequence[Example], settings: SampleSettings
) -> Callable[[Pause], Sequence[Sample]]:
    """A function that has the policy answer the first prompts; with sharded weights every rank must ask."""
    chosen = examples[: settings.rows]

    def sample(pause: Pause) -> list[Sample]:
        said: list[Sample] = []
        with policy.as_plain_model(), gathered(policy):
            for example in chosen:
                pause()
                said.append(_answer(policy, encoder, example, settings.tokens))
        return said

    return sample


def _answer(policy: Policy, encoder: Encoder, example: Example, tokens: int) -> Sample:
    ids = torch.tensor([example.prompt], device=policy.device)
    generate: Any = policy.base.generate
    with torch.no_grad():
        said = generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=list(encoder.stop_ids),
            pad_token_id=encoder.stop_ids[0],
            synced_gpus=is_sharded(policy),
        )
    decode = encoder.info.decode
    return Sample(
        prompt=decode(example.prompt),
        completion=decode(said[0, ids.shape[1] :].tolist()),
        expected=decode(example.completions[0].ids),
    )
