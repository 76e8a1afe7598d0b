"""The taste of one group as a reward, told by a few of its comparisons (GPO, arXiv:2310.11523)."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.data.records import Comparison, Task, Text, preference_probability
from plaudit.errors import UserError
from plaudit.models import group_preference
from plaudit.models.policy import Policy
from plaudit.rewards.base import TaskScores
from plaudit.rewards.learned.batching import TOKENS_AT_ONCE, ScoredByModels
from plaudit.tokens.batch import Example, batch_of
from plaudit.tokens.encode import Encoder
from plaudit.tokens.microbatch import micro_batches_in_order

SINGLE_ANSWER = "a group's taste lies between answers to the same prompt, and this one stands alone"


def centred_embeddings(
    embedder: Policy, examples: Sequence[Example], tokens_at_once: int = TOKENS_AT_ONCE
) -> Iterator[Float[Tensor, "K H"]]:
    """For each example its answers' embeddings minus their mean, shape [K, H]."""
    for micro_batch in micro_batches_in_order(examples, tokens_at_once):
        batch = batch_of(micro_batch).to(embedder.device)
        centred_NH = group_preference.centre_by_prompt(
            group_preference.completion_embeddings(embedder, batch), batch.group_N
        )
        yield from centred_NH.split([len(example.completions) for example in micro_batch])


class GroupReward(ScoredByModels):
    def __init__(
        self,
        name: str,
        module: group_preference.GroupPreference,
        embedder: Policy,
        encoder: Encoder,
        comparisons: Sequence[Comparison],
    ) -> None:
        """Look at the comparisons once; both models are on one device, the embedder in its proven layout."""
        super().__init__(name, [embedder], encoder)
        self._module, self._embedder = module.eval(), embedder
        examples = [
            self._encode_group(pair.prompt, (pair.chosen, pair.rejected), pair.origin) for pair in comparisons
        ]
        point_H = self._module.offset_H
        embeddings = [point_H.new_zeros(0, len(point_H)), *centred_embeddings(self._embedder, examples)]
        probabilities = [preference_probability(pair) for pair in comparisons]
        # A chance of 0 to 1 becomes a preference of −1 to 1: the chosen one's, and its opposite.
        preferences = [sign * (2 * probability - 1) for probability in probabilities for sign in (1, -1)]
        self._context = group_preference.GroupContext(
            embedding_EMH=torch.cat(embeddings)[None],
            preference_EM=point_H.new_tensor(preferences)[None],
            mask_EM=torch.ones(1, len(preferences), dtype=torch.bool, device=point_H.device),
        )

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """A row for each task: scores of its answers beside each other; None where there is but one."""
        encoded = [self._encode_readable(task) for task in tasks]
        embeddings_iter = iter(
            centred_embeddings(self._embedder, [example[0] for example in encoded if example is not None])
        )
        return tuple(
            (None,) * len(task.answers)
            if example is None
            else self._score_row(task, example[1], next(embeddings_iter))
            for task, example in zip(tasks, encoded, strict=True)
        )

    def _encode_readable(self, task: Task) -> tuple[Example, Sequence[int]] | None:
        encoded = [self._scorer.encode(task.prompt, answer) for answer in task.answers]
        self._scorer.refused.update(example for example in encoded if isinstance(example, str))
        readable = [place for place, example in enumerate(encoded) if not isinstance(example, str)]
        try:
            if len(readable) == 1:
                raise UserError(SINGLE_ANSWER)
            return (
                (self._encode_group(task.prompt, [task.answers[place] for place in readable]), readable)
                if readable
                else None
            )
        except UserError as error:
            self._scorer.refused[str(error)] += len(readable)
            return None

    def _encode_group(self, prompt: Text, answers: Sequence[Text], origin: str = "") -> Example:
        """Answers that share a prompt; where it must give way, it does so for the longest of them."""
        fitted = self._scorer.fit(self._scorer.encoder.encode(prompt, answers, origin))
        if isinstance(fitted, str):
            raise UserError(f"{origin}: {fitted}" if origin else fitted)
        return fitted

    @torch.no_grad()
    def _score_row(self, task: Task, places: Sequence[int], embedding_KH: Float[Tensor, "K H"]) -> TaskScores:
        # E = 1: the comparisons are one group's context, and all K answers its targets.
        score_K = self._module(self._context, embedding_KH[None]).score_EN[0]
        if not bool(score_K.isfinite().all()):
            raise UserError(f"{self.name} gave a score that is no number: its weights are damaged")
        scores = dict(zip(places, score_K.tolist(), strict=True))
        return tuple(scores.get(place) for place in range(len(task.answers)))
