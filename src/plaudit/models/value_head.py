"""A critic that shares the policy's layers: one number from the state in which each token is chosen."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from plaudit.batches.tokens import TokenBatch
from plaudit.models.head import Head
from plaudit.models.policy import Policy, spread_out


class ValueHead(nn.Module):
    """A linear head beside the vocabulary's; it begins with zeros, and so expects nothing."""

    def __init__(self, policy: Policy) -> None:
        """On the policy's device, in its numbers; the policy's weights stay its own."""
        super().__init__()
        size = policy.base.config.get_text_config().hidden_size
        self.score = nn.Linear(size, 1, bias=False, device=policy.device, dtype=policy.base.dtype)
        nn.init.zeros_(self.score.weight)
        # In a list, so that the policy is no part of this module.
        self._of = [policy]

    def values(self, batch: TokenBatch, *, at: Literal["before"] = "before") -> Float[Tensor, "N T"]:
        """V before each trained token, 0 elsewhere: a pass of the policy's own layers."""
        del at
        [value_M] = self._of[0](batch, self.read)
        return spread_out(value_M, batch)

    def read(self, hidden_MH: Tensor, head: Head, batch: TokenBatch) -> tuple[Tensor, ...]:
        """What the policy's states say, in float32 at least; for `Policy.score`, which has them anyway."""
        del head, batch
        exact = torch.promote_types(hidden_MH.dtype, torch.float32)
        with torch.autocast(hidden_MH.device.type, enabled=False):
            return (nn.functional.linear(hidden_MH.to(exact), self.score.weight.to(exact))[:, 0],)
