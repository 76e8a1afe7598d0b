"""Answers that join while others grow are predicted what the plain model predicts of each text so far."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from plaudit.models.decode import PagedDecoder, SharedDecoder
from plaudit.models.kv_cache import ROOM_STEP
from plaudit.models.mixture import MixtureDecoder, mixture_decoder, mixture_logits
from plaudit.models.policy import ModelReference, Policy
from tests.models.test_decoding import PROMPTS, predicted, token_for
from tests.models.zoo import EAGER, SDPA, WINDOW, build

FIRST, LONG, LATER = PROMPTS


class Growing:
    """A decoder beside the texts that its rows have by now."""

    def __init__(self, decoder: SharedDecoder | MixtureDecoder, texts: list[list[int]]) -> None:
        self.decoder, self.texts = decoder, texts
        self.device = decoder.logits_NV.device
        self.checked: list[tuple[Tensor, list[list[int]]]] = []
        self.note()

    def note(self) -> None:
        self.checked.append((self.decoder.logits_NV.clone(), [list(text) for text in self.texts]))

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            tokens = [token_for(row, len(text)) for row, text in enumerate(self.texts)]
            self.decoder.step(torch.tensor(tokens, device=self.device))
            self.texts = [[*text, token] for text, token in zip(self.texts, tokens, strict=True)]
            self.note()

    def leave(self, *rows: int) -> None:
        staying = [row for row in range(len(self.texts)) if row not in rows]
        self.decoder.select_rows(torch.tensor(staying, device=self.device))
        self.texts = [self.texts[row] for row in staying]
        self.note()

    def join(self, prompts: Sequence[list[int]], answers: Sequence[int]) -> None:
        self.decoder.join(prompts, answers)
        self.texts += [
            list(prompt) for prompt, count in zip(prompts, answers, strict=True) for _ in range(count)
        ]
        self.note()

    def add(self, count: int, prompt: list[int]) -> None:
        self.decoder.add_answers(count)
        self.texts += [list(prompt) for _ in range(count)]
        self.note()

    def come_and_go(self) -> None:
        """Shorter and longer prompts join; the first rows leave; one prompt gets more answers."""
        self.step(3)
        self.join([LONG, LATER], [1, 2])
        self.step(2)
        self.leave(0, 2)
        self.add(2, LATER)
        self.step(2)
        # All who began first have left, so columns are dropped; then the longest prompt goes.
        self.leave(0)
        self.step()
        self.leave(0)
        self.join([FIRST], [2])
        self.step(WINDOW + 2)


def begun(policy: Policy, decoder: type[SharedDecoder]) -> Growing:
    return Growing(decoder(policy, [FIRST], (3,)), [list(FIRST) for _ in range(3)])


def furthest(policy: Policy, growing: Growing) -> float:
    return max(
        float((logits_NV - predicted(policy, texts)).abs().max()) for logits_NV, texts in growing.checked
    )


@pytest.mark.one_in(11)
@pytest.mark.parametrize("decoder", [SharedDecoder, PagedDecoder])
@pytest.mark.parametrize("name", sorted({*SDPA, *EAGER}))
def test_rows_that_join_are_predicted_what_the_plain_model_predicts(device, name, decoder):
    dtype = torch.float64 if name in SDPA else torch.float32
    policy = Policy(build(name, dtype).to(device), layout="right")
    with torch.inference_mode(), decoder.attention_context(policy):
        growing = begun(policy, decoder)
        growing.come_and_go()
    assert furthest(policy, growing) < (1e-9 if name in SDPA else 1e-4)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("decoder", [SharedDecoder, PagedDecoder])
def test_rows_join_behind_the_first_room(device, decoder):
    policy = Policy(build("llama", torch.float64).to(device))
    with torch.inference_mode(), decoder.attention_context(policy):
        growing = begun(policy, decoder)
        growing.step(ROOM_STEP - 1)
        growing.join([LATER], [2])
        growing.step(3)
        growing.leave(0, 1, 2)
        growing.step(ROOM_STEP)
    assert furthest(policy, growing) < 1e-9


@pytest.mark.parametrize("half", [SharedDecoder, PagedDecoder])
def test_rows_join_a_mixture_in_both_models(device, half):
    policy, other = (Policy(build("llama", torch.float64, seed=seed).to(device)) for seed in (0, 1))
    factory, _ = mixture_decoder(policy, half, ModelReference(other), 0.25)
    with torch.inference_mode(), factory.attention_context(policy):
        decoder = factory(policy, [FIRST], (3,))
        assert decoder.can_join
        growing = Growing(decoder, [list(FIRST) for _ in range(3)])
        growing.come_and_go()
    for logits_NV, texts in growing.checked:
        wanted = mixture_logits(predicted(policy, texts), predicted(other, texts), share=0.25)
        assert float((logits_NV - wanted).abs().max()) < 1e-9
