"""Llama's norms and angles in the model's own numbers, so that two devices can be compared to many digits.

transformers computes both in float32 whatever the model is of, and a GPU's float32 differs from a CPU's in
the last digit: a loss in float64 is then the same to eight digits alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRMSNorm, LlamaRotaryEmbedding

ENVIRONMENT = "TOY_EVERY_DIGIT"
"""Set for a command of the tests that shall keep them too."""
_NORM, _ANGLES = LlamaRMSNorm.forward, LlamaRotaryEmbedding.forward


@contextmanager
def every_digit() -> Iterator[None]:
    """While this lasts models of float64 compute in float64 alone; others compute as ever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LlamaRMSNorm, "forward", _norm)
        patch.setattr(LlamaRotaryEmbedding, "forward", exact_angles)
        yield


def _norm(self: Any, hidden_states: Tensor) -> Tensor:
    if hidden_states.dtype != torch.float64:
        return _NORM(self, hidden_states)
    mean = hidden_states.square().mean(-1, keepdim=True)
    return self.weight * hidden_states * torch.rsqrt(mean + self.variance_epsilon)


def exact_angles(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
    if x.dtype != torch.float64:
        return _ANGLES(self, x, position_ids)
    # From frequencies of float32, which are the same everywhere: they come from one computation on the host.
    half = position_ids[..., None].double() * self.inv_freq.to(device=x.device).double()
    angles = torch.cat((half, half), dim=-1)
    return angles.cos() * self.attention_scaling, angles.sin() * self.attention_scaling
