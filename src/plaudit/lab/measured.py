"""What the stages of an exercise left behind, as numbers that are compared prompt by prompt."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

import numpy as np

from plaudit.errors import UserError
from plaudit.evaluation.policies.diversity import words_of
from plaudit.evaluation.policies.result import PolicyEvaluation, Said
from plaudit.evaluation.resample import Resampling, estimate
from plaudit.evaluation.result import Estimate
from plaudit.lab.exercise import Claim
from plaudit.lab.left import column, policy
from plaudit.page.words import Number, figure
from plaudit.pipeline.folder import Folder, read_seal
from plaudit.recipes.policy_table import POLICIES

Figure = Callable[[Sequence[Said]], Number | None]
"""A number of one policy's answers to one prompt; None where there is none."""


def beta_of(folder: Folder, stage: str) -> float:
    """How dear distance is to a policy run: its setting, or its algorithm's."""
    seal = read_seal(folder.stage(stage))
    if seal is None:
        raise UserError(f"{folder.stage(stage)}: this stage has not ended; run the exercise again")
    said = seal["settings"].get("policy", {}).get("beta")
    facts = POLICIES.get(seal["do"])
    usual = 0.0 if facts is None else facts.defaults.get("beta", 0.0)
    return float(usual if said is None else said)


def leashes(folder: Folder, *stages: str) -> dict[str, str]:
    """What policy runs are called: how dear distance is, and of two of one price their names as well."""
    betas = {stage: beta_of(folder, stage) for stage in stages}
    words = {stage: f"β {beta:g}" if beta else "no leash" for stage, beta in betas.items()}
    said = [*words.values()]
    return {stage: word if said.count(word) == 1 else f"{word} ({stage})" for stage, word in words.items()}


def course(folder: Folder, stage: str, name: str) -> list[tuple[int, float]]:
    """A figure of held-out prompts after so many moves of the weights, as far as it is a number."""
    held = column(folder, stage, f"held_out/{name}")
    return [
        (step, value) for step, value in zip(held.steps, held.values, strict=True) if math.isfinite(value)
    ]


def by_prompt(found: PolicyEvaluation, name: str, what: Figure) -> dict[str, float]:
    """A number of a policy's answers for every prompt that has one."""
    policy(found, name)
    said: dict[str, list[Said]] = {}
    for shown in found.every:
        said.setdefault(shown.prompt, []).extend(one for one in shown.said if one.policy == name)
    numbers = {prompt: what(own) for prompt, own in said.items()}
    return {prompt: float(number) for prompt, number in numbers.items() if number is not None}


def mean_of(found: PolicyEvaluation, name: str, what: Figure) -> Estimate | None:
    """The mean of a policy's number over the prompts that have one; None where none has."""
    number_P = np.array([*by_prompt(found, name, what).values()])
    return estimate(number_P, np.arange(len(number_P)), Resampling(), share=False) if len(number_P) else None


def apart(
    found: PolicyEvaluation, policies: tuple[str, str], what: Figure, *, times: int | float = 1.0
) -> Estimate:
    """``times`` the first policy's number less the second's, on the same prompts; these are drawn anew."""
    one, other = (by_prompt(found, name, what) for name in policies)
    gap_P = np.array([times * one[prompt] - other[prompt] for prompt in one if prompt in other])
    if not len(gap_P):
        raise UserError(f"there is no prompt on which {' and '.join(policies)} can be compared")
    return estimate(gap_P, np.arange(len(gap_P)), Resampling(), share=False)


def more(
    says: str,
    found: PolicyEvaluation,
    policies: tuple[str, str],
    what: Figure,
    unit: str,
    *,
    times: int | float = 1.0,
) -> Claim:
    """A claim that the first policy's number is above the second's, by the interval of their gap."""
    gap = apart(found, policies, what, times=times)
    one, other = (mean_of(found, name, what) for name in policies)
    assert one is not None, "it has a gap"
    assert other is not None, "it has a gap"
    first = figure(one.value) if times == 1 else f"{times:g} × {figure(one.value)}"
    saw = f"{first} against {figure(other.value)} {unit}: apart by {with_ends(gap)}"
    return Claim(says=says, holds=above_zero(gap), saw=saw)


def above_zero(gap: Estimate) -> bool | None:
    """Whether all of an interval is above 0, or none of it; None where it does not decide.

    >>> above_zero(Estimate(value=0.1, low=-0.05, high=0.2, n=9, prompts=9)) is None
    True
    """
    if gap.low is None or gap.high is None:
        return None
    return True if gap.low > 0 else False if gap.high <= 0 else None


def plain(one: Estimate | None) -> str:
    """A number without its interval, where there is room for no more."""
    return "not known" if one is None else figure(one.value)


def with_ends(one: Estimate | None) -> str:
    """A number with its interval.

    >>> with_ends(Estimate(value=0.71, low=0.66, high=0.75, n=400, prompts=180))
    '0.710 (0.660 to 0.750)'
    """
    ends = (
        ""
        if one is None or one.low is None or one.high is None
        else f" ({figure(one.low)} to {figure(one.high)})"
    )
    return f"{plain(one)}{ends}"


def alike(said: Sequence[Said]) -> float | None:
    """The chance that two of some answers say the same (Simpson 1949); None of fewer than two.

    >>> alike([]) is None
    True
    """
    counts = Counter(one.text.strip() for one in said)
    pairs = len(said) * (len(said) - 1)
    return sum(count * (count - 1) for count in counts.values()) / pairs if pairs else None


def spread(said: Sequence[Said]) -> float | None:
    """How much more the best of some answers is worth than the mean one."""
    known = [one.gold for one in said if one.gold is not None]
    return max(known) - fmean(known) if known else None


def worth(said: Sequence[Said]) -> float | None:
    """The mean true worth of some answers."""
    return _mean([one.gold for one in said])


def reward(said: Sequence[Said]) -> float | None:
    """The mean learnt reward of some answers."""
    return _mean([one.reward for one in said])


def tokens(said: Sequence[Said]) -> float | None:
    """Their mean length."""
    return _mean([one.tokens for one in said])


def distance(said: Sequence[Said]) -> float | None:
    """The mean of log π − log π_ref: this prompt's part of the KL."""
    return _mean([one.kl for one in said])


def repetition(said: Sequence[Said]) -> float | None:
    """The mean share of an answer's pairs of neighbouring words that it has said before."""
    return _mean([repeated(one.text) for one in said])


def repeated(text: str) -> float:
    """The share of pairs of neighbouring words that the same text has said before.

    >>> repeated("It is so. It is so. It is so."), repeated("The owl eats mice.")
    (0.636..., 0.0)
    """
    tokens = words_of(text)
    pairs = list(pairwise(tokens))
    return 1 - len(set(pairs)) / len(pairs) if pairs else 0.0


def _mean(numbers: Sequence[Number | None]) -> float | None:
    known = [number for number in numbers if number is not None and math.isfinite(number)]
    return fmean(known) if known else None
