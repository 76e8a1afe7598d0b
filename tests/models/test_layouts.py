"""Packed, packed without sharing, padded left or right: the same log-probs and the same gradients."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from plaudit.models.policy import Policy
from plaudit.tokens.batch import Example, TokenBatch, batch_of
from plaudit.tokens.microbatch import Layout
from tests.models.zoo import EAGER, SDPA, VOCABULARY, build, by_loop, examples

LAYOUTS: list[tuple[Layout, bool]] = [("right", True), ("packed", True), ("packed", False), ("left", True)]
FLOAT32, FLOAT64 = (torch.float32, 1e-5), (torch.float64, 1e-10)
WIDER = {"cpu": 1, "cuda": 10}
"""How many times as far apart sums may lie on a GPU, whose kernels add up by tiles."""
VALUES = [(name, *FLOAT32) for name in SDPA | EAGER] + [(name, *FLOAT64) for name in SDPA]
GRADIENTS = [one for one in VALUES if one != ("cohere", *FLOAT64)]
"""Cohere turns queries and keys in float32 whatever its dtype, which its gradients show."""


def _policy(name: str, device: torch.device, dtype: torch.dtype, layout: Layout, share: bool) -> Policy:
    return by_loop(Policy(build(name, dtype), layout=layout, share_prompts=share), device)


def _full_logits(policy: Policy, batch: TokenBatch) -> Tensor:
    """Each conversation alone through the untouched model, all its logits at once."""
    logp_NT = torch.zeros(batch.mask_NT.shape, dtype=policy.base.dtype, device=policy.device)
    with policy.as_plain_model() as model, torch.no_grad():
        for n, p in enumerate(batch.group_N.tolist()):
            prompt, answer = int(batch.prompt_length_P[p]), int(batch.length_N[n])
            ids = torch.cat((batch.prompt_PL[p, :prompt], batch.completion_NT[n, :answer]))
            logp_SV = model(input_ids=ids[None], use_cache=False).logits[0].log_softmax(-1)
            logp_NT[n, :answer] = logp_SV[prompt - 1 : -1].gather(1, ids[prompt:, None])[:, 0]
    return logp_NT * batch.mask_NT


def _ids(cases: list[tuple[str, torch.dtype, float]]) -> list[str]:
    return [f"{name}-{str(dtype).removeprefix('torch.')}" for name, dtype, _ in cases]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "dtype", "near"), VALUES, ids=_ids(VALUES))
def test_every_layout_says_what_the_model_says(device, name, dtype, near):
    batch = batch_of(examples()).to(device)
    policy = _policy(name, device, dtype, "right", True)
    wanted_NT = _full_logits(policy, batch)
    assert float(wanted_NT[batch.mask_NT].std()) > 0.1
    for layout, share in LAYOUTS:
        policy.use_layout(layout)
        policy.backbone.share_prompts = share
        with torch.no_grad():
            logp_NT = policy.score(batch).logp_NT
        assert logp_NT.dtype == dtype
        torch.testing.assert_close(logp_NT, wanted_NT, rtol=0, atol=near * WIDER[device.type])


def _gradients(policy: Policy, batch: TokenBatch) -> dict[str, Tensor]:
    scores = policy.score(batch, also=("entropy",))
    assert scores.entropy_NT is not None
    pull_M = torch.linspace(-1, 2, batch.mask_NT.numel(), dtype=scores.logp_NT.dtype)
    pull_NT = pull_M.view(batch.mask_NT.shape).to(policy.device)
    policy.zero_grad()
    (pull_NT * (scores.logp_NT + 0.3 * scores.entropy_NT)).sum().backward()
    return {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "dtype", "near"), GRADIENTS, ids=_ids(GRADIENTS))
def test_every_layout_gives_the_same_gradient(device, name, dtype, near):
    batch = batch_of(examples()).to(device)
    policy = _policy(name, device, dtype, "right", True)
    wanted = _gradients(policy, batch)
    assert set(wanted) == {name for name, _ in policy.named_parameters()}
    largest = max(float(grad.abs().max()) for grad in wanted.values())
    close = near * max(1.0, largest) * WIDER[device.type]
    for layout, share in LAYOUTS[1:]:
        policy.use_layout(layout)
        policy.backbone.share_prompts = share
        for key, grad in _gradients(policy, batch).items():
            torch.testing.assert_close(grad, wanted[key], rtol=0, atol=close)


def _scores(policy: Policy, rows: Sequence[Example]) -> Tensor:
    with torch.no_grad():
        return policy.score(batch_of(rows).to(policy.device)).logp_NT


@pytest.mark.parametrize(("layout", "share"), LAYOUTS)
@pytest.mark.parametrize(
    ("name", "near"), [("llama", 0.0), ("mistral", 0.0), ("gemma2", 0.0), ("gpt_oss", 1e-5)]
)
def test_a_change_in_one_completion_never_changes_another(device, name, near, layout, share):
    """Bit for bit; experts take their tokens in another order then, and round them otherwise."""
    policy = _policy(name, device, torch.float32, layout, share)
    rows = examples()
    before_NT = _scores(policy, rows)
    group = rows[0].completions
    changed = replace(group[0], ids=tuple((token + 7) % VOCABULARY for token in group[0].ids))
    rows[0] = replace(rows[0], completions=(changed, *group[1:]))
    after_NT = _scores(policy, rows)
    assert float((after_NT[1:] - before_NT[1:]).abs().max()) <= near
    assert bool((after_NT[0, :4] != before_NT[0, :4]).all())


@pytest.mark.parametrize(("layout", "share"), LAYOUTS)
def test_a_change_in_a_prompt_changes_its_own_completions_only(device, layout, share):
    policy = _policy("llama", device, torch.float32, layout, share)
    rows = examples()
    before_NT = _scores(policy, rows)
    rows[3] = replace(rows[3], prompt=tuple((token + 7) % VOCABULARY for token in rows[3].prompt))
    after_NT, mask_NT = _scores(policy, rows), batch_of(rows).mask_NT.to(device)
    assert torch.equal(after_NT[:5], before_NT[:5])
    assert bool((after_NT[5:] != before_NT[5:])[mask_NT[5:]].all())


@pytest.mark.parametrize(("layout", "share"), LAYOUTS)
def test_what_is_masked_is_exactly_zero_and_pulls_on_nothing(device, layout, share):
    policy = _policy("llama", device, torch.float32, layout, share)
    batch = batch_of(examples()).to(device)
    scores = policy.score(batch, also=("entropy",))
    assert scores.entropy_NT is not None
    hidden_NT = ~batch.mask_NT
    assert not scores.logp_NT[hidden_NT].any()
    assert not scores.entropy_NT[hidden_NT].any()
    assert not scores.greedy_NT[hidden_NT].any()
    assert bool((scores.logp_NT[batch.mask_NT] < 0).all())
    (scores.logp_NT + scores.entropy_NT)[hidden_NT].sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in policy.parameters())


@pytest.mark.parametrize(("layout", "share"), LAYOUTS)
def test_a_batch_where_nothing_is_trained_adds_nothing(device, layout, share):
    policy = _policy("llama", device, torch.float32, layout, share)
    rows = [
        replace(row, completions=tuple(replace(one, mask=(False,) * len(one.ids)) for one in row.completions))
        for row in examples()
    ]
    scores = policy.score(batch_of(rows).to(device), also=("entropy",))
    scores.logp_NT.sum().backward()
    assert not scores.logp_NT.any()
    assert all(p.grad is None or not p.grad.any() for p in policy.parameters())
