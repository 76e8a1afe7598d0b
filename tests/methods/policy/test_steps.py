"""Process rewards: each step is paid at its last token; what a move then minimises, from plain passes."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import fmean, stdev

import pytest
import torch

from plaudit.methods.policy.algorithms import POLICY_ALGORITHMS
from plaudit.methods.policy.batch import ReplayBuffer, Round
from plaudit.methods.policy.config import DrawSettings, ProcessSettings, ShapeSettings
from tests.methods.policy.papers import PAPERS, Paper
from tests.methods.policy.pieces import PAIRS, Scene, learnt, same_gradients, scene
from tests.methods.policy.script import LONGEST, WARM
from tests.methods.policy.stepwise import Stepwise, paid_scene, plan
from tests.methods.policy.test_oracle import by_hand, second_half, two

SCORE = ProcessSettings(pay="score", baseline=0.25)
Case = tuple[str, ProcessSettings, Mapping[str, object] | None, Callable[[Stepwise], Paper]]
CASES: Mapping[str, Case] = {
    "ppo": ("ppo", SCORE, None, lambda of: replace(PAPERS["ppo"], advantage=of.gae)),
    "ppo, the weakest step": (
        "ppo",
        ProcessSettings(pay="min"),
        None,
        lambda of: replace(PAPERS["ppo"], advantage=of.gae),
    ),
    "ppo, the product": (
        "ppo",
        ProcessSettings(pay="product"),
        two(gamma=0.9, lam=0.7),
        lambda of: replace(PAPERS["ppo"], advantage=of.gae, gamma=0.9, lam=0.7),
    ),
    "ppo, the last step and an outcome": (
        "ppo",
        ProcessSettings(pay="last", by="plan", weight=0.5),
        None,
        lambda of: replace(PAPERS["ppo"], advantage=of.gae),
    ),
    "reinforce-pp": (
        "reinforce-pp",
        SCORE,
        None,
        lambda of: replace(PAPERS["reinforce-pp"], advantage=of.whitened),
    ),
    "grpo": ("grpo", SCORE, None, lambda of: replace(PAPERS["grpo"], advantage=of.process_supervision)),
    "grpo with an outcome": (
        "grpo",
        replace(SCORE, by="plan", weight=2.0),
        None,
        lambda of: replace(PAPERS["grpo"], advantage=of.process_supervision),
    ),
    "grpo with the KL in the reward": (
        "grpo",
        SCORE,
        two(divergence="reward", kl_coef=0.3),
        lambda of: replace(PAPERS["grpo"], advantage=of.process_supervision, kl="reward", beta=0.3),
    ),
    "rloo, of whole answers": (
        "rloo",
        ProcessSettings(pay="min"),
        None,
        lambda of: replace(PAPERS["rloo"], advantage=of.others_mean),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", CASES)
def test_a_move_is_that_of_the_paper(what: str) -> None:
    name, pay, settings, paper_of = CASES[what]
    one = paid_scene(name, pay, **({} if settings is None else {"policy": settings}))
    paper = paper_of(Stepwise(pay))
    found = learnt(one, one.second_move())
    loss, grads = by_hand(paper, one, second_half(name, one))
    assert found[0] == pytest.approx(loss, rel=1e-9)
    same_gradients(found[1], grads)


def made(one: Scene) -> Round:
    one.pieces(1)
    assert one.rounds.current is not None
    return one.rounds.current


@pytest.mark.one_in(7)
@pytest.mark.parametrize("name", POLICY_ALGORITHMS)
def test_with_one_step_an_answer_it_is_the_outcomes_reward_to_the_last_bit(name: str) -> None:
    class Single:
        name = "single"

        def scores(self, tasks: object) -> object:
            rows = paid.rounds.collector.reward.process_reward.step_scores(tasks)  # pyright: ignore
            return tuple(tuple(None if own is None else own[0] for own in row) for row in rows)

    paid = paid_scene(name, ProcessSettings(pay="score"), whole=True)
    plain = scene(name)
    plain.rounds.collector = replace(paid.rounds.collector, reward=Single())  # pyright: ignore
    first, other = made(paid), made(plain)
    for what in ("advantage_NT", "return_NT", "value_NT", "weight_NT"):
        assert torch.equal(getattr(first.experience, what), getattr(other.experience, what)), what
    assert {one.name: one for one in first.metrics}.pop("steps_mean").total == 1
    assert [one for one in first.metrics if not one.name.startswith("step")] == [*other.metrics]


def test_the_tokens_before_a_payment_are_credited_with_it_and_those_behind_are_not() -> None:
    """What the critic is taught, without a KL, is the sum of the payments that are still to come."""
    pay = ProcessSettings(pay="score")
    one = paid_scene("ppo", pay, policy={"advantage": "monte-carlo", "kl_coef": 0.0, "update_epochs": 2})
    rows = [line.ids for _, said in one.lines for line in said[:-1] if line.score is not None]
    assert any(len(plan(ids)[0]) > 2 for ids in rows)
    for row_T, ids in zip(made(one).experience.return_NT, rows, strict=True):
        ends, scores = plan(ids)
        wanted = [sum(s for end, s in zip(ends, scores, strict=True) if end >= t) for t in range(len(ids))]
        assert row_T[: len(ids)].tolist() == pytest.approx(wanted, abs=1e-12)
        assert not row_T[len(ids) :].any()


@pytest.mark.parametrize("pay", ["min", "product", "last"])
def test_changes_add_up_to_one_number_of_all_steps(pay: str) -> None:
    one = paid_scene("rloo", ProcessSettings(pay=pay))  # pyright: ignore[reportArgumentType]
    groups = one.rounds.collector.collect(one.rounds.prompts, 1, ()).groups
    for group in groups:
        for score, paid, answer in zip(group.scores, group.steps, group.rollouts, strict=True):
            assert paid is not None
            said = plan(answer.ids)[1]
            number = {"min": min(said), "product": math.prod(said), "last": said[-1]}[pay]
            assert score == pytest.approx(number, abs=1e-12)
            assert sum(paid.paid) == pytest.approx(number, abs=1e-12)


def test_an_answer_without_a_verdict_leaves_its_group_and_its_steps_go_with_it() -> None:
    one = paid_scene("grpo", SCORE)
    groups = one.rounds.collector.collect(one.rounds.prompts, 1, ()).groups
    [short] = [group for group in groups if len(group.rollouts) < 3]
    assert [paid.ends[-1] + 1 for paid in short.steps if paid is not None] == [
        len(a.ids) for a in short.rollouts
    ]
    assert None not in short.steps


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("shape", "own"),
    [
        (ShapeSettings(), {"missing_eos_penalty": -1.0}),
        (ShapeSettings(scale=True), {}),
        (ShapeSettings(low=0.2, high=0.9, per_token=0.01), {}),
        (ShapeSettings(scale=True), {"missing_eos_penalty": -1.0, "overlong_buffer": 0.25}),
    ],
)
def test_what_is_done_to_scores_is_done_to_the_sum_of_the_payments(shape, own):
    """All tokens' rewards add up to the shaped score; one that is replaced is paid at the end."""
    settings = {"advantage": "monte-carlo", "kl_coef": 0.0, "update_epochs": 2, **own}
    one = paid_scene("ppo", ProcessSettings(pay="score"), shape=shape, policy=settings)
    told = made(one).experience
    plain = scene("ppo", shape=shape, policy=settings)
    collector = one.rounds.collector
    plain.rounds.collector = replace(collector, reward=_Sum(collector.reward))  # pyright: ignore
    whole = made(plain).experience
    torch.testing.assert_close(told.return_NT[:, 0], whole.return_NT[:, 0], rtol=0, atol=1e-12)
    lines = [line for _, said in one.lines for line in said[:-1] if line.score is not None]
    cut = [n for n, line in enumerate(lines) if not line.ended and len(plan(line.ids)[0]) > 1]
    assert cut
    for n in cut:
        level = told.return_NT[n, : len(lines[n].ids)]
        assert (float(level.max() - level.min()) < 1e-12) == ("missing_eos_penalty" in own)


def test_an_answer_whose_score_is_replaced_is_a_single_step_of_its_group() -> None:
    one = paid_scene("grpo", SCORE, missing_eos_penalty=-1.0)
    told = made(one).experience
    lines = [
        (g, line) for g, (_, said) in enumerate(one.lines) for line in said[:-1] if line.score is not None
    ]
    for n, (group, line) in enumerate(lines):
        steps = [
            worth - 0.25
            for other, own in lines
            if other == group
            for worth in (plan(own.ids)[1] if own.ended else [-0.75])
        ]
        if line.ended:
            continue
        wanted = (-1 - fmean(steps)) / (stdev(steps) + 1e-4)
        row_T = told.advantage_NT[n, : len(line.ids)]
        torch.testing.assert_close(row_T, torch.full_like(row_T, wanted), rtol=0, atol=1e-12)


class _Sum:
    """The sum of the steps, as a reward of whole answers."""

    name = "sum"

    def __init__(self, reward: object) -> None:
        self.process_reward = reward.process_reward  # pyright: ignore

    def scores(self, tasks: object) -> object:
        return tuple(
            tuple(None if own is None else sum(own) for own in row)
            for row in self.process_reward.step_scores(tasks)
        )


def test_a_round_that_is_kept_and_taken_up_has_the_same_advantages() -> None:
    first = made(paid_scene("grpo", SCORE))
    kept = Round.from_tensors(first.tensors())
    assert torch.equal(kept.experience.advantage_NT, first.experience.advantage_NT)
    assert len(kept.experience.advantage_NT.unique(dim=1)) > 1


def test_groups_that_are_kept_for_replay_keep_their_steps() -> None:
    one = paid_scene("grpo", SCORE)
    groups = one.rounds.collector.collect(one.rounds.prompts, 1, ()).groups
    replay = ReplayBuffer(one.rounds.prompts, share=0.5, window=4, seed=0)
    replay.sample_groups(groups, 1)
    taken_up = ReplayBuffer(one.rounds.prompts, share=0.5, window=4, seed=0)
    taken_up.load_tensors(replay.tensors())
    again, wanted = taken_up.sample_groups(groups, 2), replay.sample_groups(groups, 2)
    assert again == wanted
    assert len(again) == len(groups)
    assert all(group.steps for group in again)


def test_groups_are_flat_by_the_sum_of_their_payments() -> None:
    """Each answer is a step of the same score: nothing is left to compare."""
    draw = DrawSettings(temperature=WARM, max_tokens=LONGEST, resample_limit=0)
    one = paid_scene("grpo", ProcessSettings(pay="score"), draw=draw, dynamic_sampling=True, whole=True)
    by = one.rounds.collector.reward.process_reward  # pyright: ignore

    class Alike:
        name = "alike"

        def step_scores(self, tasks: object, *, odds: bool = False) -> object:
            rows = by.step_scores(tasks)
            return tuple(tuple(None if own is None else (0.5,) for own in row) for row in rows)

    reward = replace(one.rounds.collector.reward, process_reward=Alike())  # pyright: ignore
    collected = replace(one.rounds.collector, reward=reward).collect(one.rounds.prompts, 1, ())
    assert collected.groups == ()
    assert collected.zero_std == len(one.lines)


def test_rows_of_ones_own_see_what_is_paid_on_the_way() -> None:
    seen = []
    pay = ProcessSettings(pay="score")

    def advantage(facts: object) -> torch.Tensor:
        seen.append(facts)
        return torch.zeros_like(facts.paid_NT)  # pyright: ignore

    one = paid_scene("rloo", pay)
    one.rounds.experience = replace(
        one.rounds.experience, row=replace(one.rounds.experience.row, advantage=advantage)
    )
    made(one)
    [facts] = seen
    assert facts.paid_NT.any()
    assert not facts.paid_NT[~facts.end_NT].any()
    torch.testing.assert_close(
        facts.paid_NT.sum(-1) + facts.final_payment_N, facts.score_N, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_compared_by_the_sum_of_their_payments(name: str) -> None:
    one = paid_scene(name, ProcessSettings(pay="min"))
    groups = one.rounds.collector.collect(one.rounds.prompts, 1, ()).groups
    better = [group.scores[0] - group.scores[1] for group in groups]  # pyright: ignore[reportOperatorIssue]
    assert made(one).experience.advantage_NT[::2, 0].sign().tolist() == torch.tensor(better).sign().tolist()
