"""Whole runs by servers: the figures of a local one's kind, divided weights, and servers that go and come."""

import json
import re
import threading
from collections import Counter
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from benchmarks import kills
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import GenerationRequest, SamplingSettings
from plaudit.serving.local_server import SamplingModel, http_server
from plaudit.serving.server import Question, Server
from tests.engine.distributed.launch import free_port
from tests.engine.distributed.runs import Run, run_all
from tests.methods.policy.commands import Place, command, go, make_place, well
from tests.serving.servers import FAULTY, counting, running, serving

WORDS = ("--rounds", 3, "--save-every", 1, "--group-size", 3)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("served"))


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model/model.safetensors")


def test_a_served_answer_is_the_local_one_to_the_bit(place: Place):
    sampler = LocalSampler(place.model, device="cpu")
    with serving(place.model) as url:
        for prompt in ((7, 8), (9, 10, 11)):
            question = Question(
                prompt=prompt, answers=4, seed=11, max_tokens=8, temperature=0.7, stop_ids=(2,)
            )
            drawn = Server(url).draw(question, "default")
            requests = [GenerationRequest(prompt=prompt, sample=11 + k, max_new_tokens=8) for k in range(4)]
            local = sampler.generate_requests(requests, SamplingSettings(temperature=0.7, max_tokens=8))
            assert [(one.ids, one.logp) for one in drawn] == [(one.ids, one.whole_logp) for one in local]


@pytest.mark.parametrize(
    "words",
    [("grpo",), pytest.param(("rloo", "--lora.rank", 2, "--server.adapters"), marks=pytest.mark.slow)],
    ids=lambda words: words[0],
)
def test_two_servers_two_ranks_and_one_process_come_to_the_same_weights(place, tmp_path, words):
    name, *more = map(str, words)
    with ExitStack() as stack:
        urls = ",".join(stack.enter_context(serving(place.model)) for _ in range(2))
        # Of three prompts one rank has two, and the other repeats its own, or has no verdict at all.
        words = (*WORDS, "--batch-size", 3, "--rounds", 5, "--reward", place.rule("some"), *more)
        alone = well(place, name, f"alone {name}", *words, "--sampler", urls.split(",")[0])
        both = well(place, name, f"both {name}", *words, "--sampler", urls)
        arguments = tuple(command(place, name, f"divided {name}", *words, "--shard", "--sampler", urls))
        [said, _] = run_all({"divided": Run(arguments=arguments, environment={})}, tmp_path, ranks=2)[
            "divided"
        ]
    assert said.code == 0, said.out + said.err
    assert "answers are drawn by 2 servers" in both.said
    one, two, divided = (
        weights(place.folder / out) for out in (f"alone {name}", f"both {name}", f"divided {name}")
    )
    assert all(torch.equal(one[key], two[key]) for key in one)
    for key, weight in one.items():
        torch.testing.assert_close(divided[key], weight, rtol=0, atol=2e-5)
    page = (both.run / "report.html").read_text("utf-8")
    assert re.search(r"They were sent weights \d times: 0\.\d MiB at first, .* taken by 2 to 2", page)
    rewards = alone.figures("reward")
    # A round without any verdict has none.
    assert len(rewards) >= 4
    assert rewards == both.figures("reward")


@pytest.mark.parametrize(
    "words",
    [
        ("grpo", "--group-size", 3, "--reduction", "tokens"),
        ("remax", "--lora.rank", 2),
        ("rloo", "--tis-cap", 2),
        ("online-dpo",),
    ],
    ids=lambda words: words[0],
)
def test_a_streamed_round_has_the_bits_of_one_that_was_drawn_before(place, words, monkeypatch):
    """Some answers have no verdict; with pairs their whole group is left out."""
    name, *more = words
    more = [*more, "--rounds", 3, "--reward", place.rule("half"), "--learning-rate", 1e-3, "--batch-size", 5]
    with serving(place.model) as url:
        ways = {"streamed": (), "drawn": ("--no-rollout.stream",)}
        runs = {
            way: well(place, str(name), f"{name} {way}", *more, *words, "--sampler", url)
            for way, words in ways.items()
        }
        # The rounds of before: put together by length, and scored as one.
        monkeypatch.setattr("plaudit.methods.policy.run._streaming_sampler", lambda *_: None)
        runs["whole"] = well(place, str(name), f"{name} whole", *more, "--sampler", url)
    streamed, drawn, whole = ([*went.lines] for went in runs.values())
    for line, same, near in zip(streamed, drawn, whole, strict=True):
        assert line.pop("timing")["draw_seconds"] > 0
        for other in (same, near):
            other.pop("timing")
        assert line == same
        assert line == pytest.approx(near, rel=1e-3, abs=1e-5)
    files = (next((went.run / "model").glob("*model.safetensors")) for went in runs.values())
    one, two, three = (load_file(path) for path in files)
    assert all(torch.equal(one[key], two[key]) for key in one)
    for key, weight in one.items():
        torch.testing.assert_close(three[key], weight, rtol=0, atol=5e-5)


@pytest.mark.parametrize(
    "words",
    [
        ("ppo", "--lora.rank", 2, "--minibatches", 2, "--server.adapters"),
        ("remax",),
        ("grpo", "--draw.temperature", 0.8, "--group-size", 3, "--draw.stop", "w12", "--update-epochs", 2),
    ],
    ids=lambda words: words[0],
)
def test_relatives_adapters_and_other_temperatures(place: Place, words: tuple[object, ...]):
    with serving(place.model) as url:
        name, *more = words
        went = well(place, str(name), f"of {name}", "--rounds", 2, *more, "--sampler", url)
    gaps = went.figures("sampling_logp_diff_mean")
    assert gaps
    assert max(gaps) < 1e-5


def test_a_server_that_is_away_for_a_while_is_taken_back(place: Place):
    """It is there again with the weights of its folder, as a scheduler starts it."""
    port = free_port()
    with serving(place.model) as url, ExitStack() as away:
        model = SamplingModel(place.model, device="cpu", dtype="float32")
        metrics = place.folder / "back/metrics.jsonl"

        def come() -> None:
            while not (metrics.exists() and len(metrics.read_bytes().splitlines()) > 3):
                threading.Event().wait(0.02)
            away.enter_context(running(away.enter_context(http_server(model, "127.0.0.1", port, None))))

        coming = threading.Thread(target=come)
        coming.start()
        sampler = ("--sampler", f"{url},http://127.0.0.1:{port}")
        went = well(place, "grpo", "back", "--group-size", 3, "--rounds", 60, *sampler)
        coming.join()
    assert "a server is gone, 1 left" in went.said
    assert f"a server is back: http://127.0.0.1:{port}" in went.said


def test_a_run_whose_servers_are_all_away_waits_for_one(place: Place):
    model = SamplingModel(place.model, device="cpu", dtype="float32")
    pause, calls = model.routes["POST /pause"], count()

    def breaking(body: object):
        if next(calls) == 4:
            raise ConnectionAbortedError("as one that ends before it answers")
        return pause({})

    model.routes["POST /pause"] = breaking
    with serving(model) as url:
        went = well(place, "grpo", "away", *WORDS, "--sampler", url)
        through = well(place, "grpo", "there", *WORDS, "--sampler", url)
    assert re.search("a server is gone, 0 left: .* a server is back", " ".join(went.said.split()))
    assert all(torch.equal(weights(through.run)[name], kept) for name, kept in weights(went.run).items())


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_what_was_answered_before_a_stop_is_not_asked_again(place: Place, lag: int):
    """A reward that breaks in the third round: its answers are there already when the run goes on.

    Round r is drawn with the weights that round r − 1 − lag has left, or the first ones.
    """
    (place.folder / "breaking.py").write_text(FAULTY)
    (place.folder / "faulty").touch()
    out = f"stopped {lag}"
    model, asked = counting(place.model)
    words = ("--group-size", 3, "--rounds", 4, "--save-every", 1, "--evaluate-every", 100)
    words = (*words, "--sample-every", 100, "--no-check", "--reward", f"{place.folder}/breaking.py:short")
    words = (*words, "--rollout.lag", lag)
    with serving(model) as url:
        assert "no more" in go(place, "grpo", out, *words, "--sampler", url).said
    # With rounds ahead the checkpoint of a step waits for those that it holds.
    assert len(list((place.folder / out / "checkpoints").glob("step-*"))) == max(0, 2 - lag)
    (place.folder / "faulty").unlink()
    # At another address, as a scheduler may start it again.
    with serving(model) as url:
        went = well(place, "grpo", out, *words, "--sampler", url)
    assert re.search(r"\d questions were answered before the run was stopped: not asked again", went.said)
    # Four prompts in each of four rounds, and a look at the first step and at the last.
    assert len(asked) == len(set(asked)) >= 18
    drawn = [weights for body, weights in asked if json.loads(body)["sampling_params"]["temperature"]]
    assert list(Counter(drawn).values())[: 4 - lag] == [4 * (1 + lag), *[4] * (3 - lag)]
    with serving(place.model) as url:
        through = well(place, "grpo", f"through {lag}", *words, "--sampler", url)
    assert all(torch.equal(weights(through.run)[name], kept) for name, kept in weights(went.run).items())


REFUSED = {
    "no word": (("--sampler", "ollama"), "expected local, vllm, or http://host:port"),
    "twice": (("--sampler", "http://127.0.0.1:9,http://127.0.0.1:9"), "names a server twice"),
    "nobody": (("--sampler", "http://127.0.0.1:9"), "no sampling server took the weights"),
    "far": (("--sampler", "http://10.0.0.9:8000"), r"could give it other weights.*--server.token-from"),
    "no vLLM": (("--sampler", "vllm"), "needs --server.python"),
    "not there": (("--sampler", "vllm", "--server.python", "nowhere/python"), "nowhere/python is not there"),
    "no adapters": (("--sampler", "http://127.0.0.1:9", "--server.adapters"), "this policy has none: add"),
    "unread": (("--server.count", 2), "read with a --sampler of servers"),
    "ahead": (("--rollout.lag", 1), r"--rollout.lag 1: rounds are drawn ahead, .* by servers alone"),
    "drawn": (("--no-rollout.stream",), "--no-rollout.stream: rounds are drawn"),
    "unweighed": (("--rollout.weights", "masked"), "nothing is weighed; add --tis-cap 2"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_it_is_refused_in_a_sentence(place: Place, kind: str):
    words, message = REFUSED[kind]
    went = go(place, "grpo", f"refused {kind}", *WORDS, *words)
    assert went.code == 2, went.said
    assert re.search(message, " ".join(went.said.split())), went.said


def test_another_model_and_what_servers_cannot_do_are_refused(place: Place, tmp_path: Path):
    other = make_place(tmp_path / "other", name="qwen3")
    with serving(other.model) as url:
        went = go(place, "grpo", "other model", *WORDS, "--sampler", url)
        assert went.code == 2
        assert "for which this policy has no weights" in went.said
    with serving(place.model) as url:
        went = go(place, "grpo", "top", *WORDS, "--draw.top-p", 0.9, "--sampler", url)
        assert "leave these out, or draw by --sampler local" in " ".join(went.said.split())
        went = go(place, "nash-md", "mixed", "--rounds", 1, "--sampler", url)
        assert "drawn by --sampler local alone" in " ".join(went.said.split())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_ranks_and_two_servers_killed_ten_times_end_with_the_same_bits(tmp_path: Path):
    site = kills.Site(folder=tmp_path, ports=[free_port(), free_port()], rounds=80)
    assert kills.same_bits(site, kills=10, seed=0) == (10, True)
