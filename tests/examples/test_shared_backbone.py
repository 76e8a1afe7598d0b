"""Policy, reward, value and reference on one trunk: one copy of the weights, and no role disturbs another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from examples.shared_backbone import RoleKind, SharedBackbone
from plaudit.errors import UserError
from plaudit.models.load import load_model, with_lora
from plaudit.models.policy import Policy
from plaudit.models.reward_model import FreshHead, Normalisation, RewardModel
from plaudit.models.settings import LoraSettings
from plaudit.models.verify import choose_layout
from plaudit.tokens.batch import batch_of
from plaudit.tokens.microbatch import Layout
from tests.examples.shared_roles import LORA, ROLES, all_said, learning, learnt, said
from tests.models.reward_zoo import CPU, fresh, start
from tests.models.zoo import build, examples, recompute_layers

pytest.importorskip("peft", reason="needs plaudit[lora]")


def _drawn_heads(trunk: SharedBackbone) -> set[int]:
    """PEFT keeps a scorer's head as it was drawn, beside the one that learns."""
    scorers: list[Any] = [trunk.reward.base, trunk.value.base]
    return {base.score.original_module.weight.data_ptr() for base in scorers}


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
def test_the_base_is_in_memory_once(name: str) -> None:
    model: Any = build(name)
    base = {p.data_ptr(): p.numel() for p in model.parameters()}
    trunk = SharedBackbone(model, LORA)
    frozen = {p.data_ptr() for p in trunk.parameters() if not p.requires_grad}
    assert frozen == set(base) | _drawn_heads(trunk)
    for role in trunk.roles.values():
        own = {p.data_ptr(): p.numel() for p in role.parameters() if p.data_ptr() not in base}
        shared = {p.data_ptr() for p in role.parameters()} & set(base)
        left_out = {model.get_output_embeddings().weight.data_ptr()}
        assert set(base) - shared <= left_out, "a scorer has no use for the vocabulary head"
        learnt_numbers = sum(p.numel() for p in role.parameters() if p.requires_grad)
        head = model.config.hidden_size if isinstance(role, RewardModel) else 0
        assert sum(own.values()) == learnt_numbers + head


def test_the_base_stays_one_when_it_is_moved() -> None:
    trunk = learnt(SharedBackbone(build("llama"), LORA)).to(torch.float64)
    frozen = {p.data_ptr() for p in trunk.parameters() if not p.requires_grad}
    base = {p.data_ptr() for p in trunk.reference.parameters()}
    assert frozen == base | _drawn_heads(trunk)
    assert {tensor.dtype for tensor in all_said(trunk).values()} == {torch.float64}


@pytest.mark.parametrize("layout", ["packed", "left", "right"])
def test_the_reference_is_the_plain_model_bit_for_bit(layout: Layout) -> None:
    batch = batch_of(examples())
    with torch.no_grad():
        plain = Policy(build("llama"), layout=layout).score(batch).logp_NT
        trunk = learnt(SharedBackbone(build("llama"), LORA, layout=layout))
        assert torch.equal(trunk.reference.score(batch).logp_NT, plain)
        moved = float((trunk.policy.score(batch).logp_NT - plain).abs().max())
    assert moved > 0.1
    assert not trunk.reference.score(batch).logp_NT.requires_grad


def test_fresh_roles_say_what_the_base_says() -> None:
    trunk = SharedBackbone(build("llama"), LORA)
    told = all_said(trunk)
    assert torch.equal(told["policy"], told["reference"])
    assert float(told["reward"].std()) > 0.1


@pytest.mark.parametrize("name", ROLES)
def test_gradients_touch_the_roles_own_adapter_and_head_alone(name: str) -> None:
    trunk = learnt(SharedBackbone(build("llama"), LORA))
    said(trunk, name).sum().backward()
    touched = {p.data_ptr() for p in trunk.parameters() if p.grad is not None}
    assert touched == {p.data_ptr() for p in learning(trunk, name).values()}
    heads = [key for key in learning(trunk, name) if "lora_" not in key]
    assert len(heads) == (0 if name == "policy" else 1)
    assert all(bool(p.grad.any()) for p in learning(trunk, name).values() if p.grad is not None)


@pytest.mark.parametrize("name", ROLES)
def test_an_update_of_one_role_leaves_the_others_bit_equal(name: str) -> None:
    trunk = learnt(SharedBackbone(build("llama"), LORA))
    before = all_said(trunk)
    optimizer = torch.optim.AdamW(learning(trunk, name).values(), lr=0.05, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        said(trunk, name).square().sum().backward()
        optimizer.step()
    after = all_said(trunk)
    assert float((after[name] - before[name]).abs().max()) > 0.05
    for other in {"reference", *ROLES} - {name}:
        assert torch.equal(after[other], before[other]), other


def _apart(tmp_path: Path, trunk: SharedBackbone, begun: Path) -> dict[str, Any]:
    """The same roles as models of their own, each with its own copy of the base."""
    alone: dict[str, Any] = {
        "policy": Policy(with_lora(load_model(begun, dtype=torch.float32, device=CPU), LORA)),
        "reward": fresh(begun).with_adapters(LORA),
        "value": fresh(begun).with_adapters(LORA),
    }
    with torch.no_grad():
        for name, model in alone.items():
            for key, weight in model.named_parameters():
                if weight.requires_grad:
                    weight.copy_(learning(trunk, name)[key])
    return alone


def test_every_role_is_what_it_would_be_alone(tmp_path: Path) -> None:
    begun, batch = start(tmp_path), batch_of(examples())
    trunk = learnt(SharedBackbone(load_model(begun, dtype=torch.float32, device=CPU), LORA))
    alone = _apart(tmp_path, trunk, begun)
    with torch.no_grad():
        wanted = {
            "policy": alone["policy"].score(batch).logp_NT,
            "reward": alone["reward"].rewards(batch),
            "value": alone["value"].values(batch, at="before"),
        }
        for name, tensor in wanted.items():
            assert torch.equal(said(trunk, name), tensor), name
        torch.testing.assert_close(
            said(trunk, "reward"), alone["reward"].merged().rewards(batch), rtol=0, atol=1e-5
        )


def _checkpointed(dtype: torch.dtype = torch.float64) -> Any:
    model = build("llama", dtype)
    recompute_layers(model)
    return model


def test_layers_that_are_computed_again_meet_their_own_role() -> None:
    """Every forward pass comes before the first backward pass: a role is recomputed behind the others."""

    def gradients(model: Any) -> tuple[dict[str, Tensor], list[int]]:
        trunk = learnt(SharedBackbone(model, LORA)).train()
        runs: list[int] = []
        for name in ROLES:
            layer = trunk[name].base.model.layers[0]
            layer.mlp.register_forward_pre_hook(lambda *_: runs.append(1))
        told = {name: said(trunk, name) for name in ROLES}
        for name in ("reward", "policy", "value"):
            with torch.no_grad():
                trunk.reference.score(batch_of(examples()))
            told[name].square().sum().backward()
        grads = {
            f"{name} {key}": p.grad
            for name in ROLES
            for key, p in learning(trunk, name).items()
            if p.grad is not None
        }
        return grads, runs

    again, twice = gradients(_checkpointed())
    wanted, once = gradients(build("llama", torch.float64))
    assert (len(once), len(twice)) == (3, 6)
    assert set(again) == set(wanted)
    for key, grad in wanted.items():
        torch.testing.assert_close(again[key], grad, rtol=0, atol=1e-12, msg=key)


def test_one_loss_of_policy_and_value_gives_each_its_own_gradient() -> None:
    def grads(together: bool) -> list[Tensor]:
        trunk = learnt(SharedBackbone(build("llama", torch.float64), LORA))
        parts = [said(trunk, "policy").sum(), said(trunk, "value").square().sum()]
        for loss in [parts[0] + parts[1]] if together else parts:
            loss.backward()
        return [p.grad for p in trunk.parameters() if p.grad is not None]

    for one, other in zip(grads(True), grads(False), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ROLES)
def test_an_exception_in_a_role_changes_nothing(name: str) -> None:
    trunk = learnt(SharedBackbone(build("llama"), LORA))
    before = all_said(trunk)

    def fail(*_: object) -> None:
        raise RuntimeError("no memory")

    handle = trunk[name].base.model.layers[1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="no memory"):
        said(trunk, name)
    with pytest.raises(RuntimeError, match="no memory"), trunk[name].as_plain_model() as plain:
        plain(input_ids=torch.tensor([[1, 5]]))
    handle.remove()
    for other, tensor in all_said(trunk).items():
        assert torch.equal(tensor, before[other]), other


def test_a_role_is_sampled_while_another_is_in_use() -> None:
    trunk = learnt(SharedBackbone(build("llama"), LORA))
    before = all_said(trunk)
    with trunk.policy.as_plain_model() as plain:
        during = said(trunk, "reward").detach()
        ids = plain.generate(torch.tensor([[1, 5, 9]]), max_new_tokens=3, do_sample=False)
    assert ids.shape[1] > 3
    assert torch.equal(during, before["reward"])


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
def test_the_layouts_agree(name: str) -> None:
    trunk = learnt(SharedBackbone(build(name), LORA, layout="right"))
    wanted = all_said(trunk)
    for layout in ("packed", "left"):
        trunk.use_layout(layout)
        for role, tensor in all_said(trunk).items():
            torch.testing.assert_close(tensor, wanted[role], rtol=0, atol=1e-5, msg=f"{layout} {role}")
    for role in (trunk.reference, trunk.policy, trunk.reward):
        assert choose_layout(role, "packed") == ("packed", None)


def test_any_roles_by_any_name() -> None:
    roles: dict[str, RoleKind] = {"helpful": "scorer", "safe": "scorer"}
    trunk: Any = SharedBackbone(build("llama"), LORA, roles=roles)
    trunk.add("small", "policy", LoraSettings(rank=1, targets="q_proj"), None)
    trunk.add("mean", "scorer", LORA, FreshHead(seed=5, pooling="mean"))
    batch = batch_of(examples())
    assert torch.equal(trunk["helpful"].rewards(batch), trunk["safe"].rewards(batch))
    assert not torch.equal(trunk["mean"].rewards(batch), trunk["safe"].rewards(batch))
    assert {key.split(".lora_")[0].rsplit(".", 1)[-1] for key in learning(trunk, "small")} == {"q_proj"}
    with pytest.raises(UserError, match="no role named 'policy'; there are: helpful, safe, small, mean"):
        _ = trunk.policy
    with pytest.raises(UserError, match="already has a role named 'safe'"):
        trunk.add("safe", "scorer", LORA)
    for name in ("reference", "a.b", "keys", ""):
        with pytest.raises(UserError, match="cannot be named"):
            trunk.add(name, "policy", LORA)
    with pytest.raises(UserError, match=r"lora\.rank is 0"):
        trunk.add("still", "policy", LoraSettings())
    odd: dict[str, RoleKind] = {"policy": "scorer"}
    with pytest.raises(UserError, match="'policy' is a RewardModel, not a Policy"):
        _ = SharedBackbone(build("llama"), LORA, roles=odd).policy
    with pytest.raises(UserError, match="the shared backbone is a plain model"):
        SharedBackbone(trunk["small"].model, LORA)


def test_a_value_begins_as_the_reward_and_goes_its_own_way() -> None:
    trunk, batch = learnt(SharedBackbone(build("llama"), LORA)), batch_of(examples())
    trunk.reward.normalisation = Normalisation(offset=0.5, scale=2)
    trunk.copy_role("value", "reward")
    with torch.no_grad():
        assert torch.equal(trunk.value.values(batch), trunk.reward.values(batch))
    kept_N = trunk.reward.rewards(batch).detach()
    optimizer = torch.optim.SGD(learning(trunk, "value").values(), lr=0.1)
    trunk.value.values(batch).sum().backward()
    optimizer.step()
    assert torch.equal(trunk.reward.rewards(batch), kept_N)
    assert not torch.equal(trunk.value.rewards(batch), kept_N)
    with pytest.raises(UserError, match="differ in kind"):
        trunk.copy_role("value", "policy")


@pytest.mark.slow
def test_policy_and_reward_learn_on_one_trunk() -> None:
    """The reward learns to prefer a token; the policy learns to write a token; neither spoils the other."""
    trunk, batch = SharedBackbone(build("llama"), LORA), batch_of(examples())
    optimizer = torch.optim.Adam([p for p in trunk.parameters() if p.requires_grad], lr=0.02)
    before = all_said(trunk)
    for _ in range(30):
        optimizer.zero_grad()
        reward_N = trunk.reward.rewards(batch)
        ranking = -logsigmoid(reward_N[1:] - reward_N[:-1]).mean()
        (ranking - trunk.policy.score(batch).logp_NT.sum() / 20).backward()
        optimizer.step()
    after = all_said(trunk)
    assert bool((after["reward"].diff() > 0).all())
    assert not bool((before["reward"].diff() > 0).all())
    assert float(after["policy"].sum()) > float(before["policy"].sum()) / 2
    assert torch.equal(after["reference"], before["reference"])
