"""Tasks → batches → scores, for whatever model reads them: what is the same for every reward with weights.

Each answer is read with its end-of-turn token, as in training, whether or not the text came to an end by
itself: a reward is learned at that token and means nothing elsewhere. So ``Task.ended`` changes no score;
what an unfinished answer should cost is the caller's to say.

A prompt in plain text is read as the model itself was trained on it: a user's turn of its template, or raw.
That its own encoder says, whatever way the policy is asked the same prompt.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from plaudit.data.records import Task, Text
from plaudit.errors import UserError
from plaudit.models.policy import Policy
from plaudit.models.reward_model import RewardModel
from plaudit.rewards.base import TaskScores
from plaudit.tokens.batch import Example, TokenBatch, batch_of, join_completions
from plaudit.tokens.encode import Encoder, RefusedRow, truncate_prompt

TOKENS_AT_ONCE = 8192

NO_TRAINED_TOKEN = "no token of the answer is the model's own, so there is no place to read a score at"
"""The reason of an answer of which no token is trained: all of it is template."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    task: int
    answer: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringResult:
    """The scores of some tasks, and what was left out on the way."""

    rows: tuple[TaskScores, ...]
    refused: tuple[Refusal, ...]
    """For each None among the scores, why there is no verdict."""
    truncated: int
    """For how many answers the prompt's beginning was left out, so that the answer fits whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """What a model can be shown, and how much of it at once."""

    positions: int | None
    """Prompt and answer have at most as many tokens; None where the model names no limit."""
    vocabulary: int
    tokens_at_once: int = TOKENS_AT_ONCE
    """Tokens in one pass; more only where one answer alone has more."""
    padded: bool = False
    """Whether every row of a batch is as long as its longest."""

    def __post_init__(self) -> None:
        if self.tokens_at_once < 1:
            raise UserError(f"tokens_at_once {self.tokens_at_once}: expected 1 or more")


@dataclass(slots=True, kw_only=True)
class BatchScorer:
    """How texts reach a model and numbers come back; remembers what it refused."""

    name: str
    encoder: Encoder
    limits: ModelLimits
    device: torch.device
    refused: Counter[str] = field(default_factory=Counter[str])
    """Each reason for having no verdict, and how many answers it held for so far."""

    def score_tasks(
        self, tasks: Sequence[Task], score: Callable[[TokenBatch], Float[Tensor, " N"]]
    ) -> ScoringResult:
        """Every answer's score; the same text is read once however often it is asked for."""
        # By prompt, since its completions are scored together: each distinct one, and where it is asked for.
        singles: dict[str, dict[str, Example]] = {}
        places: dict[str, list[tuple[int, int]]] = {}
        refused: list[Refusal] = []
        truncated = 0
        for t, task in enumerate(tasks):
            for a, answer in enumerate(task.answers):
                encoded = self.encode(task.prompt, answer)
                if isinstance(encoded, str):
                    refused.append(Refusal(task=t, answer=a, reason=encoded))
                    continue
                example, was_truncated = encoded
                truncated += was_truncated
                [completion_id] = example.completion_ids
                singles.setdefault(example.prompt_id, {}).setdefault(completion_id, example)
                places.setdefault(completion_id, []).append((t, a))
        groups = [
            group for rows in singles.values() for group in _prompt_groups(list(rows.values()), self.limits)
        ]
        rows: list[list[float | None]] = [[None] * len(task.answers) for task in tasks]
        for micro_batch in self.micro_batches(groups):
            values = self.finite_scores(score, micro_batch)
            completion_ids = [
                completion_id for group in micro_batch for completion_id in group.completion_ids
            ]
            for completion_id, number in zip(completion_ids, values, strict=True):
                for t, a in places[completion_id]:
                    rows[t][a] = number
        self.refused.update(refusal.reason for refusal in refused)
        return ScoringResult(rows=tuple(map(tuple, rows)), refused=tuple(refused), truncated=truncated)

    def encode(self, prompt: Text, answer: Text) -> tuple[Example, bool] | str:
        """One answer as tokens and whether its prompt had to give way, or why it cannot be read."""
        try:
            example = self.encoder.encode(prompt, [answer])
        except UserError as error:
            return str(error)
        fitted = self.fit(example)
        # Where nothing had to give way, the very same object comes back.
        return fitted if isinstance(fitted, str) else (fitted, fitted is not example)

    def fit(self, example: Example) -> Example | str:
        """The example within the model's limits, its prompt cut as in training; or why it cannot be."""
        max_tokens = self.limits.positions
        fitted = (
            example if max_tokens is None else truncate_prompt(example, max_tokens, bos=self.encoder.info.bos)
        )
        if isinstance(fitted, RefusedRow):
            return fitted.reason
        if not fitted.trained_tokens:
            return NO_TRAINED_TOKEN
        # An id beyond the embedding is an assert on a GPU, after which this process can compute nothing more.
        highest = max(*fitted.prompt, *(i for c in fitted.completions for i in c.ids))
        if highest >= self.limits.vocabulary:
            token_text = self.encoder.info.tokenizer.convert_ids_to_tokens(highest)
            return f"{token_text!r} is token {highest:,}, and the model knows {self.limits.vocabulary:,}"
        return fitted

    def micro_batches(self, examples: Sequence[Example]) -> Iterator[list[Example]]:
        """The examples in pieces of at most ``tokens_at_once`` tokens, the longest first."""
        # The longest first: memory runs out at once or never, and rows of like length share a batch.
        ordered = sorted(examples, key=longest_length, reverse=True)

        def weight(first: Example, example: Example) -> int:
            # The first of a piece is its longest and so sets the width of a padded one.
            return len(example.completions) * longest_length(first) if self.limits.padded else example.tokens

        return _fill_batches(ordered, self.limits.tokens_at_once, weight)

    def finite_scores(
        self, score: Callable[[TokenBatch], Tensor], micro_batch: Sequence[Example]
    ) -> list[float]:
        """The scores of one micro-batch as floats; a score that is not finite is an error."""
        # In the model's own precision, also when asked from within a training step under autocast.
        with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
            score_N = score(batch_of(micro_batch).to(self.device))
        if not bool(score_N.isfinite().all()):
            raise UserError(
                f"{self.name} gave {float(score_N[~score_N.isfinite()][0])}, and a score is a finite number: "
                "its weights are damaged, or its numbers have too few digits (try float32)"
            )
        # Flat, as scores of steps are [N, C]; a double holds every narrower float exactly.
        return score_N.double().flatten().tolist()


class ScoredByModels:
    """What is the same of all rewards whose scores a `BatchScorer` gets from models on one device."""

    def __init__(
        self,
        name: str,
        models: Sequence[RewardModel | Policy],
        encoder: Encoder,
        tokens_at_once: int = TOKENS_AT_ONCE,
    ) -> None:
        self.name = name
        limits = model_limits(models, tokens_at_once)
        self._scorer = BatchScorer(name=name, encoder=encoder, limits=limits, device=models[0].device)

    @property
    def refused(self) -> Mapping[str, int]:
        return dict(self._scorer.refused)


def model_limits(models: Sequence[RewardModel | Policy], tokens_at_once: int = TOKENS_AT_ONCE) -> ModelLimits:
    configs = [model.base.config.get_text_config() for model in models]
    positions = [getattr(config, "max_position_embeddings", None) for config in configs]
    return ModelLimits(
        positions=min((limit for limit in positions if limit is not None), default=None),
        vocabulary=min(_vocabulary_size(model.base.get_input_embeddings()) for model in models),
        tokens_at_once=tokens_at_once,
        padded=any(model.layout != "packed" for model in models),
    )


def _vocabulary_size(embedding: nn.Module) -> int:
    weight = embedding.weight
    assert isinstance(weight, Tensor)
    return weight.shape[0]


def _prompt_groups(singles: Sequence[Example], limits: ModelLimits) -> Iterator[Example]:
    """A prompt with as many of its answers as one pass takes, and again with the next ones."""
    prompt_length = len(singles[0].prompt)
    ordered = sorted(singles, key=longest_length, reverse=True)

    def weight(first: Example, single: Example) -> int:
        return longest_length(first) if limits.padded else longest_length(single) - prompt_length

    # Packed, a prompt is read once for all its answers; padded, every row repeats it.
    room = limits.tokens_at_once - (0 if limits.padded else prompt_length)
    for batch in _fill_batches(ordered, room, weight):
        yield join_completions(batch)


def _fill_batches(
    items: Sequence[_Item], capacity: int, weight: Callable[[_Item, _Item], int]
) -> Iterator[list[_Item]]:
    """Items in their order, as many together as there is room for; one that alone has none goes alone."""
    # ``weight`` is given the first item of its piece too.
    batch: list[_Item] = []
    remaining = capacity
    for item in items:
        size = weight(batch[0] if batch else item, item)
        if batch and size > remaining:
            yield batch
            batch, remaining, size = [], capacity, weight(item, item)
        batch.append(item)
        remaining -= size
    if batch:
        yield batch


def longest_length(example: Example) -> int:
    """The tokens of the prompt with its longest completion."""
    return len(example.prompt) + max(len(completion.ids) for completion in example.completions)
