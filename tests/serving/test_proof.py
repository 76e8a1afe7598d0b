"""The proof that a server computes with what it was sent: all that is wrong is caught, and nothing else."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from plaudit.engine.distributed import single_process
from plaudit.errors import UserError
from plaudit.models.adapters import with_lora
from plaudit.models.policy import Policy
from plaudit.models.settings import LoraSettings
from plaudit.rollouts.sampler import WeightsVersion
from plaudit.serving import weights as served
from plaudit.serving.fleet import Fleet, Keeper
from plaudit.serving.local_server import SamplingModel, load_served
from plaudit.serving.proof import Proof, disturbed, policy_logps, probes
from plaudit.serving.sampler import RemoteSampler
from plaudit.serving.server import Server
from plaudit.serving.weights import Handover, served_tensors
from plaudit.tokens.encode import make_encoder
from tests.models.zoo import VOCABULARY, build
from tests.rollouts.talkers import write_talker
from tests.serving.servers import Fault, FaultyModel, Tensors, serving

SEQUENCES = probes(VOCABULARY, 128)


def step(policy: Policy, by: float = 0.003, seed: int = 0) -> None:
    """What a step of training might do."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.requires_grad:
                parameter.add_(by * torch.randn(parameter.shape, generator=generator))


@contextmanager
def sampler_of(
    policy: Policy, folder: Path, *models: SamplingModel | Path, adapters: bool = False
) -> Iterator[RemoteSampler]:
    with ExitStack() as stack:
        adapter = getattr(policy.model, "peft_config", {}).get("default") if adapters else None
        urls = [stack.enter_context(serving(model)) for model in models]
        fleet = Fleet([Server(url, seconds=30, adapters=adapters) for url in urls], patience=30)
        keeper = Keeper(fleet, Handover(folder / "weights", adapter), torch.float32)
        stack.callback(keeper.close)
        yield RemoteSampler(
            policy=policy,
            encoder=make_encoder(folder / "model"),
            weights=WeightsVersion(),
            ranks=single_process(),
            fleet=fleet,
            keeper=keeper,
            run="run",
            dtype=torch.float32,
            note=lambda sentence: None,
            adapters=adapters,
        )


@pytest.mark.parametrize("name", ["llama", "mixtral", pytest.param("qwen3_next", marks=pytest.mark.slow)])
def test_no_tensor_can_stay_away_unseen(name: str):
    policy, other = Policy(build(name)), Policy(build(name))
    before = [p.detach().clone() for p in policy.parameters()]
    with disturbed(policy, SEQUENCES, torch.float32) as noise:
        sent = served_tensors(policy, torch.float32, keep=True)
    assert all(torch.equal(p, was) for p, was in zip(policy.parameters(), before, strict=True))
    old = served_tensors(policy, torch.float32, keep=True)
    assert noise.unseen == ()
    load_served(other.base, sent)
    noise.compare("there", policy_logps(other, SEQUENCES))
    for missing in sent:
        load_served(other.base, {**sent, missing: old[missing]})
        with pytest.raises(UserError, match="does not compute with every tensor"):
            noise.compare("there", policy_logps(other, SEQUENCES))


def swapped(number: int, old: Tensors, come: Tensors) -> Tensors:
    del number, old
    places = {"layers.0.": "layers.1.", "layers.1.": "layers.0."}
    return {
        next((name.replace(a, b) for a, b in places.items() if a in name), name): tensor
        for name, tensor in come.items()
    }


def halved(number: int, old: Tensors, come: Tensors) -> Tensors:
    del number, old
    name = "model.layers.1.mlp.down_proj.weight"
    return {**come, name: come[name] / 2}


def stale_by_one(number: int, old: Tensors, come: Tensors) -> Tensors:
    return old if number > 1 else come


def half_a_step(number: int, old: Tensors, come: Tensors) -> Tensors:
    return come if number < 2 else {name: (old[name] + tensor) / 2 for name, tensor in come.items()}


FAULTS: dict[str, tuple[Fault, str]] = {
    "swapped layers": (swapped, "does not compute with every tensor"),
    "a matrix of half the size": (halved, "does not compute with every tensor"),
    "the weights of before": (stale_by_one, "moved by 0% of what the policy's have|differ from the policy's"),
    "half of a step": (half_a_step, r"moved by [45]\d% of what the policy's have"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_server_that_says_that_all_went_well_is_refused(tmp_path: Path, name: str):
    folder = write_talker(tmp_path / "model")
    policy = Policy(build("llama"))
    fault, message = FAULTS[name]

    def learn(sampler: RemoteSampler) -> None:
        for number in range(3):
            sampler.refresh()
            step(policy, by=1e-5, seed=number)
            sampler.weights.moved()

    model = FaultyModel(folder, fault)
    with sampler_of(policy, tmp_path, model) as sampler, pytest.raises(UserError, match=message):
        learn(sampler)
    # No rank may take it for a server that has these weights: it never got their name.
    assert model.version.endswith(("-noise", "-unproven"))


def test_adapters_that_are_not_merged_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = write_talker(tmp_path / "model")
    policy = Policy(with_lora(build("llama"), LoraSettings(rank=2)))
    with sampler_of(policy, tmp_path, folder) as sampler:
        sampler.refresh()
        step(policy, by=0.01)
        sampler.weights.moved()
        sampler.refresh()
        monkeypatch.setattr(served, "_change_by_adapters", lambda layer, whole: torch.zeros_like(whole))
        step(policy, by=0.01, seed=1)
        sampler.weights.moved()
        with pytest.raises(UserError, match="does not answer with the weights that it was sent"):
            sampler.refresh()


ADAPTER_FAULTS = ("none", "the adapter of before", "one matrix of before", "a layer without", "another scale")


class FaultyAdapters(SamplingModel):
    """Takes every adapter, and computes with something else from the one of this number on."""

    def __init__(self, folder: Path, fault: str, since: int) -> None:
        super().__init__(folder, device="cpu", dtype="float32")
        honest, sent = self.routes["POST /v1/load_lora_adapter"], list[Path]()

        def load(body: Mapping[str, Any]) -> dict[str, Any]:
            path = Path(body["lora_path"])
            before = sent[-1] if sent else path
            sent.append(folder.parent / f"sent {len(sent)}")
            shutil.copytree(path, sent[-1])
            used = shutil.copytree(path, sent[-1].with_suffix(".used"))
            if len(sent) > since:
                self.break_it(fault, used, before)
            return honest({**body, "lora_path": str(used)})

        self.routes["POST /v1/load_lora_adapter"] = load

    def break_it(self, fault: str, used: Path, before: Path) -> None:
        file = used / "adapter_model.safetensors"
        tensors, old = load_file(file), load_file(before / file.name)
        if fault == "the adapter of before":
            tensors = old
        elif fault == "one matrix of before":
            tensors |= {name: old[name] for name in old if "layers.1.mlp.up_proj.lora_A" in name}
        elif fault == "a layer without":
            tensors |= {name: 0 * old[name] for name in old if "layers.0.self_attn.o_proj.lora_B" in name}
        elif fault == "another scale":
            settings = used / "adapter_config.json"
            scale = '"lora_alpha": {}'
            settings.write_text(settings.read_text().replace(scale.format(4), scale.format(2)))
        save_file(tensors, file)


@pytest.mark.parametrize("since", [0, 3])
@pytest.mark.parametrize("fault", ADAPTER_FAULTS)
def test_adapters_that_are_sent_alone_are_proven_as_well(tmp_path: Path, fault: str, since: int):
    """From the first delivery on, which disturbs every one of their matrices, or after some honest ones."""
    policy = Policy(with_lora(build("llama"), LoraSettings(rank=2)))
    model = FaultyAdapters(write_talker(tmp_path / "model"), fault, since)
    refused = False
    with sampler_of(policy, tmp_path, model, adapters=True) as sampler:
        try:
            for number in range(5):
                sampler.refresh()
                step(policy, by=0.02, seed=number)
                sampler.weights.moved()
        except UserError as error:
            refused = "that it was sent" in str(error)
        assert sampler.keeper is not None
        deliveries = list((tmp_path / "weights").iterdir())
    assert refused == (fault != "none")
    # The one of now, and the disturbed one.
    assert len(deliveries) <= 2


def honest(tmp_path: Path, syncs: int) -> list[float]:
    folder = write_talker(tmp_path / "model")
    policy = Policy(build("llama"))
    told: list[float] = []
    with sampler_of(policy, tmp_path, folder) as sampler:
        keeper = sampler.keeper
        assert keeper is not None
        for number in range(syncs):
            sampler.refresh()
            told.append(keeper.syncs[-1]["distinguished"])
            # From steps that hardly move anything to great ones.
            step(policy, by=10 ** -(2 + number % 5), seed=number)
            sampler.weights.moved()
        assert keeper.syncs[-1]["gap"] < 1e-5
    return told


def test_an_honest_server_is_never_refused_and_mostly_distinguished(tmp_path: Path):
    assert sum(honest(tmp_path, 12)) >= 8


@pytest.mark.slow
def test_a_thousand_honest_deliveries_raise_no_alarm(tmp_path: Path):
    assert len(honest(tmp_path, 1000)) == 1000


def test_what_cannot_be_distinguished_is_said_and_waited_for():
    """Steps below the rounding of a server add up until they show; then it must have followed."""
    generator = torch.Generator().manual_seed(0)
    rounding = 0.01 * torch.randn(188, generator=generator)
    direction = torch.randn(188, generator=generator)
    proof, stale = Proof(torch.bfloat16), Proof(torch.bfloat16)
    told: list[bool] = []
    for number in range(40):
        here_M = 0.001 * number * direction
        told.append(proof.compare("there", here_M + rounding, here_M).distinguished)
    assert told.count(True) == 1
    assert not any(told[:30])
    here_60M = [0.001 * number * direction for number in range(60)]
    with pytest.raises(UserError, match=r"differ from the policy's|moved by 0%"):
        list(map(partial(stale.compare, "there", rounding), here_60M))
