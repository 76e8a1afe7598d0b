"""A language so small that every answer can be written out: the ground on which losses are proven.

P prompts and Y answers, the same ones to every prompt: all strings of a few symbols up to a length, ended by
token 0 or cut. Whatever is elsewhere estimated from samples is a finite sum here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from plaudit.errors import UserError

END = 0
"""The token that ends an answer; the others are the symbols 1, 2, …"""
Strings = tuple[tuple[int, ...], ...]
"""Some strings of tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """Everything that can be said, how good it is, and how the reference says it.

    Example: ``language(seed=0)`` has 2 prompts and 15 answers: 1 empty, 2 + 4 ended and 8 cut ones.
    """

    symbols: int
    """How many symbols there are beside the end."""
    prompts: Strings
    """What is asked, in the same symbols behind an end token."""
    responses: Strings
    """All answers: no other string can be sampled."""
    reward_PY: Float[Tensor, "P Y"]
    """How good each answer truly is."""
    ref_logp_PYT: Float[Tensor, "P Y T"]
    """log π_ref of each token; 0 behind the end."""

    @property
    def mask_YT(self) -> Bool[Tensor, "Y T"]:
        """Which tokens there are."""
        places_T = torch.arange(self.ref_logp_PYT.shape[-1])
        return places_T < self.length_Y[:, None]

    @property
    def length_Y(self) -> Int[Tensor, " Y"]:
        """How many tokens each answer has, its end included."""
        return torch.tensor([len(response) for response in self.responses])

    @property
    def ref_logp_PY(self) -> Float[Tensor, "P Y"]:
        """log π_ref(y|x)."""
        return self.ref_logp_PYT.sum(-1)


def language(*, seed: int = 0, prompts: int = 2, symbols: int = 2, length: int = 3) -> Language:
    """A language with rewards from a normal distribution and a reference from random logits for each token.

    >>> made = language(seed=0)
    >>> len(made.responses), made.ref_logp_PY.exp().sum(-1).sub(1).abs().max().item() < 1e-12
    (15, True)
    """
    if min(prompts, symbols, length) < 1:
        raise UserError("a language needs at least one prompt, one symbol and one token in an answer")
    answers = _answers(symbols, length)
    if prompts * len(answers) > 400:
        raise UserError(
            f"{prompts} prompts with {len(answers)} answers each are too many to write out all pairs: "
            "take fewer symbols, a smaller length or fewer prompts (at most 400 answers in all)"
        )
    draw = torch.Generator().manual_seed(seed)
    reward_PY = torch.randn(prompts, len(answers), generator=draw, dtype=torch.float64)
    logit_PN = torch.randn(prompts, _nodes(symbols, length), symbols + 1, generator=draw, dtype=torch.float64)
    return Language(
        symbols=symbols,
        prompts=_prompts(prompts, symbols),
        responses=answers,
        reward_PY=reward_PY,
        ref_logp_PYT=_spoken(logit_PN.log_softmax(-1), answers),
    )


def two_answers(*, seed: int = 0, prompts: int = 6) -> Language:
    """A language with one symbol and answers of one token: whatever a loss wants of a pair can be had.

    >>> two_answers().responses
    ((0,), (1,))
    """
    return language(seed=seed, prompts=prompts, symbols=1, length=1)


def conditional(
    logp_PY: Float[Tensor, "P Y"], spoken: Language
) -> tuple[Float[Tensor, "P Y T"], Float[Tensor, "P Y T"]]:
    """log π of each token, and log Σ_v π(v)² at its place, of any distribution over the answers.

    >>> spoken = language(seed=0)
    >>> token_PYT, _ = conditional(spoken.ref_logp_PY, spoken)
    >>> (token_PYT - spoken.ref_logp_PYT).abs().max().item() < 1e-12
    True
    """
    begins_YTVZ, token_YT = _tree(spoken.responses, spoken.symbols)
    mass_PYTV = logp_PY[:, None, None, None, :].masked_fill(~begins_YTVZ, -torch.inf).logsumexp(-1)
    step_PYTV = mass_PYTV.log_softmax(-1)
    token_PYT = step_PYTV.gather(-1, token_YT[None, ..., None].expand(len(logp_PY), -1, -1, 1)).squeeze(-1)
    power_PYT = (2 * step_PYTV).logsumexp(-1)
    return token_PYT * spoken.mask_YT, power_PYT * spoken.mask_YT


def _answers(symbols: int, length: int) -> Strings:
    letters = range(1, symbols + 1)
    ended = [(*body, END) for tokens in range(length) for body in product(letters, repeat=tokens)]
    return (*ended, *product(letters, repeat=length))


def _prompts(prompts: int, symbols: int) -> Strings:
    """Strings behind an end token: a transformer that sees one symbol only cannot tell how often it comes."""
    found: list[tuple[int, ...]] = []
    tokens = 1
    while len(found) < prompts:
        found += [(END, *body) for body in product(range(1, symbols + 1), repeat=tokens)]
        tokens += 1
    return tuple(found[:prompts])


def _nodes(symbols: int, length: int) -> int:
    """Beginnings after which a token is still to come."""
    return sum(symbols**tokens for tokens in range(length))


def _spoken(logp_PNV: Tensor, answers: Strings) -> Tensor:
    """The table's log-probs along each answer."""
    beginnings = sorted({answer[:t] for answer in answers for t in range(len(answer))})
    at = {beginning: n for n, beginning in enumerate(beginnings)}
    spoken_PYT = logp_PNV.new_zeros(len(logp_PNV), len(answers), max(map(len, answers)))
    for y, answer in enumerate(answers):
        for t, token in enumerate(answer):
            spoken_PYT[:, y, t] = logp_PNV[:, at[answer[:t]], token]
    return spoken_PYT


@cache
def _tree(responses: Strings, symbols: int) -> tuple[Tensor, Tensor]:
    """Whether answer z begins as y does up to place t and goes on with v; and the token of y there.

    Behind the end of y everything is True, which keeps the sums finite; their values are masked.
    """
    longest = max(map(len, responses))
    begins_YTVZ = torch.ones(len(responses), longest, symbols + 1, len(responses), dtype=torch.bool)
    token_YT = torch.zeros(len(responses), longest, dtype=torch.int64)
    for y, said in enumerate(responses):
        for t, token in enumerate(said):
            token_YT[y, t] = token
            for v in range(symbols + 1):
                onward = (*said[:t], v)
                begins_YTVZ[y, t, v] = torch.tensor([other[: t + 1] == onward for other in responses])
    return begins_YTVZ, token_YT
