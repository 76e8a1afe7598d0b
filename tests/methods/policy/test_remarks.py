"""Sentences about familiar things in policy runs: each when its history is there, not otherwise, once."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from plaudit.engine.sinks.files import read_notes
from plaudit.engine.step_report import StepReport
from plaudit.methods.policy.conflicts import configured_algorithm
from plaudit.methods.policy.diagnostics import DOCS_PAGE, diagnostics
from tests.engine.test_exact_resume import when_steps_are_done
from tests.engine.toy_command import Command
from tests.methods.histories import LONG, history, steadily
from tests.methods.policy.commands import Place, command, go, make_place, refused, well
from tests.methods.policy.pieces import config_of

ZERO = "the loss is close to 0"
BELOW = "the KL is below 0"
COLLAPSING = "the entropy is collapsing"
FLAT = "most prompts teach nothing"
ALL_FLAT = "no prompt teaches anything"
CUT = "most answers are cut"
GROWING = "answers are growing longer"
SILENT = "the reward has no verdict"
CLIPPED = "many tokens are clipped"
BLIND = "the critic explains nothing"
TOO_OLD = "answers are too old"
GAMED = "the reward is being gamed"
IDLE = "many steps had nothing to learn from"


def said(reports: Sequence[StepReport], name: str = "ppo") -> Mapping[str, str]:
    return diagnostics(configured_algorithm(name, config_of(name)), reports)


def test_what_a_cut_answer_is_paid_is_what_was_set() -> None:
    row = replace(configured_algorithm("ppo", config_of("ppo")), missing_eos_penalty=0)
    assert "score is --missing-eos" in diagnostics(row, history(frac_finished=[0.3] * 4))[CUT]


SHOWN: dict[str, tuple[str, list[StepReport], str]] = {
    "half of the steps were passed over": (IDLE, history(learning_rate=[1.0] * 20, reward=[1.0] * 10), "ppo"),
    "a loss of 0 and a gradient": (ZERO, history(loss=[0.0] * 3, ratio=[1.0] * 3), "dr-grpo"),
    "a loss of 0 of whitened advantages": (ZERO, history(loss=[1e-3] * 3, ratio=[1.0] * 3), "ppo"),
    "a KL below 0": (BELOW, history(kl=[0.0, -0.5, -0.4, -0.3, -0.2, -0.3]), "ppo"),
    "collapsing": (COLLAPSING, history(entropy=[3.0] * 10 + [0.01] * 10, length_mean=[16.0] * 20), "ppo"),
    "flat": (FLAT, history(frac_zero_std=[0.8] * 6, reward_std=[0.1] * 6), "grpo"),
    "all are flat": (ALL_FLAT, history(frac_zero_std=[1.0], reward_std=[0.0]), "grpo"),
    "cut": (CUT, history(frac_finished=[0.3] * 4), "ppo"),
    "growing": (GROWING, history(length_mean=steadily(20, 80)), "ppo"),
    "silent": (SILENT, history(frac_no_verdict=[0.4] * 4), "ppo"),
    "clipped": (CLIPPED, history(clip_frac_low=[0.3] * 4, clip_frac_high=[0.3] * 4), "ppo"),
    "blind": (BLIND, history(explained_variance=[-0.5] * 12), "ppo"),
    "too old": (
        TOO_OLD,
        history(effective_samples=steadily(1, 0.2), frac_weights_bounded=[0.0] * LONG),
        "grpo",
    ),
    "capped": (TOO_OLD, history(effective_samples=[0.9] * 6, frac_weights_bounded=[0.2] * 6), "grpo"),
    "gamed": (
        GAMED,
        history(held_reward=[1.0, 2.0, 3.0, 4.0], held_judge=[1.0, 2.0, 1.5, 1.0], held_judge_se=[0.1] * 4),
        "ppo",
    ),
}
QUIET: dict[str, tuple[list[StepReport], str]] = {
    "nothing yet": ([], "ppo"),
    "a loss of 0 in the first step": (history(loss=[0.0], ratio=[1.0]), "ppo"),
    "a loss with ratios": (history(loss=[0.0] * 3, ratio=[1.0, 1.01, 1.0]), "ppo"),
    "a loss that is not 0": (history(loss=[0.0, 0.3], ratio=[1.0, 1.0]), "ppo"),
    "a loss with a KL in it": (history(loss=[0.0] * 3, ratio=[1.0] * 3), "grpo"),
    "advantages that need not add up to 0": (history(loss=[0.0] * 3, ratio=[1.0] * 3), "reinforce"),
    "a KL above 0": (history(kl=[0.0, 0.5, 1.0]), "ppo"),
    "a KL that was below 0": (history(kl=[-0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]), "ppo"),
    "a KL below 0 by chance": (history(kl=[1.0, 0.5, -0.3, 0.2, -0.4]), "ppo"),
    "a KL below 0 at last": (history(kl=[-0.3, -0.3, -0.3]), "ppo"),
    "a KL of rounding": (history(kl=[-1e-5] * 6), "ppo"),
    "an entropy that falls a little": (history(entropy=steadily(3.0, 1.5)), "ppo"),
    "answers of which many may still come": (
        history(entropy=steadily(0.3, 0.03), length_mean=[16.0] * LONG),
        "ppo",
    ),
    "one entropy": (history(entropy=[3.0]), "ppo"),
    "some are flat": (history(frac_zero_std=[0.4] * 6, reward_std=[0.1] * 6), "grpo"),
    "one answer each is always flat": (history(frac_zero_std=[1.0] * 6, reward_std=[0.1] * 6), "ppo"),
    "most end": (history(frac_finished=[0.8] * 4), "ppo"),
    "cut at first": (history(frac_finished=[0.0] * 5 + [0.9] * 5), "ppo"),
    "a little longer": (history(length_mean=steadily(20, 26)), "ppo"),
    "short and hardly longer": (history(length_mean=steadily(2, 5)), "ppo"),
    "few without a verdict": (history(frac_no_verdict=[0.1] * 4), "ppo"),
    "few clipped": (history(clip_frac_low=[0.1] * 4, clip_frac_high=[0.1] * 4), "ppo"),
    "hardly older": (history(effective_samples=[0.8] * 9, frac_weights_bounded=[0.05] * 9), "grpo"),
    "old in four rounds": (history(effective_samples=[0.1] * 4, frac_weights_bounded=[0.5] * 4), "grpo"),
    "blind at first": (history(explained_variance=[-0.5] * 6), "ppo"),
    "not blind any more": (history(explained_variance=[-0.5] * 8 + [0.4] * 6), "ppo"),
    "both rise": (
        history(held_reward=[1.0, 2.0, 3.0, 4.0], held_judge=[1.0, 2.0, 2.1, 2.2], held_judge_se=[0.1] * 4),
        "ppo",
    ),
    "both fall": (
        history(held_reward=[1.0, 2.0, 1.5, 1.0], held_judge=[1.0, 2.0, 1.5, 1.0], held_judge_se=[0.1] * 4),
        "ppo",
    ),
    "one bad look": (
        history(held_reward=[1.0, 2.0, 3.0], held_judge=[1.0, 2.0, 1.0], held_judge_se=[0.1] * 3),
        "ppo",
    ),
    "a judge that falls within its error": (
        history(
            held_reward=[1.0, 2.0, 3.0, 4.0], held_judge=[0.84, 0.865, 0.86, 0.859], held_judge_se=[0.03] * 4
        ),
        "ppo",
    ),
    "no judge": (history(held_reward=[1.0, 2.0, 3.0, 4.0]), "ppo"),
    "not numbers": (history(kl=[float("nan")] * 5, entropy=[float("inf")] * 12), "ppo"),
}


@pytest.mark.parametrize("what", SHOWN)
def test_what_happens_is_said_and_where_it_is_explained(what: str) -> None:
    begins, reports, name = SHOWN[what]
    found = said(reports, name)
    assert set(found) == {begins}
    assert f"{DOCS_PAGE}#" in found[begins]


@pytest.mark.parametrize("what", QUIET)
def test_what_does_not_happen_is_not_said(what: str) -> None:
    reports, name = QUIET[what]
    assert said(reports, name) == {}


def test_of_a_hundred_sound_runs_five_at_most_are_told_that_they_are_gamed() -> None:
    """The reward rises, the judge stays: twenty looks, and no two of them share anything."""
    rng, row, alarms = np.random.default_rng(0), configured_algorithm("ppo", config_of("ppo")), 0
    for _ in range(100):
        score_LP = rng.normal(size=(20, 100))
        reports = history(
            held_reward=steadily(0, 1),
            held_judge=score_LP.mean(1).tolist(),
            held_judge_se=(score_LP.std(1, ddof=1) / 10).tolist(),
        )
        # Once said it stays: a run is told at the first of its looks that calls for it.
        alarms += any(GAMED in diagnostics(row, reports[:looks]) for looks in range(4, 21))
    assert alarms <= 5


def test_several_things_can_be_said_at_once() -> None:
    reports = history(
        frac_finished=[0.1] * 12, entropy=[3.0] * 6 + [0.01] * 6, explained_variance=[-1.0] * 12
    )
    assert set(said(reports)) == {CUT, COLLAPSING, BLIND}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("remarks"))


@pytest.mark.slow
def test_each_is_said_once_in_a_runs_life_though_it_stops_and_goes_on(place: Place) -> None:
    more = ("--rounds", 8, "--evaluate-every", 1, "--sample.rows", 0, "--draw.max-tokens", 3)
    words = command(place, "grpo", "often", *more)
    running = Command(words)
    running.until(when_steps_are_done(place.folder / "often", 3))
    running.send(signal.SIGINT)
    first = running.wait().err
    last = Command(words).wait()
    assert last.code == 0, last.err
    assert (first + last.err).count(CUT) == 1
    assert sum(note.startswith(CUT) for note in read_notes(place.folder / "often")) == 1


def test_a_run_whose_loss_is_0_is_told_why(place: Place) -> None:
    went = well(place, "dr-grpo", "zero", "--minibatches", 1, "--rounds", 3, "--evaluate-every", 1)
    assert f"note: {ZERO}, and that is expected" in went.said
    assert went.figures("grad_norm")[0] > 0
    assert all(abs(loss) < 0.02 for loss in went.figures("loss"))


class TestNothingToCompare:
    @pytest.fixture
    def flat(self, place: Place) -> str:
        (place.folder / "flat.py").write_text(
            "calls = []\n"
            "def same(answer):\n    return 0.1\n"
            "def by_prompt(prompt):\n    return float(len(str(prompt)))\n"
            "def later(answer):\n    calls.append(answer)\n"
            "    return float(len(str(answer))) if len(calls) <= 300 else None\n"
            "def at_last(answer):\n    calls.append(answer)\n"
            "    return 0.1 if len(calls) <= 40 else float(len(str(answer)))\n".replace(
                "def by_prompt(prompt)", "def by_prompt(prompt, answer)"
            )
        )
        return str(place.folder / "flat.py")

    @pytest.mark.one_in(6)
    @pytest.mark.parametrize("name", ["grpo", "rloo", "dapo"])
    @pytest.mark.parametrize("rule", ["same", "by_prompt"])
    def test_the_run_says_so_and_ends_after_three_rounds(self, place, flat, name, rule):
        more = ("--reward", f"{flat}:{rule}", "--rounds", 8, "--sample.rows", 0)
        went = refused(place, name, f"flat-{name}-{rule}", *more)
        assert "one and the same score for 3 rounds" in went.said
        assert f"{rule} says of answers that differ" in went.said
        assert len(went.lines) == 2 * (4 if name == "dapo" else 1)
        if name != "dapo":  # which leaves such prompts out, so that nothing is reported of them
            assert went.said.count(ALL_FLAT) == 1
        assert not (went.run / "model").exists()

    @pytest.mark.slow
    def test_it_goes_on_where_the_scores_are_shaped_or_it_is_told_to(self, place: Place, flat: str) -> None:
        rule = ("--reward", f"{flat}:same", "--rounds", 5, "--sample.rows", 0)
        assert go(place, "grpo", "shaped", *rule, "--shape.per-token", 0.1).code == 0
        assert go(place, "grpo", "patient", *rule, "--draw.flat-rounds", 0).code == 0

    @pytest.mark.slow
    def test_what_came_late_counts(self, place: Place, flat: str) -> None:
        went = go(place, "grpo", "late", "--reward", f"{flat}:at_last", "--rounds", 6, "--held-out", 0)
        assert went.code == 0, went.said
        assert went.figures("frac_zero_std")[0] == 1.0
        assert went.figures("frac_zero_std")[-1] < 1.0

    @pytest.mark.slow
    def test_a_round_without_a_verdict_is_said_when_it_comes(self, place: Place, flat: str) -> None:
        went = refused(place, "grpo", "silent", "--reward", f"{flat}:later", "--rounds", 30, "--held-out", 0)
        # At the next look at held-out prompts or samples.
        told = went.said.index("note: a round taught nothing: round 12: ")
        assert told < went.said.index("plaudit: round 13: ")
        assert went.said.count("a round taught nothing") == 1


@pytest.mark.slow
def test_a_formula_stands_only_over_its_own_cells(place: Place) -> None:
    own = well(place, "grpo", "own", "--rounds", 1).said
    assert "note: grpo: " in own
    assert "/ std of the group" in own
    changed = well(place, "grpo", "changed", "--rounds", 1, "--advantage", "group-mean").said
    assert "/ std of the group" not in changed
    assert "note: grpo with other cells than its own: group-mean · clip" in changed
    assert "in place of group-z · clip" in changed
