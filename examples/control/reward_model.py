"""An ensemble of small reward networks that learns from a simulated judge's comparisons of short clips.

Clips are cut from episodes, the most disputed pairs are asked about, and the judge knows the true reward but
errs. P(first is better) is the softmax of the sums of a member's reward over both clips, and in ``noise`` of
the answers a coin. Every comparison gets a weight for every member, drawn once from a Poisson distribution of
mean 1: a bootstrap that more comparisons can be added to. Where the weight is 0, in 1/e of the cases, the
comparison is held out of that member; the weight decay adapts to this held-out loss. Christiano et al. 2017,
arXiv:1706.03741.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from examples.control.pendulum import FEATURE_SIZE, Episodes, true_reward
from plaudit.errors import UserError
from plaudit.losses.reward import bradley_terry


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardEnsembleSettings:
    members: int = 3
    """E: networks that learn the same from different weights."""
    width: int = 64
    noise: float = 0.1
    """Share of the answers that the loss takes for the toss of a coin."""
    learning_rate: float = 2e-3
    batch: int = 64
    steps: int = 20
    first_steps: int = 200
    """Steps of the first round, in which everything is new."""
    decay: float = 1e-4
    """Weight of the squared parameters at first; then each member's own adapts."""

    def __post_init__(self) -> None:
        if self.members < 2:
            raise UserError(f"{self.members} members cannot disagree; give 2 or more")
        if not 0 <= self.noise < 1:
            raise UserError(f"noise {self.noise} is no share of the answers; give 0 or more, and less than 1")


class RewardEnsemble(nn.Module):
    """E reward networks side by side: from a step's features to each member's reward."""

    def __init__(self, settings: RewardEnsembleSettings, generator: torch.Generator) -> None:
        super().__init__()
        sizes = (FEATURE_SIZE, settings.width, settings.width, 1)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for into, out in pairwise(sizes):
            # Variance 1/into: a layer hands on about the spread that it is given.
            weight_Eio = torch.randn(settings.members, into, out, generator=generator) * into**-0.5
            self.weights.append(nn.Parameter(weight_Eio))
            self.biases.append(nn.Parameter(torch.zeros(settings.members, 1, out)))

    def forward(self, feature_NF: Float[Tensor, "*N F"]) -> Float[Tensor, " E *N"]:
        """Every member's reward of every step, as it is: its level and its scale mean nothing."""
        x_ENH = feature_NF.reshape(1, -1, feature_NF.shape[-1]).expand(len(self.weights[0]), -1, -1)
        for layer, (weight_Eio, bias_E1o) in enumerate(zip(self.weights, self.biases, strict=True)):
            # All members in one product, [E, N, i] @ [E, i, o]; a network each would be as many small ones.
            x_ENH = torch.baddbmm(bias_E1o, leaky_relu(x_ENH) if layer else x_ENH, weight_Eio)
        return x_ENH.reshape(-1, *feature_NF.shape[:-1])

    def normalised(
        self, feature_NF: Float[Tensor, "*N F"], reference_MF: Float[Tensor, "*M F"]
    ) -> Float[Tensor, " E *N"]:
        """The same with mean 0 and deviation 1 over the steps of ``reference_MF``, for each member alone."""
        reward_EM = self(reference_MF).flatten(1)
        # A member that says the same of every step would be divided by 0.
        mean_E, deviation_E = reward_EM.mean(1), reward_EM.std(1).clamp(min=1e-6)
        reward_EN = self(feature_NF)
        shape = (-1, *[1] * (reward_EN.ndim - 1))
        return (reward_EN - mean_E.reshape(shape)) / deviation_E.reshape(shape)

    def squared_norm_E(self) -> Float[Tensor, " E"]:
        return torch.stack([part.square().sum((1, 2)) for part in self.parameters()]).sum(0)


DECAY_FACTOR = 1.5
"""What a member's decay is multiplied with or divided by, once after each fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledClips:
    """Answered comparisons of clips, with each ensemble member's bootstrap weights."""

    pair_2BCF: Float[Tensor, "2 B C F"]
    label_B: Float[Tensor, " B"]
    """1: the first is better; 0: the second; ½: both are as good."""
    weight_EB: Float[Tensor, "E B"]
    """How often each member sees it; 0: held out."""

    def __len__(self) -> int:
        return len(self.label_B)

    def plus(self, other: LabelledClips) -> LabelledClips:
        return LabelledClips(
            pair_2BCF=torch.cat((self.pair_2BCF, other.pair_2BCF), 1),
            label_B=torch.cat((self.label_B, other.label_B)),
            weight_EB=torch.cat((self.weight_EB, other.weight_EB), 1),
        )

    def select(self, place_b: Int[Tensor, " b"]) -> LabelledClips:
        return LabelledClips(
            pair_2BCF=self.pair_2BCF[:, place_b],
            label_B=self.label_B[place_b],
            weight_EB=self.weight_EB[:, place_b],
        )


def no_labelled_clips(members: int, clip: int) -> LabelledClips:
    pair_2BCF = torch.zeros(2, 0, clip, FEATURE_SIZE)
    return LabelledClips(pair_2BCF=pair_2BCF, label_B=torch.zeros(0), weight_EB=torch.zeros(members, 0))


def bootstrap_weights(members: int, comparisons: int, generator: torch.Generator) -> Float[Tensor, "E B"]:
    """How often each member sees each comparison: Poisson of mean 1, independent of how many will come.

    >>> bootstrap_weights(3, 1000, torch.Generator().manual_seed(0)).mean().round().item()
    1.0
    """
    return torch.poisson(torch.ones(members, comparisons), generator=generator)


def comparison_losses(
    ensemble: RewardEnsemble, labelled: LabelledClips, noise: int | float
) -> Float[Tensor, "E B"]:
    first_EB, second_EB = ensemble(labelled.pair_2BCF).sum(-1).unbind(1)
    label_EB = labelled.label_B.expand_as(first_EB)
    return bradley_terry(first_EB, second_EB, label=label_EB, noise=noise)


class EnsembleTrainer:
    """Trains the ensemble: networks, optimiser and each member's weight decay."""

    def __init__(self, settings: RewardEnsembleSettings, generator: torch.Generator) -> None:
        self._has_fitted = False
        self.settings, self.ensemble, self._generator = (
            settings,
            RewardEnsemble(settings, generator),
            generator,
        )
        self.decay_E = torch.full((settings.members,), settings.decay)
        self.held_out_ratio_E = torch.ones(settings.members)
        self._optimizer = torch.optim.Adam(self.ensemble.parameters(), lr=settings.learning_rate)

    @torch.enable_grad()
    def fit(self, labelled: LabelledClips) -> None:
        """Some steps of gradient descent on these answers, more at the first time; then the decay anew."""
        for _ in range(self.settings.steps if self._has_fitted else self.settings.first_steps):
            # With replacement: not the batches but the bootstrap weights say which member sees what.
            place_b = torch.randint(len(labelled), (self.settings.batch,), generator=self._generator)
            batch = labelled.select(place_b)
            loss_EB = comparison_losses(self.ensemble, batch, self.settings.noise)
            # A small batch may weigh 0 altogether for a member.
            weight_sum_E = batch.weight_EB.sum(1).clamp(min=1)
            loss_E = (batch.weight_EB * loss_EB).sum(
                1
            ) / weight_sum_E + self.decay_E * self.ensemble.squared_norm_E()
            self._optimizer.zero_grad()
            # A sum and no mean: members share no parameter, and each has its own whole gradient.
            loss_E.sum().backward()
            self._optimizer.step()
        self._has_fitted = True
        self._adapt(labelled)

    @torch.no_grad()
    def _adapt(self, labelled: LabelledClips) -> None:
        """More decay where held-out answers lose over 1.5 times what seen ones do, less below 1.1 times."""
        self.held_out_ratio_E = _held_out_ratio(
            comparison_losses(self.ensemble, labelled, self.settings.noise), labelled.weight_EB
        )
        factor_E = torch.ones_like(self.held_out_ratio_E)
        factor_E[self.held_out_ratio_E > 1.5] = DECAY_FACTOR
        factor_E[self.held_out_ratio_E < 1.1] = 1 / DECAY_FACTOR
        self.decay_E = (self.decay_E * factor_E).clamp(min=1e-7, max=1e-1)


def _held_out_ratio(loss_EB: Tensor, weight_EB: Tensor) -> Tensor:
    """Held-out loss over trained loss for each member; 1.3, which changes nothing, if one of them is
    missing.
    """
    held_out_EB = (weight_EB == 0).to(loss_EB.dtype)
    held_out_loss_E, trained_loss_E = (
        (w_EB * loss_EB).sum(1) / w_EB.sum(1) for w_EB in (held_out_EB, weight_EB)
    )
    return (held_out_loss_E / trained_loss_E).nan_to_num(nan=1.3)


QUERIES = ("disagreement", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """How many comparisons are requested, when, and how the pairs are selected."""

    comparisons: int = 1000
    queries: str = "disagreement"
    """Ask where the ensemble disagrees most, or about any pair."""
    first: float = 0.25
    """Share of the questions that is asked before the policy has learnt anything."""
    half: float = 15.0
    """The round at which questions come half as fast as in the beginning."""
    candidates: int = 10
    clip: int = 20
    """C: steps of a clip."""

    def __post_init__(self) -> None:
        if self.comparisons < 2:
            raise UserError(f"{self.comparisons} comparisons: nothing can be learnt from fewer than 2")
        if self.queries not in QUERIES:
            raise UserError(f"queries {self.queries!r}: there are {' and '.join(QUERIES)}")
        if not 0 < self.first <= 1 or self.half <= 0 or self.candidates < 1 or self.clip < 1:
            raise UserError("first is a share above 0; half, candidates and clip are above 0")

    def schedule(self, rounds: int) -> list[int]:
        """How many are asked in each round: ``first`` at once, the rest in proportion to half / (half + t).

        >>> QuerySettings(comparisons=100, first=0.5, half=1.0).schedule(3)
        [77, 14, 9]
        """
        rate_R = self.half / (self.half + torch.arange(rounds, dtype=torch.float64))
        share_R = self.first + (1 - self.first) * rate_R.cumsum(0) / rate_R.sum()
        # Rounding the running sum keeps the total exact, which rounding every round would not.
        until_R = (self.comparisons * share_R).round().long()
        return until_R.diff(prepend=until_R.new_zeros(1)).tolist()


def sample_clip_pairs(
    feature_NTF: Float[Tensor, "N T F"], pairs: int, length: int, generator: torch.Generator
) -> Float[Tensor, "2 B C F"]:
    """Pairs of clips from anywhere in these episodes."""
    copies, steps, _ = feature_NTF.shape
    if length > steps:
        raise UserError(f"a clip of {length} steps is longer than an episode of {steps}")
    copy_2B1 = torch.randint(copies, (2, pairs, 1), generator=generator)
    start_2B1 = torch.randint(steps - length + 1, (2, pairs, 1), generator=generator)
    # [2, B, 1] and [2, B, C] broadcast to whole clips, [2, B, C, F].
    return feature_NTF[copy_2B1, start_2B1 + torch.arange(length)]


@torch.no_grad()
def most_disputed_pairs(
    pair_2BCF: Float[Tensor, "2 B C F"], ensemble: RewardEnsemble, count: int
) -> Float[Tensor, "2 b C F"]:
    """The pairs over which the members' P(first is better) varies most."""
    first_EB, second_EB = ensemble(pair_2BCF).sum(-1).unbind(1)
    # Of P and not of the reward: members may differ in scale and agree about every pair.
    spread_B = (first_EB - second_EB).sigmoid().var(0)
    return pair_2BCF[:, spread_B.topk(count).indices]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipJudge:
    wrong: float = 0.1
    """Share of the clear cases in which the worse clip is called better."""
    tie: float = 0.5
    """Sums of the true reward that are no farther apart are as good as each other."""
    silent: float = 0.05
    """Share of the questions that get no answer: the two cannot be compared."""

    def __post_init__(self) -> None:
        for name, share in (("wrong", self.wrong), ("silent", self.silent)):
            if not 0 <= share < 1:
                raise UserError(f"{name} {share} is no share of the answers; give 0 or more, and less than 1")
        if not self.tie >= 0:
            raise UserError(f"tie {self.tie}: two sums cannot be closer than 0; give 0 or more")

    def answer(
        self,
        first_BCF: Float[Tensor, "B C F"],
        second_BCF: Float[Tensor, "B C F"],
        generator: torch.Generator,
    ) -> ClipVerdicts:
        """Compare the sums of the true reward over both clips of each question.

        >>> good, bad = torch.tensor([[[1.0, 0, 0, 0]]]), torch.tensor([[[-1.0, 0, 0, 0]]])
        >>> sure, chance = ClipJudge(wrong=0.0, silent=0.0), torch.Generator()
        >>> sure.answer(good, bad, chance).label_B, sure.answer(bad, bad, chance).label_B
        (tensor([1.]), tensor([0.5000]))
        """
        gap_B = true_reward(first_BCF).sum(-1) - true_reward(second_BCF).sum(-1)
        error_draw_B, silence_draw_B = torch.rand(2, len(gap_B), generator=generator)
        right_B = (gap_B > 0).to(gap_B.dtype)
        label_B = torch.where(error_draw_B < self.wrong, 1 - right_B, right_B)
        return ClipVerdicts(
            # After errors: nobody mistakes two clips of the same worth for unequal ones.
            label_B=label_B.masked_fill(gap_B.abs() <= self.tie, 0.5),
            answered_B=silence_draw_B >= self.silent,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipVerdicts:
    label_B: Float[Tensor, " B"]
    answered_B: Bool[Tensor, " B"]
    """False where the judge gave no answer; such a query teaches nothing."""


@runtime_checkable
class RewardSource(Protocol):
    """Gives episodes their reward: the true one, or a learned one."""

    def reward(self, episodes: Episodes) -> Float[Tensor, "N T"]: ...


class TrueReward:
    """The true reward: the upper baseline that the learned one is measured against."""

    def reward(self, episodes: Episodes) -> Float[Tensor, "N T"]:
        return true_reward(episodes.feature_NTF)


class PreferenceReward:
    """A learned reward: queries a judge about clips of the newest episodes and fits an ensemble to all
    answers.

    ``counts`` are questions ``asked``, those ``answered``, and the answers that were a ``tie``.
    """

    def __init__(
        self,
        asking: QuerySettings,
        judge: ClipJudge,
        taste: RewardEnsembleSettings,
        *,
        rounds: int,
        seed: int,
    ) -> None:
        self.asking, self.judge = asking, judge
        self._generator = torch.Generator().manual_seed(seed)
        self.trainer = EnsembleTrainer(taste, self._generator)
        self.answers = no_labelled_clips(taste.members, asking.clip)
        self.counts = Counter[str]()
        self._schedule = iter(asking.schedule(rounds))

    @torch.no_grad()
    def reward(self, episodes: Episodes) -> Float[Tensor, "N T"]:
        """Ask this round's questions, learn from all answers, and say what each step is worth by them.

        It is the mean over the members, each with mean 0 and deviation 1 over all clips that were compared.
        Before there is any answer every step is worth 0.
        """
        if questions := next(self._schedule):
            self._query_judge(self._clip_pairs(episodes.feature_NTF, questions))
        if not len(self.answers):
            return torch.zeros_like(episodes.value_NT)
        self.trainer.fit(self.answers)
        # Each on one scale first, or the member with the largest numbers would speak for all.
        return self.trainer.ensemble.normalised(episodes.feature_NTF, self.answers.pair_2BCF).mean(0)

    def _clip_pairs(self, feature_NTF: Tensor, count: int) -> Tensor:
        # Networks that have learnt nothing yet disagree about nothing in particular.
        by_disagreement = self.asking.queries == "disagreement" and len(self.answers) > 0
        candidates = count * self.asking.candidates if by_disagreement else count
        pair_2BCF = sample_clip_pairs(feature_NTF, candidates, self.asking.clip, self._generator)
        return most_disputed_pairs(pair_2BCF, self.trainer.ensemble, count) if by_disagreement else pair_2BCF

    def _query_judge(self, pair_2BCF: Tensor) -> None:
        verdicts = self.judge.answer(pair_2BCF[0], pair_2BCF[1], self._generator)
        label_B = verdicts.label_B[verdicts.answered_B]
        self.counts.update(
            asked=len(verdicts.answered_B), answered=len(label_B), tie=int((label_B == 0.5).sum())
        )
        weight_EB = bootstrap_weights(len(self.answers.weight_EB), len(label_B), self._generator)
        new = LabelledClips(pair_2BCF=pair_2BCF[:, verdicts.answered_B], label_B=label_B, weight_EB=weight_EB)
        self.answers = self.answers.plus(new)
