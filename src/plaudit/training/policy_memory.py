"""What a run remembers of earlier rounds: how often prompts were passed, and answers to learn from again."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plaudit.batches.question import Question
from plaudit.training.collect import group_from, words_of
from plaudit.training.judged_answers import JudgedGroup

FLOOR = 0.05
"""Also a prompt that is always passed, or never, is asked now and then."""


class Curriculum:
    """Asks prompts that are passed sometimes rather than always or never: their answers are unlike.

    A prompt with pass rate p is drawn in proportion to 4p(1 − p), a new one as if p were a half.
    """

    def __init__(self, questions: Sequence[Question], *, passes: int | float, seed: int) -> None:
        """An answer passes whose score is at least ``passes``."""
        self._row = {question.prompt: row for row, question in enumerate(questions)}
        self._passes, self._seed = passes, seed
        self._rate = torch.full((len(questions),), torch.nan, dtype=torch.float64)

    def choose(self, number: int, size: int) -> list[int]:
        """The rows of a round, all different."""
        known = self._rate.nan_to_num(0.5)
        weight = (4 * known * (1 - known)).clamp(min=FLOOR)
        chance = torch.Generator().manual_seed(
            random.Random(f"{self._seed}/{number}/prompts").getrandbits(62)
        )
        # The largest u^(1/w) are a draw without putting back, in proportion to w.
        key = torch.rand(len(weight), generator=chance, dtype=torch.float64).log() / weight
        return key.topk(min(size, len(weight))).indices.tolist()

    def learn(self, groups: Sequence[JudgedGroup]) -> None:
        """Take note of how often each prompt was passed, the newest time only."""
        for group in groups:
            known = [score for score in group.scores if score is not None]
            if known:
                passed = sum(score >= self._passes for score in known)
                self._rate[self._row[group.question.prompt]] = passed / len(known)

    def tensors(self) -> Mapping[str, Tensor]:
        """The pass rates."""
        return {"rate": self._rate.clone()}

    def take_up(self, tensors: Mapping[str, Tensor]) -> None:
        """The pass rates as they were."""
        self._rate = tensors["rate"].clone()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A group that may be learnt from again.

    Example: ``Kept(number=3, row=17, group=group)``
    """

    number: int
    """The round that it was drawn in."""
    row: int
    """Which question it answers."""
    group: JudgedGroup
    """Its answers with their scores."""


class Replay:
    """Learns again from groups of the last rounds, as a share of every round; no answer is older."""

    def __init__(self, questions: Sequence[Question], *, share: int | float, window: int, seed: int) -> None:
        """``share`` of a round's groups are old ones, of at most ``window`` rounds ago."""
        self._questions = questions
        self._row = {question.prompt: row for row, question in enumerate(questions)}
        self._share, self._window, self._seed = share, window, seed
        self._kept: list[Kept] = []

    def again(self, groups: Sequence[JudgedGroup], number: int) -> tuple[JudgedGroup, ...]:
        """Old groups to go with these new ones, which are kept in their turn."""
        young = [kept for kept in self._kept if number - kept.number <= self._window]
        wanted = round(self._share / (1 - self._share) * len(groups))
        chance = random.Random(f"{self._seed}/{number}/again")
        chosen = chance.sample(young, min(wanted, len(young)))
        new = [Kept(number=number, row=self._row[one.question.prompt], group=one) for one in groups]
        self._kept = [*young, *new]
        return tuple(kept.group for kept in chosen)

    def tensors(self) -> Mapping[str, Tensor]:
        """All groups that are young enough."""
        rows = [[kept.number, kept.row, words_of(kept.row, kept.group)] for kept in self._kept]
        return {"kept": torch.frombuffer(bytearray(json.dumps(rows).encode()), dtype=torch.uint8)}

    def take_up(self, tensors: Mapping[str, Tensor]) -> None:
        """The groups as they were."""
        rows = json.loads(bytes(tensors["kept"].tolist()))
        self._kept = [
            Kept(number=number, row=row, group=group_from(words, self._questions)[1])
            for number, row, words in rows
        ]
