"""The plain way: all logits at once, in PyTorch's own functions. What ``score_tokens`` must equal."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from plaudit.tensors.logprobs import LogitRule, score_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    hidden_MH: Tensor
    weight_VH: Tensor
    bias_V: Tensor | None
    target_M: Tensor

    @property
    def leaves(self) -> list[Tensor]:
        return [x for x in (self.hidden_MH, self.weight_VH, self.bias_V) if x is not None]


def case(
    *,
    tokens: int,
    vocabulary: int,
    hidden: int = 5,
    bias: bool = False,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    device: torch.device | None = None,
) -> Case:
    """Drawn on the CPU, so that every device is given the same."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
        return drawn.to(device, dtype).requires_grad_()

    return Case(
        hidden_MH=draw(tokens, hidden),
        weight_VH=draw(vocabulary, hidden),
        bias_V=draw(vocabulary) if bias else None,
        target_M=torch.randint(vocabulary, (tokens,), generator=generator).to(device),
    )


CASES = st.builds(
    case,
    tokens=st.integers(0, 10),
    vocabulary=st.integers(1, 70),
    hidden=st.integers(1, 6),
    bias=st.booleans(),
    seed=st.integers(0, 2**16),
)
"""Cases of any shape, one token and none among them."""


def naive_scores(given: Case, rule: LogitRule) -> tuple[Tensor, Tensor]:
    raw_MV = given.hidden_MH @ given.weight_VH.T
    if given.bias_V is not None:
        raw_MV = raw_MV + given.bias_V
    scaled_MV = rule.scale * raw_MV
    capped_MV = scaled_MV if rule.cap is None else rule.cap * torch.tanh(scaled_MV / rule.cap)
    logp_MV = torch.log_softmax(capped_MV / rule.temperature, -1)
    entropy_M = -(logp_MV.exp() * logp_MV).sum(-1)
    return logp_MV.gather(1, given.target_M[:, None])[:, 0], entropy_M


def blocked_scores(given: Case, rule: LogitRule) -> tuple[Tensor, Tensor]:
    scores = score_tokens(
        given.hidden_MH, given.weight_VH, given.target_M, bias_V=given.bias_V, rule=rule, extras=("entropy",)
    )
    assert scores.entropy_M is not None
    return scores.logp_M, scores.entropy_M


def gradients(given: Case, logp_M: Tensor, entropy_M: Tensor, entropy_weight: float) -> tuple[Tensor, ...]:
    """Of a weighted sum, so that no two tokens pull alike."""
    pull_M = torch.linspace(-1.0, 2.0, len(logp_M), dtype=logp_M.dtype).to(logp_M.device)
    loss = (pull_M * logp_M).sum() + entropy_weight * (pull_M.flip(0) * entropy_M).sum()
    return torch.autograd.grad(loss, given.leaves)
