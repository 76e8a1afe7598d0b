"""A language so small that all answers can be written out, its exact optimum, and policies that learn it.

P prompts and Y answers, the same ones to every prompt: all strings of a few symbols up to a length, ended by
token 0 or cut. Whatever is elsewhere estimated from samples is a finite sum here. The objective is
J(π) = E_π r − β KL(π ‖ π_ref), a mean over the prompts; its optimum is
π*(y|x) ∝ π_ref(y|x) exp(r(x, y) / β).

Two policies learn: a table with a logit for every answer, and a tiny transformer. Both say the log-prob of
each token of each answer. The table can be any distribution there is, so it shows what a loss wants; the
transformer goes through the code that training uses.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from plaudit.errors import UserError
from plaudit.models.policy import Policy
from plaudit.tokens.batch import Completion, Example, TokenBatch, batch_of

END = 0
"""The token that ends an answer; the others are the symbols 1, 2, …"""
Strings = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """Everything that can be said, how good it is, and how the reference says it."""

    symbols: int
    prompts: Strings
    """What is asked, in the same symbols behind an end token."""
    responses: Strings
    reward_PY: Float[Tensor, "P Y"]
    ref_logp_PYT: Float[Tensor, "P Y T"]
    """log π_ref of each token; 0 behind the end."""

    @property
    def mask_YT(self) -> Bool[Tensor, "Y T"]:
        return torch.arange(self.ref_logp_PYT.shape[-1]) < self.length_Y[:, None]

    @property
    def length_Y(self) -> Int[Tensor, " Y"]:
        return torch.tensor([len(response) for response in self.responses])

    @property
    def ref_logp_PY(self) -> Float[Tensor, "P Y"]:
        """The reference's log-prob of each answer to each prompt."""
        return self.ref_logp_PYT.sum(-1)


def make_language(*, seed: int = 0, prompts: int = 2, symbols: int = 2, length: int = 3) -> Language:
    """A language with rewards from a normal distribution and a reference from random logits for each token.

    >>> made = make_language(seed=0)
    >>> len(made.responses), made.ref_logp_PY.exp().sum(-1).sub(1).abs().max().item() < 1e-12
    (15, True)
    """
    if min(prompts, symbols, length) < 1:
        raise UserError("a language needs at least one prompt, one symbol and one token in an answer")
    letters = range(1, symbols + 1)
    ended = [(*body, END) for tokens in range(length) for body in product(letters, repeat=tokens)]
    answers = (*ended, *product(letters, repeat=length))
    if prompts * len(answers) > 400:
        raise UserError(
            f"{prompts} prompts with {len(answers)} answers each are too many to write out all pairs: "
            "take fewer symbols, a smaller length or fewer prompts (at most 400 answers in all)"
        )
    generator = torch.Generator().manual_seed(seed)
    # float64 throughout: what rounding makes must stay far below the 1e-10 that claims are held to.
    reward_PY = torch.randn(prompts, len(answers), generator=generator, dtype=torch.float64)
    # Beginnings after which a token is still to come.
    prefixes = sum(symbols**tokens for tokens in range(length))
    logit_PN = torch.randn(prompts, prefixes, symbols + 1, generator=generator, dtype=torch.float64)
    # Strings behind an end token: a transformer that sees one symbol only cannot tell how often it comes.
    strings: list[tuple[int, ...]] = []
    tokens = 1
    while len(strings) < prompts:
        strings += [(END, *body) for body in product(range(1, symbols + 1), repeat=tokens)]
        tokens += 1
    logp_PNV = logit_PN.log_softmax(-1)
    beginnings = sorted({answer[:t] for answer in answers for t in range(len(answer))})
    at = {beginning: n for n, beginning in enumerate(beginnings)}
    logp_PYT = logp_PNV.new_zeros(len(logp_PNV), len(answers), max(map(len, answers)))
    for y, answer in enumerate(answers):
        for t, token in enumerate(answer):
            logp_PYT[:, y, t] = logp_PNV[:, at[answer[:t]], token]
    return Language(
        symbols=symbols,
        prompts=tuple(strings[:prompts]),
        responses=answers,
        reward_PY=reward_PY,
        ref_logp_PYT=logp_PYT,
    )


def two_answer_language(*, seed: int = 0, prompts: int = 6) -> Language:
    """A language with one symbol and answers of one token: whatever a loss wants of a pair can be had."""
    return make_language(seed=seed, prompts=prompts, symbols=1, length=1)


def token_logps(
    logp_PY: Float[Tensor, "P Y"], language: Language
) -> tuple[Float[Tensor, "P Y T"], Float[Tensor, "P Y T"]]:
    """log π of each token, and log Σ_v π(v)² at its place, of any distribution over the answers.

    >>> spoken = make_language(seed=0)
    >>> token_PYT, _ = token_logps(spoken.ref_logp_PY, spoken)
    >>> (token_PYT - spoken.ref_logp_PYT).abs().max().item() < 1e-12
    True
    """
    begins_YTVZ, token_YT = _prefix_tree(language.responses, language.symbols)
    # log-mass of all answers that begin as y does and go on with v; −∞ drops the others inside the logsumexp.
    mass_PYTV = logp_PY[:, None, None, None, :].masked_fill(~begins_YTVZ, -torch.inf).logsumexp(-1)
    step_PYTV = mass_PYTV.log_softmax(-1)
    token_PYT = step_PYTV.gather(-1, token_YT[None, ..., None].expand(len(logp_PY), -1, -1, 1)).squeeze(-1)
    # log Σ_v π(v)² without leaving logs: WPO normalises its weights by it.
    return token_PYT * language.mask_YT, (2 * step_PYTV).logsumexp(-1) * language.mask_YT


@cache
def _prefix_tree(responses: Strings, symbols: int) -> tuple[Tensor, Tensor]:
    """Whether answer z begins as y does up to place t and goes on with v; and the token of y there."""
    # Behind the end of y everything is True, which keeps the sums finite; their values are masked.
    longest = max(map(len, responses))
    begins_YTVZ = torch.ones(len(responses), longest, symbols + 1, len(responses), dtype=torch.bool)
    token_YT = torch.zeros(len(responses), longest, dtype=torch.int64)
    for y, answer in enumerate(responses):
        for t, token in enumerate(answer):
            token_YT[y, t] = token
            for v in range(symbols + 1):
                onward = (*answer[:t], v)
                begins_YTVZ[y, t, v] = torch.tensor([other[: t + 1] == onward for other in responses])
    return begins_YTVZ, token_YT


def optimum(language: Language, beta: float) -> Float[Tensor, "P Y"]:
    """log π*.

    >>> spoken = make_language(seed=0)
    >>> objective_gradient(optimum(spoken, 0.5), spoken, 0.5).abs().max().item() < 1e-12
    True
    """
    return tilted(language.ref_logp_PY, language.reward_PY / beta)


def tilted(logp_PY: Float[Tensor, "P Y"], gain_PY: Float[Tensor, "P Y"]) -> Float[Tensor, "P Y"]:
    """log of π(y|x) ∝ exp(log π + gain)."""
    return (logp_PY + gain_PY).log_softmax(-1)


def normalised_member(
    family: Callable[[Float[Tensor, "P 1"]], Float[Tensor, "P Y"]], prompts: int
) -> Float[Tensor, "P Y"]:
    """The member of a family of log-probs, rising in its constant c, whose probabilities add up to 1.
    Where the family has no value (nan) c is too large. Losses of mean log-probs leave c open, and only the
    sum over all answers settles it.

    >>> logp_PY = normalised_member(lambda c_P1: c_P1 + torch.zeros(1, 4, dtype=torch.float64), 1)
    >>> logp_PY.exp().round(decimals=6).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    # e^±1000 is beyond any constant there can be, and 200 halvings leave nothing of it.
    low_P1 = torch.full((prompts, 1), -1e3, dtype=torch.float64)
    high_P1 = -low_P1
    for _ in range(200):
        middle_P1 = (low_P1 + high_P1) / 2
        sum_P1 = family(middle_P1).exp().sum(-1, keepdim=True)
        # nan ≤ 1 is False, so a constant without a value counts as too large.
        fits_P1 = sum_P1 <= 1
        low_P1 = torch.where(fits_P1, middle_P1, low_P1)
        high_P1 = torch.where(fits_P1, high_P1, middle_P1)
    # The lower end is the last constant that fitted, and so never nan.
    return family(low_P1)


def preferences(language: Language) -> Float[Tensor, "P Y Y"]:
    """p(y ≻ z | x) = σ(r(x, y) − r(x, z)), Bradley and Terry's chance of every ordered pair."""
    return (language.reward_PY[:, :, None] - language.reward_PY[:, None, :]).sigmoid()


def kl(logp_PY: Float[Tensor, "P Y"], other_logp_PY: Float[Tensor, "P Y"]) -> Float[Tensor, " P"]:
    """KL(π ‖ other) in nats, a sum over all answers."""
    return (logp_PY.exp() * (logp_PY - other_logp_PY)).sum(-1)


def total_variation(logp_PY: Float[Tensor, "P Y"], other_logp_PY: Float[Tensor, "P Y"]) -> float:
    """½ Σ |π − other|, for the prompt where it is largest: the share of answers that would be others.

    >>> one, other = (torch.tensor([row], dtype=torch.float64).log() for row in ([0.5, 0.5], [0.9, 0.1]))
    >>> round(total_variation(one, other), 6)
    0.4
    """
    return 0.5 * (logp_PY.exp() - other_logp_PY.exp()).abs().sum(-1).max().item()


def mean_reward(logp_PY: Float[Tensor, "P Y"], language: Language) -> float:
    """E_π r over prompts and answers."""
    return (logp_PY.exp() * language.reward_PY).sum(-1).mean().item()


def objective(logp_PY: Float[Tensor, "P Y"], language: Language, beta: float) -> float:
    """J(π) = E_π r − β KL(π ‖ π_ref)."""
    return mean_reward(logp_PY, language) - beta * kl(logp_PY, language.ref_logp_PY).mean().item()


def objective_gradient(
    logp_PY: Float[Tensor, "P Y"], language: Language, beta: float
) -> Float[Tensor, "P Y"]:
    """∂J / ∂(logit of y) = π(y) (a(y) − E_π a) / P, with a = r − β log(π / π_ref)."""
    worth_PY = language.reward_PY - beta * (logp_PY - language.ref_logp_PY)
    prob_PY = logp_PY.exp()
    return prob_PY * (worth_PY - (prob_PY * worth_PY).sum(-1, keepdim=True)) / len(prob_PY)


@runtime_checkable
class LearningPolicy(Protocol):
    """Whatever has weights and a log-prob for every token of every answer."""

    def __call__(self) -> Float[Tensor, "P Y T"]: ...

    def parameters(self) -> list[Tensor]: ...


class TablePolicy:
    """A policy with one logit for each answer to each prompt; it starts as the given distribution."""

    def __init__(self, language: Language, logp_PY: Float[Tensor, "P Y"] | None = None) -> None:
        self.language = language
        # Log-probs are logits of themselves: the table starts exactly at that policy.
        start_PY = language.ref_logp_PY if logp_PY is None else logp_PY
        self.logit_PY = start_PY.detach().clone().requires_grad_()

    def __call__(self) -> Float[Tensor, "P Y T"]:
        return token_logps(self.logit_PY.log_softmax(-1), self.language)[0]

    def parameters(self) -> list[Tensor]:
        return [self.logit_PY]


class TransformerPolicy:
    """A Llama of some thousand random weights in float64 that scores answers as training does."""

    def __init__(self, language: Language, *, seed: int = 0) -> None:
        self.policy = Policy(_tiny_llama(language.symbols + 1, seed))
        self.batch = batch_of_all(language)
        self.shape = language.ref_logp_PYT.shape

    def __call__(self) -> Float[Tensor, "P Y T"]:
        return self.policy.score(self.batch).logp_NT.view(self.shape)

    def parameters(self) -> list[Tensor]:
        return list(self.policy.parameters())


def batch_of_all(language: Language) -> TokenBatch:
    completions = tuple(
        Completion(ids=response, mask=(True,) * len(response), finished=response[-1] == END)
        for response in language.responses
    )
    return batch_of([Example(prompt=prompt, completions=completions) for prompt in language.prompts])


def with_reference(language: Language, policy: LearningPolicy) -> Language:
    with torch.no_grad():
        return replace(language, ref_logp_PYT=policy().detach().clone())


def _tiny_llama(vocabulary: int, seed: int) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        # Large enough for the reference to prefer some answers, as a trained one does.
        initializer_range=0.3,
        # Llama's own numbers for these, 1 and 2, are symbols of this language.
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=None,
    )
    # The caller's random numbers go on as if no model had been made.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config).double()
