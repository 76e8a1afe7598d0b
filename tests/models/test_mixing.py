"""Answers of a mixture are predicted from what both models say of the text so far, whoever leaves when."""

from itertools import product

import pytest
import torch
from torch import Tensor

from plaudit.errors import UserError
from plaudit.models.adapters import with_lora
from plaudit.models.decode import CachedDecoder, Decoder, SharedDecoder
from plaudit.models.mixture import MixtureDecoderFactory, mixture_decoder
from plaudit.models.policy import AdapterOffReference, GeneratingReference, ModelReference, Policy
from plaudit.models.settings import LoraSettings
from tests.models.test_decoding import ANSWERS, PROMPTS, TURN, predicted, token_for
from tests.models.zoo import build

LEAVING = {1: [1], 3: [3], 4: [0, 2]}
STEPS = 6


def policies(seed: int = 1) -> tuple[Policy, Policy]:
    return Policy(build("llama", torch.float64)), Policy(build("llama", torch.float64, seed=seed))


def grown(policy: Policy, mixing: MixtureDecoderFactory) -> list[tuple[list[list[int]], Tensor]]:
    """The texts so far and what is predicted of each, step by step."""
    texts = {a: list(PROMPTS[p]) for a, p in enumerate(TURN)}
    found: list[tuple[list[list[int]], Tensor]] = []
    with torch.inference_mode(), mixing.attention_context(policy):
        answers = mixing(policy, PROMPTS, ANSWERS)
        rows = list(texts)
        for step in range(STEPS):
            found.append(([list(texts[a]) for a in rows], answers.logits_NV.clone()))
            staying = [a for a in rows if a not in LEAVING.get(step, [])]
            answers.select_rows(torch.tensor([rows.index(a) for a in staying]))
            rows = staying
            for a in rows:
                texts[a].append(token_for(a, step))
            answers.step(torch.tensor([token_for(a, step) for a in rows]))
    return found


def by_hand(policy: Policy, other: Policy, texts: list[list[int]], share: float) -> Tensor:
    """The product of powers, made to add up to 1."""
    own, ref = (predicted(one, texts).softmax(-1) for one in (policy, other))
    weighed = own ** (1 - share) * ref**share
    return weighed / weighed.sum(-1, keepdim=True)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kinds", list(product((SharedDecoder, CachedDecoder), repeat=2)))
@pytest.mark.parametrize("share", [0.0, 0.125, 0.6, 1.0])
def test_predictions_are_the_product_of_powers(kinds: tuple[Decoder, Decoder], share: float) -> None:
    policy, other = policies()
    mixing = MixtureDecoderFactory(
        reference=ModelReference(other), share=share, policy_decoder=kinds[0], reference_decoder=kinds[1]
    )
    for texts, logits_NV in grown(policy, mixing):
        wanted = by_hand(policy, other, texts, share)
        torch.testing.assert_close(logits_NV.softmax(-1), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", [SharedDecoder, CachedDecoder])
def test_beneath_adapters_is_the_model_that_they_were_put_on(kind: Decoder) -> None:
    pytest.importorskip("peft", reason="needs plaudit[lora]")
    other = Policy(build("llama", torch.float64))
    policy = Policy(with_lora(build("llama", torch.float64), LoraSettings(rank=4, alpha=8)))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in policy.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype) * 0.3)
    learning = {name for name, weight in policy.named_parameters() if weight.requires_grad}
    beneath: GeneratingReference = AdapterOffReference(policy)
    for texts, logits_NV in grown(
        policy,
        MixtureDecoderFactory(reference=beneath, share=0.4, policy_decoder=kind, reference_decoder=kind),
    ):
        wanted = by_hand(policy, other, texts, 0.4)
        assert (wanted - by_hand(policy, other, texts, 0.0)).abs().max() > 1e-3
        torch.testing.assert_close(logits_NV.softmax(-1), wanted, rtol=0, atol=1e-10)
    assert {name for name, weight in policy.named_parameters() if weight.requires_grad} == learning


def test_weights_that_move_are_asked_as_they_are_now() -> None:
    policy, other = policies()
    mixing, slow = mixture_decoder(policy, SharedDecoder, ModelReference(other), 0.5)
    assert slow is None
    before = grown(policy, mixing)[0][1]
    for moving in (policy, other):
        with torch.no_grad():
            moving.base.get_parameter("lm_head.weight").mul_(1.5)
        texts, logits_NV = grown(policy, mixing)[0]
        assert (logits_NV - before).abs().max() > 1e-3
        torch.testing.assert_close(
            logits_NV.softmax(-1), by_hand(policy, other, texts, 0.5), rtol=0, atol=1e-10
        )
        before = logits_NV


def test_models_of_unlike_vocabularies_have_nothing_between_them() -> None:
    policy, other = policies()
    other.base.resize_token_embeddings(other.base.config.vocab_size + 8)
    with pytest.raises(UserError, match=r"mixture_coef: the policy scores .* tokens and its reference"):
        mixture_decoder(policy, SharedDecoder, ModelReference(other), 0.5)
