"""Samples for a run's log: greedy completions of a few held-out prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from plaudit.engine.distributed import is_sharded, unsharded
from plaudit.engine.loop import InterruptCheck
from plaudit.engine.sinks.base import Sample
from plaudit.methods.config import SampleSettings
from plaudit.models.policy import Policy
from plaudit.tokens.batch import Example, batch_of
from plaudit.tokens.encode import Encoder
from plaudit.tokens.packing import layout_batch


def sample_completions_fn(
    policy: Policy, encoder: Encoder, examples: Sequence[Example], settings: SampleSettings
) -> Callable[[InterruptCheck], Sequence[Sample]]:
    """A function that generates completions of the first prompts; sharded, every rank must call it."""
    examples_shown = examples[: settings.rows]

    def sample(pause: InterruptCheck) -> list[Sample]:
        samples: list[Sample] = []
        with policy.as_plain_model(), unsharded(policy):
            for example in examples_shown:
                pause()
                samples.append(_generate_sample(policy, encoder, example, settings.tokens))
        return samples

    return sample


def _generate_sample(policy: Policy, encoder: Encoder, example: Example, tokens: int) -> Sample:
    ids = torch.tensor([example.prompt], device=policy.device)
    extras = layout_batch(batch_of([example.select([0])]).to(policy.device), "right").extras
    generate: Any = policy.base.generate
    with torch.no_grad():
        generated = generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=list(encoder.stop_ids),
            pad_token_id=encoder.stop_ids[0],
            synced_gpus=is_sharded(policy),
            **extras,
        )
    decode = encoder.info.decode
    return Sample(
        prompt=decode(example.prompt),
        completion=decode(generated[0, ids.shape[1] :].tolist()),
        expected=decode(example.completions[0].ids),
    )
