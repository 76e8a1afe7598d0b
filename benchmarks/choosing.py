"""Whether it pays to choose which pairs people are asked about: labels saved on the embedded world.

    python -m benchmarks.choosing --out lab --seeds 10 --only linear   # begun again, it goes on
    python -m benchmarks.choosing --out lab --seeds 3 --only whole

`linear` learns linear heads on the frozen states of a fine-tuned model. A method begins with 100 labels drawn
at random and goes on in batches of 200, a fifth of which are random too. Labels are a crowd's, and heads are
judged by the truth on pairs about prompts that nobody was asked about. The figure is how many labels random
needs for each label that a method needs, to come as far as random comes with 500, 1,000 and 2,000. `whole`
trains rewards with all of their weights. Curves lie in the folder, as JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, islice
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import isotonic_regression

from benchmarks.intervals import half_width, numbers, shares
from benchmarks.lab import Lab
from benchmarks.studies import Table, run_studies
from plaudit.data.judging import Verdict, to_comparison
from plaudit.data.records import Task
from plaudit.data.write import write_records
from plaudit.lab.world.gold import utility
from plaudit.lab.world.making import answer_tasks, endless_questions
from plaudit.lab.world.prompts import Split
from plaudit.lab.world.verdicts import crowd
from plaudit.methods.reward_model.config import EnsembleSettings
from plaudit.models.reward_model import RewardModel, new_reward_model
from plaudit.rewards.choosing import METHODS, RANDOM, Pool, choose
from plaudit.rewards.combine.aggregate import CombinedReward
from plaudit.rewards.learned.scalar import LearnedReward
from plaudit.rewards.load import load_reward
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import Encoder, make_encoder
from plaudit.tokens.microbatch import ForwardInputs, micro_batches_in_order

Array = np.ndarray
SEEDS = 10
POOL, TESTED = 6000, 2000
"""Pairs of the corpus's answers that may be asked about; held-out pairs at most."""
PER_PROMPT = 2
LENGTH = 3.0
"""The mean squared length of a pair's states, by which a ridge of 1 is about right for random."""
SETTINGS = {
    "corpus": "the corpus's, pairs given",
    "own": "its own, pairs given",
    "eight": "its own, two of eight",
    "corpus-linear": "the corpus's, pairs given, labels by a linear head",
}
FIRST, BATCH, LAST = 100, 200, 3100
"""Labels to begin with, in a batch, and at the end."""
AIMS = (500, 1000, 2000)
"""With how many random labels a method is compared."""
MEMBERS = 8
SHOWN = 200
"""Demonstrations that the answering model has seen: after more of them its eight answers are nearly one."""
PROMPTS = {"train": 3473, "validation": 384}
"""All that there are."""
AGAIN = "random, drawn anew"
"""Random against random: what the figure says where nothing is to be gained."""
COMPARED = (*METHODS, AGAIN)
TOKENS = 16_384


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Answers to prompts, the pairs of them that may be asked about, and what a head reads of each."""

    tasks: Sequence[Task]
    states_AH: Array
    pairs_B2: Array
    taste_H: Array | None = None
    """Where labels are by a head: what it likes, with the chances that the logistic model gives."""

    @cached_property
    def prompt_A(self) -> Array:
        """The task of each answer."""
        return np.repeat(np.arange(len(self.tasks)), [len(task.answers) for task in self.tasks])

    @cached_property
    def delta_BH(self) -> Array:
        """What a head reads of each pair: first less second."""
        return self.states_AH[self.pairs_B2[:, 0]] - self.states_AH[self.pairs_B2[:, 1]]

    @cached_property
    def answers(self) -> list[tuple[int, int]]:
        """Of each answer the task, and its place there."""
        return [(n, place) for n, task in enumerate(self.tasks) for place in range(len(task.answers))]

    @cached_property
    def truth_B(self) -> Array:
        """How likely the first truly is the better one: 0 or 1, a half where they are worth the same."""
        if self.taste_H is not None:
            return _sigmoid(self.delta_BH @ self.taste_H)
        worth = [utility(self.tasks[n].prompt, self.tasks[n].answers[place]) for n, place in self.answers]
        gap_B = np.array(worth)[self.pairs_B2] @ [1.0, -1.0]
        return np.where(np.abs(gap_B) < 1e-9, 0.5, gap_B > 0)

    def pair(self, place: int) -> Task:
        """A pair as it is shown."""
        (n, first), (_, second) = (self.answers[answer] for answer in self.pairs_B2[place])
        answers = (self.tasks[n].answers[first], self.tasks[n].answers[second])
        return Task(prompt=self.tasks[n].prompt, answers=answers, ended=(True, True))

    def verdict(self, place: int, seed: int) -> Verdict:
        """What somebody of the crowd says of a pair: in a seed always the same."""
        task = self.pair(place)
        first, other = task.answers
        return crowd(task.prompt, first, other, 1_000_000 * seed + place)

    def label(self, place: int, seed: int) -> float:
        """Whether the first is preferred; a half for a tie."""
        if self.taste_H is not None:
            return float(np.random.default_rng([seed, place]).random() < self.truth_B[place])
        first, second = self.verdict(place, seed).marks
        return 0.5 if first.rank == second.rank else float(first.rank < second.rank)


def drawn(lab: Lab, split: Split) -> list[Task]:
    """The model's own answers to each prompt: of eight draws those that differ and ended, if any two do."""
    path = lab.folder / f"choosing/{split}.json"
    questions = list(islice(endless_questions(split, 0), PROMPTS[split]))
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        sampler = lab.sampler(lab.sft_model(SHOWN))
        found = sampler.generate_answers([each.messages for each in questions], SamplingSettings(), n=8)
        texts = [[each.text for each in own if each.ended and each.text.strip()] for own in found]
        path.write_text(json.dumps([[*dict.fromkeys(own)] for own in texts]), encoding="utf-8")
    different = json.loads(path.read_text(encoding="utf-8"))
    return [each.task(own) for each, own in zip(questions, different, strict=True) if len(own) > 1]


def states_of(model: RewardModel, encoder: Encoder, tasks: Sequence[Task], *, mean: bool) -> Array:
    """What a reward's head reads of each answer: its last state, or the mean over its tokens."""
    found = list[Array]()
    examples = [encoder.encode(task.prompt, task.answers) for task in tasks]
    for micro_batch in micro_batches_in_order(examples, TOKENS):
        batch = batch_of(micro_batch)

        def own(inputs: ForwardInputs, mask_NT: torch.Tensor = batch.host.mask_NT) -> torch.Tensor:
            return inputs.own_NT[mask_NT]

        with torch.no_grad():
            _, hidden_MH = model.rewards_and_states(batch.to(model.device), own)
        parts = hidden_MH.double().cpu().split(batch.host.mask_NT.sum(-1).tolist())
        found += [(part.mean(0) if mean else part[-1]).numpy() for part in parts]
    return np.stack(found)


def pairs_of(tasks: Sequence[Task], *, every: bool) -> Array:
    """All pairs of a prompt's answers, or as many as share no answer."""
    found, start = list[tuple[int, int]](), 0
    for task in tasks:
        places = range(start, start + len(task.answers))
        found += combinations(places, 2) if every else zip(places[::2], places[1::2], strict=False)
        start = places.stop
    return np.array(found)


def prepared(lab: Lab, setting: str) -> tuple[Candidates, Candidates]:
    """What may be asked about, and what heads are judged on."""
    splits: tuple[Split, Split] = ("train", "validation")
    folder = lab.sft_model(SHOWN)
    encoder = make_encoder(folder)
    model = new_reward_model(folder, encoder=encoder, dtype=torch.float32, device=torch.device(lab.device))
    both = list[Candidates]()
    for split, most in zip(splits, (POOL, TESTED), strict=True):
        is_corpus = setting.startswith("corpus")
        tasks = answer_tasks(most, answers=2, split=split) if is_corpus else drawn(lab, split)
        pairs_B2 = pairs_of(tasks, every=setting.startswith("eight") or split == "validation")
        states_AH = states_of(model, encoder, tasks, mean=True)
        both.append(Candidates(tasks=tasks, states_AH=states_AH, pairs_B2=pairs_B2))
    pool, tested = both
    unit = math.sqrt(LENGTH / float((pool.delta_BH**2).sum(1).mean()))
    pool, tested = (replace(each, states_AH=each.states_AH * unit) for each in both)
    tested = replace(tested, pairs_B2=tested.pairs_B2[some(len(tested.pairs_B2), TESTED)])
    if not setting.endswith("-linear"):
        return pool, tested
    places = some(len(pool.pairs_B2), LAST)
    taste_H = fitted(pool.delta_BH[places], np.array([pool.label(place, 777) for place in places]))
    return replace(pool, taste_H=taste_H), replace(tested, taste_H=taste_H)


def some(total: int, most: int) -> list[int]:
    """Places of rows, drawn once for all."""
    return np.random.default_rng(0).permutation(total)[:most].tolist()


def fitted(
    delta_CH: Array, label_C: Array, weight_C: Array | None = None, start_H: Array | None = None
) -> Array:
    """The logistic regression with ridge 1 of labels on pairs, by Newton's steps."""
    weight_C = np.ones(len(label_C)) if weight_C is None else weight_C
    head_H = np.zeros(delta_CH.shape[1]) if start_H is None else start_H

    def loss_of(head_H: Array) -> float:
        gap_C = delta_CH @ head_H
        return float(weight_C @ (np.logaddexp(0, gap_C) - label_C * gap_C) + head_H @ head_H / 2)

    for _ in range(50):
        chance_C = _sigmoid(delta_CH @ head_H)
        gradient_H = delta_CH.T @ (weight_C * (chance_C - label_C)) + head_H
        curve_C = weight_C * chance_C * (1 - chance_C)
        step_H = np.linalg.solve((delta_CH.T * curve_C) @ delta_CH + np.eye(len(head_H)), gradient_H)
        before = loss_of(head_H)
        # A whole step may go too far where all pairs are nearly certain.
        share = next(
            (part for part in 0.5 ** np.arange(20) if loss_of(head_H - part * step_H) <= before), 0.0
        )
        head_H = head_H - share * step_H
        if np.abs(share * step_H).max() < 1e-4:
            break
    return head_H


def _sigmoid(gap: Array) -> Array:
    return 0.5 * (1 + np.tanh(gap / 2))


class Point(NamedTuple):
    """How good a head is after so many labels."""

    labels: int
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


def saved(points: Sequence[Point], other: Sequence[Point], aim: int) -> tuple[float, bool]:
    """How many labels of random one of another method is worth, and whether that came as far at all.

    Both curves are smoothed to fall, as labels and held-out pairs are few enough to make steps up and down;
    where the other one never comes as far it is said to with its last label, which flatters it.
    """
    losses, others = (
        isotonic_regression([p.loss for p in own], increasing=False).x for own in (points, other)
    )
    wanted = float(np.interp(aim, [point.labels for point in points], losses))
    place = next((n for n, loss in enumerate(others) if loss <= wanted), None)
    if place is None:
        return aim / other[-1].labels, False
    if place == 0:
        return aim / other[0].labels, True
    share = (others[place - 1] - wanted) / (others[place - 1] - others[place])
    return aim / (other[place - 1].labels + share * (other[place].labels - other[place - 1].labels)), True


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
            worth = ("1",) * len(AIMS) if method == RANDOM else _worth(found[RANDOM], own)
            yield what, method, *worth, numbers([p.loss for p in last], 3), shares([p.right for p in last])


LAST_WORDS = (f"log-loss with {LAST:,}", f"right with {LAST:,}")


def _worth(random_ones: Sequence[Sequence[Point]], own: Sequence[Sequence[Point]]) -> Iterator[str]:
    """Of each aim the geometric mean with its 95 % interval by Student's t; how often it was not reached."""
    for aim in AIMS:
        pairs = [saved(points, other, aim) for points, other in zip(random_ones, own, strict=True)]
        logs = [math.log(ratio) for ratio, _ in pairs]
        mean, half = fmean(logs), half_width(logs)
        missed = sum(not reached for _, reached in pairs)
        interval = f" ({math.exp(mean - half):.2f}–{math.exp(mean + half):.2f})" if len(logs) > 1 else ""
        yield f"{math.exp(mean):.2f}{interval}" + (f", {missed} short" if missed else "")


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


WHOLE = (RANDOM, "d-optimal", "disagreement")


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


def labelled(lab: Lab, pool: Candidates, places: Sequence[int], name: str, seed: int) -> Path:
    """The comparisons of some pairs by the crowd."""
    path = lab.folder / "data" / f"{name}.jsonl"
    if not path.exists():
        write_records([to_comparison(pool.pair(n), pool.verdict(n, seed)) for n in places], path)
    return path


if __name__ == "__main__":
    run_studies(__doc__, {"linear": linear, "whole": whole})
