"""Roles of a shared backbone as folders: adapters that are read back bit for bit, and merged models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from examples.shared_backbone import SharedBackbone
from plaudit.errors import UserError
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.models.reward_model import FreshHead, Normalisation, load_reward_model
from plaudit.tokens.batch import batch_of
from tests.examples.shared_roles import LORA, ROLES, all_said, learning, learnt
from tests.models.reward_zoo import CPU, conversations, encoder_of, start
from tests.models.zoo import build, examples

pytest.importorskip("peft", reason="needs plaudit[lora]")


def test_roles_are_saved_apart_and_read_back_bit_for_bit(tmp_path: Path) -> None:
    trunk = learnt(SharedBackbone(build("llama"), LORA, head=FreshHead(pooling="mean")))
    trunk.reward.normalisation = Normalisation(offset=0.5, scale=2)
    wanted = all_said(trunk)
    for name in ROLES:
        trunk.save(name, tmp_path / name)
    size = (tmp_path / "policy" / "adapter_model.safetensors").stat().st_size
    assert size < 4 * sum(p.numel() for p in learning(trunk, "policy").values()) + 20_000
    again = SharedBackbone(build("llama"))
    assert list(again.roles) == []
    for name in ROLES:
        again.load(name, tmp_path / name)
    for name, tensor in all_said(again).items():
        assert torch.equal(tensor, wanted[name]), name
    assert again.reward.normalisation == Normalisation(offset=0.5, scale=2)
    for name in ROLES:
        assert set(learning(again, name)) == set(learning(trunk, name))


@pytest.mark.parametrize(("name", "pad"), [("llama", "<pad>"), ("gpt2", "</s>")])
def test_merged_roles_are_folders_that_transformers_loads(tmp_path: Path, name: str, pad: str) -> None:
    begun, batch = start(tmp_path, name, pad=pad), batch_of(examples())
    trunk = learnt(SharedBackbone(load_model(begun, dtype=torch.float32, device=CPU), LORA))
    before = all_said(trunk)
    for role in ROLES:
        trunk.save_merged(role, tmp_path / role, template_of=begun, encoder=encoder_of(begun))
    classifier: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path / "reward").eval()
    plain: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    language = Policy(plain.eval())
    value = load_reward_model(tmp_path / "value", dtype=torch.float32, device=CPU)
    with torch.no_grad():
        alone_N = torch.stack([classifier(torch.tensor([row])).logits[0, 0] for row in conversations(batch)])
        torch.testing.assert_close(alone_N, before["reward"], rtol=0, atol=1e-5)
        torch.testing.assert_close(language.score(batch).logp_NT, before["policy"], rtol=0, atol=1e-5)
        torch.testing.assert_close(value.values(batch, at="before"), before["value"], rtol=0, atol=1e-5)
    assert encoder_of(tmp_path / "policy").stop_ids == encoder_of(begun).stop_ids
    for role, tensor in all_said(trunk).items():
        assert torch.equal(tensor, before[role]), f"{role} was changed by saving"


def test_merging_by_hand_takes_a_copy_or_is_refused() -> None:
    trunk = learnt(SharedBackbone(build("llama"), LORA))
    before = all_said(trunk)
    with torch.no_grad():
        reward_N = trunk.reward.merged().rewards(batch_of(examples()))
    torch.testing.assert_close(reward_N, before["reward"], rtol=0, atol=1e-5)
    peft: Any = trunk.policy.model
    with pytest.raises(UserError, match="would change all roles"):
        peft.merge_adapter()
    for role, tensor in all_said(trunk).items():
        assert torch.equal(tensor, before[role]), role


@pytest.mark.slow
def test_a_folder_that_does_not_fit_is_refused_in_words(tmp_path: Path) -> None:
    trunk = SharedBackbone(build("llama"), LORA)
    trunk.save("reward", tmp_path / "reward")
    with pytest.raises(UserError, match="already has a role named 'reward'"):
        trunk.load("reward", tmp_path / "reward")
    with pytest.raises(UserError, match=r"adapter_model\.safetensors is missing"):
        trunk.load("other", tmp_path)
    with pytest.raises(UserError, match="does not fit this model"):
        SharedBackbone(build("gpt2")).load("reward", tmp_path / "reward")
    facts = tmp_path / "reward" / "plaudit_role.json"
    facts.write_text(json.dumps({"kind": "judge"}))
    with pytest.raises(UserError, match="not the facts of a role"):
        trunk.load("other", tmp_path / "reward")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("lost", ["lora_A", "score"])
def test_an_adapter_that_lacks_numbers_is_refused_rather_than_drawn(tmp_path: Path, lost: str) -> None:
    SharedBackbone(build("llama"), LORA).save("reward", tmp_path)
    weights = load_file(tmp_path / "adapter_model.safetensors")
    gone = next(key for key in weights if lost in key)
    save_file({key: w for key, w in weights.items() if key != gone}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(UserError, match=r"does not fit this model: .*missing"):
        SharedBackbone(build("llama")).load("reward", tmp_path)
