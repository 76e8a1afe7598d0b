"""Rows whose tokens several ranks share score as whole rows do, and teach the same; a rank is a thread."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore

from plaudit.engine.distributed import process_group, single_process
from plaudit.engine.ranks import share_rows
from plaudit.errors import UserError
from plaudit.methods.config import DistilConfig
from plaudit.models.attention import AttentionRule, PackedRow
from plaudit.models.policy import Policy
from plaudit.models.sequence import SequenceRanks
from plaudit.models.verify import share_tokens
from plaudit.tokens.batch import batch_of
from plaudit.tokens.microbatch import ForwardInputs, Layout, Segments
from tests.models.zoo import EAGER, SDPA, build, examples

Result = TypeVar("Result")
CPU = torch.device("cpu")
PLAIN = AttentionRule(scaling=None, dropout=0.0, window=None, softcap=None, sink_h=None)
SEGMENTS = Segments(prompts=(3, 5, 2, 4), completions=((2, 6, 1), (4,), (3,) * 11, (1, 2)))
"""A row of 63 tokens, which no number of ranks divides."""
RULES = {
    "full": PLAIN,
    "window": replace(PLAIN, window=3),
    "capped": replace(PLAIN, softcap=2.0),
    "sink": replace(PLAIN, sink_h=torch.linspace(-1, 2, 4, dtype=torch.float64)),
}


def on_ranks(count: int, work: Callable[[SequenceRanks], Result]) -> list[Result]:
    """What each of so many ranks makes, in their order."""
    store = dist.HashStore()  # pyright: ignore[reportPrivateImportUsage]  it has no other name

    def of(place: int) -> Result:
        group: Any = dist.ProcessGroup(store, place, count)
        gloo: Any = dist.ProcessGroupGloo(PrefixStore("gloo", store), place, count, timedelta(seconds=60))
        group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
        group._register_backend(CPU, dist.ProcessGroup.BackendType.GLOO, gloo)
        return work(SequenceRanks(place=place, size=count, group=group))

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(of, range(count)))


def attended(row: PackedRow, rule: AttentionRule, parts: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Attention, and the gradient of an uneven sum of it by queries, keys, values and sinks."""
    leaves = [part.clone().requires_grad_() for part in parts]
    sink_h = None if rule.sink_h is None else rule.sink_h.clone().requires_grad_()
    output = row.attend(replace(rule, sink_h=sink_h), leaves[0], leaves[1], leaves[2])
    # Of the tokens of the row alone, and not of what fills it up.
    weight = torch.linspace(0.5, 1.5, 4 * 8, dtype=torch.float64).view(4, 8)
    wanted = [*leaves, *([] if sink_h is None else [sink_h])]
    return output.detach(), list(torch.autograd.grad((output * weight).sum(), wanted))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("ranks", "key_heads"), [(2, 4), (2, 2), (2, 1), (4, 2)])
def test_shared_attention_and_its_gradient(rule: str, ranks: int, key_heads: int) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = ForwardInputs(
        ids_RS=torch.arange(63)[None],
        position_RS=torch.arange(63)[None],
        real_RS=None,
        segments=SEGMENTS,
        state_NT=torch.zeros(0, 0, dtype=torch.int64),
        own_NT=torch.zeros(0, 0, dtype=torch.int64),
    )
    filled = 63 + -63 % ranks
    draw = [
        torch.randn(1, heads, filled, 8, generator=generator, dtype=torch.float64)
        for heads in (4, key_heads, key_heads)
    ]

    def own(sequence: SequenceRanks) -> tuple[Tensor, list[Tensor]]:
        part = sequence.own_part(inputs)
        assert part.ids_RS.shape[1] == filled // ranks
        assert part.segments is not None
        row = PackedRow(part.segments, CPU, ran={}, sequence=sequence)
        return attended(row, RULES[rule], [x.chunk(ranks, dim=2)[sequence.place] for x in draw])

    whole_segments = Segments(
        prompts=(*SEGMENTS.prompts, filled - 63), completions=(*SEGMENTS.completions, ())
    )
    output, gradients = attended(PackedRow(whole_segments, CPU, ran={}), RULES[rule], draw)
    outputs, parts = zip(*on_ranks(ranks, own), strict=True)
    close: Any = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(torch.cat(outputs, dim=1), output, **close)
    for n, gradient in enumerate(gradients[:3]):
        torch.testing.assert_close(torch.cat([part[n] for part in parts], dim=2), gradient, **close)
    for n, gradient in enumerate(gradients[3:], start=3):
        torch.testing.assert_close(sum(part[n] for part in parts), gradient, **close)


def learnt(policy: Policy) -> tuple[Tensor, dict[str, Tensor], list[int]]:
    """Log-probs, the gradient by every weight, and how many tokens each layer was given."""
    tokens: list[int] = []

    def note(_: nn.Module, args: Any) -> None:
        tokens.append(args[0].shape[1])

    for layer in policy.backbone.repeated_layers:
        layer.register_forward_pre_hook(note)
    logp_NT = policy.score(batch_of(examples())).logp_NT
    (logp_NT * torch.linspace(0.5, 1.5, logp_NT.numel()).view(logp_NT.shape)).sum().backward()
    return logp_NT.detach(), {n: p.grad for n, p in policy.named_parameters() if p.grad is not None}, tokens


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma3", "gemma2", "gpt_oss"])
def test_a_model_of_shared_rows_is_the_model(family: str, recompute: bool) -> None:
    """The gradients of all ranks add up to that of one process, and each computes its part alone."""
    close = 1e-4 if family in EAGER else 1e-10
    assert family in SDPA | EAGER

    def made() -> Policy:
        policy = Policy(build(family, torch.float64 if family in SDPA else torch.float32))
        if recompute:
            policy.train()
            policy.backbone.recompute_layers()
        for module in policy.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        return policy

    copies = [made() for _ in range(2)]

    def own(sequence: SequenceRanks) -> tuple[Tensor, dict[str, Tensor], list[int]]:
        share_tokens(copies[sequence.place], sequence)
        return learnt(copies[sequence.place])

    logp_NT, gradients, tokens = learnt(made())
    for found_NT, _, parts in on_ranks(2, own):
        torch.testing.assert_close(found_NT, logp_NT, rtol=0, atol=close)
        assert {-(-count // 2) for count in tokens} == set(parts)
    sums = [{name: grad for name, grad in policy.named_parameters()} for policy in copies]
    for name, gradient in gradients.items():
        total = sum(p.grad for weights in sums if (p := weights[name]).grad is not None)
        torch.testing.assert_close(total, gradient, rtol=close, atol=close, msg=name)


def test_what_cannot_be_shared_is_refused_in_a_sentence() -> None:
    with pytest.raises(UserError, match=r"--sequence-ranks 2: 3 processes"):
        share_rows(replace(single_process(), world_size=3), 2, timedelta(seconds=1))
    with (
        pytest.raises(UserError, match=r"--sequence-ranks 2: this is one process"),
        process_group("cpu", sequence_ranks=2),
    ):
        pass

    with pytest.raises(UserError, match="--sequence-ranks: runs of this kind have whole rows"):
        DistilConfig(model=Path("m"), data=Path("d"), out=Path("o"), teacher=Path("t"), sequence_ranks=2)

    def refusal(sequence: SequenceRanks) -> str:
        with pytest.raises(UserError) as refused:
            share_tokens(Policy(models[sequence.place], layout=layouts[sequence.place]), sequence)
        return str(refused.value)

    models, layouts = [build("llama") for _ in range(3)], list[Layout](["packed"] * 3)
    assert all("--sequence-ranks 3: a layer has 4 heads" in words for words in on_ranks(3, refusal))
    layouts = ["right"] * 3
    assert all("padded on the right" in words for words in on_ranks(3, refusal))
