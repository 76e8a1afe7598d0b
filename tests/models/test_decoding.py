"""Both decoders predict what the plain model predicts of every answer's text so far, whoever leaves when."""

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, BloomConfig, XLMConfig, XLMWithLMHeadModel

from plaudit.models.decode import (
    CachedDecoder,
    Decoder,
    PagedDecoder,
    RereadingDecoder,
    SharedDecoder,
    fastest_decoder,
)
from plaudit.models.kv_cache import KV_CACHE_ATTENTION, ROOM_STEP
from plaudit.models.policy import Policy
from plaudit.models.verify import choose_layout
from tests.models.zoo import EAGER, RECURRENT, SDPA, VOCABULARY, WINDOW, build, build_sharp

PROMPTS = ([5, 9, 3], [7, 8, 21, 40, 33, 12, 6, 19, 50], [30, 31, 32, 33])
ANSWERS = (3, 1, 2)
TURN = [0, 0, 0, 1, 2, 2]


def predicted(policy: Policy, texts: list[list[int]]) -> Tensor:
    """Plain passes, one text at a time, without any cache."""
    with torch.no_grad(), policy.as_plain_model() as plain:
        return torch.stack(
            [
                plain(input_ids=torch.tensor([text], device=policy.device), use_cache=False).logits[0, -1]
                for text in texts
            ]
        )


def token_for(answer: int, step: int) -> int:
    return 3 + (answer * 7 + step * 5) % (VOCABULARY - 3)


def furthest(policy: Policy, decoder: Decoder, leaving: dict[int, list[int]], steps: int) -> float:
    """How far predictions come from plain ones, while answers leave before the steps that are named."""
    texts = {a: list(PROMPTS[p]) for a, p in enumerate(TURN)}
    apart = 0.0
    with torch.inference_mode(), decoder.attention_context(policy):
        grown = decoder(policy, PROMPTS, ANSWERS)
        told = [grown.logits_NV.clone()]
        rows = [list(texts)]
        for step in range(steps):
            staying = [a for a in rows[-1] if a not in leaving.get(step, [])]
            if len(staying) < len(rows[-1]):
                places = [rows[-1].index(a) for a in staying]
                grown.select_rows(torch.tensor(places, device=policy.device))
            rows.append(staying)
            grown.step(torch.tensor([token_for(a, step) for a in staying], device=policy.device))
            told.append(grown.logits_NV.clone())
    for step, (logits_NV, staying) in enumerate(zip(told, rows, strict=True)):
        wanted = [texts[a] + [token_for(a, s) for s in range(step)] for a in staying]
        apart = max(apart, float((logits_NV - predicted(policy, wanted)).abs().max()))
    return apart


@pytest.mark.one_in(21)
@pytest.mark.parametrize("decoder", [SharedDecoder, CachedDecoder, PagedDecoder])
@pytest.mark.parametrize("name", sorted({*SDPA, *EAGER}))
def test_predictions_are_those_of_the_plain_model(device, name, decoder):
    dtype = torch.float64 if name in SDPA else torch.float32
    policy = Policy(build(name, dtype).to(device), layout="right")
    leaving = {1: [1], 3: [3], 5: [0, 2]}
    steps = WINDOW + 4
    close = 1e-9 if name in SDPA else 1e-4
    assert furthest(policy, decoder, {}, steps) < close
    assert furthest(policy, decoder, leaving, steps) < close


@pytest.mark.parametrize("decoder", [SharedDecoder, PagedDecoder])
def test_the_first_prompt_may_be_the_one_that_is_forgotten(device, decoder):
    policy = Policy(build("llama", torch.float64).to(device))
    assert furthest(policy, decoder, {0: [0, 1, 2], 2: [5]}, 4) < 1e-9


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("decoder", [SharedDecoder, PagedDecoder])
def test_an_answer_may_be_longer_than_its_first_room(device, decoder):
    policy = Policy(build("qwen3", torch.float64).to(device))
    assert furthest(policy, decoder, {ROOM_STEP - 1: [4], ROOM_STEP + 1: [1]}, ROOM_STEP + 5) < 1e-9


@pytest.mark.parametrize("name", sorted({*SDPA, *EAGER}))
def test_every_transformer_of_the_zoo_gets_the_fast_decoder(name):
    assert fastest_decoder(Policy(build(name), layout="right")) == (SharedDecoder, None)


def test_the_model_is_left_as_it_was():
    policy = Policy(build("llama")).train()
    before = policy.base.config._attn_implementation
    with SharedDecoder.attention_context(policy):
        assert policy.base.config._attn_implementation == KV_CACHE_ATTENTION
        assert not policy.model.training
    assert policy.base.config._attn_implementation == before
    assert policy.model.training


def test_a_layer_that_keeps_its_keys_to_itself_gets_the_slow_decoder(monkeypatch):
    policy = Policy(build("llama"), layout="right")
    layer: nn.Module = policy.get_submodule("model.model.layers.1.self_attn")
    monkeypatch.delattr(layer, "layer_idx")
    chosen, why = fastest_decoder(policy)
    assert chosen is RereadingDecoder
    assert "its layers do not hand on to attention what the model was given" in str(why)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_model_that_rounds_far_in_16_bits_is_tried_in_all_digits(monkeypatch, wrong):
    policy = Policy(build_sharp(), layout="right")
    policy.compute_in(torch.bfloat16)
    honest = SharedDecoder.step
    if wrong:
        monkeypatch.setattr(SharedDecoder, "step", lambda self, token_N: honest(self, token_N.roll(1)))
    assert (fastest_decoder(policy)[0] is SharedDecoder) is not wrong
    assert policy.backbone.compute_dtype == torch.bfloat16
    assert choose_layout(policy, "packed") == ("packed", None)


@pytest.mark.parametrize("name", sorted(RECURRENT))
def test_padding_does_not_move_a_state_that_runs_through_the_row(name):
    """The decoder that is chosen says of each row in a batch what the model says of the row alone."""
    policy = Policy(build(name), layout="right")
    decoder, why = fastest_decoder(policy)
    assert furthest(policy, decoder, {1: [1], 3: [3], 5: [0, 2]}, 7) < 1e-4
    # Padding on the left moves the state of Mamba; the others mask it.
    assert decoder is (RereadingDecoder if name == "mamba" else CachedDecoder)
    assert why is not None


def test_fresh_weights_do_not_hide_a_state_that_would_be_lost():
    model = build("lfm2")
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(1e-6)
    assert fastest_decoder(Policy(model, layout="right"))[0] is CachedDecoder


def test_changed_weights_change_the_next_prediction(device):
    policy = Policy(build("llama", torch.float64).to(device))

    def first() -> Tensor:
        with torch.inference_mode(), SharedDecoder.attention_context(policy):
            return SharedDecoder(policy, PROMPTS, ANSWERS).logits_NV.clone()

    before = first()
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.05)
    after = first()
    assert float((after - before).abs().min()) > 1e-6
    assert float((after - predicted(policy, [list(PROMPTS[p]) for p in TURN])).abs().max()) < 1e-9


def test_a_model_that_names_no_longest_text_has_no_last_position():
    """Bloom's attention falls off with distance, and its config knows no number of positions."""
    config = BloomConfig(vocab_size=VOCABULARY, hidden_size=16, n_layer=2, n_head=2)
    assert not hasattr(config, "max_position_embeddings")
    policy = Policy(AutoModelForCausalLM.from_config(config, dtype=torch.float64), layout="left")
    for decoder in (CachedDecoder, RereadingDecoder):
        assert furthest(policy, decoder, {1: [1]}, 3) < 1e-5


def test_a_prediction_that_is_no_number_at_the_second_token_is_not_trusted(monkeypatch):
    policy = Policy(build("llama"), layout="right")
    honest = SharedDecoder.step

    def faulty(self: SharedDecoder, token_N: Tensor) -> None:
        honest(self, token_N)
        # Only while nobody has left: the last prediction of the trial is a number again.
        if len(token_N) == 3:
            self.logits_NV = torch.full_like(self.logits_NV, torch.nan)

    monkeypatch.setattr(SharedDecoder, "step", faulty)
    assert fastest_decoder(policy) == (CachedDecoder, "logits differ by inf")


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma3"])
def test_float32_weights_that_are_multiplied_in_16_bits_are_rounded_as_products_are(name):
    """Two ways differ then by more than two of float32 may."""
    policy = Policy(build(name))
    policy.compute_in(torch.bfloat16)
    assert fastest_decoder(policy) == (SharedDecoder, None)


@pytest.mark.parametrize(
    ("dtype", "times"), [(torch.bfloat16, 32), (torch.float32, 1), (torch.float32, 100_000)]
)
def test_larger_scores_may_differ_more_and_no_token_is_in_a_wrong_place(monkeypatch, dtype, times):
    policy = Policy(build("llama", dtype))
    with torch.no_grad():
        policy.base.get_output_embeddings().weight.mul_(times)
    assert fastest_decoder(policy) == (SharedDecoder, None)
    honest = SharedDecoder.step
    monkeypatch.setattr(SharedDecoder, "step", lambda self, token_N: honest(self, token_N.roll(1)))
    chosen, why = fastest_decoder(policy)
    assert chosen is CachedDecoder
    assert str(why).startswith("logits differ by")


def test_a_model_that_gives_no_cache_back_is_read_anew():
    # XLM has an argument of that name which is something else.
    config = XLMConfig(vocab_size=VOCABULARY, emb_dim=16, n_layers=1, n_heads=2, causal=True)
    policy = Policy(XLMWithLMHeadModel(config).eval(), layout="right")
    chosen, why = fastest_decoder(policy)
    assert chosen is RereadingDecoder
    assert "KeyError: 'cache'" in str(why)
    assert furthest(policy, chosen, {1: [1]}, 3) < 1e-5
