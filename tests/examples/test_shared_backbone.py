"""Policy, reward, value and reference on one trunk: one copy of the weights, and no role disturbs another."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from examples.shared_backbone import SharedBackbone
from plaudit.models.policy import Policy
from plaudit.models.settings import LoraSettings
from plaudit.tokens.batch import batch_of
from tests.models.zoo import build, examples

pytest.importorskip("peft", reason="needs plaudit[lora]")

LORA = LoraSettings(rank=4, alpha=8)
ROLES = ("policy", "reward", "value")


def learning(trunk: SharedBackbone, name: str) -> dict[str, Tensor]:
    return {key: p for key, p in trunk[name].named_parameters() if p.requires_grad}


def outputs(trunk: SharedBackbone) -> dict[str, Tensor]:
    """Log-probs of the reference and the policy, a reward, and values before each token."""
    batch = batch_of(examples())
    return {
        "reference": trunk.reference.score(batch).logp_NT,
        "policy": trunk.policy.score(batch).logp_NT,
        "reward": trunk.reward.rewards(batch),
        "value": trunk.value.values(batch, at="before"),
    }


@pytest.fixture
def trunk() -> SharedBackbone:
    """As after some steps: no adapter is zero any more, and no two are alike."""
    made = SharedBackbone(build("llama"), LORA)
    for seed, name in enumerate(ROLES):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in learning(made, name).values():
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.2)
    return made


def test_the_reference_is_the_plain_model_bit_for_bit(trunk: SharedBackbone) -> None:
    with torch.no_grad():
        plain_NT = Policy(build("llama")).score(batch_of(examples())).logp_NT
        found = outputs(trunk)
    assert torch.equal(found["reference"], plain_NT)
    assert float((found["policy"] - plain_NT).abs().max()) > 0.1


@pytest.mark.parametrize("name", ROLES)
def test_an_update_of_one_role_leaves_the_others_bit_equal(trunk: SharedBackbone, name: str) -> None:
    before = {role: tensor.detach() for role, tensor in outputs(trunk).items()}
    optimizer = torch.optim.AdamW(learning(trunk, name).values(), lr=0.05, weight_decay=0.1)
    outputs(trunk)[name].square().sum().backward()
    touched = {p.data_ptr() for p in trunk.parameters() if p.grad is not None}
    assert touched == {p.data_ptr() for p in learning(trunk, name).values()}
    optimizer.step()
    with torch.no_grad():
        after = outputs(trunk)
    assert [role for role in before if not torch.equal(after[role], before[role])] == [name]


def test_roles_are_saved_apart_and_read_back_bit_for_bit(trunk: SharedBackbone, tmp_path: Path) -> None:
    again = SharedBackbone(build("llama"))
    for name in ROLES:
        trunk.save(name, tmp_path / name)
        again.load(name, tmp_path / name)
    with torch.no_grad():
        wanted, found = outputs(trunk), outputs(again)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
