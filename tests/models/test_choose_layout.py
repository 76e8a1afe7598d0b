"""Each model is shown, when it is loaded, to say what it would say itself; or is padded, or refused."""

from typing import Any

import pytest
import torch
import transformers as hf
from transformers import LlamaForCausalLM, PreTrainedModel

from plaudit.errors import UserError
from plaudit.models.attention import PackingError
from plaudit.models.policy import Policy
from plaudit.models.verify import choose_layout, largest_difference
from plaudit.tokens.batch import batch_of
from plaudit.tokens.microbatch import Layout
from tests.models.zoo import EAGER, PLAIN, RECURRENT, SDPA, WINDOW, build, examples


@pytest.mark.parametrize("name", SDPA | EAGER)
def test_what_can_be_packed_is_packed(name: str) -> None:
    policy = Policy(build(name))
    assert choose_layout(policy, "packed") == ("packed", None)
    assert policy.layout == "packed"
    assert largest_difference(policy) < 1e-5


@pytest.mark.parametrize("wanted", ["left", "right"])
def test_padding_is_kept_when_it_was_asked_for(wanted: Layout) -> None:
    policy = Policy(build("llama"))
    assert choose_layout(policy, wanted) == (wanted, None)
    assert policy.layout == wanted


@pytest.mark.parametrize("name", RECURRENT)
def test_state_that_runs_through_the_row_is_padded_and_said(name: str) -> None:
    policy = Policy(build(name))
    layout, said = choose_layout(policy, "packed")
    assert (layout, policy.layout) == ("right", "right")
    assert said is not None
    assert said.startswith(f"{type(policy.base).__name__} cannot be packed (log-probs differ by")
    assert said.endswith("batches are padded on the right")
    assert largest_difference(policy) < 1e-5


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6])
@pytest.mark.parametrize("name", ["mamba", "lfm2"])
def test_a_leak_that_drowns_in_rounding_is_found(name: str, scale: float) -> None:
    """A fresh model's log-probs hardly depend on anything; a trained one's would be wrong."""
    model = build(name)
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(scale)
    layout, said = choose_layout(Policy(model), "packed")
    assert layout == "right"
    assert said is not None


def _own_attention() -> PreTrainedModel:
    return hf.GPTNeoForCausalLM(
        hf.GPTNeoConfig(
            vocab_size=61,
            hidden_size=16,
            num_layers=2,
            attention_types=[[["global"], 2]],
            num_heads=4,
            max_position_embeddings=128,
            bos_token_id=1,
            eos_token_id=2,
        )
    )


def _layers_that_keep_things_to_themselves() -> PreTrainedModel:
    return hf.StableLmForCausalLM(hf.StableLmConfig(**PLAIN))


def _a_window_that_only_the_mask_knows() -> PreTrainedModel:
    return hf.PhimoeForCausalLM(
        hf.PhimoeConfig(**PLAIN, num_local_experts=4, num_experts_per_tok=2, sliding_window=64)
    )


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_own_attention, "its attention is its own"),
        (_layers_that_keep_things_to_themselves, "do not hand on to attention"),
        (_a_window_that_only_the_mask_knows, "how far back it may look"),
    ],
)
def test_attention_that_cannot_be_exchanged_is_padded_and_said(make: Any, why: str) -> None:
    policy = Policy(make().eval())
    layout, said = choose_layout(policy, "packed")
    assert layout == "right"
    assert said is not None
    assert why in said
    assert largest_difference(policy) < 1e-5


def test_a_model_that_cannot_be_packed_is_never_packed_silently() -> None:
    policy = Policy(_own_attention().eval(), layout="packed")
    with pytest.raises(PackingError, match="its attention is its own"):
        policy.score(batch_of(examples()))


class _Doubling(LlamaForCausalLM):
    """A head that does something which its configuration does not say."""

    def forward(self, *args: Any, **facts: Any) -> Any:
        output = super().forward(*args, **facts)
        output.logits = output.logits * 2
        return output


@pytest.mark.parametrize("wanted", ["packed", "left", "right"])
def test_a_head_that_does_something_unknown_is_refused(wanted: Layout) -> None:
    model = _Doubling(hf.LlamaConfig(**PLAIN))
    model.load_state_dict(build("llama").state_dict())
    with pytest.raises(UserError, match=r"_Doubling.*Its head does something that plaudit does not know"):
        choose_layout(Policy(model.eval()), wanted)


def test_a_head_that_is_no_linear_layer_is_refused() -> None:
    model = build("llama")
    model.set_output_embeddings(torch.nn.Sequential(torch.nn.Linear(16, 61, bias=False)))
    with pytest.raises(UserError, match="is a Sequential, not a plain linear layer"):
        choose_layout(Policy(model), "packed")


def test_a_window_shorter_than_the_trial_matters() -> None:
    """The zoo's window is short enough to be seen: without it, the log-probs are others."""
    narrow, wide = build("mistral"), build("mistral")
    assert narrow.config.sliding_window == WINDOW
    wide.config.sliding_window = None
    batch = batch_of(examples())
    with torch.no_grad():
        apart = Policy(narrow).score(batch).logp_NT - Policy(wide).score(batch).logp_NT
    assert float(apart.abs().max()) > 1e-3


def test_the_trial_leaves_nothing_behind() -> None:
    policy = Policy(build("llama")).train()
    before = {name: p.clone() for name, p in policy.named_parameters()}
    choose_layout(policy, "packed")
    assert policy.model.training
    assert all(p.grad is None for p in policy.parameters())
    assert all(torch.equal(p, before[name]) for name, p in policy.named_parameters())
    assert not policy.base.get_input_embeddings()._forward_hooks
