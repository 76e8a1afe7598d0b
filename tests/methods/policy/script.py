"""Answers that are known beforehand, who says them and who scores them: for tests of the policy trainer."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from plaudit.data.judging import Task
from plaudit.data.records import Text, plain_text
from plaudit.models.policy import Policy
from plaudit.rewards.base import TaskScores
from plaudit.rollouts.sampler import Answer, Rollout, SamplingSettings, TokenIds
from tests.models.zoo import VOCABULARY

WARM = 1.3
LONGEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    ids: tuple[int, ...]
    score: float | None
    ended: bool


Script = tuple[tuple[tuple[int, ...], tuple[Line, ...]], ...]
"""For each prompt, as tokens, its answers."""


def script(answers: int, groups: int = 5) -> Script:
    """Ragged prompts and answers, some of them cut; the fourth prompt's second answer has no verdict.

    The last line of each is the likeliest answer.
    """
    generator = torch.Generator().manual_seed(7)

    def ids(least: int, most: int) -> tuple[int, ...]:
        length = int(torch.randint(least, most + 1, (1,), generator=generator))
        return tuple(torch.randint(8, VOCABULARY, (length,), generator=generator).tolist())

    def line(group: int, k: int) -> Line:
        score = float(torch.randn((), generator=generator))
        silent = group == 3 and k == 1
        cut = (group + k) % 3 == 1
        own = ids(1, LONGEST - 1)
        return Line(ids=own if cut else (*own, 2), score=None if silent else score, ended=not cut)

    return tuple((ids(1, 6), tuple(line(group, k) for k in range(answers + 1))) for group in range(groups))


def plain_scores(model: PreTrainedModel, prompt: Sequence[int], ids: Sequence[int]) -> Tensor:
    """log π over the vocabulary in front of each token of an answer, from the model's own logits."""
    logits = model(input_ids=torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    return (logits / WARM).log_softmax(-1)


@dataclass(frozen=True)
class Teller:
    """A sampler that says what stands in the script, with the log-probs of a model, or of a policy now."""

    lines: Script
    model: PreTrainedModel
    like: Policy | None = None
    other: PreTrainedModel | None = None
    """The other half of a mixture."""
    share: float = 0.0
    rival: bool = False
    """Whether it says the last line alone, which the others are measured against."""

    version: int = 0

    def refresh(self) -> None:
        """Its script does not move."""

    def generate(
        self, prompts: Sequence[TokenIds], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        if self.like is not None:
            self.model.load_state_dict(self.like.base.state_dict())
        found: list[list[Rollout]] = []
        groups = {prompt: group for group, (prompt, _) in enumerate(self.lines)}
        for prompt in prompts:
            group = groups[tuple(prompt)]
            last = settings.greedy or self.rival
            chosen_ones = [len(self.lines[group][1]) - 1] if last else range(n)
            found.append([self._said(group, k) for k in chosen_ones])
        return found

    def _said(self, group: int, k: int) -> Rollout:
        prompt, lines = self.lines[group]
        with torch.no_grad():
            scores_TV = plain_scores(self.model, prompt, lines[k].ids)
            if self.other is not None:
                other_TV = plain_scores(self.other, prompt, lines[k].ids)
                scores_TV = ((1 - self.share) * scores_TV + self.share * other_TV).log_softmax(-1)
            logp = tuple(scores_TV.gather(-1, torch.tensor(lines[k].ids)[:, None])[:, 0].tolist())
        answer = Answer(text=f"{group}.{k}", tokens=len(logp), ended=lines[k].ended)
        return Rollout(prompt=prompt, ids=lines[k].ids, logp=logp, whole_logp=logp, answer=answer)


@dataclass(frozen=True)
class Reader:
    """A reward that looks the score up in the script."""

    lines: Script
    name: str = "script"

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        def score(answer: Text) -> float | None:
            group, k = map(int, plain_text(answer).split("."))
            return self.lines[group][1][k].score

        return tuple(tuple(score(answer) for answer in task.answers) for task in tasks)
