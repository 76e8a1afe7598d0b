"""Looks at held-out prompts: what the reward says there, and a judge who never teaches; how far off.

Chance is the same at each look, so that only learning changes the figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plaudit.batches.question import Question
from plaudit.batches.split import in_order
from plaudit.batches.tokens import Example, batch_of
from plaudit.losses.divergence import full, k3
from plaudit.losses.ratio import log_ratio, of_completion
from plaudit.models.head import head_of
from plaudit.models.reference import Nobody, SaysAll
from plaudit.records.messages import words
from plaudit.rewards.reward import Reward
from plaudit.rollouts.sampling import Rollout, SamplingSettings
from plaudit.tensors.masked import masked_sum
from plaudit.training.judged_answers import (
    JudgedGroup,
    Scorer,
    Speaker,
    answers_to,
    example_of,
    judged,
)
from plaudit.training.metrics import Metric, add, mean, values_of
from plaudit.training.parallel import Ranks
from plaudit.training.plan import Pause
from plaudit.training.policy_experience import Watchers
from plaudit.training.sinks.sink import Sample
from plaudit.training.step import add_over_ranks

FIGURES = ("reward", "length_mean", "finished", "entropy", "kl", "kl_k3", "kl_root")
"""What is measured of held-out prompts; the last three where there is a reference."""
SMALL = 4096
"""The largest vocabulary of which all of it is compared."""
CELLS = 2**24
"""Numbers of a distribution over tokens and vocabulary that are held at once."""
AT_ONCE = 64
"""Prompts between two places where a look may be broken off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looker:
    """Who answers and who judges held-out prompts.

    Example: ``Looker(sampler=…, reward=…, judge=None, watchers=…, sampling=…, answers=1, …).look(pause)``
    """

    sampler: Speaker
    """The policy of this moment."""
    reward: Scorer
    """What teaches."""
    judge: Reward | None
    """What never teaches."""
    watchers: Watchers
    """Policy and reference."""
    sampling: SamplingSettings
    """How answers are drawn."""
    questions: Sequence[Question]
    """The held-out prompts."""
    answers: int
    """How many to each."""
    ranks: Ranks
    """This process among its peers."""
    tokens_at_once: int
    """The largest piece."""

    def look(self, pause: Pause) -> Sequence[Metric]:
        """The figures over all ranks, each of which asks its share of the prompts."""
        mine = [question for place, question in enumerate(self.questions) if self._own(place)]
        found: list[Metric] = list(self._figures([], []))
        # A pause asks all ranks: each comes as often as the one with the most prompts.
        for start in range(0, -(-len(self.questions) // self.ranks.world), AT_ONCE):
            pause()
            questions = mine[start : start + AT_ONCE]
            groups = answers_to(questions, self.sampler, self.sampling, n=self.answers)
            found += self._figures(questions, groups)
        together = add_over_ranks(found, self.ranks)
        kl = values_of(together).get("held_out/kl_k3")
        root = () if kl is None else (mean("held_out/kl_root", math.sqrt(max(0.0, float(kl))), 1),)
        return add([*together, *root])

    def sample(self, questions: Sequence[Question], pause: Pause) -> list[Sample]:
        """The likeliest answer to each, with its score."""
        greedy = SamplingSettings(temperature=0, max_tokens=self.sampling.max_tokens, stop=self.sampling.stop)
        pause()
        groups = answers_to(questions, self.sampler, greedy, n=1)
        return [_sample(group) for group in judged(questions, groups, self.reward)]

    def _own(self, place: int) -> bool:
        return place % self.ranks.world == self.ranks.rank

    def _figures(
        self, questions: Sequence[Question], groups: Sequence[Sequence[Rollout]]
    ) -> tuple[Metric, ...]:
        """Sums with their weights; of no prompts too, so that every rank names the same figures."""
        answers = [answer for group in groups for answer in group]
        tokens = sum(answer.answer.tokens for answer in answers)
        found = [_scored("held_out/reward", judged(questions, groups, self.reward))]
        if self.judge is not None:
            found.append(_scored("held_out/judge", judged(questions, groups, self.judge)))
        found += [
            mean("held_out/length_mean", tokens, len(answers)),
            mean("held_out/finished", sum(answer.answer.ended for answer in answers), len(answers)),
            mean("held_out/entropy", -math.fsum(x for one in answers for x in one.whole_logp), tokens),
        ]
        if not isinstance(self.watchers.reference, Nobody):
            found += self._distance(questions, groups)
        return tuple(found)

    def _distance(self, questions: Sequence[Question], groups: Sequence[Sequence[Rollout]]) -> list[Metric]:
        """KL(π ‖ π_ref) of whole answers, by the sum of k1 and by that of k3."""
        examples = [example_of(one, group) for one, group in zip(questions, groups, strict=True)]
        apart = [self._apart(piece) for piece in in_order(examples, self.tokens_at_once)]
        count = sum(len(group) for group in groups)
        sums = [math.fsum(one[which] for one in apart) for which in (0, 1)]
        found = [
            mean(f"held_out/{name}", total, count) for name, total in zip(("kl", "kl_k3"), sums, strict=True)
        ]
        vocabulary = head_of(self.watchers.policy.base).layer.weight.shape[0]
        if isinstance(self.watchers.reference, SaysAll) and vocabulary <= SMALL:
            exact = math.fsum(self._exactly(piece) for piece in in_order(examples, CELLS // vocabulary))
            found.append(mean("held_out/kl_exact", exact, count))
        return found

    def _exactly(self, piece: Sequence[Example]) -> float:
        """Σ over tokens of KL(π ‖ π_ref) of the whole next-token distributions."""
        batch = batch_of(piece).to(self.watchers.policy.device)
        assert isinstance(self.watchers.reference, SaysAll)
        with torch.no_grad(), self.watchers.products():
            own_MV = self.watchers.policy.distributions(batch, temperature=self.watchers.temperature)
        return float(full(own_MV, self.watchers.reference.distributions(batch).to(own_MV.dtype)).sum())

    def _apart(self, piece: Sequence[Example]) -> tuple[float, float]:
        batch = batch_of(piece).to(self.watchers.policy.device)
        with torch.no_grad(), self.watchers.products():
            logp_NT = self.watchers.policy.score(batch, temperature=self.watchers.temperature).logp_NT
        ref_NT: Tensor = self.watchers.reference.logp(piece, batch).to(logp_NT.dtype)
        shift_NT = log_ratio(logp_NT, ref_NT, batch.mask_NT)
        whole = float(of_completion(shift_NT, batch.mask_NT).sum())
        return whole, float(masked_sum(k3(shift_NT), batch.mask_NT))


def _scored(name: str, groups: Sequence[JudgedGroup]) -> Metric:
    scores = [score for group in groups for score in group.scores if score is not None]
    return mean(name, math.fsum(scores), len(scores))


def _sample(group: JudgedGroup) -> Sample:
    [answer], [score] = group.answers, group.scores
    judged_as = "no verdict" if score is None else f"{score:+.3g}"
    cut = "" if answer.answer.ended else " …"
    said = answer.answer.text
    if answer.played is not None:
        said = " / ".join(f"{turn.role}: {turn.text}" for turn in answer.played.turns)
    return Sample(
        prompt=words(group.question.text),
        completion=f"{judged_as}  {said}{cut}",
        expected=group.question.truth,
    )
