"""Loops and RLHF whose answers are drawn by servers."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.engine.distributed.runs import Run, run_all
from tests.engine.toy import Toy
from tests.engine.toy_command import finish, refused
from tests.methods.iterative.rlhf_runs import command as rlhf, make_place
from tests.serving.servers import FAULTY, counting, serving


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    toy = make_place(tmp_path_factory.mktemp("served"))
    (toy.data.parent / "breaking.py").write_text(FAULTY)
    return toy


def loop(toy: Toy, out: Path, *more: object) -> list[object]:
    return [
        *("train", "rejection", "--model", toy.model, "--prompts", toy.data, "--out", out, "--device", "cpu"),
        *("--reward", f"{toy.data.parent}/breaking.py:short", "--loop.rounds", 2, "--loop.answers", 3),
        *("--steps", 3, "--batch-size", 4, "--learning-rate", 0.003, "--sampling.max-tokens", 6),
        *("--max-length", 64, "--sample.rows", 0, "--no-check", *more),
    ]


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model/model.safetensors")


def test_a_loop_asks_servers_for_nothing_twice_and_ends_with_the_same_bits(toy: Toy, tmp_path: Path):
    """A reward that breaks when half of a round's answers are scored: all of them are there already."""
    (fault := toy.data.parent / "faulty").touch()
    model, asked = counting(toy.model)
    with serving(model) as url:
        assert "no more" in refused(*loop(toy, tmp_path, "--sampling.top-p", 0.9, "--sampler", url))
    fault.unlink()
    with serving(model) as url:
        went = finish(*loop(toy, tmp_path, "--sampling.top-p", 0.9, "--sampler", url))
    assert "20 questions were answered before the run was stopped: not asked again" in went.err
    assert len(asked) == len(set(asked)) == 40
    assert {json.loads(body)["sampling_params"]["top_p"] for body, _ in asked} == {0.9}
    assert len((tmp_path / "rounds/2/syncs.jsonl").read_text("utf-8").splitlines()) == 1
    assert not [*tmp_path.rglob("*.journal")]
    through = tmp_path / "through"
    with ExitStack() as stack:
        urls = ",".join(stack.enter_context(serving(toy.model)) for _ in range(2))
        finish(*loop(toy, through, "--sampling.top-p", 0.9, "--sampler", urls))
    assert all(torch.equal(weights(through)[name], kept) for name, kept in weights(tmp_path).items())


@pytest.mark.slow
def test_rlhf_by_two_ranks_and_two_servers_is_that_of_one_process(toy: Toy, tmp_path: Path):
    words = ("--loop.teach", "grpo", "--rollout.lag", 1, "--learning-rate", 0.0003)
    with ExitStack() as stack:
        urls = ",".join(stack.enter_context(serving(toy.model)) for _ in range(2))
        finish(*rlhf(toy, tmp_path / "one", *words, "--sampler", urls.partition(",")[0]))
        arguments = tuple(rlhf(toy, tmp_path / "two", *words, "--shard", "--sampler", urls))
        [said, _] = run_all({"two": Run(arguments=arguments, environment={})}, tmp_path, ranks=2)["two"]
    assert said.code == 0, said.out + said.err
    assert said.err.count("answers are drawn by 2 servers") == 4
    two = weights(tmp_path / "two")
    for name, weight in weights(tmp_path / "one").items():
        torch.testing.assert_close(two[name], weight, rtol=0, atol=2e-5)


@pytest.mark.parametrize("words", [loop, rlhf], ids=("loop", "rlhf"))
def test_what_rounds_cannot_do_is_refused(toy: Toy, tmp_path: Path, words):
    nobody = ("--sampler", "http://127.0.0.1:9")
    assert "has no adapters" in refused(*words(toy, tmp_path, *nobody, "--server.adapters"))
    if words is rlhf:
        assert "by --sampler local alone" in refused(*rlhf(toy, tmp_path, *nobody, "--loop.teach", "nash-md"))
    assert "read with a --sampler of servers" in refused(*words(toy, tmp_path, "--server.count", 2))
    assert "no sampling server took the weights" in refused(*words(toy, tmp_path, *nobody))
