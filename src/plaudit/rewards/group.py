"""The taste of one group as a reward, told by a few of its comparisons (GPO, arXiv:2310.11523)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.batches.split import in_order
from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example, batch_of
from plaudit.errors import UserError
from plaudit.models.group_preference import Context, GroupPreference, embeddings, relative
from plaudit.models.policy import Policy
from plaudit.records.feedback import Comparison
from plaudit.records.judging import Task
from plaudit.records.messages import Text
from plaudit.records.preferred import chance_of
from plaudit.rewards.asking import TOKENS_AT_ONCE, Reader, limits_of
from plaudit.rewards.reward import Row

ALONE = "a group's taste lies between answers to the same prompt, and this one stands alone"
"""Said of a task with one answer."""


def apart(
    embedder: Policy, examples: Sequence[Example], tokens_at_once: int = TOKENS_AT_ONCE
) -> Iterator[Float[Tensor, "K H"]]:
    """For each example its answers' embeddings, less their mean: what tells them apart."""
    for piece in in_order(examples, tokens_at_once):
        batch = batch_of(piece).to(embedder.device)
        own_NH = relative(embeddings(embedder, batch), batch.group_N)
        yield from own_NH.split([len(example.completions) for example in piece])


class GroupReward:
    """What one group would prefer, given some comparisons of it.

    Example: ``GroupReward("pilots", module, embedder, encoder, comparisons).scores(tasks)``
    """

    def __init__(
        self,
        name: str,
        module: GroupPreference,
        embedder: Policy,
        encoder: Encoder,
        shown: Sequence[Comparison],
    ) -> None:
        """Look at the comparisons once; both models are on one device, the embedder in its proven layout."""
        self._name, self._module, self._embedder = name, module.eval(), embedder
        self._reader = Reader(
            name=name, encoder=encoder, limits=limits_of([embedder]), device=embedder.device
        )
        self._context = self._look_at(shown)

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        return self._name

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers it held for so far."""
        return dict(self._reader.refused)

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task: scores of its answers beside each other; None where there is but one."""
        shown = [self._shown(task) for task in tasks]
        found = iter(apart(self._embedder, [one[0] for one in shown if one is not None]))
        return tuple(
            (None,) * len(task.answers) if one is None else self._row(task, one[1], next(found))
            for task, one in zip(tasks, shown, strict=True)
        )

    def _shown(self, task: Task) -> tuple[Example, Sequence[int]] | None:
        """The answers that the embedder can read, two or more, as tokens, and which they are."""
        read = [self._reader.encoded(task.prompt, answer) for answer in task.answers]
        self._reader.refused.update(one for one in read if isinstance(one, str))
        own = [place for place, one in enumerate(read) if not isinstance(one, str)]
        try:
            if len(own) == 1:
                raise UserError(ALONE)
            return (self._together(task.prompt, [task.answers[place] for place in own]), own) if own else None
        except UserError as error:
            self._reader.refused[str(error)] += len(own)
            return None

    def _together(self, prompt: Text, answers: Sequence[Text], origin: str = "") -> Example:
        """Answers that share a prompt; where it must give way, it does so for the longest of them."""
        fitted = self._reader.fitted(self._reader.encoder.encode(prompt, answers, origin))
        if isinstance(fitted, str):
            raise UserError(f"{origin}: {fitted}" if origin else fitted)
        return fitted

    @torch.no_grad()
    def _row(self, task: Task, places: Sequence[int], own_KH: Float[Tensor, "K H"]) -> Row:
        score_K = self._module(self._context, own_KH[None]).score_EN[0]
        if not bool(score_K.isfinite().all()):
            raise UserError(f"{self._name} gave a score that is no number: its weights are damaged")
        scores = dict(zip(places, score_K.tolist(), strict=True))
        return tuple(scores.get(place) for place in range(len(task.answers)))

    def _look_at(self, shown: Sequence[Comparison]) -> Context:
        examples = [self._together(pair.prompt, (pair.chosen, pair.rejected), pair.origin) for pair in shown]
        point_H = self._module.offset_H
        points = [own_KH for example_KH in apart(self._embedder, examples) for own_KH in example_KH]
        chances = [chance_of(pair) for pair in shown]
        liked = [liking for chance in chances for liking in (2 * chance - 1, 1 - 2 * chance)]
        return Context(
            embedding_EMH=torch.stack(points)[None] if points else point_H.new_zeros(1, 0, len(point_H)),
            preference_EM=point_H.new_tensor(liked)[None],
            mask_EM=torch.ones(1, len(liked), dtype=torch.bool, device=point_H.device),
        )
