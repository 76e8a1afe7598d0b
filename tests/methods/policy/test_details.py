"""Details that are easily wrong: what is measured against what, and what a bad round does."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch

from plaudit.data.judging import Task
from plaudit.data.records import plain_text
from plaudit.errors import UserError
from plaudit.methods.policy.collect import score_groups
from plaudit.methods.policy.config import ProcessSettings, ShapeSettings
from plaudit.methods.policy.held_out import MAX_ROLLOUT_TOKENS, RolloutTrial
from plaudit.rewards.base import RewardTraits, TaskScores, compares_answers
from plaudit.rewards.combine.cascade import ScoresWithParts
from plaudit.rewards.learned.process import ProcessReward
from plaudit.rollouts.sampler import Rollout, Sampler, SamplingSettings, TokenIds
from plaudit.tensors.masked import moments
from tests.methods.policy.commands import make_place, well
from tests.methods.policy.pieces import EARLIER, Scene, scene
from tests.methods.policy.stepwise import paid_scene


def whole(one: Scene) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages of all answers of a round, and which tokens count."""
    one.pieces(1)
    now = one.rounds.current
    assert now is not None
    return now.experience.advantage_NT, now.experience.old_logp_NT != 0


def test_the_running_mean_is_that_of_shaped_scores() -> None:
    one = scene("reinforce", shape=ShapeSettings(low=-0.1, high=0.1), policy={"divergence": "none"})
    one.pieces(1)
    now = one.rounds.current
    assert now is not None
    assert -0.1 <= now.mean_score <= 0.1
    total = 5 + sum(len(example.completions) for example in now.examples)
    wanted = EARLIER + (now.mean_score - EARLIER) * (total - 5) / total
    assert one.rounds.memory.mean_score == pytest.approx(wanted)


def test_the_likeliest_answer_is_shaped_like_the_others() -> None:
    plain, _ = whole(scene("remax", policy={"divergence": "none"}))
    shape = ShapeSettings(low=-1e-9, high=1e-9)
    shaped, _ = whole(scene("remax", shape=shape, policy={"divergence": "none"}))
    assert float(plain.abs().max()) > 0.1
    assert float(shaped.abs().max()) <= 2e-9


def test_a_bandit_teaches_its_critic_the_reward_at_every_token() -> None:
    one = scene("ppo", policy={"advantage": "bandit", "divergence": "none"})
    one.pieces(1)
    now = one.rounds.current
    assert now is not None
    mask_NT = now.experience.old_logp_NT != 0
    score_N = one.rounds.collector.collect(one.rounds.prompts, 1, ()).scores
    for row, mask, score in zip(now.experience.return_NT, mask_NT, score_N, strict=True):
        assert row[mask].tolist() == pytest.approx([float(score)] * int(mask.sum()))


def test_rewards_of_tokens_are_scaled_and_not_shifted() -> None:
    policy = {"advantage": "monte-carlo", "whiten_advantages": False, "whiten_rewards": True, "gamma": 0.0}
    one = scene("ppo", policy=policy)
    one.pieces(1)
    now = one.rounds.current
    assert now is not None
    mask_NT = now.experience.old_logp_NT != 0
    # With γ = 0 a return is the reward of its token.
    assert float(moments(now.experience.return_NT, mask_NT).variance) == pytest.approx(1, rel=1e-6)


class Moody:
    name = "moody"

    def __init__(self, good: object, silent: set[int]) -> None:
        self.good, self.silent, self.asked = good, silent, 0

    def scores(self, tasks: list[object]) -> tuple[TaskScores, ...]:
        self.asked += 1
        rows = self.good.scores(tasks)  # pyright: ignore[reportAttributeAccessIssue]
        return tuple(tuple(None for _ in row) for row in rows) if self.asked in self.silent else rows


def moody(silent: set[int]) -> Scene:
    one = scene("rloo", policy={"update_epochs": 1, "minibatches": 1})
    reward = Moody(one.rounds.collector.reward, silent)
    one.rounds.collector = replace(one.rounds.collector, reward=reward)
    one.rounds.memory.score_count = 0
    return one


def test_a_reward_that_has_worked_may_be_silent_for_two_rounds() -> None:
    one = moody({2, 3, 5, 6})
    for step in range(1, 8):
        assert bool(one.pieces(step)) == (step not in (2, 3, 5, 6))
        one.rounds.after_step(step, {"approx_kl": 0.0})


def test_the_third_silent_round_in_a_row_ends_the_run() -> None:
    one = moody({2, 3, 4})
    for step in (1, 2, 3):
        one.pieces(step)
        one.rounds.after_step(step, {"approx_kl": 0.0})
    with pytest.raises(UserError, match="round 4: moody has a verdict on none"):
        one.pieces(4)


def test_a_first_round_without_a_verdict_ends_it_at_once() -> None:
    with pytest.raises(UserError, match="round 1: moody has a verdict on none"):
        moody({1}).pieces(1)


@pytest.mark.slow
def test_a_following_reference_moves_though_rounds_end_early(tmp_path) -> None:
    place = make_place(tmp_path)
    usual = ("--update-epochs", 4, "--target-kl", 1e-5, "--rounds", 3, "--reference.kind", "average")
    went = well(place, "grpo", "out", *usual, "--reference.every", 4, "--reference.share", 1)
    kls = [line["kl"] for line in went.lines if "kl" in line and line["step"] % 4 == 1]
    assert len(kls) == 3
    # The reference has become the policy that each round begins with.
    assert all(abs(kl) < 1e-5 for kl in kls)


class Asked:
    """A reward with parts that somebody pays for: it is never asked about nothing."""

    name = "asked"

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        return self.scores_with_parts(tasks).rows

    def scores_with_parts(self, tasks: Sequence[Task]) -> ScoresWithParts:
        raise AssertionError(f"asked about {len(tasks)} prompts")


def test_a_rank_without_prompts_asks_no_reward() -> None:
    """Ranks may outnumber the prompts that are drawn anew."""
    assert score_groups([], [], Asked()) == []
    steps = paid_scene("grpo", ProcessSettings(pay="score")).rounds.collector.reward
    assert isinstance(steps, ProcessReward)
    assert score_groups([], [], replace(steps, outcome_reward=Asked())) == []


@dataclass(frozen=True)
class Listener:
    """A sampler that hears how long answers may be."""

    sampler: Sampler
    lengths: list[int]

    def refresh(self) -> None:
        self.sampler.refresh()

    def generate(
        self, prompts: Sequence[TokenIds], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Rollout]]:
        self.lengths.append(settings.max_tokens)
        return self.sampler.generate(prompts, settings, n=n)


class Prefers:
    name = "prefers"
    traits = RewardTraits(compares_answers=True)

    def __init__(self) -> None:
        self.chances: list[float] = []

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """Each answer is shown beside the rival's alone."""
        sizes = [[1.0 + sum(map(ord, plain_text(answer))) % 7 for answer in task.answers] for task in tasks]
        self.chances += [first / (first + second) for first, second in sizes]
        return tuple((first / (first + second), second / (first + second)) for first, second in sizes)


def test_a_judges_chance_is_what_nash_md_learns_by() -> None:
    """And not σ of it, which would squash it into 0.27 to 0.73."""
    judge, one = Prefers(), scene("nash-md", policy={"kl_coef": 0.0})
    assert compares_answers(judge)
    one.rounds.collector = replace(one.rounds.collector, reward=judge, judges_pairs=True)
    advantage_NT, _ = whole(one)
    assert advantage_NT[:, 0].tolist() == pytest.approx([chance - 0.5 for chance in judge.chances])
    assert max(judge.chances) > 0.8
    figures = {metric.name: metric for metric in one.rounds.current.metrics} if one.rounds.current else {}
    assert float(figures["win_prob"].total) == pytest.approx(
        sum(judge.chances) / len(judge.chances) * float(figures["win_prob"].weight)
    )


@pytest.mark.parametrize("name", ["remax", "nash-md"])
def test_the_rivals_answers_of_a_trial_are_as_short_as_the_others(name: str) -> None:
    one = scene(name)
    collector, lengths = one.rounds.collector, list[int]()
    assert collector.rival is not None
    assert isinstance(collector.rival.sampler, Sampler)
    sampling = replace(collector.rival.sampling, max_tokens=400)
    rival = replace(collector.rival, sampler=Listener(collector.rival.sampler, lengths), sampling=sampling)
    one.rounds.collector = replace(collector, rival=rival)
    assert RolloutTrial(rounds=one.rounds, models=one.watchers).small_round() is not None
    assert lengths == [MAX_ROLLOUT_TOKENS]
