"""A reward model learns: all of it, or its head and adapters; with layers computed again, and merged."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from transformers import AutoModelForSequenceClassification

from plaudit.errors import UserError
from plaudit.models.adapters import save_adapter
from plaudit.models.reward_model import FreshHead, RewardModel, load_reward_model, save_reward_model
from plaudit.models.settings import LoraSettings
from plaudit.tokens.batch import Completion, Example, TokenBatch, batch_of
from tests.models.reward_zoo import CPU, conversations, encoder_of, fresh, start
from tests.models.zoo import examples, recompute_layers

LORA = LoraSettings(rank=4, alpha=8)


def _pairs(count: int = 24, seed: int = 0) -> TokenBatch:
    """The better answer, the first, holds the token 20; nothing else tells them apart."""
    generator = torch.Generator().manual_seed(seed)

    def ids(length: int) -> tuple[int, ...]:
        return tuple(torch.randint(21, 60, (length,), generator=generator).tolist())

    def answer(*own: int) -> Completion:
        return Completion(ids=own, mask=(True,) * len(own), finished=True)

    def example() -> Example:
        return Example(prompt=ids(4), completions=(answer(20, *ids(3), 2), answer(*ids(4), 2)))

    return batch_of([example() for _ in range(count)])


def _train(model: RewardModel, batch: TokenBatch, steps: int = 40) -> tuple[float, float]:
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.01)
    accuracy: list[float] = []
    for _ in range(steps):
        gap_B = model.rewards(batch).view(-1, 2).diff(dim=1)[:, 0].neg()
        accuracy.append(float((gap_B > 0).float().mean()))
        optimizer.zero_grad()
        (-logsigmoid(gap_B).mean()).backward()
        optimizer.step()
    return accuracy[0], accuracy[-1]


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "adapters"])
def test_it_learns_what_is_preferred_and_says_so_of_new_answers(tmp_path, pooling, lora):
    model = fresh(start(tmp_path), FreshHead(pooling=pooling)).train()
    if lora:
        pytest.importorskip("peft", reason="needs plaudit[lora]")
        model = model.with_adapters(LORA).train()
    before, after = _train(model, _pairs())
    assert before < 0.9 < after
    with torch.no_grad():
        gap_B = model.rewards(_pairs(seed=1)).view(-1, 2).diff(dim=1)
    assert float((gap_B < 0).float().mean()) > 0.8


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "phi3"])
def test_fresh_adapters_change_nothing_and_learn_with_the_head_alone(tmp_path, name):
    pytest.importorskip("peft", reason="needs plaudit[lora]")
    model, batch = fresh(start(tmp_path, name)), batch_of(examples())
    before_N = model.rewards(batch).detach()
    adapted = model.with_adapters(LORA)
    assert torch.equal(adapted.rewards(batch), before_N)
    adapted.rewards(batch).sum().backward()
    learning = {key for key, p in adapted.named_parameters() if p.requires_grad}
    assert learning == {key for key, p in adapted.named_parameters() if p.grad is not None}
    heads = {key for key in learning if "lora_" not in key}
    assert len(learning) > len(heads) == 1
    assert "score" in next(iter(heads))


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_merged_adapters_are_saved_as_a_classifier(tmp_path, name):
    pytest.importorskip("peft", reason="needs plaudit[lora]")
    begun = start(tmp_path, name)
    model, batch = fresh(begun).with_adapters(LORA), batch_of(examples())
    raw_N = model.rewards(batch).detach()
    _train(model, _pairs(), steps=5)
    wanted_N = model.rewards(batch).detach()
    assert float((wanted_N - raw_N).abs().max()) > 0.05
    with pytest.raises(UserError, match="merge its adapters first"):
        save_reward_model(model, tmp_path / "end", template_of=begun, encoder=encoder_of(begun))
    save_adapter(model.model, tmp_path / "adapter")
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    save_reward_model(model.merged(), tmp_path / "end", template_of=begun, encoder=encoder_of(begun))
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "end").eval()
    with torch.no_grad():
        alone_N = torch.stack([plain(torch.tensor([row])).logits[0, 0] for row in conversations(batch)])
        loaded_N = load_reward_model(tmp_path / "end", dtype=torch.float32, device=CPU).rewards(batch)
    torch.testing.assert_close(alone_N, wanted_N, rtol=0, atol=1e-5)
    torch.testing.assert_close(loaded_N, wanted_N, rtol=0, atol=1e-5)


def _gradients(model: RewardModel) -> dict[str, Tensor]:
    model.train().rewards(batch_of(examples())).sum().backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "adapters"])
def test_layers_that_are_computed_again_give_the_same_gradient(tmp_path, lora):
    begun = start(tmp_path)

    def one(checkpointing: bool) -> tuple[dict[str, Tensor], int]:
        model = fresh(begun, dtype=torch.float64)
        if checkpointing:
            recompute_layers(model.base)
        runs: list[int] = []
        model.base.model.layers[0].mlp.register_forward_pre_hook(lambda *_: runs.append(1))
        if lora:
            pytest.importorskip("peft", reason="needs plaudit[lora]")
            torch.manual_seed(0)
            model = model.with_adapters(LORA)
        return _gradients(model), len(runs)

    (again, twice), (wanted, once) = one(True), one(False)
    assert (once, twice) == (1, 2)
    assert set(again) == set(wanted)
    for name, grad in wanted.items():
        torch.testing.assert_close(again[name], grad, rtol=0, atol=1e-12, msg=name)


def test_a_pairs_prompt_goes_through_the_layers_once(tmp_path):
    model, batch = fresh(start(tmp_path)), _pairs(count=3)
    tokens: list[int] = []
    model.base.model.layers[0].register_forward_pre_hook(lambda _, args: tokens.append(args[0].shape[1]))
    model.rewards(batch)
    assert tokens == [3 * (4 + 5 + 5)]
