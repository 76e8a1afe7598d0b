"""pass@k and avg@k: the estimator against every choice of k answers, and the command on a real model."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from plaudit.cli.main import main
from plaudit.data.records import Prompt, user_turn
from plaudit.data.write import write_records
from plaudit.evaluation.policies.result import read_policy_evaluation
from plaudit.evaluation.policies.scores import pass_at_k, pass_figures, why_no_passes
from plaudit.evaluation.stats import Resampling, wilson_interval
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from tests.evaluation.policies.tiny import policy


@pytest.mark.parametrize("n", range(1, 9))
def test_pass_at_k_is_the_share_of_choices_that_hold_a_right_answer(n):
    for right in range(n + 1):
        answers = [True] * right + [False] * (n - right)
        for k in range(1, n + 1):
            chosen = [any(choice) for choice in combinations(answers, k)]
            assert pass_at_k(n, right, k) == pytest.approx(
                float(Fraction(sum(chosen), len(chosen))), abs=1e-15
            )


def test_many_answers_neither_overflow_nor_lose_digits():
    assert pass_at_k(2000, 1, 1) == pytest.approx(1 / 2000, abs=1e-15)
    assert pass_at_k(2000, 3, 1000) == pytest.approx(1 - (1000 * 999 * 998) / (2000 * 1999 * 1998), abs=1e-14)
    for wrong in ((3, 4, 1), (3, 1, 4), (3, 1, 0)):
        with pytest.raises(ValueError, match="pass@"):
            pass_at_k(*wrong)


def test_intervals_are_over_prompts_and_prompts_without_a_verdict_are_left_out():
    scores = ((1.0, 0.0, 0.0, 1.0), (0.0,) * 4, (None, 1.0, 1.0, 1.0), (1.0,) * 4)
    one, two = pass_figures(scores, (1, 2), Resampling(times=200))
    assert (one.k, one.value.prompts, two.k) == (1, 3, 2)
    assert one.value.value == pytest.approx((0.5 + 0 + 1) / 3)
    assert two.value.value == pytest.approx((1 - 1 / 6 + 0 + 1) / 3)
    assert one.value.low < one.value.value < one.value.high
    [never] = pass_figures(((0.0, 0.0),) * 5, (2,), Resampling())
    assert (never.value.low, never.value.high) == (0.0, wilson_interval(0.0, 5)[1])
    assert "this one gave 0.5" in why_no_passes(((1.0, 0.5),))
    assert "no prompt has a verdict" in why_no_passes(((None, 1.0),))
    assert pass_figures(((1.0, 0.5),), (1,), Resampling()) == ()


def test_the_command_counts_what_the_model_said(capsys, tmp_path):
    folder = policy(tmp_path, 0)
    prompts = [user_turn(f"w{n}") for n in range(7, 13)]
    groups = LocalSampler(folder, device="cpu").generate_answers(prompts, SamplingSettings(max_tokens=2), n=8)
    # The answer that came second is the right one, so that some are right and most are not.
    rows = [Prompt(prompt=p, answer=group[1].text) for p, group in zip(prompts, groups, strict=True)]
    data = write_records(rows, tmp_path / "asked.jsonl").path
    words = [
        "eval", "policy", str(folder), "--prompts", str(data), "--right", "exact", "--answers", "8",
        "--max-tokens", "2", "--bootstrap", "50", "--device", "cpu", "--out", str(tmp_path / "e"),
    ]  # fmt: skip
    assert main(words) == 0
    said = capsys.readouterr().out
    found = read_policy_evaluation(tmp_path / "e")
    said_right = zip(groups, rows, strict=True)
    right = [sum(a.text.strip() == row.answer.strip() for a in group) for group, row in said_right]
    assert found.right == "exact"
    assert [one.k for one in found.policies[0].passes] == [1, 2, 4, 8]
    for one in found.policies[0].passes:
        wanted = np.mean([1 - np.prod([(8 - c - i) / (8 - i) for i in range(one.k)]) for c in right])
        assert one.value.value == pytest.approx(float(wanted), abs=1e-12)
        assert f"pass@{one.k}" in said
    assert "pass@1, avg@8 (exact)" in said
    briefed = [part for name in "ab" for part in ("--policy", f"{name}={folder},system=w{ord(name)}")]
    assert main([*words, *briefed]) == 0
    overview = capsys.readouterr().out.partition("entropy")[0]
    assert ("right by exact" in overview, "win rate" in overview) == (True, False)
    assert main([*words, "--pass-at", "3", "--pass-at", "5"]) == 0
    assert [one.k for one in read_policy_evaluation(tmp_path / "e").policies[0].passes] == [3, 5]


def test_what_cannot_be_counted_is_refused_or_said(capsys, tmp_path):
    folder = policy(tmp_path, 0)
    data = write_records([Prompt(prompt=user_turn("w9"))], tmp_path / "asked.jsonl").path
    words = ["eval", "policy", str(folder), "--prompts", str(data), "--max-tokens", "2", "--device", "cpu"]
    for more, complaint in (
        (("--pass-at", "2"), "--pass-at needs a rule"),
        (("--right", "exact", "--pass-at", "2"), "pass@2 needs as many answers to every prompt"),
        (("--right", "exactly"), "there is no reward 'exactly'"),
    ):
        assert main([*words, *more]) == 2
        assert complaint in capsys.readouterr().err
    assert main([*words, "--right", "exact"]) == 0
    assert "no prompt has a verdict on each of" in capsys.readouterr().out
