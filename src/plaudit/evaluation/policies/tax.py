"""The alignment tax: what a model was able to do before it was trained further, and no longer is.

The same items are asked before and after, so the difference is taken item by item (Ouyang et al. 2022,
arXiv:2203.02155, call what is lost a tax).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from plaudit.errors import UserError
from plaudit.evaluation.columns import numbered
from plaudit.evaluation.policies.drawn import Asked, Speaker
from plaudit.evaluation.policies.flips import flip_test
from plaudit.evaluation.resample import Resampling, estimate, wilson
from plaudit.evaluation.result import Estimate
from plaudit.records.messages import words
from plaudit.rewards.reward import Reward
from plaudit.rollouts.sampling import SamplingSettings

Key = tuple[str, str]
"""A task and what its item is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that a model was asked, and how well it did.

    Example: ``Item(task="sums", name="What is 3 plus 4?", prompt="What is 3 plus 4?", score=1.0)``
    """

    task: str
    """The battery that it belongs to."""
    name: str
    """What makes it the same item before and after."""
    prompt: str
    """Items of one prompt are resampled together."""
    score: float | None
    """More is better; None for no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tax:
    """What became of a task.

    Example: ``Tax(task="sums", before=…, after=…, change=…, gained=3, lost=9, unscored=0, p_value=0.15)``
    """

    task: str
    """The battery."""
    before: Estimate
    """The mean score of the model that training began with."""
    after: Estimate
    """The mean score of the model that came of it."""
    change: Estimate
    """After less before, item by item."""
    gained: int
    """Items that are scored higher than before."""
    lost: int
    """Items that are scored lower."""
    unscored: int
    """Items without a verdict before or after; they count nowhere else."""
    p_value: float
    """Of the paired test that nothing changed, by Holm's rule for all tasks together."""

    def regressed(self, most_lost: int | float) -> bool:
        """Whether more than ``most_lost`` is gone for sure: the whole interval of the change lies below it.

        One prompt alone gives no interval, and then the change itself decides.
        """
        return (self.change.value if self.change.high is None else self.change.high) < -most_lost

    def kept(self, most_lost: int | float) -> bool:
        """Whether no more than ``most_lost`` is gone for sure; False also where too few items were asked."""
        return self.change.low is not None and self.change.low >= -most_lost


def paired(before: Sequence[Item], after: Sequence[Item], resampling: Resampling) -> tuple[Tax, ...]:
    """The change of every task, in the order of ``before``; both have to hold the same items.

    >>> def said(*scores):
    ...     return [Item(task="sums", name=f"{n}", prompt=f"{n}", score=s) for n, s in enumerate(scores)]
    >>> [found] = paired(said(1.0, 1.0, 0.0, 1.0), said(1.0, 0.0, 0.0, 0.0), Resampling())
    >>> found.change.value, found.lost, found.gained, found.p_value
    (-0.5, 2, 0, 0.5)
    """
    first, second = _by_name(before), _by_name(after)
    if lacking := [key for key in (*first, *second) if key not in first or key not in second]:
        task, name = lacking[0]
        raise UserError(
            f"{task}: {name[:60]!r} was asked only {'before' if lacking[0] in first else 'after'}; ask both "
            "models the same items"
        )
    tasks = list(dict.fromkeys(item.task for item in before))
    return _holm([_tax(task, first, second, resampling) for task in tasks])


def asked_items(
    task: str, speaker: Speaker, asked: Sequence[Asked], reward: Reward, *, max_tokens: int = 64
) -> tuple[Item, ...]:
    """The likeliest answer to every question, scored by a rule or any other reward."""
    settings = SamplingSettings(temperature=0, max_tokens=max_tokens)
    said = speaker.sampler.sample([one.prompt for one in asked], settings)
    tasks = [one.task([(answer.text, answer.ended)]) for one, (answer,) in zip(asked, said, strict=True)]
    return tuple(
        Item(task=task, name=words(one.prompt), prompt=words(one.prompt), score=score)
        for one, (score,) in zip(asked, reward.scores(tasks), strict=True)
    )


def _by_name(items: Sequence[Item]) -> dict[Key, Item]:
    found: dict[Key, Item] = {}
    for item in items:
        if (item.task, item.name) in found:
            raise UserError(f"{item.task}: {item.name[:60]!r} is there twice; name every item differently")
        found[item.task, item.name] = item
    return found


def _tax(task: str, first: Mapping[Key, Item], second: Mapping[Key, Item], resampling: Resampling) -> Tax:
    rows = [(item.prompt, item.score, second[key].score) for key, item in first.items() if key[0] == task]
    told = [(prompt, one, other) for prompt, one, other in rows if one is not None and other is not None]
    if not told:
        raise UserError(f"{task}: no item has a verdict both before and after, so nothing can be compared")
    prompt_B = numbered([prompt for prompt, _, _ in told])
    before_B = np.array([one for _, one, _ in told], dtype=float)
    after_B = np.array([other for _, _, other in told], dtype=float)
    share = all(0 <= score <= 1 for _, one, other in told for score in (one, other))
    return Tax(
        task=task,
        before=estimate(before_B, prompt_B, resampling, share=share),
        after=estimate(after_B, prompt_B, resampling, share=share),
        change=_change(before_B, after_B, prompt_B, resampling),
        gained=int((after_B > before_B).sum()),
        lost=int((after_B < before_B).sum()),
        unscored=len(rows) - len(told),
        p_value=flip_test(after_B - before_B, prompt_B),
    )


def _change(
    before_B: Float[np.ndarray, " B"],
    after_B: Float[np.ndarray, " B"],
    prompt_B: Int[np.ndarray, " B"],
    resampling: Resampling,
) -> Estimate:
    """The mean difference; Wilson's interval where all prompts changed alike, so that all draws agree."""
    found = estimate(after_B - before_B, prompt_B, resampling, share=False)
    if found.low is None or found.high is None or found.high - found.low > 1e-12:
        return found
    most = float(max(before_B.max(), after_B.max()) - min(before_B.min(), after_B.min())) or 1.0
    width = most * wilson(0.0, found.prompts)[1]
    return replace(found, low=max(-most, found.value - width), high=min(most, found.value + width))


def _holm(found: Sequence[Tax]) -> tuple[Tax, ...]:
    from statsmodels.stats.multitest import multipletests

    if not found:
        return ()
    together = np.asarray(multipletests([one.p_value for one in found], method="holm")[1], dtype=float)
    return tuple(replace(one, p_value=p) for one, p in zip(found, together.tolist(), strict=True))
