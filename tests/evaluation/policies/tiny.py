"""Language models so small that every answer of two tokens can be written out, and questions for them."""

from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from plaudit.data.records import user_turn
from plaudit.evaluation.policies.generate import EvaluationPrompt
from plaudit.rollouts.sampler import Answer, Rollout
from tests.models.reward_zoo import END, EOS, encoder_of, start
from tests.models.zoo import VOCABULARY, build

ASKED = (
    EvaluationPrompt(prompt=user_turn("w9 w12"), category="odd"),
    EvaluationPrompt(prompt=user_turn("w20"), category="even"),
)
ENDS = (EOS, END)


def policy(where: Path, seed: int) -> Path:
    """A model of its own for each seed, its weights shrunk so that nothing is nearly certain."""
    model = build("llama", seed=seed)
    with torch.no_grad():
        model.lm_head.weight.mul_(0.3)
    return start(where / f"policy-{seed}", model=model)


def prompts(folder: Path) -> list[tuple[int, ...]]:
    return [encoder_of(folder).encode_prompt(one.prompt) for one in ASKED]


def all_answers() -> list[tuple[int, ...]]:
    """Every answer of at most two tokens: one that ends at once, or two tokens."""
    goes_on = [token for token in range(VOCABULARY) if token not in ENDS]
    return [*((end,) for end in ENDS), *product(goes_on, range(VOCABULARY))]


def chances(folder: Path, prompt: tuple[int, ...], temperature: float = 1.0) -> dict[tuple[int, ...], float]:
    """log π of every answer, by transformers alone, in float64."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)

    def next_logp(ids: list[list[int]]) -> Tensor:
        with torch.no_grad():
            return (model(torch.tensor(ids)).logits[:, -1].double() / temperature).log_softmax(-1)

    first_V = next_logp([list(prompt)])[0]
    goes_on = [token for token in range(VOCABULARY) if token not in ENDS]
    then = dict(zip(goes_on, next_logp([[*prompt, token] for token in goes_on]), strict=True))
    return {
        ids: float(first_V[ids[0]] + (then[ids[0]][ids[1]] if len(ids) > 1 else 0.0)) for ids in all_answers()
    }


def as_rollout(prompt: tuple[int, ...], ids: tuple[int, ...]) -> Rollout:
    zeros = (0.0,) * len(ids)
    said = Answer(text="", tokens=len(ids), ended=ids[-1] in ENDS)
    return Rollout(prompt=prompt, ids=ids, logp=zeros, whole_logp=zeros, answer=said)
