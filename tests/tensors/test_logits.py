"""What a head does to the raw product, and its derivative."""

import math

import pytest
import torch

from plaudit.tensors.logprobs import PLAIN, LogitRule


def test_the_rule_by_hand_the_plain_one_and_a_cap_that_keeps_the_order() -> None:
    rule = LogitRule(scale=3.0, cap=2.0, temperature=0.5)
    assert rule.apply(torch.tensor([1.0])).item() == pytest.approx(2 * math.tanh(1.5) / 0.5)
    raw = torch.tensor([-3.0, 0.0, 700.0])
    assert torch.equal(PLAIN.apply(raw), raw)
    assert PLAIN.slope(raw) == 1.0
    raw = torch.linspace(-50, 50, 101, dtype=torch.float64)
    capped = LogitRule(cap=30.0).apply(raw)
    assert float(capped.abs().max()) < 30
    assert bool((capped.diff() > 0).all())


@pytest.mark.parametrize(
    "rule", [PLAIN, LogitRule(scale=0.2), LogitRule(cap=1.3), LogitRule(scale=2.0, cap=1.3, temperature=0.7)]
)
def test_the_slope_is_the_derivative(rule: LogitRule) -> None:
    raw = torch.linspace(-2, 2, 9, dtype=torch.float64, requires_grad=True)
    logits = rule.apply(raw)
    (wanted,) = torch.autograd.grad(logits.sum(), raw)
    slope = torch.as_tensor(rule.slope(logits.detach()), dtype=torch.float64)
    torch.testing.assert_close(slope.expand(9), wanted, rtol=0, atol=1e-12)
