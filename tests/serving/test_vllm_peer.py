"""vLLM itself as the server: a run by it, what it accepts without a word, and its end and return."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks import kills
from plaudit.methods.policy.config import ServerSettings
from plaudit.serving import fleet as keeping, sampler as sampling
from plaudit.serving.processes import VllmServers
from plaudit.serving.server import Server
from tests.engine.distributed.launch import free_port
from tests.feedback.judges.test_vllm_peer import VLLM
from tests.methods.policy.commands import Place, go, make_place, well
from tests.models.zoo import PLAIN
from tests.rollouts.talkers import write_tokenizer

ARGUMENTS = "--enforce-eager --max-model-len 128"
pytestmark = pytest.mark.peer(VLLM)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A model with heads as vLLM's kernels want them, and a head that is tied."""
    place = make_place(tmp_path_factory.mktemp("vllm"))
    facts = PLAIN | {"hidden_size": 128, "intermediate_size": 96, "tie_word_embeddings": True}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**facts))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    model.generation_config.eos_token_id = [2]
    model.save_pretrained(place.model)
    write_tokenizer(place.model)
    return place


@pytest.fixture(scope="module")
def servers(place: Place) -> Iterator[VllmServers]:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    settings = ServerSettings(python=VLLM, arguments=ARGUMENTS)
    started = VllmServers(place.model, place.folder / "servers", settings, torch.float32)
    try:
        started.wait([Server(url) for url in started.urls])
        yield started
    finally:
        started.close()


def words(servers: VllmServers, *more: object) -> tuple[object, ...]:
    wanted = ("--group-size", 3, "--update-epochs", 2, "--rounds", 3, "--draw.flat-rounds", 0)
    return (*wanted, "--sampler", servers.urls[0], *more)


def test_a_run_draws_by_vllm_what_its_policy_would(place: Place, servers: VllmServers):
    went = well(place, "grpo", "whole", *words(servers))
    gaps = went.figures("sampling_logp_diff_mean")
    assert len(gaps) == 6
    assert max(gaps) < 1e-4
    assert well(place, "grpo", "again", *words(servers)).figures("reward") == went.figures("reward")
    adapters = ("--lora.rank", 2, "--draw.temperature", 0.7)
    adapted = well(place, "grpo", "adapted", *words(servers, *adapters))
    assert max(adapted.figures("sampling_logp_diff_mean")) < 1e-4
    refused = go(place, "grpo", "refused", *words(servers, *adapters, "--server.adapters"))
    assert "--enable-lora" in refused.said


@pytest.mark.timeout(900)
def test_adapters_go_to_vllm_alone(place: Place):
    adapters = ("--group-size", 3, "--update-epochs", 2, "--rounds", 4, "--draw.flat-rounds", 0)
    adapters = (*adapters, "--lora.rank", 4, "--learning-rate", 1e-2)
    started = ("--sampler", "vllm", "--server.python", VLLM, "--server.arguments", ARGUMENTS)
    went = well(place, "grpo", "alone", *adapters, *started, "--server.adapters")
    assert max(went.figures("sampling_logp_diff_mean")) < 1e-4
    syncs = [json.loads(line) for line in (went.run / "syncs.jsonl").read_text().splitlines()]
    assert [sync["distinguished"] for sync in syncs] == [0] + [1] * 8
    assert max(sync["bytes"] for sync in syncs) < (place.model / "model.safetensors").stat().st_size / 2


@pytest.mark.parametrize(
    "missing", ["lm_head.weight", "model.norm.weight", "model.layers.1.mlp.up_proj.weight"]
)
def test_vllm_takes_an_update_without_a_tensor_and_the_proof_does_not(place, servers, missing, monkeypatch):
    whole = sampling.served_tensors

    def lacking(*arguments: Any, **more: Any) -> dict[str, torch.Tensor]:
        return {name: tensor for name, tensor in whole(*arguments, **more).items() if name != missing}

    monkeypatch.setattr(sampling, "served_tensors", lacking)
    # Which would have refused what the folder has, and these weights lack, before anything was sent.
    monkeypatch.setattr(keeping, "refuse_other_model", lambda *arguments: None)
    server = Server(servers.urls[0])
    before = server.version()
    went = go(place, "grpo", f"without {missing}", *words(servers))
    assert went.code == 2
    # A tied head may follow the first delivery of a server's life; it stays away from the second.
    assert re.search(r"does not (answer|compute) with .* that it was sent", went.said)
    # Its own word: a new version, and nothing amiss.
    assert server.version() != before
    assert server.is_up()


@pytest.mark.timeout(900)
def test_a_server_that_is_killed_is_started_again_and_the_run_goes_on(place: Place, tmp_path: Path):
    """Through ``--sampler vllm``, in a process of its own, whose servers end with it."""
    command = [sys.executable, "-m", "plaudit", "train", "grpo", "--model", str(place.model)]
    command += ["--prompts", str(place.folder / "prompts.jsonl"), "--reward", place.rule("w33")]
    command += ["--out", str(tmp_path / "run"), "--rounds", "400", "--batch-size", "4", "--group-size", "3"]
    command += ["--draw.max-tokens", "6", "--draw.flat-rounds", "0", "--device", "cpu", "--sampler", "vllm"]
    command += ["--server.python", str(VLLM), "--server.arguments", ARGUMENTS]
    with (tmp_path / "said").open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as run:
        metrics = tmp_path / "run/metrics.jsonl"

        def wait_for(steps: int) -> None:
            while not (metrics.exists() and len(metrics.read_bytes().splitlines()) >= steps):
                assert run.poll() is None, (tmp_path / "said").read_text()
                time.sleep(0.1)

        wait_for(3)
        [server] = children(run.pid)
        os.kill(server, signal.SIGKILL)
        wait_for(len(metrics.read_bytes().splitlines()) + 20)
        [again] = children(run.pid)
        assert again != server
        run.kill()
        run.wait()
    ended = threading.Event()
    for _ in range(300):
        if not Path(f"/proc/{again}").exists():
            break
        ended.wait(0.1)
    assert not Path(f"/proc/{again}").exists()


@pytest.mark.timeout(3600)
def test_two_ranks_and_two_servers_killed_ten_times_end_with_the_same_bits(tmp_path: Path):
    site = kills.Site(folder=tmp_path, ports=[free_port(), free_port()], rounds=60, vllm=VLLM)
    assert kills.same_bits(site, kills=10, seed=0) == (10, True)


def children(process: int) -> list[int]:
    found = subprocess.run(
        ["pgrep", "-P", str(process), "-f", "api_server"], capture_output=True, check=False
    )
    return [int(word) for word in found.stdout.split()]
