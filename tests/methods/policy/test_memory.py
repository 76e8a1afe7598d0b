"""What is remembered of earlier rounds: pass rates that choose prompts, and answers that come again."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch

from plaudit.engine.step_report import Number
from plaudit.methods.policy.batch import PassRateCurriculum, ReplayBuffer, Round
from plaudit.methods.policy.collect import ScoredGroup
from plaudit.methods.policy.config import ShapeSettings
from plaudit.rollouts.sampler import Answer, Rollout
from plaudit.tokens.prompts import EncodedPrompt
from tests.methods.policy.commands import make_place, refused
from tests.methods.policy.pieces import Scene, learnt, scene

QUESTIONS = [EncodedPrompt(text=f"w{n}", prompt=(1, n), origin=f"p:{n}") for n in range(12)]


def group(question: EncodedPrompt, *scores: float | None) -> ScoredGroup:
    answer = Answer(text="w5", tokens=2, ended=True)
    one = Rollout(
        prompt=question.prompt, ids=(5, 2), logp=(-0.1, -0.3), whole_logp=(-0.1, -1 / 3), answer=answer
    )
    return ScoredGroup(prompt=question, rollouts=(one,) * len(scores), scores=scores, parts={"rule": scores})


def test_prompts_that_are_passed_sometimes_are_asked_more_often() -> None:
    curriculum = PassRateCurriculum(QUESTIONS, pass_score=0.5, seed=0)
    curriculum.record_scores([group(QUESTIONS[0], 1.0, 1.0), group(QUESTIONS[1], 0.0, 0.0)])
    curriculum.record_scores([group(QUESTIONS[n], 1.0, 0.0, None) for n in range(2, 12)])
    asked = Counter(row for number in range(1, 601) for row in curriculum.sample_prompts(number, 3))
    medium = sum(asked[row] for row in range(2, 12)) / 10
    assert max(asked[0], asked[1]) < 0.2 * medium
    assert min(asked[0], asked[1]) > 0


def test_the_newest_pass_rate_counts_and_no_verdict_is_none() -> None:
    curriculum = PassRateCurriculum(QUESTIONS, pass_score=0.5, seed=0)
    curriculum.record_scores([group(QUESTIONS[0], 1.0, 0.0), group(QUESTIONS[1], None, None)])
    curriculum.record_scores([group(QUESTIONS[0], 1.0, 1.0, 0.2, 0.2)])
    rate = curriculum.tensors()["rate"]
    assert rate[0] == 0.5
    assert torch.isnan(rate[1])


def test_a_round_asks_different_prompts_and_the_same_ones_again_after_a_stop() -> None:
    one, other = (PassRateCurriculum(QUESTIONS, pass_score=0.5, seed=3) for _ in range(2))
    one.record_scores([group(QUESTIONS[4], 1.0, 1.0)])
    other.load_tensors(one.tensors())
    for number in range(1, 20):
        rows = one.sample_prompts(number, 5)
        assert len(set(rows)) == 5
        assert rows == other.sample_prompts(number, 5)
    assert sorted(one.sample_prompts(1, 50)) == list(range(12))


def test_old_groups_are_a_share_of_the_round_and_never_too_old() -> None:
    replay = ReplayBuffer(QUESTIONS, share=0.5, window=2, seed=0)
    drawn = {
        number: [group(QUESTIONS[2 * number + k], float(number)) for k in range(2)] for number in range(5)
    }
    assert replay.sample_groups(drawn[0], 1) == ()
    for number in range(1, 5):
        again = replay.sample_groups(drawn[number], number + 1)
        assert len(again) == 2
        assert all(number - 2 <= float(one.scores[0] or 0) < number for one in again)


def test_they_are_the_same_to_the_last_bit_after_a_stop() -> None:
    one, other = (ReplayBuffer(QUESTIONS, share=0.5, window=4, seed=0) for _ in range(2))
    one.sample_groups([group(QUESTIONS[n], 1 / 3, None) for n in range(4)], 1)
    other.load_tensors(one.tensors())
    new = [group(QUESTIONS[n], 0.1) for n in range(5, 9)]
    assert one.sample_groups(new, 2) == other.sample_groups(new, 2)


def test_what_was_drawn_by_an_older_policy_is_weighed_and_what_is_new_is_not() -> None:
    one = scene("grpo")
    rounds, lines = one.rounds, len(one.lines)
    rounds.replay = ReplayBuffer(rounds.prompts, share=0.5, window=4, seed=0)
    rounds.experience = replace(
        rounds.experience, weighting=replace(rounds.experience.weighting, has_replay=True)
    )
    for step in range(1, rounds.updates_per_round + 1):
        one.pieces(step)
        rounds.after_step(step, {"approx_kl": 0.0})
    one.move()
    one.pieces(rounds.updates_per_round + 1)
    now = rounds.current
    assert now is not None
    assert len(now.examples) == 2 * lines
    fresh = sum(len(example.completions) for example in now.examples[:lines])
    mask_NT = now.experience.old_logp_NT != 0
    weight_NT = now.experience.weight_NT
    assert bool((weight_NT[:fresh][mask_NT[:fresh]] == 1).all())
    old = weight_NT[fresh:][mask_NT[fresh:]]
    assert float(old.std()) > 0.01
    assert float(old.max()) <= 2.0


def two_rounds(share: float) -> tuple[Scene, list[Mapping[str, Number]]]:
    """Two rounds of two moves each, which are the same whatever is learnt; with and without old answers."""
    settings = {"update_epochs": 2, "kl_coef": 0.1, "kl_coef_target": 0.5}
    one = scene("reinforce-pp", policy=settings, shape=ShapeSettings(scale=True))
    rounds, told = one.rounds, list[Mapping[str, Number]]()
    if share:
        rounds.replay = ReplayBuffer(rounds.prompts, share=share, window=4, seed=0)
        weighting = replace(rounds.experience.weighting, has_replay=True)
        rounds.experience = replace(rounds.experience, weighting=weighting)
    for step in range(1, 5):
        told.append(learnt(one, one.pieces(step))[2])
        one.move()
        rounds.after_step(step, told[-1])
    return one, told


OF_POLICY = ("kl", "kl_k3", "sqrt_kl", "entropy", "length_mean", "length_max", "frac_finished", "approx_kl")


def test_old_answers_change_no_figure_of_the_policy_nor_what_steers_by_it() -> None:
    """All of these are estimates over answers that the policy drew, or count each score once."""
    (with_old, told), (without, wanted) = two_rounds(0.2), two_rounds(0.0)
    assert told[3]["frac_replayed"] == pytest.approx(1 / 6)
    for name in OF_POLICY:
        assert [one[name] for one in told] == pytest.approx([one[name] for one in wanted], abs=1e-12), name
    assert told[3]["approx_kl"] > 1e-6
    assert with_old.rounds.memory.beta == without.rounds.memory.beta != 0.1
    scales = [one.rounds.experience.shaper.tensors()["scale"] for one in (with_old, without)]
    assert scales[0].tolist() == pytest.approx(scales[1].tolist(), abs=1e-12)


def test_an_old_round_of_a_checkpoint_knows_which_answers_came_again() -> None:
    one, _ = two_rounds(0.2)
    one.pieces(5)
    now = one.rounds.current
    assert now is not None
    again = Round.from_tensors(now.tensors())
    assert (len(again.examples), again.fresh) == (len(now.examples), range(len(one.lines)))
    assert now.fresh == again.fresh


def test_the_first_round_of_reinforce_is_measured_against_its_other_answers() -> None:
    """A baseline that holds the answer's own score would shrink its gradient; there is none before it."""
    one = scene("reinforce", policy={"kl_coef": 0.0})
    one.rounds.memory.mean_score, one.rounds.memory.score_count = 0.0, 0
    one.pieces()
    now = one.rounds.current
    assert now is not None
    scores = one.rounds.collector.collect(one.rounds.prompts, 1, ()).scores.tolist()
    found = [row[row != 0][0].item() for row in now.experience.advantage_NT]
    for n, score in enumerate(scores):
        others = [other for m, other in enumerate(scores) if m != n]
        assert found[n] == pytest.approx(score - sum(others) / len(others), abs=1e-12)
    assert one.rounds.memory.mean_score == pytest.approx(sum(scores) / len(scores))


def test_replay_is_refused_where_answers_are_measured_against_the_likeliest_one(tmp_path) -> None:
    went = refused(make_place(tmp_path), "remax", "out", "--draw.replay", 0.3)
    assert "nothing to be measured against" in went.said
