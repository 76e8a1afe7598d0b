"""Pairs of the embedded world that people may be asked about, and linear heads that learn from them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, islice
from pathlib import Path

import numpy as np
import torch

from benchmarks.lab import Lab
from plaudit.data.judging import Verdict, to_comparison
from plaudit.data.records import Task
from plaudit.data.write import write_records
from plaudit.lab.world.gold import utility
from plaudit.lab.world.making import answer_tasks, endless_questions
from plaudit.lab.world.prompts import Split
from plaudit.lab.world.verdicts import crowd
from plaudit.models.reward_model import RewardModel, new_reward_model
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.tokens.batch import batch_of
from plaudit.tokens.encode import Encoder, make_encoder
from plaudit.tokens.microbatch import ForwardInputs, micro_batches_in_order

Array = np.ndarray
SETTINGS = {
    "corpus": "the corpus's, pairs given",
    "own": "its own, pairs given",
    "eight": "its own, two of eight",
    "corpus-linear": "the corpus's, pairs given, labels by a linear head",
}
POOL, TESTED = 6000, 2000
"""Pairs of the corpus's answers that may be asked about; held-out pairs."""
LENGTH = 3.0
"""The mean squared length of a pair's states, by which a ridge of 1 is about right for random."""
SHOWN = 200
"""Demonstrations that the answering model has seen: after more of them its eight answers are nearly one."""
PROMPTS = {"train": 3473, "validation": 384}
"""All that there are."""
TASTE_LABELS = 3100
"""By how many labels of the crowd the head that labels has learnt what it likes."""
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
            return sigmoid(self.delta_BH @ self.taste_H)
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
    places = some(len(pool.pairs_B2), TASTE_LABELS)
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
        probability_C = sigmoid(delta_CH @ head_H)
        gradient_H = delta_CH.T @ (weight_C * (probability_C - label_C)) + head_H
        curve_C = weight_C * probability_C * (1 - probability_C)
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


def sigmoid(gap: Array) -> Array:
    """The chance of a log-odds."""
    return 0.5 * (1 + np.tanh(gap / 2))


def labelled(lab: Lab, pool: Candidates, places: Sequence[int], name: str, seed: int) -> Path:
    """The comparisons of some pairs by the crowd."""
    path = lab.folder / "data" / f"{name}.jsonl"
    if not path.exists():
        write_records([to_comparison(pool.pair(n), pool.verdict(n, seed)) for n in places], path)
    return path
