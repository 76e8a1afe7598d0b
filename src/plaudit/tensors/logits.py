"""How a model turns ``hidden · weight`` into logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitRule:
    """What happens to the raw product: logit = cap·tanh(scale·raw / cap) / temperature.

    Example: Gemma 2 is ``LogitRule(cap=30.0)``; Cohere is ``LogitRule(scale=0.0625)``.
    """

    scale: float = 1.0
    """Factor on the raw product (Cohere, Granite)."""
    cap: float | None = None
    """Soft cap (Gemma)."""
    temperature: float = 1.0
    """Logits are divided by it last, as a sampler does."""

    def apply(self, raw: Tensor) -> Tensor:
        """Logits from raw products.

        >>> LogitRule(scale=2.0, temperature=4.0).apply(torch.tensor([2.0])).item()
        1.0
        """
        logits = raw if self.scale == 1.0 else raw * self.scale
        if self.cap is not None:
            logits = self.cap * torch.tanh(logits / self.cap)
        return logits if self.temperature == 1.0 else logits / self.temperature

    def slope(self, logits: Tensor) -> Tensor | float:
        """The derivative of a logit by its raw product, told from the logit itself.

        >>> LogitRule(scale=3.0).slope(torch.tensor([5.0]))
        3.0
        """
        slope = self.scale / self.temperature
        if self.cap is None:
            return slope
        return slope * (1 - (logits * (self.temperature / self.cap)) ** 2)


PLAIN = LogitRule()
"""Logits are the raw product: Llama, Qwen, Mistral, GPT-2, Phi."""
