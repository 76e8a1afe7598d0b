"""The last layer's feed-forward part is computed for the tokens whose states are asked for, and no others."""

import pytest
import torch
from torch import Tensor, nn

from plaudit.models import backbone
from plaudit.models.reward_model import RewardModel
from plaudit.tokens.batch import TokenBatch, batch_of
from tests.models.reward_zoo import fresh, start
from tests.models.zoo import examples

FAMILIES = ["llama", "qwen3", "gemma3", "gpt2", "gptneox", "mixtral"]
"""Feed-forward parts behind attention, beside it, and of experts."""


def last_feed_forward(model: RewardModel) -> nn.Module:
    backbone = getattr(model.base, model.base.base_model_prefix)
    return (backbone.h if hasattr(backbone, "h") else backbone.layers)[-1].mlp


def tokens_seen(part: nn.Module, seen: list[int]) -> None:
    """Once the hooks of the pass itself have chosen, note how many tokens are left."""
    forward = part.forward

    def watched(hidden: Tensor) -> Tensor:
        seen.append(hidden.shape[:-1].numel())
        return forward(hidden)

    part.forward = watched


def gradients(model: RewardModel, batch: TokenBatch) -> dict[str, Tensor]:
    end_NC = torch.zeros(len(batch.origin_N), 3, dtype=torch.int64)
    end_NC[:, 1:] = -1
    model.zero_grad()
    parts = (model.rewards(batch), model.values(batch), model.step_rewards(batch, end_NC))
    torch.stack([part.sin().sum() for part in parts]).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("layout", ["packed", "left", "right"])
@pytest.mark.parametrize("name", FAMILIES)
def test_only_the_wanted_tokens_reach_it(tmp_path, name, layout):
    model, batch = fresh(start(tmp_path, name, pad="</s>")), batch_of(examples())
    model.use_layout(layout)
    seen: list[int] = []
    tokens_seen(last_feed_forward(model), seen)
    with torch.no_grad():
        model.rewards(batch)
        model.values(batch)
    assert seen == [len(batch.origin_N), int(batch.mask_NT.sum())]


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_those_of_the_whole_layer(tmp_path, name, monkeypatch):
    # Products of experts exist in float32 at most.
    dtype, near = (torch.float32, 1e-4) if name == "mixtral" else (torch.float64, 1e-10)
    model, batch = fresh(start(tmp_path, name, pad="</s>"), dtype=dtype), batch_of(examples())
    found = gradients(model, batch)
    monkeypatch.setattr(backbone, "_last_feed_forward", lambda backbone: None)
    wanted = gradients(model, batch)
    assert found.keys() == wanted.keys()
    for weight, gradient in wanted.items():
        torch.testing.assert_close(found[weight], gradient, rtol=10 * near, atol=near)
    assert sum(float(gradient.abs().sum()) for gradient in wanted.values()) > 1


def test_layers_that_are_computed_again_are_left_whole(tmp_path):
    """The backward pass comes when nobody knows any more which tokens were wanted."""
    folder, batch = start(tmp_path), batch_of(examples())
    plain, again = (fresh(folder, dtype=torch.float64) for _ in range(2))
    again.backbone.recompute_layers()
    again.train()
    wanted, found = gradients(plain, batch), gradients(again, batch)
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-10)


def test_nothing_is_left_behind(tmp_path):
    model, batch = fresh(start(tmp_path)), batch_of(examples())
    model.rewards(batch).sum().backward()
    part = last_feed_forward(model)
    assert not part._forward_hooks
    assert not part._forward_pre_hooks
