"""Tasks → batches → scores, for whatever model reads them: what is the same for every reward with weights.

Each answer is read with its end-of-turn token, as in training, whether or not the text came to an end by
itself: a reward is learned at that token and means nothing elsewhere. So ``Task.ended`` changes no score;
what an unfinished answer should cost is the caller's to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from plaudit.batches.cut import Refused, cut
from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Completion, Example, TokenBatch, batch_of
from plaudit.errors import UserError
from plaudit.models.policy import Policy
from plaudit.models.reward import RewardModel
from plaudit.records.judging import Task
from plaudit.records.messages import Text
from plaudit.rewards.reward import Row

TOKENS_AT_ONCE = 8192
"""Tokens in one pass of the model."""

NOTHING_SAID = "no token of the answer is the model's own, so there is no place to read a score at"
"""Said of an answer that is all template."""

_Item = TypeVar("_Item")


@runtime_checkable
class KeepsReasons(Protocol):
    """A reward that remembers why it had no verdict."""

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason, and how many answers it held for so far."""
        ...


def reasons_of(reward: object) -> Mapping[str, int]:
    """Why the reward had no verdict so far, where it remembers; nothing of one that does not.

    >>> reasons_of("any other thing")
    {}
    """
    return reward.refused if isinstance(reward, KeepsReasons) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An answer without a verdict, and why.

    Example: ``Refusal(task=3, answer=0, reason="an answer of 3,000 tokens does not fit in 2,048 …")``
    """

    task: int
    """Which task, from 0."""
    answer: int
    """Which of its answers, from 0."""
    reason: str
    """What is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What became of the tasks.

    Example: ``Scored(rows=((0.5, None),), refused=(Refusal(task=0, answer=1, reason="…"),), cut=0)``
    """

    rows: tuple[Row, ...]
    """A row for each task."""
    refused: tuple[Refusal, ...]
    """Why each None is one."""
    cut: int
    """For how many answers the prompt's beginning was left out, so that the answer fits whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a model can be shown, and how much of it at once.

    Example: ``Limits(positions=1024, vocabulary=50257, tokens_at_once=8192, padded=False)``
    """

    positions: int | None
    """Prompt and answer have at most as many tokens; None where the model names no limit."""
    vocabulary: int
    """Token numbers are below this."""
    tokens_at_once: int = TOKENS_AT_ONCE
    """Tokens in one pass; more only where one answer alone has more."""
    padded: bool = False
    """Whether every row of a batch is as long as its longest."""

    def __post_init__(self) -> None:
        """Refuse a pass of nothing."""
        if self.tokens_at_once < 1:
            raise UserError(f"tokens_at_once {self.tokens_at_once}: expected 1 or more")


@dataclass(slots=True, kw_only=True)
class Reader:
    """How texts reach a model and numbers come back; remembers what it refused.

    Example: ``Reader(name="helpful", encoder=encoder, limits=limits_of([model]), device=model.device)``
    """

    name: str
    """Who is asked, for messages."""
    encoder: Encoder
    """Makes the tokens."""
    limits: Limits
    """What the model can be shown."""
    device: torch.device
    """Where it is."""
    refused: Counter[str] = field(default_factory=Counter[str])
    """Each reason for having no verdict, and how many answers it held for so far."""

    def scored(self, tasks: Sequence[Task], score: Callable[[TokenBatch], Float[Tensor, " N"]]) -> Scored:
        """Every answer's score; the same text is read once however often it is asked for."""
        places: dict[tuple[int, ...], dict[Completion, list[tuple[int, int]]]] = {}
        refused: list[Refusal] = []
        cuts = 0
        for t, task in enumerate(tasks):
            for a, answer in enumerate(task.answers):
                found = self.encoded(task.prompt, answer)
                if isinstance(found, str):
                    refused.append(Refusal(task=t, answer=a, reason=found))
                    continue
                example, was_cut = found
                cuts += was_cut
                own = places.setdefault(example.prompt, {})
                own.setdefault(example.completions[0], []).append((t, a))
        groups = [group for prompt, own in places.items() for group in _groups(prompt, own, self.limits)]
        rows: list[list[float | None]] = [[None] * len(task.answers) for task in tasks]
        for piece in self.pieces(groups):
            numbers = self.numbers(score, piece)
            asked = [(group.prompt, completion) for group in piece for completion in group.completions]
            for (prompt, completion), number in zip(asked, numbers, strict=True):
                for t, a in places[prompt][completion]:
                    rows[t][a] = number
        self.refused.update(refusal.reason for refusal in refused)
        return Scored(rows=tuple(map(tuple, rows)), refused=tuple(refused), cut=cuts)

    def encoded(self, prompt: Text, answer: Text) -> tuple[Example, bool] | str:
        """One answer as tokens and whether its prompt had to give way, or why it cannot be read."""
        try:
            example = self.encoder.encode(prompt, [answer])
        except UserError as error:
            return str(error)
        fitted = self.fitted(example)
        return fitted if isinstance(fitted, str) else (fitted, fitted is not example)

    def fitted(self, example: Example) -> Example | str:
        """The example within the model's limits, its prompt cut as in training; or why it cannot be."""
        most = self.limits.positions
        fitted = example if most is None else cut(example, most, bos=self.encoder.info.bos)
        if isinstance(fitted, Refused):
            return fitted.reason
        if not fitted.trained_tokens:
            return NOTHING_SAID
        highest = max(*fitted.prompt, *(i for c in fitted.completions for i in c.ids))
        if highest >= self.limits.vocabulary:
            word = self.encoder.info.tokenizer.convert_ids_to_tokens(highest)
            return f"{word!r} is token {highest:,}, and the model knows {self.limits.vocabulary:,}"
        return fitted

    def pieces(self, examples: Sequence[Example]) -> Iterator[list[Example]]:
        """The examples in pieces of at most ``tokens_at_once`` tokens, the longest first."""
        ordered = sorted(examples, key=_width, reverse=True)

        def weight(first: Example, example: Example) -> int:
            return len(example.completions) * _width(first) if self.limits.padded else example.tokens

        return _filled(ordered, self.limits.tokens_at_once, weight)

    def numbers(self, score: Callable[[TokenBatch], Tensor], piece: Sequence[Example]) -> list[float]:
        """What the model says of a piece, all of it finite."""
        with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
            said = score(batch_of(piece).to(self.device))
        if not bool(said.isfinite().all()):
            raise UserError(
                f"{self.name} gave {float(said[~said.isfinite()][0])}, and a score is a finite number: "
                "its weights are damaged, or its numbers have too few digits (try float32)"
            )
        return said.double().flatten().tolist()


@contextmanager
def at_rest(*models: nn.Module) -> Iterator[None]:
    """While this lasts the models are in evaluation mode."""
    before = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for model, training in zip(models, before, strict=True):
            model.train(training)


def limits_of(models: Sequence[RewardModel | Policy], tokens_at_once: int = TOKENS_AT_ONCE) -> Limits:
    """What all of the models can be shown."""
    configs = [model.base.config.get_text_config() for model in models]
    positions = [getattr(config, "max_position_embeddings", None) for config in configs]
    return Limits(
        positions=min((most for most in positions if most is not None), default=None),
        vocabulary=min(_vocabulary(model.base.get_input_embeddings()) for model in models),
        tokens_at_once=tokens_at_once,
        padded=any(model.layout != "packed" for model in models),
    )


def _vocabulary(embedding: nn.Module) -> int:
    weight = embedding.weight
    assert isinstance(weight, Tensor)
    return weight.shape[0]


def _groups(prompt: tuple[int, ...], completions: Iterable[Completion], limits: Limits) -> Iterator[Example]:
    """A prompt with as many of its answers as one pass takes, and again with the next ones."""
    ordered = sorted(completions, key=lambda completion: len(completion.ids), reverse=True)

    def weight(first: Completion, completion: Completion) -> int:
        return len(prompt) + len(first.ids) if limits.padded else len(completion.ids)

    room = limits.tokens_at_once - (0 if limits.padded else len(prompt))
    for own in _filled(ordered, room, weight):
        yield Example(prompt=prompt, completions=tuple(own))


def _filled(
    items: Sequence[_Item], room: int, weight: Callable[[_Item, _Item], int]
) -> Iterator[list[_Item]]:
    """Items in their order, as many together as there is room for; one that alone has none goes alone.

    ``weight`` is given the first item of its piece too.
    """
    piece: list[_Item] = []
    left = room
    for item in items:
        need = weight(piece[0] if piece else item, item)
        if piece and need > left:
            yield piece
            piece, left, need = [], room, weight(item, item)
        piece.append(item)
        left -= need
    if piece:
        yield piece


def _width(example: Example) -> int:
    return len(example.prompt) + max(len(completion.ids) for completion in example.completions)
