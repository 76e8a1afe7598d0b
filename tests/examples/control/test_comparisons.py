"""The judge, the clips and the ensemble that learns from both."""

import math

import pytest
import torch

from examples.control.pendulum import observe, step_features, true_reward
from examples.control.reward_model import (
    ClipJudge,
    EnsembleTrainer,
    LabelledClips,
    QuerySettings,
    RewardEnsemble,
    RewardEnsembleSettings,
    bootstrap_weights,
    comparison_losses,
    most_disputed_pairs,
    no_labelled_clips,
    sample_clip_pairs,
)
from examples.control.train import ControlSettings, PpoSettings
from plaudit.errors import UserError


def some_pairs(count, seed=0, clip=5):
    chance = torch.Generator().manual_seed(seed)
    state_M2 = torch.randn(2 * count * clip, 2, generator=chance) * 2
    action_M = torch.randint(3, (len(state_M2),), generator=chance)
    return step_features(observe(state_M2), action_M).reshape(2, count, clip, 4)


def gap(pair_2BCF):
    return true_reward(pair_2BCF[0]).sum(-1) - true_reward(pair_2BCF[1]).sum(-1)


def test_a_judge_errs_ties_and_keeps_silent_as_often_as_told():
    pair_2BCF = some_pairs(4000)
    judge = ClipJudge(wrong=0.2, tie=0.5, silent=0.1)
    verdicts = judge.answer(pair_2BCF[0], pair_2BCF[1], torch.Generator().manual_seed(0))
    close_B = gap(pair_2BCF).abs() <= 0.5
    assert torch.equal(verdicts.label_B == 0.5, close_B)
    wrong_B = (verdicts.label_B > 0.5) != (gap(pair_2BCF) > 0)
    assert wrong_B[~close_B].float().mean().item() == pytest.approx(0.2, abs=0.03)
    assert verdicts.answered_B.float().mean().item() == pytest.approx(0.9, abs=0.02)


def test_clips_are_unbroken_pieces_of_one_episode():
    # Each fact names its episode and its step.
    copy_NT, step_NT = torch.meshgrid(torch.arange(7.0), torch.arange(30.0), indexing="ij")
    fact_NTF = torch.stack((copy_NT, step_NT, copy_NT, step_NT), -1)
    pair_2BCF = sample_clip_pairs(fact_NTF, 200, 10, torch.Generator().manual_seed(0))
    assert (pair_2BCF[..., 0] == pair_2BCF[..., :1, 0]).all()
    assert (pair_2BCF[..., 1].diff() == 1).all()
    assert pair_2BCF[..., 1].min() == 0
    assert pair_2BCF[..., 1].max() == 29


@pytest.mark.parametrize("comparisons", [2, 17, 200, 1000])
@pytest.mark.parametrize("rounds", [1, 7, 60])
def test_every_question_is_asked_once_a_quarter_at_first_and_then_ever_fewer(comparisons, rounds):
    asked = QuerySettings(comparisons=comparisons).schedule(rounds)
    assert sum(asked) == comparisons
    assert len(asked) == rounds
    assert asked[0] >= comparisons // 4
    if comparisons == 1000 and rounds == 60:
        assert asked[1] > 2 * asked[-1] > 0


def test_the_disputed_pairs_are_those_over_which_the_members_differ():
    class Fixed(RewardEnsemble):
        def forward(self, fact_NF):
            return torch.stack((fact_NF[..., 0], fact_NF[..., 1], fact_NF[..., 0]))

    pair_2BCF = torch.zeros(2, 3, 4, 4)
    pair_2BCF[0, 0, :, 0] = pair_2BCF[0, 0, :, 1] = 1.0  # all are for the first
    pair_2BCF[0, 1, :, 0] = pair_2BCF[1, 1, :, 1] = 1.0  # two are for the first, one for the second
    asked = most_disputed_pairs(pair_2BCF, Fixed(RewardEnsembleSettings(), torch.Generator()), 1)
    assert torch.equal(asked, pair_2BCF[:, 1:2])


def test_members_see_each_answer_as_often_as_drawn_and_a_third_never():
    weight_EB = bootstrap_weights(3, 4000, torch.Generator().manual_seed(0))
    assert (weight_EB == 0).float().mean().item() == pytest.approx(math.exp(-1), abs=0.02)
    assert weight_EB.mean().item() == pytest.approx(1, abs=0.03)


def test_the_loss_is_the_papers_and_a_coin_bounds_it():
    taste = RewardEnsemble(RewardEnsembleSettings(), torch.Generator().manual_seed(0))
    pair_2BCF = some_pairs(6)
    label_B = torch.tensor([1.0, 0.0, 0.5, 1.0, 0.0, 0.5])
    answers = LabelledClips(pair_2BCF=pair_2BCF, label_B=label_B, weight_EB=torch.ones(3, 6))
    chance_EB = 0.9 * taste(pair_2BCF).sum(-1).softmax(1)[:, 0] + 0.05
    expected_EB = -label_B * chance_EB.log() - (1 - label_B) * (1 - chance_EB).log()
    torch.testing.assert_close(comparison_losses(taste, answers, 0.1), expected_EB)
    assert comparison_losses(taste, answers, 0.1).max() <= -math.log(0.05)


def test_members_are_strangers_to_each_other():
    """The gradient of one member's loss reaches none of another's parameters."""
    taste = RewardEnsemble(RewardEnsembleSettings(width=8), torch.Generator().manual_seed(0))
    taste(some_pairs(3))[1].sum().backward()
    moved_E = sum(part.grad.abs().sum((1, 2)) for part in taste.parameters())
    assert (moved_E > 0).tolist() == [False, True, False]


def test_rewards_have_mean_0_and_deviation_1_in_every_member():
    taste = RewardEnsemble(RewardEnsembleSettings(), torch.Generator().manual_seed(0))
    pair_2BCF = some_pairs(50)
    reward_EM = taste.normalised(pair_2BCF, pair_2BCF).flatten(1)
    assert reward_EM.mean(1).tolist() == pytest.approx([0, 0, 0], abs=1e-4)
    assert reward_EM.std(1).tolist() == pytest.approx([1, 1, 1], abs=1e-4)


def test_an_ensemble_learns_what_a_judge_who_errs_likes():
    chance, how = torch.Generator().manual_seed(0), RewardEnsembleSettings(width=32)
    pair_2BCF = some_pairs(500)
    learner = EnsembleTrainer(how, chance)
    verdicts = ClipJudge().answer(pair_2BCF[0], pair_2BCF[1], chance)
    learner.fit(
        LabelledClips(
            pair_2BCF=pair_2BCF, label_B=verdicts.label_B, weight_EB=bootstrap_weights(3, 500, chance)
        )
    )
    fresh_2BCF = some_pairs(500, seed=1)
    sum_2B = learner.ensemble.normalised(fresh_2BCF, pair_2BCF).mean(0).sum(-1).detach()
    assert ((sum_2B[0] > sum_2B[1]) == (gap(fresh_2BCF) > 0)).float().mean().item() > 0.85


def test_more_decay_where_a_member_learns_by_heart_less_where_it_does_not():
    learner = EnsembleTrainer(
        RewardEnsembleSettings(steps=1, first_steps=0), torch.Generator().manual_seed(0)
    )
    pair_2BCF = some_pairs(40)
    first_EB, second_EB = learner.ensemble(pair_2BCF).sum(-1).detach().unbind(1)
    label_B = (first_EB[0] > second_EB[0]).float()
    # What member 0 holds out it gets wrong, and what it has seen right; no member ever saw all of it.
    seen_B = torch.arange(40) < 20
    answers = LabelledClips(
        pair_2BCF=pair_2BCF,
        label_B=torch.where(seen_B, label_B, 1 - label_B),
        weight_EB=torch.stack((seen_B, ~seen_B, torch.ones(40, dtype=torch.bool))).float(),
    )
    learner.fit(answers)
    assert learner.held_out_ratio_E[0] > 1.5
    assert learner.held_out_ratio_E[2].item() == pytest.approx(1.3)
    assert learner.decay_E[[0, 2]].tolist() == pytest.approx([1.5e-4, 1e-4])
    if learner.held_out_ratio_E[1] < 1.1:
        assert learner.decay_E[1].item() == pytest.approx(1e-4 / 1.5)


def test_answers_add_up():
    chance = torch.Generator().manual_seed(0)
    some = LabelledClips(
        pair_2BCF=some_pairs(4), label_B=torch.rand(4), weight_EB=bootstrap_weights(3, 4, chance)
    )
    both = no_labelled_clips(3, 5).plus(some).plus(some)
    assert len(both) == 8
    assert torch.equal(both.select(torch.tensor([5])).pair_2BCF, some.pair_2BCF[:, 1:2])


@pytest.mark.parametrize(
    ("settings", "faults"),
    [
        (ClipJudge, [{"wrong": -0.1}, {"wrong": 1.0}, {"silent": math.nan}, {"tie": -1.0}]),
        (QuerySettings, [{"comparisons": 1}, {"queries": "best"}, {"clip": 0}, {"first": 0}, {"half": 0}]),
        (RewardEnsembleSettings, [{"members": 1}, {"noise": 1.0}]),
        (ControlSettings, [{"rounds": 0}, {"copies": 3}, {"asking": QuerySettings(clip=101)}]),
        (ControlSettings, [{"ppo": PpoSettings(parts=65)}]),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, faults):
    for fault in faults:
        with pytest.raises(UserError):
            settings(**fault)
