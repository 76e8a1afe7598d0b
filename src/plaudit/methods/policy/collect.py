"""From prompts to scored rollouts, over all ranks: generate, score, and resample groups without signal.

State from earlier rounds is kept here: pass rates of prompts (curriculum) and groups to replay.
"""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from statistics import fmean
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from plaudit.advantages.temporal import step_rewards
from plaudit.engine.distributed import Ranks
from plaudit.errors import UserError
from plaudit.methods.policy.shaping import ProcessReward
from plaudit.rewards.base import Reward, TaskScores, refusal_counts
from plaudit.rewards.combine.cascade import HasScoreParts, ScoresWithParts
from plaudit.rewards.learned.step_payments import StepPayments
from plaudit.rollouts.environment import Environment
from plaudit.rollouts.episodes import EpisodeSampler
from plaudit.rollouts.sampler import Rollout, Sampler, SamplingSettings, rollout_from_json, rollout_to_json
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


RewardSource = Reward | EpisodeReward | ProcessReward
RolloutSampler = Sampler | EpisodeSampler


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """The rollouts of one prompt with their scores.

    Example: ``score_groups(questions, groups, reward)[0].scores``
    """

    prompt: EncodedPrompt
    rollouts: tuple[Rollout, ...]
    scores: TaskScores
    parts: Mapping[str, TaskScores] = field(default_factory=dict[str, TaskScores])
    """What the scores are made of, where the reward keeps that."""
    steps: tuple[StepPayments | None, ...] = ()
    """The payments of each completion's steps, which add up to its score; empty without a process reward."""

    @property
    def step_payments(self) -> tuple[StepPayments | None, ...]:
        return self.steps or (None,) * len(self.rollouts)

    def select(self, keep_mask: Sequence[bool]) -> ScoredGroup:
        indices = [k for k, keep in enumerate(keep_mask) if keep]
        return ScoredGroup(
            prompt=self.prompt,
            rollouts=tuple(self.rollouts[k] for k in indices),
            scores=tuple(self.scores[k] for k in indices),
            parts={name: tuple(row[k] for k in indices) for name, row in self.parts.items()},
            steps=tuple(self.steps[k] for k in indices) if self.steps else (),
        )

    def scored_only(self) -> ScoredGroup:
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
        step_scored = reward.score_steps(tasks, groups)
        parted, steps = step_scored.completion_scores, step_scored.steps
        rows = parted.rows
    else:
        # A rank may have no prompts, and a reward is asked about some or not at all.
        parted = reward.scores_with_parts(tasks) if tasks and isinstance(reward, HasScoreParts) else None
        rows = (reward.scores(tasks) if parted is None else parted.rows) if tasks else ()
    if len(rows) != len(tasks):
        raise UserError(f"{reward.name} was asked about {len(tasks)} prompts and answered {len(rows)}")
    scored = [
        _checked_group(prompt, tuple(group), row, _reward_parts(parted, index), reward.name)
        for index, (prompt, group, row) in enumerate(zip(prompts, groups, rows, strict=True))
    ]
    return [replace(index, steps=group_steps) for index, group_steps in zip(scored, steps, strict=True)]


def _reward_parts(parted: ScoresWithParts | None, index: int) -> dict[str, TaskScores]:
    return {} if parted is None else {name: rows[index] for name, rows in parted.parts.items()}


def _checked_group(
    prompt: EncodedPrompt,
    answers: tuple[Rollout, ...],
    row: TaskScores,
    parts: Mapping[str, TaskScores],
    name: str,
) -> ScoredGroup:
    where = prompt.origin or repr(str(prompt.text)[:40])
    if len(row) != len(answers):
        raise UserError(f"{name} gave {len(row)} scores for the {len(answers)} answers to {where}")
    for answer, score in zip(answers, row, strict=True):
        if score is not None and not math.isfinite(score):
            raise UserError(
                f"{name} gave {score} for {answer.answer.text[:40]!r}, an answer to {where}; a score is a "
                "finite number, or None for no verdict"
            )
    return ScoredGroup(prompt=prompt, rollouts=answers, scores=row, parts=parts)


def _as_float(value: int | float | None) -> float | None:
    return None if value is None else float(value)


ROUND_SEED_STRIDE = 1_000_003
"""Seeds of rounds lie so far apart that those of two runs do not meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedRollouts:
    """The scored rollouts of one round, with counts of what was left out.

    Example: ``collector.collect(questions, round_number=3)``
    """

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

    An answer that is not paid step by step is a single one.
    """
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

    Example: ``Rival(sampler=sampler, sampling=SamplingSettings(temperature=0))``: the likeliest answer.
    """

    sampler: RolloutSampler
    """Generates with the current weights."""
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

    def collect(
        self, prompts: Sequence[EncodedPrompt], round_number: int, spare: Sequence[EncodedPrompt]
    ) -> CollectedRollouts:
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
        # A refill may bring more than was missing; a round's size is what the learning rate was tuned for.
        return self._assemble(all_groups, usable[: len(prompts)])

    def _assemble(
        self, all_groups: Sequence[ScoredGroup], usable: Sequence[ScoredGroup]
    ) -> CollectedRollouts:
        rivals: list[ScoredGroup] = []
        groups: list[ScoredGroup] = []
        for scored in usable:
            group, rival = self._split_rival(scored)
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
        world, rank = self.ranks.world_size, self.ranks.rank
        self.sampler.refresh()
        # Dealt in turn and not in blocks: long prompts that stand together are spread over the ranks.
        indexed_prompts = [(index, prompt) for index, prompt in enumerate(prompts) if index % world == rank]
        settings = replace(self.sampling, seed=self.sampling.seed * ROUND_SEED_STRIDE + round_number)
        rank_prompts = [prompt for _, prompt in indexed_prompts]
        groups = (
            generate_completions(rank_prompts, self.sampler, settings, n=self.completions_per_prompt)
            if rank_prompts
            else []
        )
        if self.rival is not None and rank_prompts:
            # With the round's own seed it would draw the very numbers of the first answer.
            rival_sampling = replace(self.rival.sampling, seed=~settings.seed)
            rival_rollouts = generate_completions(rank_prompts, self.rival.sampler, rival_sampling, n=1)
            groups = [[*group, *rollout] for group, rollout in zip(groups, rival_rollouts, strict=True)]
        # Scored where it was drawn, since an episode's outcome does not travel with its tokens.
        score = self._judge_pairs if self.judges_pairs else partial(score_groups, reward=self.reward)
        scored = score(rank_prompts, groups)
        if world == 1:
            return scored
        lines = [
            group_as_json(index, group) for (index, _), group in zip(indexed_prompts, scored, strict=True)
        ]
        by_index = dict(group_from_json(line, prompts) for line in self.ranks.all_gather_strings(lines))
        # In the order of the questions: every rank has to build the very same round.
        return [by_index[index] for index in range(len(prompts))]

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

    def _split_rival(self, group: ScoredGroup) -> tuple[ScoredGroup, ScoredGroup]:
        rival = group.select([k >= self.completions_per_prompt for k in range(len(group.rollouts))])
        return self._without_rival(group).scored_only(), rival.scored_only()

    def _has_signal(self, group: ScoredGroup) -> bool:
        return not self.dynamic_sampling or not _has_equal_scores(self._without_rival(group).scored_only())


def _has_equal_scores(group: ScoredGroup) -> bool:
    # A single verdict, or none, compares nothing either.
    return len(set(group.scores)) < 2


def group_as_json(index: int, group: ScoredGroup) -> str:
    """A group as JSON; floats are read back to the last bit."""
    answers = [rollout_to_json(rollout) for rollout in group.rollouts]
    steps = [None if paid is None else asdict(paid) for paid in group.steps]
    return json.dumps(
        {
            "place": index,
            "answers": answers,
            "scores": group.scores,
            "parts": dict(group.parts),
            "steps": steps,
        }
    )


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


MIN_PROMPT_WEIGHT = 0.05
"""The smallest sampling weight, so that prompts that always or never pass are sampled now and then."""


class PassRateCurriculum:
    """Samples prompts in favour of those that are passed sometimes, since their completions differ in reward.

    A prompt with pass rate p is drawn in proportion to 4p(1 − p), a new one as if p were a half.
    """

    def __init__(self, prompts: Sequence[EncodedPrompt], *, pass_score: int | float, seed: int) -> None:
        """An answer passes whose score is at least ``pass_score``."""
        self._row = {prompt.id: row for row, prompt in enumerate(prompts)}
        self._pass_score, self._seed = pass_score, seed
        self._pass_rates = torch.full((len(prompts),), torch.nan, dtype=torch.float64)

    def sample_prompts(self, round_number: int, size: int) -> list[int]:
        pass_rates = self._pass_rates.nan_to_num(0.5)
        # 4p(1 − p) is the variance of a pass, scaled to 1 at p = ½, where answers differ most.
        weight = (4 * pass_rates * (1 - pass_rates)).clamp(min=MIN_PROMPT_WEIGHT)
        generator = torch.Generator().manual_seed(
            # 62 bits fit into a signed 64-bit seed.
            random.Random(f"{self._seed}/{round_number}/prompts").getrandbits(62)
        )
        # The largest u^(1/w) are a draw without putting back, in proportion to w.
        key = torch.rand(len(weight), generator=generator, dtype=torch.float64).log() / weight
        return key.topk(min(size, len(weight))).indices.tolist()

    def record_scores(self, groups: Sequence[ScoredGroup]) -> None:
        for group in groups:
            scores = [score for score in group.scores if score is not None]
            if scores:
                passed = sum(score >= self._pass_score for score in scores)
                self._pass_rates[self._row[group.prompt.id]] = passed / len(scores)

    def tensors(self) -> Mapping[str, Tensor]:
        return {"rate": self._pass_rates.clone()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        self._pass_rates = tensors["rate"].clone()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedGroup:
    round_number: int
    row: int
    group: ScoredGroup


class ReplayBuffer:
    """Replays groups of the last rounds as a share of every round."""

    def __init__(
        self, prompts: Sequence[EncodedPrompt], *, share: int | float, window: int, seed: int
    ) -> None:
        """``share`` of a round's groups are old ones, of at most ``window`` rounds ago."""
        self._prompts = prompts
        self._row = {prompt.id: row for row, prompt in enumerate(prompts)}
        self._share, self._window, self._seed = share, window, seed
        self._groups: list[ReplayedGroup] = []

    def sample_groups(self, groups: Sequence[ScoredGroup], round_number: int) -> tuple[ScoredGroup, ...]:
        """Groups to replay with these new ones, which are stored in turn."""
        recent = [entry for entry in self._groups if round_number - entry.round_number <= self._window]
        # `share` is of the whole round: of n new groups the whole has n / (1 − share).
        replay_count = round(self._share / (1 - self._share) * len(groups))
        rng = random.Random(f"{self._seed}/{round_number}/again")
        replayed = rng.sample(recent, min(replay_count, len(recent)))
        new = [
            ReplayedGroup(round_number=round_number, row=self._row[group.prompt.id], group=group)
            for group in groups
        ]
        # Stored after the draw, so that no round replays its own groups.
        self._groups = [*recent, *new]
        return tuple(entry.group for entry in replayed)

    def tensors(self) -> Mapping[str, Tensor]:
        rows = [
            [entry.round_number, entry.row, group_as_json(entry.row, entry.group)] for entry in self._groups
        ]
        return {"kept": torch.frombuffer(bytearray(json.dumps(rows).encode()), dtype=torch.uint8)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        rows = json.loads(bytes(tensors["kept"].tolist()))
        self._groups = [
            ReplayedGroup(round_number=round_number, row=row, group=group_from_json(text, self._prompts)[1])
            for round_number, row, text in rows
        ]
