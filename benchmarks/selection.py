"""Whether it pays to choose which pairs people are asked about: labels saved on the embedded world.

    python -m benchmarks.selection --out lab --seeds 10 --only linear   # begun again, it goes on
    python -m benchmarks.selection --out lab --seeds 3 --only whole

`linear` learns heads on frozen states of a fine-tuned model: the last layer's, their mean over an answer.
Each method begins with the same 100 labels and goes on in batches of 200, a fifth of which are random. Labels
are a crowd's; heads are judged by the truth, on pairs about prompts that nobody is asked about. The figure is
how many random labels a label of a method is worth, on the way to what random reaches with 500, 1,000 and
2,000. `whole` trains rewards with all of their weights. Curves lie in the folder, as JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from benchmarks.intervals import half_width, numbers, shares
from benchmarks.lab import Lab
from benchmarks.selection_pool import SETTINGS, Array, Candidates, fitted, labelled, prepared, states_of
from benchmarks.studies import Table, run_studies
from plaudit.methods.reward_model.config import EnsembleSettings
from plaudit.rewards.combine.aggregate import CombinedReward
from plaudit.rewards.learned.scalar import LearnedReward
from plaudit.rewards.load import load_reward
from plaudit.rewards.selection import METHODS, RANDOM, Pool, choose

SEEDS = 10
FIRST, BATCH, LAST = 100, 200, 3100
"""Labels to begin with, in a batch, and at the end."""
PER_PROMPT = 2
"""With so many labels a prompt is left alone."""
AIMS = (500, 1000, 2000)
"""With how many random labels a method is compared."""
MEMBERS = 8
"""Bootstraps of the head in an ensemble."""
AGAIN = "random, drawn anew"
"""Random against random: what the figure says where nothing is to be gained."""
COMPARED = (*METHODS, AGAIN)
RESAMPLED = 1000
WHOLE = (RANDOM, "d-optimal", "disagreement")
LAST_WORDS = (f"at {AIMS[1]:,}, of mean curves", f"log-loss with {LAST:,}", f"right with {LAST:,}")


class Point(NamedTuple):
    """How good a head is after so many labels."""

    labels: float
    loss: float
    right: float


def judged(tested: Candidates, head_H: Array, labels: int) -> Point:
    """Against the truth, where it tells the answers apart."""
    differ_B = tested.truth_B != 0.5
    gap_B, truth_B = (tested.delta_BH @ head_H)[differ_B], tested.truth_B[differ_B]
    loss_B = np.logaddexp(0, gap_B) - truth_B * gap_B
    return Point(labels, float(loss_B.mean()), float(((gap_B > 0) == (truth_B > 0.5)).mean()))


class Asking:
    """One method and seed: pairs chosen by heads that learn from the labels of those before them."""

    def __init__(self, pool: Candidates, method: str, seed: int) -> None:
        """With the first labels, which are the same for all methods."""
        self.pool, self.method, self.seed = pool, method, seed
        self.rng = np.random.default_rng([seed, [RANDOM, *COMPARED].index(method)])
        first = np.random.default_rng(seed).permutation(len(pool.pairs_B2))[:FIRST]
        self.places = [int(place) for place in first]
        self.labels = [pool.label(place, seed) for place in self.places]
        self.head_H = np.zeros(pool.states_AH.shape[1])

    def learn(self) -> Array:
        """The head of all labels so far."""
        self.head_H = fitted(self.pool.delta_BH[self.places], np.array(self.labels), start_H=self.head_H)
        return self.head_H

    def ask(self) -> None:
        """One more batch."""
        pool, places = self.pool, self.places
        prompt_B = pool.prompt_A[pool.pairs_B2[:, 0]]
        is_open_B = np.bincount(prompt_B[places], minlength=len(pool.tasks))[prompt_B] < PER_PROMPT
        is_open_B[places] = False
        left = np.flatnonzero(is_open_B)
        method = RANDOM if self.method == AGAIN else self.method
        choices = choose(
            Pool(
                prompt_A=pool.prompt_A,
                scores_MA=self._heads_MH(method) @ pool.states_AH.T,
                pairs_B2=pool.pairs_B2[left],
                states_AH=pool.states_AH,
                labelled_CH=pool.delta_BH[places],
            ),
            BATCH,
            method,
            seed=f"{self.seed}/{self.method}/{len(places)}",
        )
        found = [int(left[choice.place]) for choice in choices]
        # Two members name different answers only so often: the rest of such a batch is random.
        spare = self.rng.permutation(np.setdiff1d(left, found))[: BATCH - len(found)]
        found += [int(place) for place in spare]
        self.places += found
        self.labels += [pool.label(place, self.seed) for place in found]

    def _heads_MH(self, method: str) -> Array:
        if method not in ("disagreement", "bald", "thompson"):
            return self.head_H[None]
        delta_CH, label_C, count = self.pool.delta_BH[self.places], np.array(self.labels), len(self.labels)
        weights = self.rng.multinomial(count, np.full(count, 1 / count), MEMBERS).astype(float)
        return np.stack([fitted(delta_CH, label_C, weight_C, self.head_H) for weight_C in weights])


def curve(pool: Candidates, tested: Candidates, method: str, seed: int) -> list[Point]:
    """How a head becomes better with more labels."""
    asking = Asking(pool, method, seed)
    points = [judged(tested, asking.learn(), FIRST)]
    while len(asking.places) < LAST:
        asking.ask()
        points.append(judged(tested, asking.learn(), len(asking.places)))
    return points


def falling(points: Sequence[Point]) -> Array:
    """The losses smoothed to fall: labels and held-out pairs are few enough to make steps up and down."""
    return isotonic_regression([point.loss for point in points], increasing=False).x


def needed(points: Sequence[Point], wanted: float) -> tuple[float, bool]:
    """With how many labels a loss is first reached; where it never is, with the last, which flatters."""
    losses = falling(points)
    place = int(np.argmax(losses <= wanted))
    if losses[place] > wanted:
        return points[-1].labels, False
    if place == 0:
        return points[0].labels, True
    share = (losses[place - 1] - wanted) / (losses[place - 1] - losses[place])
    return points[place - 1].labels + share * (points[place].labels - points[place - 1].labels), True


def saved(points: Sequence[Point], other: Sequence[Point], aim: int) -> tuple[float, bool]:
    """How many labels of random one of another method is worth, and whether that came as far at all."""
    wanted = float(np.interp(aim, [point.labels for point in points], falling(points)))
    labels, is_reached = needed(other, wanted)
    # Where random stood still for a while, it too is counted from when it first was there.
    return needed(points, wanted)[0] / labels, is_reached


Curves = Mapping[str, Sequence[Sequence[Point]]]
"""For each method, random first, a curve for each seed."""


def curves_of(lab: Lab, setting: str, seeds: int) -> Curves:
    """Those of a setting, the ones that are there already from their files."""
    found: dict[str, list[list[Point]]] = {method: [] for method in (RANDOM, *COMPARED)}
    both: tuple[Candidates, Candidates] | None = None
    for seed in range(seeds):
        for method, own in found.items():
            path = lab.folder / "choosing" / setting / f"{method.replace(', ', '-')}-{seed}.json"
            if not path.exists():
                both = both or prepared(lab, setting)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps(curve(*both, method, seed)), encoding="utf-8")
            own.append([Point(*point) for point in json.loads(path.read_text(encoding="utf-8"))])
    return found


def linear(lab: Lab) -> Table:
    """How many labels of random one label of each method is worth, by linear heads."""
    seeds = lab.seeds or SEEDS
    yield (f"answers ({seeds} seeds)", "method", *(f"at {aim:,}" for aim in AIMS), *LAST_WORDS)
    for setting, what in SETTINGS.items():
        found = curves_of(lab, setting, seeds)
        for method, own in found.items():
            last = [curve[-1] for curve in own]
            worth = ("1",) * 4 if method == RANDOM else _all_worth(found[RANDOM], own)
            yield what, method, *worth, numbers([p.loss for p in last], 3), shares([p.right for p in last])


def _worth(random_ones: Sequence[Sequence[Point]], own: Sequence[Sequence[Point]]) -> Iterator[str]:
    """Of each aim the geometric mean with its 95 % interval by Student's t; how often it was not reached."""
    for aim in AIMS:
        pairs = [saved(points, other, aim) for points, other in zip(random_ones, own, strict=True)]
        logs = [math.log(ratio) for ratio, _ in pairs]
        mean, half = fmean(logs), half_width(logs)
        missed = sum(not reached for _, reached in pairs)
        interval = f" ({math.exp(mean - half):.2f}–{math.exp(mean + half):.2f})" if len(logs) > 1 else ""
        yield f"{math.exp(mean):.2f}{interval}" + (f", {missed} short" if missed else "")


def _all_worth(random_ones: Sequence[Sequence[Point]], own: Sequence[Sequence[Point]]) -> Iterator[str]:
    yield from _worth(random_ones, own)
    yield _worth_of_means(random_ones, own)


def _worth_of_means(random_ones: Sequence[Sequence[Point]], own: Sequence[Sequence[Point]]) -> str:
    """The same of the curves' means over the seeds, the interval by drawing seeds anew."""
    draws, count = np.random.default_rng(0), len(own)
    places = [np.arange(count), *draws.integers(0, count, (RESAMPLED, count))]
    ratios = [saved(_mean(random_ones, each), _mean(own, each), AIMS[1])[0] for each in places]
    low, high = np.quantile(ratios[1:], (0.025, 0.975))
    return f"{ratios[0]:.2f} ({low:.2f}–{high:.2f})"


def _mean(curves: Sequence[Sequence[Point]], places: Array) -> list[Point]:
    return [
        Point(*map(fmean, zip(*(curves[n][k] for n in places), strict=True))) for k in range(len(curves[0]))
    ]


def whole(lab: Lab) -> Table:
    """Rewards with all of their weights, by 250 random labels and 750 that the reward of those chose."""
    seeds = lab.seeds or 3
    yield f"chosen by ({seeds} seeds)", "right", "right − random", "log-loss"
    pool, tested = prepared(lab, "own")
    found = {method: [whole_point(lab, pool, tested, method, s) for s in range(seeds)] for method in WHOLE}
    for method, own in found.items():
        gains = [p.right - other.right for p, other in zip(own, found[RANDOM], strict=True)]
        better = "" if method == RANDOM else shares(gains)
        yield method, shares([p.right for p in own]), better, numbers([p.loss for p in own], 3)


def whole_point(lab: Lab, pool: Candidates, tested: Candidates, method: str, seed: int) -> Point:
    """One reward that was trained on what the first one chose, against the truth."""
    order = [int(place) for place in np.random.default_rng(seed).permutation(len(pool.pairs_B2))]
    first, left = order[:250], order[250:]
    ensemble = replace(lab.usual(), seed=seed, ensemble=EnsembleSettings(members=4))
    folder = lab.trained(
        f"choosing-first-{seed}", labelled(lab, pool, first, f"first-{seed}", seed), ensemble
    )
    before = load_reward(folder, device=lab.device)
    assert isinstance(before, CombinedReward)
    member = before.members[0]
    assert isinstance(member, LearnedReward)
    rows = [[score or 0.0 for row in each.scores(pool.tasks) for score in row] for each in before.members]
    states_AH = states_of(member.model, member.encoder, pool.tasks, mean=False)
    delta_BH = states_AH[pool.pairs_B2[:, 0]] - states_AH[pool.pairs_B2[:, 1]]
    chosen = choose(
        Pool(
            prompt_A=pool.prompt_A,
            scores_MA=np.array(rows),
            pairs_B2=pool.pairs_B2[left],
            states_AH=states_AH,
            labelled_CH=delta_BH[first],
        ),
        750,
        method,
        seed=seed,
    )
    name = f"choosing-{method}-{seed}"
    data = labelled(lab, pool, [*first, *(left[each.place] for each in chosen)], name, seed)
    reward = load_reward(lab.trained(name, data, replace(lab.usual(), seed=seed)), device=lab.device)
    scores = np.array([score or 0.0 for row in reward.scores(tested.tasks) for score in row])
    return judged(replace(tested, states_AH=scores[:, None]), np.ones(1), 1000)


if __name__ == "__main__":
    run_studies(__doc__, {"linear": linear, "whole": whole})
