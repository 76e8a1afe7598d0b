"""Steps in pages, recorded and looked at now and then, draw the answers of steps made one by one."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from plaudit.errors import UserError
from plaudit.models.attention import AttentionRule, PackingError
from plaudit.models.decode import PagedDecoder, SharedDecoder, fastest_decoder
from plaudit.models.paged_cache import PAGE_TOKENS, PagedCache, pooled_tokens
from plaudit.models.policy import Policy
from plaudit.rollouts.drawing import record_graph
from plaudit.rollouts.local import RECORDERS, LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.tokens.encode import make_encoder
from tests.models.zoo import EAGER, SDPA, build
from tests.rollouts.talkers import write_talker
from tests.rollouts.test_joining import STOPS, assert_same, requests_of

Step = Callable[[], None]
READS = (
    *("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim"),
    *("is_nonzero", "bincount"),
)
"""What waits for a device, since the host has to know a number."""
SETTINGS = {
    "plain": SamplingSettings(max_tokens=40, seed=3),
    "greedy": SamplingSettings(max_tokens=40, seed=3, temperature=0),
    "top-p": SamplingSettings(max_tokens=40, seed=3, temperature=0.7, top_p=0.9, top_k=30, min_p=0.01),
    "stop strings": SamplingSettings(max_tokens=40, seed=3, stop=("w1", "w45 w")),
}


class NobodyReads(TorchDispatchMode):
    """Refuses what a recorded step could not hold."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition("::")[2].partition(".")[0]
        assert name not in READS, f"{name} reads a number"
        return func(*args, **(kwargs or {}))


def recorder(counts: Counter[str]) -> Callable[[Step], Step]:
    """As a graph: nothing happens at first, then the same at each call, and nothing of it is read."""

    def record(step: Step) -> Step:
        counts["recorded"] += 1

        def repeat() -> None:
            counts["repeated"] += 1
            with NobodyReads():
                step()

        return repeat

    return record


def sampler_of(folder: Path, name: str = "llama", dtype: torch.dtype = torch.float64) -> LocalSampler:
    return LocalSampler.from_policy(
        Policy(build(name, dtype)), make_encoder(write_talker(folder, stops=STOPS))
    )


def in_pages(
    sampler: LocalSampler, *, look_every: int, record: Callable[[Step], Step] | None, batch_size: int = 5
) -> None:
    engine = sampler._engine
    sampler._engine = replace(
        engine, decoder=PagedDecoder, look_every=look_every, record=record, batch_size=batch_size
    )


@pytest.mark.slow
@pytest.mark.cases(quick=("8-top-p", "3-greedy", "8-stop strings"))
@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("look_every", [1, 3, 8])
def test_answers_are_those_of_steps_that_are_looked_at(tmp_path: Path, kind: str, look_every: int) -> None:
    sampler, settings = sampler_of(tmp_path), SETTINGS[kind]
    requests = requests_of(sampler, settings)
    wanted = sampler.generate_requests(requests, settings)
    assert len({one.answer.tokens for one in wanted}) > 3
    for batch_size in (2, 5, 64):
        counts: Counter[str] = Counter()
        for record in (None, recorder(counts)):
            in_pages(sampler, look_every=look_every, record=record, batch_size=batch_size)
            assert_same(sampler.generate_requests(requests, settings), wanted)
        assert counts["repeated"] >= counts["recorded"] > 0


@pytest.mark.one_in(14)
@pytest.mark.parametrize("name", sorted({*SDPA, *EAGER} - {"mixtral", "gpt_oss"}))
def test_nothing_in_a_step_is_read_by_the_host(tmp_path: Path, name: str) -> None:
    """Experts are: how many tokens each of them gets decides on shapes."""
    sampler = sampler_of(tmp_path, name, torch.float32)
    settings = SamplingSettings(max_tokens=12, seed=1)
    requests = requests_of(sampler, settings)[:6]
    wanted = sampler.generate_requests(requests, settings)
    counts: Counter[str] = Counter()
    in_pages(sampler, look_every=4, record=recorder(counts))
    assert [one.ids for one in sampler.generate_requests(requests, settings)] == [one.ids for one in wanted]
    assert counts["repeated"]


def test_steps_that_cannot_be_recorded_are_made_one_by_one(tmp_path: Path) -> None:
    sampler, settings = sampler_of(tmp_path), SETTINGS["plain"]
    requests = requests_of(sampler, settings)
    wanted = sampler.generate_requests(requests, settings)
    tried: list[Step] = []

    def refuse(step: Step) -> Step:
        tried.append(step)
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    in_pages(sampler, look_every=8, record=refuse, batch_size=64)
    with pytest.warns(RuntimeWarning, match=r"slower here: .* \(operation not permitted when stream is"):
        assert_same(sampler.generate_requests(requests, settings), wanted)
    assert len(tried) == 1


def test_pages_of_ended_answers_are_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty answers one behind the other need no more pages than the few that grow side by side."""
    sampler, settings = sampler_of(tmp_path), SETTINGS["plain"]
    caches: list[Any] = []

    class Watched(PagedCache):
        def __init__(self, device: torch.device) -> None:
            super().__init__(device)
            caches.append(self)

    monkeypatch.setattr(PagedDecoder, "_cache_type", Watched)
    requests = [replace(one, sample=n) for n in range(3) for one in requests_of(sampler, settings)]
    in_pages(sampler, look_every=4, record=None, batch_size=4)
    answers = sampler.generate_requests(requests, settings)
    tokens = sum(len(one.prompt) + one.answer.tokens for one in answers)
    [cache] = caches
    assert cache._pages * cache._page < tokens / 3
    assert sorted({*cache._free} | {page for row in cache._rows for page in row.pages}) == [
        *range(1, cache._pages)
    ]


PLAIN = AttentionRule(scaling=None, dropout=0.0, window=None, softcap=None, sink_h=None)
"""Of a layer that asks nothing special."""


def test_a_pool_moves_once_for_rows_that_come_to_their_pages_ends_one_after_another() -> None:
    """Whenever it moves, all that was recorded is lost: a round of GRPO would record anew every few looks."""
    prompts, page, answer, look = tuple(range(8, 16)), PAGE_TOKENS["cpu"], 16, 2
    cache, rows = PagedCache(torch.device("cpu")), 8 * len(prompts)
    key = torch.zeros(1, 1, sum(prompts), 4)
    with cache.reading(prompts, (8,) * len(prompts)):
        cache.attend(0, PLAIN, key, key, key)
    seen = [cache.generation]
    for _ in range(answer // look):
        cache.reserve(look, rows)
        seen.append(cache.generation)
        cache.advance(look)
    assert len({*seen}) == 2
    pool, _ = cache._pools[0]
    room = pooled_tokens(len(prompts), rows, max(prompts), answer, page)
    assert pool.shape[0] * page <= room


def test_scores_that_are_no_numbers_end_the_drawing(tmp_path: Path) -> None:
    sampler, settings = sampler_of(tmp_path), SETTINGS["plain"]
    requests = requests_of(sampler, settings)
    in_pages(sampler, look_every=8, record=None)
    head: Any = sampler.policy.base.get_output_embeddings()
    with torch.no_grad():
        head.weight[3] = torch.nan
    with pytest.raises(UserError, match="scores are not numbers"):
        sampler.generate_requests(requests, settings)


def test_a_device_that_records_gets_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plaudit.models.decode.ACCELERATED", ("cpu",))
    policy = Policy(build("llama"))
    assert fastest_decoder(policy) == (PagedDecoder, None)

    def refuse(*_: object) -> None:
        raise PackingError("pages are not for it")

    monkeypatch.setattr(PagedDecoder, "step", refuse)
    assert fastest_decoder(policy) == (SharedDecoder, "pages are not for it")


def test_a_refusal_is_found_before_anything_is_drawn_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr("plaudit.models.decode.ACCELERATED", ("cpu",))
    counts: Counter[str] = Counter()
    monkeypatch.setitem(RECORDERS, "cpu", recorder(counts))
    whole = sampler_of(tmp_path / "whole")
    assert whole.fallback_reason is None
    assert whole._engine.record is not None
    assert counts["repeated"] > 1

    def refuse(step: Step) -> Step:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    monkeypatch.setitem(RECORDERS, "cpu", refuse)
    refused = sampler_of(tmp_path / "refused")
    assert refused._engine.record is None
    assert refused.fallback_reason == (
        "its steps cannot be recorded (operation not permitted when stream is capturing)"
    )
    settings = SETTINGS["plain"]
    requests = requests_of(whole, settings)
    assert_same(refused.generate_requests(requests, settings), whole.generate_requests(requests, settings))


def test_a_record_that_does_nothing_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plaudit.models.decode.ACCELERATED", ("cpu",))
    monkeypatch.setitem(RECORDERS, "cpu", lambda step: lambda: None)
    sampler = sampler_of(tmp_path)
    assert sampler._engine.record is None
    assert sampler.fallback_reason == "its recorded steps draw other tokens"


@pytest.mark.gpu
def test_a_graph_that_cannot_be_recorded_leaves_stream_and_random_numbers_as_they_were() -> None:
    def asks_the_device() -> None:
        torch.ones(3, device="cuda").sum().item()

    total, before = torch.zeros(1, device="cuda"), torch.cuda.current_stream()
    generator = torch.cuda.default_generators[torch.cuda.current_device()].clone_state()
    with pytest.raises(RuntimeError, match="captur"):
        record_graph(asks_the_device)
    assert torch.cuda.current_stream() == before
    assert torch.equal(torch.rand(9, device="cuda"), torch.rand(9, device="cuda", generator=generator))

    def add_one() -> None:
        total.add_(1)

    repeat = record_graph(add_one)
    repeat()
    repeat()
    assert float(total) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("mixed", [False, True])
def test_a_policy_that_learns_draws_by_recorded_steps_too(tmp_path: Path, mixed: bool) -> None:
    """Its weights are float32 and its products are not."""
    policy = Policy(build("llama", torch.float32 if mixed else torch.bfloat16, head_size=16).to("cuda"))
    if mixed:
        policy.compute_in(torch.bfloat16)
    sampler = LocalSampler.from_policy(policy, make_encoder(write_talker(tmp_path, stops=STOPS)))
    assert sampler.fallback_reason is None
    assert sampler._engine.decoder is PagedDecoder
    assert sampler._engine.record is not None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_graphs_draw_what_steps_draw(tmp_path: Path, dtype: torch.dtype) -> None:
    policy = Policy(build("llama", dtype, head_size=16).to("cuda"))
    sampler = LocalSampler.from_policy(policy, make_encoder(write_talker(tmp_path, stops=STOPS)))
    assert sampler.fallback_reason is None
    assert sampler._engine.decoder is PagedDecoder
    requests = requests_of(sampler, SETTINGS["plain"])
    recorded = sampler.generate_requests(requests, SETTINGS["plain"])
    sampler._engine = replace(sampler._engine, record=None, look_every=1)
    assert [one.ids for one in sampler.generate_requests(requests, SETTINGS["plain"])] == [
        one.ids for one in recorded
    ]
