"""A sampler in another process draws what the local one draws, with weights that arrive; its end is told."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from plaudit.errors import UserError
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.process import Message, Pipe, ProcessSampler
from plaudit.rollouts.sampler import Sampler, SamplingSettings, TurnSampler, WeightsVersion
from plaudit.tokens.encode import make_encoder
from tests.rollouts.talkers import write_talker

TEXTS = ("w7", "w9 w40 w31 w50 w18", "w30 w31", "w7")
SETTINGS = (
    SamplingSettings(max_tokens=20, seed=3),
    SamplingSettings(temperature=0.8, top_k=12, top_p=0.8, min_p=0.05, max_tokens=20, stop=("w4",), seed=5),
    SamplingSettings(temperature=0, max_tokens=20),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talker(tmp_path_factory.mktemp("talker"), stops=(2, 20, 30, 40))


@pytest.fixture(scope="module")
def sampler(folder: Path) -> Iterator[ProcessSampler]:
    with ProcessSampler(folder) as process:
        assert isinstance(process, Sampler)
        assert isinstance(process, TurnSampler)
        yield process
    with pytest.raises(UserError, match="the sampler's process is closed"):
        process.generate([(7,)], SETTINGS[0])


def move(policy: Policy, by: float) -> None:
    with torch.no_grad():
        for weight in policy.parameters():
            weight.mul_(by)


@pytest.mark.slow
def test_answers_are_those_of_the_local_sampler_before_and_after_an_update(folder: Path) -> None:
    weights = WeightsVersion()
    policy = Policy(load_model(folder, dtype=torch.float32, device=torch.device("cpu")))
    local = LocalSampler.from_policy(policy, make_encoder(folder), weights=weights)
    prompts = [local.encode(text) for text in TEXTS]
    sampler = ProcessSampler(folder, policy=policy, weights=weights)
    before = [sampler.generate(prompts, settings, n=3) for settings in SETTINGS]
    # Equal records: ids, both log-probs to the last bit, texts, and the version of the weights.
    assert before == [local.generate(prompts, settings, n=3) for settings in SETTINGS]
    move(policy, 1.3)
    weights.moved()
    assert sampler.version == local.version == 1
    after = [sampler.generate(prompts, settings, n=3) for settings in SETTINGS]
    assert after == [local.generate(prompts, settings, n=3) for settings in SETTINGS]
    assert after != before
    assert {rollout.version for group in after[0] for rollout in group} == {1}
    process = sampler._process
    del sampler
    assert process.returncode == -signal.SIGKILL


def test_a_prompt_that_the_model_cannot_read_is_refused_in_the_same_words(
    folder: Path, sampler: ProcessSampler
) -> None:
    local = LocalSampler(folder, device="cpu")
    for prompt in ((1, 500), (7,) * 128):
        said: list[str] = []
        for one in (local, sampler):
            with pytest.raises(UserError) as refusal:
                one.generate([prompt], SETTINGS[0])
            said.append(str(refusal.value))
        assert said[0] == said[1]
    assert sampler.generate([(7,)], SETTINGS[0]) == local.generate([(7,)], SETTINGS[0])


def test_weights_are_sent_by_hand_and_old_ones_are_refused(folder: Path, sampler: ProcessSampler) -> None:
    local = LocalSampler(folder, device="cpu")
    policy = Policy(load_model(folder, dtype=torch.float32, device=torch.device("cpu")))
    prompts, settings = [local.encode("w7")], SETTINGS[0]
    begun = sampler.generate(prompts, settings)
    assert begun == local.generate(prompts, settings)
    move(policy, 1.3)
    sampler.load_weights(5, dict(policy.named_parameters()))
    assert sampler.version == 5
    [[rollout]] = sampler.generate(prompts, settings)
    assert rollout.version == 5
    assert rollout.whole_logp != begun[0][0].whole_logp
    with pytest.raises(UserError, match="version 4 of the weights is older than version 5"):
        sampler.load_weights(4, dict(policy.named_parameters()))
    with pytest.raises(UserError, match="the weights are not those of the sampler's model"):
        sampler.load_weights(6, {"other": torch.zeros(2)})
    # Whoever counts a move and sends nothing gets no answers of weights that are gone.
    sampler._weights.moved()
    with pytest.raises(UserError, match=r"version 6 of the weights are wanted, and .* has version 5"):
        sampler.generate(prompts, settings)


@pytest.mark.slow
def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a model folder"):
        ProcessSampler(tmp_path)


@pytest.mark.slow
def test_a_process_that_was_killed_or_hangs_is_an_error_in_words(folder: Path) -> None:
    killed = ProcessSampler(folder)
    os.kill(killed._process.pid, signal.SIGKILL)
    with pytest.raises(UserError, match="the sampler's process has ended by SIGKILL"):
        killed.generate([(7,)], SETTINGS[0])
    with pytest.raises(UserError, match="the sampler's process is closed"):
        killed.generate([(7,)], SETTINGS[0])
    hanging = ProcessSampler(folder)
    hanging._pipe._seconds = hanging._seconds = 0.2
    os.kill(hanging._process.pid, signal.SIGSTOP)
    with pytest.raises(UserError, match=r"did not answer within 0\.2 seconds and was ended"):
        hanging.generate([(7,)], SETTINGS[0])
    assert hanging._process.returncode == -signal.SIGKILL


def test_a_message_comes_whole_and_a_closed_end_is_noticed() -> None:
    read, write = os.pipe()
    pipe = Pipe(read, write, 5.0)
    pipe.send(Message(body={"logp": [0.1 + 0.2, -1e-300]}, payload=b"weights"))
    assert pipe.receive() == Message(body={"logp": [0.1 + 0.2, -1e-300]}, payload=b"weights")
    os.close(write)
    with pytest.raises(EOFError):
        pipe.receive()
    os.close(read)


def test_a_process_with_very_many_open_files_is_waited_for() -> None:
    """`select` takes no descriptor above 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    ends = os.pipe()
    read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, 1500) for end in ends)
    pipe = Pipe(read, write, 5.0)
    pipe.send(Message(body={"version": 3}))
    assert pipe.receive() == Message(body={"version": 3})
    for end in (*ends, read, write):
        os.close(end)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
