"""A round: answers that were drawn and judged, and what is learnt from them in one or several moves.

Its log-probs, values and advantages are fixed before the first move and stay so; they are part of a
checkpoint, so a run that stops between two moves goes on with the same answers.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from plaudit.batches.split import portions
from plaudit.batches.tokens import Completion, Example, TokenBatch, batch_of
from plaudit.training.metrics import Metric
from plaudit.training.parallel import Ranks
from plaudit.training.policy_row import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was known of each token before the first move; 0 where a token is not the policy's.

    Example: ``Told(old_logp_NT=…, ref_logp_NT=…, advantage_NT=…, value_NT=…, return_NT=…, weight_NT=…)``
    """

    old_logp_NT: Float[Tensor, "N T"]
    """log π of the policy that the round begins with."""
    ref_logp_NT: Float[Tensor, "N T"]
    """log π_ref."""
    advantage_NT: Float[Tensor, "N T"]
    """How much better than expected."""
    value_NT: Float[Tensor, "N T"]
    """What the critic said before."""
    return_NT: Float[Tensor, "N T"]
    """What it should have said."""
    weight_NT: Float[Tensor, "N T"]
    """What each token's loss is multiplied with, for who drew it; 0 leaves it out and still counts it."""

    def of(self, row_n: Int[Tensor, " n"], width: int, device: torch.device) -> Told:
        """The same of some answers, as wide as the longest of them."""
        return Told(**{one.name: getattr(self, one.name)[row_n, :width].to(device) for one in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A prompt's answers as a row that can be divided over pieces and ranks.

    Example: ``Place(group=3, tokens=210)``
    """

    group: int
    """Which one of the round."""
    tokens: int
    """How many have to be computed."""
    counts: bool = True
    """False where it only computes along, so that no rank waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """All answers of a round with what is known of them; every rank has the same.

    Example: ``Round(number=1, examples=(…,), told=Told(…), figures=(…,), longest=128)``
    """

    number: int
    """Counted from 1 over the run."""
    examples: tuple[Example, ...]
    """Each prompt with its answers."""
    told: Told
    """What was known of their tokens."""
    figures: tuple[Metric, ...]
    """What is reported with each of its moves."""
    longest: int
    """The most tokens that an answer may have."""
    mean: float = 0.0
    """The mean score of its new answers, shaped."""

    def batch(self, places: Sequence[Place]) -> tuple[TokenBatch, Int[Tensor, " n"]]:
        """The tokens of these groups, and their rows among all answers."""
        start, rows = 0, dict[int, range]()
        for group, example in enumerate(self.examples):
            rows[group] = range(start, start + len(example.completions))
            start += len(example.completions)
        batch = batch_of([_seen(self.examples[place.group], place.counts) for place in places])
        return batch, torch.tensor([row for place in places for row in rows[place.group]])

    def moves(self, epochs: int, minibatches: int, seed: int) -> list[list[list[int]]]:
        """For each epoch and minibatch its groups; in the first epoch they stand as they came."""
        found: list[list[list[int]]] = []
        for epoch in range(epochs):
            order = list(range(len(self.examples)))
            if epoch:
                random.Random(f"{seed}/{self.number}/{epoch}").shuffle(order)
            found.append(parts_of(order, minibatches))
        return found

    def shares(
        self, groups: Sequence[int], *, ranks: int, tokens_at_once: int
    ) -> tuple[tuple[tuple[Place, ...], ...], ...]:
        """These groups in pieces, for each rank."""
        places = [Place(group=group, tokens=self.examples[group].tokens) for group in groups]
        return portions(places, _along, ranks=ranks, tokens_at_once=tokens_at_once)

    def counts(self, groups: Sequence[int]) -> Counts:
        """How much there is in these groups."""
        own = [self.examples[group] for group in groups]
        return Counts(
            tokens=sum(example.trained_tokens for example in own),
            completions=sum(len(example.completions) for example in own),
            longest=self.longest,
        )

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        facts = {
            "number": self.number,
            "longest": self.longest,
            "mean": self.mean,
            "examples": [asdict(example) for example in self.examples],
            "figures": [asdict(figure) for figure in self.figures],
        }
        words = torch.frombuffer(bytearray(json.dumps(facts).encode()), dtype=torch.uint8)
        return {"facts": words, **{one.name: getattr(self.told, one.name) for one in fields(Told)}}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Round:
        """The round that was kept."""
        facts: dict[str, Any] = json.loads(bytes(tensors["facts"].tolist()))
        return cls(
            number=facts["number"],
            longest=facts["longest"],
            mean=facts["mean"],
            examples=tuple(map(_example, facts["examples"])),
            figures=tuple(Metric(**figure) for figure in facts["figures"]),
            told=Told(**{one.name: tensors[one.name] for one in fields(Told)}),
        )


def parts_of(order: Sequence[int], parts: int) -> list[list[int]]:
    """In so many parts of about the same size, some of them empty where there are too few.

    >>> parts_of([5, 6, 7], 2)
    [[5], [6, 7]]
    """
    ends = [len(order) * n // parts for n in range(parts + 1)]
    return [list(order[start:end]) for start, end in pairwise(ends)]


def over_ranks(
    rows: Sequence[tuple[Tensor, Tensor]], size: tuple[int, int], ranks: Ranks
) -> Float[Tensor, "N T"]:
    """What every rank found for its own answers, put together on all of them; on the CPU."""
    dtype = rows[0][1].dtype if rows else torch.float32
    whole_NT = torch.zeros(size, dtype=dtype, device=ranks.device)
    for row_n, value_nt in rows:
        whole_NT[row_n.to(ranks.device), : value_nt.shape[1]] = value_nt.to(ranks.device)
    ranks.add_up([whole_NT])
    return whole_NT.cpu()


def _along(place: Place) -> Place:
    return replace(place, counts=False)


def _seen(example: Example, counts: bool) -> Example:
    """The example, or the same with nothing trained."""
    if counts:
        return example
    muted = tuple(replace(one, mask=(False,) * len(one.ids)) for one in example.completions)
    return replace(example, completions=muted)


def _example(facts: Mapping[str, Any]) -> Example:
    answers = tuple(
        Completion(ids=tuple(one["ids"]), mask=tuple(one["mask"]), finished=one["finished"])
        for one in facts["completions"]
    )
    return Example(prompt=tuple(facts["prompt"]), completions=answers, origin=facts["origin"])
