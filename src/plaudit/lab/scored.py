"""What rewards say of pairs, pair by pair, and how far two rewards or two sets of pairs differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import hypot

import numpy as np
from jaxtyping import Float, Int

from plaudit.errors import UserError
from plaudit.evaluation.columns import numbered
from plaudit.evaluation.page_calibration import promise
from plaudit.evaluation.resample import Resampling, estimate
from plaudit.evaluation.result import Estimate, RewardEvaluation
from plaudit.lab.exercise import Claim
from plaudit.lab.measured import above_zero, with_ends
from plaudit.page.bars import reliability
from plaudit.page.html import Html
from plaudit.pipeline.folder import Folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """One reward on one set of pairs; ties, and pairs without a verdict, are left out.

    Example: ``margin(scored(folder, "on-fresh", ["mean"])["mean"]).mean()``
    """

    preferred_B: Float[np.ndarray, " B"]
    """The reward of the answer that was preferred."""
    other_B: Float[np.ndarray, " B"]
    """The reward of the other one."""
    prompt_B: Int[np.ndarray, " B"]
    """A number for each prompt."""


Measure = Callable[[Scored], Float[np.ndarray, " B"]]
"""A number for each pair."""


def scored(folder: Folder, stage: str, names: Iterable[str]) -> Mapping[str, Scored]:
    """Rewards that a stage with ``do: judge-reward`` judged, by their names; all on the same pairs."""
    path = folder.stage(stage) / "scores.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    told = [row for row in rows if row["chance"] != 0.5]
    told = [row for row in told if all(None not in pair for pair in row["rewards"].values())]
    if not told:
        raise UserError(f"{path}: there is no pair in which an answer is preferred; make more of them")
    prompt_B = numbered([json.dumps(row["prompt"]) for row in told])
    first_B = np.array([row["chance"] > 0.5 for row in told])
    found: dict[str, Scored] = {}
    for name in names:
        if name not in told[0]["rewards"]:
            raise UserError(f"{path}: no reward {name!r} was judged there; name it in models of {stage}")
        one_B, two_B = np.array([row["rewards"][name] for row in told], dtype=float).T
        preferred_B, other_B = np.where(first_B, one_B, two_B), np.where(first_B, two_B, one_B)
        found[name] = Scored(preferred_B=preferred_B, other_B=other_B, prompt_B=prompt_B)
    return found


def margin(one: Scored) -> Float[np.ndarray, " B"]:
    """By how much the preferred answer has more."""
    return one.preferred_B - one.other_B


def right(one: Scored) -> Float[np.ndarray, " B"]:
    """1 where the preferred answer has more, ½ where both have the same."""
    return (np.sign(margin(one)) + 1) / 2


def loss(one: Scored) -> Float[np.ndarray, " B"]:
    """−log σ(r_preferred − r_other), which a reward learns by (Bradley and Terry 1952)."""
    return np.logaddexp(0, -margin(one))


def boast(one: Scored) -> Float[np.ndarray, " B"]:
    """How sure it is, σ(|r₁ − r₂|), less whether it is right: 0 on average where it knows itself."""
    return np.exp(-np.logaddexp(0, -np.abs(margin(one)))) - right(one)


def mean(one: Scored, what: Measure, *, share: bool = False) -> Estimate:
    """The mean of a measure with its interval over prompts."""
    return estimate(what(one), one.prompt_B, Resampling(), share=share)


def paired(one: Scored, other: Scored, what: Measure) -> Estimate:
    """By how much the first reward's mean is above the second's, on the same pairs, drawn together."""
    return estimate(what(one) - what(other), one.prompt_B, Resampling(), share=False)


def less(one: Estimate, other: Estimate, *, times: int = 1) -> Estimate:
    """The first less so many times the second, of estimates that rest on different prompts.

    low = v₁ − v₂ − √((v₁ − l₁)² + (h₂ − v₂)²), and the upper end the other way round (Zou and Donner 2008).

    >>> a = Estimate(value=0.9, low=0.87, high=0.93, n=100, prompts=100)
    >>> b = Estimate(value=0.6, low=0.56, high=0.64, n=100, prompts=100)
    >>> found = less(a, b)
    >>> round(found.low, 3), round(found.value, 3), round(found.high, 3)
    (0.25, 0.3, 0.35)
    """
    value, n, prompts = one.value - times * other.value, one.n + other.n, one.prompts + other.prompts
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return Estimate(value=value, low=None, high=None, n=n, prompts=prompts)
    down = hypot(one.value - one.low, times * (other.high - other.value))
    up = hypot(one.high - one.value, times * (other.value - other.low))
    return Estimate(value=value, low=value - down, high=value + up, n=n, prompts=prompts)


def decided(says: str, gap: Estimate, saw: str) -> Claim:
    """A claim that a gap is above 0, decided by its interval; ``saw`` says what the gap is."""
    return Claim(says=says, holds=above_zero(gap), saw=f"{saw}: {with_ends(gap)}")


def reliable(title: str, found: RewardEvaluation) -> Html:
    """The reliability diagram of a reward."""
    assert found.calibration is not None, "pairs with a preference were judged"
    bins = [promise(one) for one in found.calibration.by_width]
    return reliability(title, bins, unit="share right over how sure it was")
