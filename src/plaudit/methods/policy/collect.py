"""From prompts to scored rollouts, over all ranks: generate, score, and resample groups without signal.

State from earlier rounds is kept here: pass rates of prompts (curriculum) and groups to replay.
"""

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.advantages.temporal import step_rewards
from plaudit.engine.distributed import Ranks
from plaudit.errors import UserError
from plaudit.rewards.base import Reward, TaskScores, refusal_counts
from plaudit.rewards.combine.cascade import HasScoreParts, ScoresWithParts
from plaudit.rewards.learned.process import ProcessReward, StepPayments
from plaudit.rollouts.environment import Environment
from plaudit.rollouts.episodes import EpisodeSampler
from plaudit.rollouts.sampler import (
    GenerationPrompt,
    Rollout,
    Sampler,
    SamplingSettings,
    rollout_from_json,
    rollout_to_json,
)
from plaudit.tensors.masked import last_token_mask
from plaudit.tokens.prompts import EncodedPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeReward:
    """The reward of episodes, as scored by the environment that they were played in."""

    name: str
    environment: Environment

    def parted(self, groups: Sequence[Sequence[Rollout]]) -> ScoresWithParts:
        outcomes = [
            [rollout.played.outcome for rollout in group if rollout.played is not None] for group in groups
        ]
        names = dict.fromkeys(name for group in outcomes for rollout in group for name in rollout.parts)
        return ScoresWithParts(
            rows=tuple(tuple(_as_float(rollout.score) for rollout in group) for group in outcomes),
            parts={
                name: tuple(tuple(_as_float(each.parts.get(name)) for each in group) for group in outcomes)
                for name in names
            },
        )


@runtime_checkable
class EachSampler(Protocol):
    """A sampler that hands over the answers to each prompt once they are there."""

    def generate_each(
        self, prompts: Sequence[GenerationPrompt], settings: SamplingSettings, *, n: int = 1
    ) -> Generator[list[Rollout]]:
        """As `generate`, one prompt after the other; closed early, it asks nothing more."""
        ...


RewardSource = Reward | EpisodeReward | ProcessReward
RolloutSampler = Sampler | EpisodeSampler


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """The rollouts of one prompt with their scores.
    Example: ``score_groups(questions, groups, reward)[0].scores``."""

    prompt: EncodedPrompt
    rollouts: tuple[Rollout, ...]
    scores: TaskScores
    parts: Mapping[str, TaskScores] = field(default_factory=dict[str, TaskScores])
    """What the scores are made of, where the reward keeps that."""
    steps: tuple[StepPayments | None, ...] = ()
    """The payments of each completion's steps, which add up to its score; empty without a process reward."""

    @property
    def tokens(self) -> int:
        """How many tokens its forward pass has."""
        return len(self.prompt.prompt) + sum(len(rollout.ids) for rollout in self.rollouts)

    @property
    def step_payments(self) -> tuple[StepPayments | None, ...]:
        return self.steps or (None,) * len(self.rollouts)

    def select(self, keep_mask: Sequence[bool]) -> "ScoredGroup":
        indices = [k for k, keep in enumerate(keep_mask) if keep]
        return replace(
            self,
            rollouts=tuple(self.rollouts[k] for k in indices),
            scores=tuple(self.scores[k] for k in indices),
            parts={name: tuple(row[k] for k in indices) for name, row in self.parts.items()},
            steps=tuple(self.steps[k] for k in indices) if self.steps else (),
        )

    def scored_only(self) -> "ScoredGroup":
        return self.select([score is not None for score in self.scores])


def generate_completions(
    prompts: Sequence[EncodedPrompt], sampler: RolloutSampler, settings: SamplingSettings, *, n: int
) -> list[list[Rollout]]:
    if isinstance(sampler, EpisodeSampler):
        return sampler.play(prompts, settings, n=n)
    return sampler.generate([prompt.shown for prompt in prompts], settings, n=n)


def score_groups(
    prompts: Sequence[EncodedPrompt], groups: Sequence[Sequence[Rollout]], reward: RewardSource
) -> list[ScoredGroup]:
    """Every group with its scores; a reward that says nothing sensible is refused."""
    tasks = [
        prompt.task((rollout.answer.text, rollout.answer.ended) for rollout in group)
        for prompt, group in zip(prompts, groups, strict=True)
    ]
    steps: Sequence[tuple[StepPayments | None, ...]] = ((),) * len(tasks)
    if isinstance(reward, EpisodeReward):
        parted = reward.parted(groups)
        rows = parted.rows
    elif isinstance(reward, ProcessReward):
        parted, steps = reward.score_steps(tasks, groups)
        rows = parted.rows
    else:
        # A rank may have no prompts, and a reward is asked about some or not at all.
        parted = reward.scores_with_parts(tasks) if tasks and isinstance(reward, HasScoreParts) else None
        rows = (reward.scores(tasks) if parted is None else parted.rows) if tasks else ()
    if len(rows) != len(tasks):
        raise UserError(f"{reward.name} was asked about {len(tasks)} prompts and answered {len(rows)}")
    parts = {} if parted is None else parted.parts
    scored: list[ScoredGroup] = []
    for index, (prompt, group, row) in enumerate(zip(prompts, groups, rows, strict=True)):
        _check_scores(prompt, group, row, reward.name)
        of_group = {name: part[index] for name, part in parts.items()}
        scored.append(
            ScoredGroup(prompt=prompt, rollouts=tuple(group), scores=row, parts=of_group, steps=steps[index])
        )
    return scored


def _check_scores(prompt: EncodedPrompt, answers: Sequence[Rollout], row: TaskScores, name: str) -> None:
    where = prompt.origin or repr(str(prompt.text)[:40])
    if len(row) != len(answers):
        raise UserError(f"{name} gave {len(row)} scores for the {len(answers)} answers to {where}")
    for answer, score in zip(answers, row, strict=True):
        if score is not None and not math.isfinite(score):
            raise UserError(
                f"{name} gave {score} for {answer.answer.text[:40]!r}, an answer to {where}; a score is a "
                "finite number, or None for no verdict"
            )


def _as_float(value: int | float | None) -> float | None:
    return None if value is None else float(value)


ROUND_SEED_STRIDE = 1_000_003
"""Seeds of rounds lie so far apart that those of two runs do not meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedRollouts:
    """The scored rollouts of one round, with counts of what was left out.
    Example: ``collector.collect(questions, round_number=3)``."""

    groups: tuple[ScoredGroup, ...]
    """Prompts with the answers that have a verdict; none is empty."""
    rivals: tuple[ScoredGroup, ...]
    """For each group the one answer that it is only measured against; empty where there is none."""
    scores_are_probabilities: bool = False
    """Whether each score is the chance of being preferred to that answer."""
    generated: int
    """Completions that were generated, those of rivals left out."""
    no_verdict: int
    zero_std: int
    all_groups: tuple[ScoredGroup, ...]
    """All groups that were generated, also those that were dropped."""
    replayed: tuple[ScoredGroup, ...] = ()

    @property
    def new_completions(self) -> int:
        return sum(len(group.rollouts) for group in self.groups)

    @property
    def scores(self) -> Float[Tensor, " N"]:
        """The score of every answer, new ones first, one behind the other."""
        scores = [score for group in (*self.groups, *self.replayed) for score in group.scores]
        # Rewards are Python floats; they keep all their bits until they meet log-probs.
        return torch.tensor(scores, dtype=torch.float64)


def step_payments(
    collected: CollectedRollouts, mask_NT: Bool[Tensor, "N T"], dtype: torch.dtype
) -> tuple[Float[Tensor, "N T"], Bool[Tensor, "N T"]]:
    """The payments of steps before the last, at their last tokens, and the mask of tokens that end a step.
    An answer that is not paid step by step is a single one."""
    last_NT = last_token_mask(mask_NT)
    payments = [paid for group in (*collected.groups, *collected.replayed) for paid in group.step_payments]
    # An answer ends at its last token even where no step does. Steps that end within one token are merged,
    # so that there are at most T of them, and T columns hold all.
    end_NT, score_NS = last_NT.clone(), torch.zeros(mask_NT.shape, dtype=dtype)
    for n, completion_paid in enumerate(payments):
        for index, (end, amount) in enumerate(_payment_by_token(completion_paid).items()):
            end_NT[n, end], score_NS[n, index] = True, amount
    # Not at the last token: it is paid the shaped score less all of this (final_payment_N).
    return step_rewards(score_NS, end_NT).masked_fill(last_NT, 0.0), end_NT


def _payment_by_token(paid: StepPayments | None) -> Mapping[int, float]:
    amount_by_token: defaultdict[int, float] = defaultdict(float)
    for end, amount in () if paid is None else zip(paid.ends, paid.paid, strict=True):
        # A token may hold the end of two short steps; it is paid for both.
        amount_by_token[end] += amount
    return amount_by_token


def step_metrics(collected: CollectedRollouts) -> dict[str, float]:
    """Metrics of steps and their scores over new completions; empty where steps are not scored."""
    scores_by_completion = [
        paid.scores for group in collected.groups for paid in group.step_payments if paid is not None
    ]
    if not scores_by_completion:
        return {}
    return {
        "steps_mean": fmean(map(len, scores_by_completion)),
        "step_score": fmean(score for scores in scores_by_completion for score in scores),
        "step_score_min": fmean(map(min, scores_by_completion)),
    }


def reward_part_means(collected: CollectedRollouts) -> dict[str, float]:
    names = dict.fromkeys(name for group in collected.groups for name in group.parts)
    means: dict[str, float] = {}
    for name in names:
        part_scores = [x for group in collected.groups for x in group.parts.get(name, ()) if x is not None]
        means[f"reward/{name}"] = math.fsum(part_scores) / len(part_scores) if part_scores else math.nan
    return means


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Who gives one more answer to each prompt, which is scored like the others and never learnt from.
    Example: ``Rival(sampler=sampler, sampling=SamplingSettings(temperature=0))``: the likeliest answer."""

    sampler: RolloutSampler
    sampling: SamplingSettings
    """How; the seed is made of the round's, so that its chance has nothing to do with that of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutCollector:
    sampler: RolloutSampler
    reward: RewardSource
    sampling: SamplingSettings
    """How answers are drawn; its seed is the run's."""
    completions_per_prompt: int
    ranks: Ranks
    rival: Rival | None = None
    """Who gives the answer that the others are only measured against."""
    judges_pairs: bool = False
    """Whether the reward compares, and is asked about each answer beside the rival's alone."""
    dynamic_sampling: bool = False
    """Dynamic sampling: groups with equal scores are dropped and other prompts sampled instead."""
    complete_groups_only: bool = False
    """Whether a group is left out when one of its completions has no verdict."""
    refills: int = 3
    """How many times further prompts are sampled at most."""
    room: Callable[[int], int] | None = None
    """The most tokens of an answer by the round's number; None: what ``sampling`` says."""

    def collect(
        self, prompts: Sequence[EncodedPrompt], round_number: int, spare: Sequence[EncodedPrompt]
    ) -> CollectedRollouts:
        """Draw a round with the weights of now; all ranks call it."""
        self.sampler.refresh()
        return self.assemble(self.draw(prompts, round_number, spare), len(prompts))

    def draw(
        self, prompts: Sequence[EncodedPrompt], round_number: int, spare: Sequence[EncodedPrompt]
    ) -> list[ScoredGroup]:
        """Generate and score a round; ``spare`` prompts replace groups without signal. All ranks call it."""
        all_groups = self._generate_and_score(prompts, round_number)
        usable = [group for group in all_groups if self._has_signal(group)]
        # By content: a prompt that stands in the file twice is no replacement for itself.
        used_ids = {prompt.id for prompt in prompts}
        unused = [prompt for prompt in spare if prompt.id not in used_ids] if self.dynamic_sampling else []
        # Seeded by the round: all ranks shuffle alike, and a round that is drawn anew has the same spares.
        random.Random(f"{self.sampling.seed}/{round_number}/spare").shuffle(unused)
        for _ in range(self.refills if self.dynamic_sampling else 0):
            missing = len(prompts) - len(usable)
            if missing <= 0 or not unused:
                break
            # As many as the share that taught so far lets hope for, and at least what is missing.
            needed = min(round(missing * len(all_groups) / max(1, len(usable))), len(prompts))
            next_prompts, unused = unused[:needed], unused[needed:]
            # The round's seed again: random numbers are made of seed and prompt, and these prompts are new.
            new_groups = self._generate_and_score(next_prompts, round_number)
            all_groups += new_groups
            usable += [group for group in new_groups if self._has_signal(group)]
        return all_groups

    def assemble(self, all_groups: Sequence[ScoredGroup], size: int) -> CollectedRollouts:
        """What is learnt from these groups: at most ``size`` of them, and counts of the others."""
        # A refill may bring more than was missing; a round's size is what the learning rate was tuned for.
        usable = [group for group in all_groups if self._has_signal(group)][:size]
        rivals: list[ScoredGroup] = []
        groups: list[ScoredGroup] = []
        for scored in usable:
            group = self._without_rival(scored).scored_only()
            of_rival = [k >= self.completions_per_prompt for k in range(len(scored.rollouts))]
            rival = scored.select(of_rival).scored_only()
            # A loss of pairs has no value for an answer whose partner has no verdict.
            enough = len(group.rollouts) >= (self.completions_per_prompt if self.complete_groups_only else 1)
            if enough and (rival.rollouts or self.rival is None):
                groups.append(group)
                rivals += [] if self.rival is None else [rival]
        without_rivals = [self._without_rival(scored) for scored in all_groups]
        no_verdict = sum(score is None for scored in without_rivals for score in scored.scores)
        generated = sum(len(scored.rollouts) for scored in without_rivals)
        return CollectedRollouts(
            groups=tuple(groups),
            rivals=tuple(rivals),
            scores_are_probabilities=self.judges_pairs,
            generated=generated,
            no_verdict=no_verdict,
            zero_std=sum(_has_equal_scores(scored.scored_only()) for scored in without_rivals),
            all_groups=tuple(without_rivals),
        )

    def objection(self, collected: CollectedRollouts, *, single_is_enough: bool) -> str | None:
        """Why nothing can be learnt from these rollouts; None where something can."""
        if collected.no_verdict == collected.generated:
            first = collected.all_groups[0].prompt
            reasons = "; ".join(
                f"{reason} ({count} times)" for reason, count in refusal_counts(self.reward).items()
            )
            return (
                f"{self.reward.name} has a verdict on none of {collected.generated} answers (the first to "
                f"{first.origin or repr(str(first.text)[:40])}), so nothing can be learnt"
                + (
                    f". It says: {reasons}"
                    if reasons
                    else ": look at what it needs, an answer in the rows perhaps"
                )
            )
        all_single = all(len(group.rollouts) < 2 for group in collected.groups)
        if not single_is_enough and all_single and collected.no_verdict:
            return (
                "no prompt has two answers with a verdict, and this algorithm compares the answers to one "
                "prompt; look at what the reward needs to give a verdict"
            )
        return None

    def _generate_and_score(self, prompts: Sequence[EncodedPrompt], round_number: int) -> list[ScoredGroup]:
        """All groups, each drawn and scored by one rank; every rank gets all of them."""
        share = self.share_of(prompts)
        settings = self._settings(round_number)
        groups: list[list[Rollout]] = []
        if share:
            groups = generate_completions(share, self.sampler, settings, n=self.completions_per_prompt)
        if self.rival is not None and share:
            rivals = generate_completions(share, self.rival.sampler, self._rival_settings(settings), n=1)
            groups = [[*group, *rival] for group, rival in zip(groups, rivals, strict=True)]
        return self.exchange(self._score(share, groups), prompts)

    def draw_each(
        self, prompts: Sequence[EncodedPrompt], round_number: int, take: Callable[[ScoredGroup], None]
    ) -> None:
        """This rank's share of a round, in order: each group is handed over once it is drawn and scored."""
        share, settings = self.share_of(prompts), self._settings(round_number)
        texts = [prompt.shown for prompt in share]
        assert isinstance(self.sampler, EachSampler)
        drawn = [self.sampler.generate_each(texts, settings, n=self.completions_per_prompt)]
        if self.rival is not None:
            assert isinstance(self.rival.sampler, EachSampler)
            drawn.append(self.rival.sampler.generate_each(texts, self._rival_settings(settings), n=1))
        with ExitStack() as stack:
            for each in drawn:
                stack.enter_context(closing(each))
            for prompt, *groups in zip(share, *drawn, strict=True):
                # One by one, however they come: of a model the scores of several differ in their last bits.
                for scored in self._score([prompt], [[each for group in groups for each in group]]):
                    take(scored)

    def share_of(self, prompts: Sequence[EncodedPrompt]) -> Sequence[EncodedPrompt]:
        # Dealt in turn and not in blocks: long prompts that stand together are spread over the ranks.
        return prompts[self.ranks.rank :: self.ranks.world_size]

    def exchange(self, groups: Sequence[ScoredGroup], prompts: Sequence[EncodedPrompt]) -> list[ScoredGroup]:
        """The groups of all ranks, in the order of the prompts; every rank has to build the same round."""
        world = self.ranks.world_size
        if world == 1:
            return list(groups)
        lines = [group_as_json(self.ranks.rank + world * n, group) for n, group in enumerate(groups)]
        by_index = dict(group_from_json(line, prompts) for line in self.ranks.all_gather_strings(lines))
        return [by_index[index] for index in range(len(prompts))]

    def _settings(self, round_number: int) -> SamplingSettings:
        room = self.sampling.max_tokens if self.room is None else self.room(round_number)
        seed = self.sampling.seed * ROUND_SEED_STRIDE + round_number
        return replace(self.sampling, seed=seed, max_tokens=room)

    def _rival_settings(self, settings: SamplingSettings) -> SamplingSettings:
        assert self.rival is not None
        # With the round's own seed it would draw the very numbers of the first answer.
        room = settings.max_tokens if self.room else self.rival.sampling.max_tokens
        return replace(self.rival.sampling, seed=~settings.seed, max_tokens=room)

    def _score(
        self, prompts: Sequence[EncodedPrompt], groups: Sequence[Sequence[Rollout]]
    ) -> list[ScoredGroup]:
        # Scored where it was drawn, since an episode's outcome does not travel with its tokens.
        if self.judges_pairs:
            return self._judge_pairs(prompts, groups)
        return score_groups(prompts, groups, self.reward)

    def _judge_pairs(
        self, prompts: Sequence[EncodedPrompt], groups: Sequence[Sequence[Rollout]]
    ) -> list[ScoredGroup]:
        """Each answer's score is the chance that it is preferred to the rival's, the last of its group."""
        pairs = [
            (prompt, (answer, group[-1]))
            for prompt, group in zip(prompts, groups, strict=True)
            for answer in group[:-1]
        ]
        scored = score_groups([prompt for prompt, _ in pairs], [pair for _, pair in pairs], self.reward)
        judged = iter(scored)
        return [
            ScoredGroup(
                prompt=prompt,
                rollouts=tuple(group),
                scores=(*(next(judged).scores[0] for _ in group[:-1]), 0.5),
            )
            for prompt, group in zip(prompts, groups, strict=True)
        ]

    def _without_rival(self, group: ScoredGroup) -> ScoredGroup:
        return group.select([k < self.completions_per_prompt for k in range(len(group.rollouts))])

    def _has_signal(self, group: ScoredGroup) -> bool:
        return not self.dynamic_sampling or not _has_equal_scores(self._without_rival(group).scored_only())


def _has_equal_scores(group: ScoredGroup) -> bool:
    # A single verdict, or none, compares nothing either.
    return len(set(group.scores)) < 2


def group_as_json(index: int, group: ScoredGroup) -> str:
    """A group as JSON; floats are read back to the last bit."""
    answers = [rollout_to_json(rollout) for rollout in group.rollouts]
    steps = [None if paid is None else asdict(paid) for paid in group.steps]
    scores, parts = group.scores, dict(group.parts)
    return json.dumps({"place": index, "answers": answers, "scores": scores, "parts": parts, "steps": steps})


def group_from_json(text: str, prompts: Sequence[EncodedPrompt]) -> tuple[int, ScoredGroup]:
    """The group that `group_as_json` wrote, and its index."""
    record: dict[str, Any] = json.loads(text)
    answers = tuple(rollout_from_json(answer) for answer in record["answers"])
    group = ScoredGroup(
        # By place: all ranks hold the same prompts, so none has to be sent.
        prompt=prompts[record["place"]],
        rollouts=answers,
        scores=tuple(record["scores"]),
        parts={name: tuple(row) for name, row in record["parts"].items()},
        steps=tuple(
            None if step is None else StepPayments(**{name: tuple(row) for name, row in step.items()})
            for step in record["steps"]
        ),
    )
    return record["place"], group
