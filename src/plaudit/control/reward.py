"""Where the policy's reward is from: the truth, or comparisons that are asked while it learns."""

from __future__ import annotations

from collections import Counter
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.control.actor import Episodes
from plaudit.control.clips import Asking, cut_pairs, most_disputed
from plaudit.control.environment import true_reward
from plaudit.control.fitting import Answers, Learner, bootstrap, no_answers
from plaudit.control.judge import Judge
from plaudit.control.taste import TasteSettings


@runtime_checkable
class Source(Protocol):
    """Whatever rewards episodes."""

    def reward(self, episodes: Episodes) -> Float[Tensor, "N T"]:
        """A number for each step; called once in each round."""
        ...


class Truth:
    """The true reward: what the other is measured against.

    Example: ``Truth().reward(episodes)``
    """

    def reward(self, episodes: Episodes) -> Float[Tensor, "N T"]:
        """What each step is worth."""
        return true_reward(episodes.fact_NTF)


class Preferences:
    """Asks a judge about clips of the newest episodes, learns from all the answers, and rewards by that.

    ``counts`` are questions ``asked``, those ``answered``, and the answers that were a ``tie``.

    Example: ``Preferences(Asking(), Judge(), TasteSettings(), rounds=60, seed=0)``
    """

    def __init__(self, asking: Asking, judge: Judge, taste: TasteSettings, *, rounds: int, seed: int) -> None:
        self.asking, self.judge = asking, judge
        self._chance = torch.Generator().manual_seed(seed)
        self.learner = Learner(taste, self._chance)
        self.answers = no_answers(taste.members, asking.clip)
        self.counts = Counter[str]()
        self._schedule = iter(asking.schedule(rounds))

    @torch.no_grad()
    def reward(self, episodes: Episodes) -> Float[Tensor, "N T"]:
        """Ask this round's questions, learn from all answers, and say what each step is worth by them.

        It is the mean over the members, each with mean 0 and deviation 1 over all clips that were compared.
        Before there is any answer every step is worth 0.
        """
        if questions := next(self._schedule):
            self._ask(self._pairs(episodes.fact_NTF, questions))
        if not len(self.answers):
            return torch.zeros_like(episodes.value_NT)
        self.learner.fit(self.answers)
        return self.learner.taste.normalised(episodes.fact_NTF, self.answers.pair_2BCF).mean(0)

    def _pairs(self, fact_NTF: Tensor, count: int) -> Tensor:
        # Networks that have learnt nothing yet disagree about nothing in particular.
        choosy = self.asking.queries == "disagreement" and len(self.answers) > 0
        looked_at = count * self.asking.candidates if choosy else count
        pair_2BCF = cut_pairs(fact_NTF, looked_at, self.asking.clip, self._chance)
        return most_disputed(pair_2BCF, self.learner.taste, count) if choosy else pair_2BCF

    def _ask(self, pair_2BCF: Tensor) -> None:
        verdicts = self.judge.answer(pair_2BCF[0], pair_2BCF[1], self._chance)
        label_B = verdicts.label_B[verdicts.told_B]
        self.counts.update(asked=len(verdicts.told_B), answered=len(label_B), tie=int((label_B == 0.5).sum()))
        weight_EB = bootstrap(len(self.answers.weight_EB), len(label_B), self._chance)
        new = Answers(pair_2BCF=pair_2BCF[:, verdicts.told_B], label_B=label_B, weight_EB=weight_EB)
        self.answers = self.answers.plus(new)
