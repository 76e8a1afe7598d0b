"""A reward model asked about texts: one number an answer, or one a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.models.reward import RewardModel
from plaudit.records.judging import Task
from plaudit.rewards.asking import TOKENS_AT_ONCE, Reader, Scored, at_rest, limits_of
from plaudit.rewards.reward import Row
from plaudit.rewards.steps import Solution, encode_steps


class LearnedReward:
    """A reward model and its tokenizer, ready to score.

    Example: ``LearnedReward("helpful", model, encoder).scores(tasks)``
    """

    def __init__(
        self, name: str, model: RewardModel, encoder: Encoder, *, tokens_at_once: int = TOKENS_AT_ONCE
    ) -> None:
        """Take a model that is on its device, in the layout that it was proven in."""
        self._name = name
        self._model = model
        self._reader = Reader(
            name=name, encoder=encoder, limits=limits_of([model], tokens_at_once), device=model.device
        )

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        return self._name

    @property
    def model(self) -> RewardModel:
        """What scores."""
        return self._model

    @property
    def encoder(self) -> Encoder:
        """Makes the tokens that it reads."""
        return self._reader.encoder

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers it held for so far."""
        return dict(self._reader.refused)

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task; None for an answer that the model cannot be shown."""
        return self.scored(tasks).rows

    def scored(self, tasks: Sequence[Task]) -> Scored:
        """The same, with the reason of every None."""
        with at_rest(self._model):
            return self._reader.scored(tasks, self._model.rewards)

    def steps(self, solutions: Sequence[Solution]) -> tuple[tuple[float, ...] | None, ...]:
        """For each solution a score for each step, read at the step's last token.

        Of a model that learned from labelled steps they are the log-odds that a step is right (Lightman et
        al. 2023, arXiv:2305.20050); any other model was never taught what to say there. None where the
        solution cannot be shown to the model, or a step of it cannot be found among the tokens.
        """
        ends: dict[Example, tuple[int, ...]] = {}
        places: dict[Example, list[int]] = {}
        for s, solution in enumerate(solutions):
            found = self._encoded(solution)
            if isinstance(found, str):
                self._reader.refused[found] += 1
                continue
            example, own = found
            ends[example] = own
            places.setdefault(example, []).append(s)
        said: list[tuple[float, ...] | None] = [None] * len(solutions)
        for piece in self._reader.pieces(list(places)):
            for example, values in zip(piece, self._values(piece, [ends[e] for e in piece]), strict=True):
                for s in places[example]:
                    said[s] = values
        return tuple(said)

    def _encoded(self, solution: Solution) -> tuple[Example, tuple[int, ...]] | str:
        """The solution as tokens and where its steps end, or why it cannot be read."""
        try:
            example, ends = encode_steps(solution, self._reader.encoder)
        except UserError as error:
            return str(error)
        fitted = self._reader.fitted(example)
        return fitted if isinstance(fitted, str) else (fitted, ends)

    def _values(
        self, piece: Sequence[Example], ends: Sequence[tuple[int, ...]]
    ) -> Iterator[tuple[float, ...]]:
        longest = max(map(len, ends))
        end_NC = torch.tensor(
            [[*own, *[-1] * (longest - len(own))] for own in ends], device=self._model.device
        )
        with at_rest(self._model):
            numbers = self._reader.numbers(lambda batch: self._model.steps(batch, end_NC), piece)
        for n, own in enumerate(ends):
            yield tuple(numbers[n * longest : n * longest + len(own)])
