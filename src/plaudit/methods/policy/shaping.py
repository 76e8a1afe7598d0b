"""Scores of completions and steps on their way to rewards at tokens, and which completions stay in the loss.

Scores of N completions are charged for length and for not ending, clipped, and divided by one running unit. A
score that is not a number is no verdict and stays one. A process reward scores each step of a completion and
is paid at that step's last token; algorithms that cannot learn from such payments are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from plaudit.engine.step_report import Number
from plaudit.errors import UserError
from plaudit.methods.policy.algorithms import POLICY_ALGORITHMS
from plaudit.methods.policy.cells import cell_name
from plaudit.methods.policy.config import PolicyConfig, ShapeSettings
from plaudit.methods.policy.row import PolicyAlgorithm
from plaudit.rewards.base import Reward
from plaudit.rewards.combine.aggregate import RunningScale
from plaudit.rewards.learned.process import ProcessReward, StepPayRule, StepScoringReward, step_ends
from plaudit.rewards.learned.scalar import LearnedReward
from plaudit.rewards.registry import UserFunctionReward, resolve_reward
from plaudit.tensors.masked import last_token_mask
from plaudit.tokens.batch import TokenBatch
from plaudit.tokens.encode import Encoder


def replace_unfinished(
    score_N: Float[Tensor, " N"], finished_N: Bool[Tensor, " N"], *, score: int | float = -1.0
) -> Float[Tensor, " N"]:
    """This score in place of its own for what did not end by itself.
    The end-of-text trick: a reward model was taught nothing about answers that break off, so what it says of
    them is not used. Ziegler et al. 2019 (lm-human-preferences), arXiv:1909.08593, with −1.

    >>> replace_unfinished(torch.tensor([2.0, 3.0]), torch.tensor([True, False]))
    tensor([ 2., -1.])
    """
    # A choice and no product with the mask: 0 · NaN would be NaN where the replaced score is no number.
    return torch.where(finished_N, score_N, torch.full_like(score_N, score))


def soft_overlong(length_N: Int[Tensor, " N"], *, longest: int, cache: int) -> Float[Tensor, " N"]:
    """0 up to L_max − L_cache, then ((L_max − L_cache) − L) / L_cache, and −1 beyond L_max; to be added.
    Yu et al. 2025 (DAPO), arXiv:2503.14476, equation 13."""
    if not 0 < cache <= longest:
        raise UserError(f"soft overlong punishment: cache {cache} of longest {longest}; 0 < cache ≤ longest")
    return ((longest - cache - length_N) / cache).clamp(-1.0, 0.0)


def overlong_filter_mask(
    finished_N: Bool[Tensor, " N"], length_N: Int[Tensor, " N"], *, longest: int
) -> Bool[Tensor, " N"]:
    """Which completions stay in the loss: those that ended by themselves within the longest length.

    Overlong filtering: a good solution that was cut is no bad one, and a punishment for it is noise. Yu et
    al. 2025 (DAPO), arXiv:2503.14476, section 3.4.

    >>> overlong_filter_mask(torch.tensor([True, False, True]), torch.tensor([9, 9, 12]), longest=10)
    tensor([ True, False, False])
    """
    return finished_N & (length_N <= longest)


def clipped(score_N: Float[Tensor, " N"], *, low: int | float, high: int | float) -> Float[Tensor, " N"]:
    """min(max(r, low), high): one outlier does not decide a batch.
    Engstrom et al. 2020, arXiv:2005.12729, find it among the unwritten parts of PPO."""
    if not low < high:
        raise UserError(f"clipping from {low} to {high}; the first number is the smaller one")
    # clamp leaves NaN as it is: no verdict does not become the lowest score.
    return score_N.clamp(low, high)


def length_penalty(
    length_N: Int[Tensor, " N"], *, per_token: int | float, free: int = 0
) -> Float[Tensor, " N"]:
    """−c · max(0, L − free); to be added.
    The plainest remedy for a reward that likes length (Singhal et al. 2023, arXiv:2310.03716)."""
    if not per_token >= 0:
        raise UserError(f"a length penalty of {per_token} a token would reward length; 0 or more")
    return -per_token * (length_N - free).clamp(min=0).to(torch.get_default_dtype())


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreShape:
    missing_end: int | float | None = None
    """The score of a truncated completion, in place of its own."""
    soft_overlong: int = 0
    """Tokens below the maximum length from which a completion is penalised, up to −1."""
    drop_truncated: bool = False
    per_token: int | float = 0.0
    low: int | float | None = None
    high: int | float | None = None
    scale: bool = False
    """Whether scores are divided by their running standard deviation."""


class ScoreShaper:
    """Shapes the scores of each round; stateful, since it keeps their running scale."""

    def __init__(self, shape: ScoreShape, longest: int) -> None:
        """``longest`` is the most tokens that an answer may have in the first round."""
        self._settings, self._max_tokens = shape, longest
        self.longest = longest
        """The most tokens that an answer of this round may have; what is too long grows along with it."""
        # Scale without shift: the zeros at tokens that pay nothing have to stay zeros (shape_payments).
        self._scale = RunningScale(shift=False) if shape.scale else None

    @classmethod
    def of(cls, algorithm: PolicyAlgorithm, shape: ShapeSettings, longest: int) -> "ScoreShaper":
        settings = ScoreShape(
            missing_end=algorithm.missing_eos_penalty,
            soft_overlong=round(algorithm.overlong_buffer * longest),
            drop_truncated=algorithm.overlong_filtering,
            per_token=shape.per_token,
            low=shape.low,
            high=shape.high,
            scale=shape.scale,
        )
        return cls(settings, longest)

    def shape(self, score_N: Float[Tensor, " N"], batch: TokenBatch, *, counted: int) -> Float[Tensor, " N"]:
        """Cut answers first, then costs of length, then limits, then the scale, which takes the first in."""
        settings, length_N = self._settings, batch.mask_NT.sum(-1)
        if settings.missing_end is not None:
            score_N = replace_unfinished(score_N, batch.finished_N, score=settings.missing_end)
        if settings.soft_overlong:
            cache = round(settings.soft_overlong * self.longest / self._max_tokens)
            score_N = score_N + soft_overlong(length_N, longest=self.longest, cache=cache).to(score_N.dtype)
        if settings.per_token:
            score_N = score_N + length_penalty(length_N, per_token=settings.per_token).to(score_N.dtype)
        if settings.low is not None or settings.high is not None:
            low = -torch.inf if settings.low is None else settings.low
            score_N = clipped(score_N, low=low, high=torch.inf if settings.high is None else settings.high)
        if self._scale is not None:
            # Each score once: those of rivals and of answers that come again have no part in the unit.
            self._scale.update(score_N[:counted])
            score_N = self._scale.normalise(score_N)
        return score_N

    def shape_payments(
        self, paid_NT: Float[Tensor, "N T"], end_NT: Bool[Tensor, "N T"], finished_N: Bool[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N T"], Bool[Tensor, "N T"]]:
        """Payments before the last token, in the unit of the scores; without them where a score is replaced.
        Whatever else is done to the score of an answer is done at its last token."""
        if self._settings.missing_end is not None:
            # The whole score of a cut answer was replaced, so the pay of its earlier steps goes with it;
            # its last place stays, since the replaced score is paid there.
            early_NT = end_NT & ~finished_N[:, None] & ~last_token_mask(end_NT)
            paid_NT, end_NT = paid_NT.masked_fill(early_NT, 0.0), end_NT & ~early_NT
        if self._scale is not None:
            paid_NT = self._scale.normalise(paid_NT.flatten()).view_as(paid_NT)
        return paid_NT, end_NT

    def loss_mask(self, finished_N: Bool[Tensor, " N"]) -> Bool[Tensor, " N"]:
        return finished_N if self._settings.drop_truncated else torch.ones_like(finished_N)

    def after_step(self, step: int, metrics: Mapping[str, Number]) -> None:
        """Does nothing: the scale is updated when a round begins."""
        del step, metrics

    def tensors(self) -> Mapping[str, Tensor]:
        return {"none": torch.zeros(1)} if self._scale is None else self._scale.tensors()

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        if self._scale is not None:
            self._scale.load_tensors(tensors)


def make_reward(config: PolicyConfig, encoder: Encoder, device: str) -> Reward | ProcessReward:
    """The run's reward; with process rewards, the reward of steps and of the outcome together."""
    assert config.reward is not None
    process, reward = config.process, resolve_reward(config.reward, device=device)
    if process.pay == "no":
        return reward
    step_reward = reward if process.by is None else resolve_reward(process.by, device=device)
    return ProcessReward(
        process_reward=_require_step_scores(
            step_reward, "reward" if process.by is None else "process.by", odds=process.pay == "odds"
        ),
        tariff=StepPayRule(pay=process.pay, baseline=process.baseline, weight=process.weight),
        step_ends=partial(step_ends, encoder=encoder),
        outcome_reward=None if process.by is None else reward,
    )


def refuse_process_conflicts(algorithm: PolicyAlgorithm, config: PolicyConfig) -> None:
    """Raise for process rewards that cannot be given, or would teach something else than what is meant."""
    process = config.process
    if process.pay == "no":
        return
    if config.environment is not None:
        raise UserError(
            "process.pay: an episode of an environment is paid at its end; let the environment's outcome say "
            "what its turns are worth, or leave it out"
        )
    if process.by is not None and process.by == config.reward:
        raise UserError(
            "process.by and --reward are the same: leave out --process.by, and --reward scores steps"
        )
    if cell_name("advantage", algorithm) == "group-z" and not process.adds_up:
        raise UserError(
            f"process.pay {process.pay}: {algorithm.name} measures a step against the mean step of its "
            "group, and a change is large at first and small later, so an answer would be better the fewer "
            "steps it has. Use --process.pay score, or compare whole answers with --advantage group-mean"
        )


def process_notes(algorithm: PolicyAlgorithm, config: PolicyConfig) -> list[str]:
    process = config.process
    if process.pay == "no" or algorithm.name not in POLICY_ALGORITHMS:
        return []
    less = f", less {process.baseline:g}" if process.baseline else ""
    notes = [f"process reward: every step is paid at its last token, by its {process.pay}{less}"]
    advantage = cell_name("advantage", algorithm)
    if "token_rewards" not in algorithm.needs:
        notes.append(
            f"{advantage} compares whole answers: each has the sum of its payments at all of its tokens"
        )
    if process.adds_up and advantage != "group-z":
        notes.append(
            f"payments by {process.pay} add up, so each further step that scores above "
            f"{process.baseline:g} is worth more: raise --process.baseline, or pay changes "
            "(--process.pay min), which no further step can raise. docs/policy.md#process-rewards"
        )
    return notes


def _require_step_scores(reward: Reward, setting: str, *, odds: bool) -> StepScoringReward:
    if isinstance(reward, LearnedReward):
        raise UserError(
            f"{setting} {reward.name}: this model scores whole answers. If it learned from steps, make it a "
            "process reward first: plaudit combine steps DIR --out FOLDER"
        )
    if not isinstance(reward, StepScoringReward):
        raise UserError(
            f"{setting} {reward.name} gives no score of a step. A process reward model's folder does "
            "(plaudit combine steps), and a function that returns a list with a number for each step"
        )
    if odds and isinstance(reward, UserFunctionReward):
        raise UserError(
            f"process.pay odds: of a function's numbers no log-odds are known; let {reward.name} give them, "
            "and use --process.pay score"
        )
    return reward
