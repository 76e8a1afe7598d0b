"""What a policy says beside log-probs, and the plain model inside it."""

import pytest
import torch

from plaudit.models.policy import Policy
from plaudit.models.verify import choose_kernels
from plaudit.tokens.batch import batch_of
from tests.models.zoo import SDPA, build, by_loop, examples, recompute_layers


@pytest.mark.parametrize("name", ["llama", "cohere", "phi", "gemma2"])
def test_entropy_greedy_and_temperature_against_full_logits(device: torch.device, name: str) -> None:
    policy = Policy(build(name, torch.float64).to(device), layout="right")
    row = examples()[2]
    batch = batch_of([row]).to(device)
    scores = policy.score(batch, also=("entropy",), temperature=0.7)
    ids = torch.tensor([row.prompt + row.completions[0].ids], device=device)
    with policy.as_plain_model() as model:
        logp_TV = (model(input_ids=ids).logits[0, 7:-1] / 0.7).log_softmax(-1)
    chosen_T = logp_TV.gather(1, ids[0, 8:, None])[:, 0]
    entropy_T = -(logp_TV.exp() * logp_TV).sum(-1)
    mask_T = batch.mask_NT[0]
    assert scores.entropy_NT is not None
    torch.testing.assert_close(scores.logp_NT[0], chosen_T * mask_T, rtol=0, atol=1e-6)
    torch.testing.assert_close(scores.entropy_NT[0], entropy_T * mask_T, rtol=0, atol=1e-6)
    assert scores.greedy_NT[0].tolist() == ((logp_TV.argmax(-1) == ids[0, 8:]) & mask_T).tolist()
    assert policy.score(batch).entropy_NT is None


@pytest.mark.parametrize("name", ["llama", "gemma2", "mamba"])
def test_a_packed_policy_still_generates_and_packs_again(name: str) -> None:
    policy = Policy(build(name), layout="right" if name == "mamba" else "packed")
    batch = batch_of(examples())
    before_NT = policy.score(batch).logp_NT
    policy.train()
    with policy.as_plain_model() as model, torch.no_grad():
        assert not model.training
        ids = torch.tensor([[3, 4, 5]])
        made = model.generate(input_ids=ids, max_new_tokens=4, do_sample=False, eos_token_id=None)
        logits = model(input_ids=made).logits[0]
    assert made[0, 3:].tolist() == logits[2:-1].argmax(-1).tolist()
    assert policy.model.training
    assert torch.equal(policy.score(batch).logp_NT, before_NT)


@pytest.mark.parametrize("name", SDPA)
def test_training_mode_changes_no_log_prob(name: str) -> None:
    """Nothing is left to chance: dropout of these configurations is set to zero when they are loaded."""
    model = build(name)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout") and isinstance(module.attention_dropout, float):
            module.attention_dropout = 0.0
    policy = Policy(model)
    batch = batch_of(examples())
    calm_NT = policy.eval().score(batch).logp_NT
    assert torch.equal(policy.train().score(batch).logp_NT, calm_NT)


def test_layers_that_are_computed_again_give_the_same_gradient(device: torch.device) -> None:
    batch = batch_of(examples()).to(device)

    def gradients(checkpointing: bool) -> tuple[dict[str, torch.Tensor], int]:
        policy = by_loop(Policy(build("llama", torch.float64)), device).train()
        if checkpointing:
            recompute_layers(policy.model)
        runs: list[int] = []
        policy.base.model.layers[0].mlp.register_forward_pre_hook(lambda *_: runs.append(1))
        policy.score(batch, also=("entropy",)).logp_NT.sum().backward()
        return {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}, len(runs)

    (again, twice), (wanted, once) = gradients(True), gradients(False)
    assert (once, twice) == (1, 2)
    assert set(again) == set(wanted)
    for name, grad in wanted.items():
        torch.testing.assert_close(again[name], grad, rtol=0, atol=1e-12)


def test_bfloat16_products_stay_close_in_every_layout(device: torch.device) -> None:
    policy = by_loop(Policy(build("qwen2", head_size=16)), device)
    batch = batch_of(examples()).to(device)
    exact_NT = policy.score(batch).logp_NT.detach()
    policy.backbone.refused_kernels = ()
    policy.compute_in(torch.bfloat16)
    for layout in ("packed", "left", "right"):
        policy.use_layout(layout)
        assert choose_kernels(policy) in ("attention: varlen (full)", None)
        logp_NT = policy.score(batch).logp_NT.detach()
        assert logp_NT.dtype == torch.float32
        assert 1e-4 < float((logp_NT - exact_NT).abs().max()) < 0.1
