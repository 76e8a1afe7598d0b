"""Packed, shared or padded on either side: the same rewards, values, step scores and gradients."""

import pytest
import torch
import transformers as hf
from torch import Tensor

from plaudit.errors import UserError
from plaudit.models.reward_model import FreshHead, Normalisation, RewardModel
from plaudit.models.verify import choose_layout, largest_difference
from plaudit.tokens.batch import Completion, Example, TokenBatch, batch_of
from plaudit.tokens.microbatch import Layout
from tests.models.reward_zoo import fresh, plain_values, start
from tests.models.zoo import PLAIN, examples

LAYOUTS: list[tuple[Layout, bool]] = [("packed", True), ("packed", False), ("left", True), ("right", True)]
EXACT = ["llama", "qwen2", "qwen3", "gemma", "gemma3", "mistral", "gpt2", "phi3", "gptneox"]
CASES = [
    *((name, torch.float32, 1e-5) for name in [*EXACT, "gemma2", "mixtral"]),
    *((name, torch.float64, 1e-10) for name in EXACT),
]


@pytest.mark.one_in(9)
@pytest.mark.parametrize(("name", "dtype", "near"), CASES)
def test_every_layout_says_what_transformers_says(tmp_path, name, dtype, near):
    model, batch = fresh(start(tmp_path, name, pad="</s>"), dtype=dtype), batch_of(examples())
    alone = plain_values(model, batch)
    last_N = torch.stack([value_T[-1] for value_T in alone])
    own = zip(alone, batch.mask_NT, strict=True)
    mean_N = torch.stack([value_T[mask[: len(value_T)]].mean() for value_T, mask in own])
    assert float(last_N.std()) > 0.1
    for layout, share in LAYOUTS:
        model.use_layout(layout)
        model.backbone.share_prompts = share
        for model.pooling, wanted_N in (("last", last_N), ("mean", mean_N)):
            with torch.no_grad():
                reward_N = model.rewards(batch)
            assert reward_N.dtype == dtype
            torch.testing.assert_close(reward_N, wanted_N, rtol=0, atol=near)


@pytest.mark.parametrize("layout", ["packed", "left", "right"])
def test_values_by_token_before_and_after_it(tmp_path, layout):
    model, batch = fresh(start(tmp_path), dtype=torch.float64), batch_of(examples())
    alone = plain_values(model, batch)
    model.use_layout(layout)
    with torch.no_grad():
        own_NT, before_NT = model.values(batch), model.values(batch, at="before")
        reward_N = model.rewards(batch)
    for n, value_T in enumerate(alone):
        length = len(value_T)
        mask_T = batch.mask_NT[n, :length]
        torch.testing.assert_close(own_NT[n, :length], value_T * mask_T, rtol=0, atol=1e-10)
        torch.testing.assert_close(before_NT[n, 1:length], value_T[:-1] * mask_T[1:], rtol=0, atol=1e-10)
        torch.testing.assert_close(reward_N[n], value_T[-1], rtol=0, atol=1e-10)
    assert not own_NT[~batch.mask_NT].any()
    assert not before_NT[~batch.mask_NT].any()


@pytest.mark.parametrize("layout", ["packed", "left", "right"])
def test_steps_are_scored_at_their_last_tokens(tmp_path, layout):
    model, batch = fresh(start(tmp_path)), batch_of(examples())
    model.use_layout(layout)
    end_NC = torch.tensor([[0, 3], [0, -1], [4, 8], [5, -1], [-1, -1], [1, 0], [2, 4]])
    with torch.no_grad():
        score_NC, value_NT = model.step_rewards(batch, end_NC), model.values(batch)
    wanted_NC = value_NT.gather(1, end_NC.clamp(min=0)) * (end_NC >= 0)
    torch.testing.assert_close(score_NC, wanted_NC, rtol=0, atol=1e-6)
    assert not score_NC[4].any()


@pytest.mark.parametrize(
    ("n", "end", "says"), [(0, 4, "a:1: step 2 ends at token 4.*0 to 3"), (3, -2, "a:2")]
)
def test_a_step_outside_its_answer_is_refused(tmp_path, n, end, says):
    end_NC = torch.full((7, 2), -1)
    end_NC[n, 1] = end
    with pytest.raises(UserError, match=says):
        fresh(start(tmp_path)).step_rewards(batch_of(examples()), end_NC)


def _gradients(model: RewardModel, batch: TokenBatch) -> dict[str, Tensor]:
    model.zero_grad()
    reward_N = model.rewards(batch)
    (reward_N * torch.linspace(-1, 2, len(reward_N), dtype=reward_N.dtype)).sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3"])
def test_every_layout_gives_the_same_gradient_to_every_weight(tmp_path, name, pooling):
    model = fresh(start(tmp_path, name), FreshHead(pooling=pooling), torch.float64)
    batch = batch_of(examples())
    model.use_layout("right")
    wanted = _gradients(model, batch)
    assert set(wanted) == {name for name, _ in model.named_parameters()}
    for layout, share in LAYOUTS[:3]:
        model.use_layout(layout)
        model.backbone.share_prompts = share
        for key, grad in _gradients(model, batch).items():
            torch.testing.assert_close(grad, wanted[key], rtol=0, atol=1e-9, msg=f"{layout} {share} {key}")


def test_the_end_of_turn_learns_though_it_was_the_padding_of_the_base(tmp_path):
    """PyTorch gives the row of the padding token no gradient, so padding must be another token."""
    model = fresh(start(tmp_path, pad="</s>"))
    ends = Completion(ids=(9, 2), mask=(True, True), finished=True)
    model.rewards(batch_of([Example(prompt=(5, 6), completions=(ends,))])).sum().backward()
    grad = model.base.get_input_embeddings().weight.grad
    assert float(grad[2].abs().sum()) > 0


def test_tokens_behind_the_last_masked_one_change_nothing(tmp_path):
    model = fresh(start(tmp_path))
    bare = Completion(ids=(9, 12, 2), mask=(True, True, True), finished=True)
    trailed = Completion(ids=(9, 12, 2, 33, 41), mask=(True, True, True, False, False), finished=True)
    batch = batch_of([Example(prompt=(5, 6, 2, 8), completions=(bare, trailed))])
    with torch.no_grad():
        first, second = model.rewards(batch).tolist()
    assert first == pytest.approx(second, abs=1e-6)


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_an_answer_without_a_token_of_its_own_is_refused(tmp_path, pooling):
    model = fresh(start(tmp_path), FreshHead(pooling=pooling))
    foreign = Completion(ids=(9, 2), mask=(False, False), finished=True)
    batch = batch_of([*examples(), Example(prompt=(5,), completions=(foreign,), origin="b.jsonl:7")])
    with pytest.raises(UserError, match=r"b\.jsonl:7: no token of the answer"):
        model.rewards(batch)


def test_normalisation_shifts_and_divides_rewards_values_and_steps(tmp_path):
    model, batch = fresh(start(tmp_path)), batch_of(examples())
    with torch.no_grad():
        raw_N = model.rewards(batch)
        model.normalisation = Normalisation(offset=1.5, scale=4)
        torch.testing.assert_close(model.rewards(batch), (raw_N - 1.5) / 4)
        torch.testing.assert_close(model.values(batch)[2, 8], (raw_N[2] - 1.5) / 4)
        steps_NC = model.step_rewards(batch, torch.full((7, 1), 0))
        torch.testing.assert_close(steps_NC[1, 0], (raw_N[1] - 1.5) / 4)
        model.pooling = "mean"
        assert float(model.values(batch)[4, 2]) == 0.0, "what is not masked is no value, not a shifted zero"


@pytest.mark.parametrize(
    "facts", [{"scale": 0}, {"scale": -1.0}, {"scale": float("nan")}, {"offset": float("inf")}]
)
def test_a_normalisation_that_destroys_rewards_is_refused(facts):
    with pytest.raises(UserError, match="must be a number"):
        Normalisation(**facts)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [*EXACT, "gemma2", "mixtral"])
def test_the_fast_path_is_proven_at_load_time(tmp_path, name):
    model = fresh(start(tmp_path, name))
    assert choose_layout(model, "packed") == ("packed", None)
    assert largest_difference(model) < 1e-5


def test_what_cannot_be_packed_is_padded_and_said(tmp_path):
    model = fresh(start(tmp_path, model=hf.StableLmForCausalLM(hf.StableLmConfig(**PLAIN))))
    layout, said = choose_layout(model, "packed")
    assert (layout, model.layout) == ("right", "right")
    assert said is not None
    assert said.startswith("StableLmForSequenceClassification cannot be packed (its layers do not hand on")
