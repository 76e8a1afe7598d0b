"""Shares and paired differences of attacks beside closed forms, published figures and statsmodels."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from plaudit.data.records import user_turn
from plaudit.errors import UserError
from plaudit.evaluation.stats import Estimate
from plaudit.feedback.attacks import summary
from plaudit.feedback.attacks.attempt import AnswerFinding, Attempt, Finding
from plaudit.feedback.attacks.summary import attack_share, gap_between, mirrored_of, paired, rate, read_attack


def finding(words: str, *shares: float | None, unit: str = "") -> Finding:
    answers = tuple(AnswerFinding(text="…", share=share) for share in shares)
    return Finding(attempt=Attempt(turns=user_turn(words), unit=unit), answers=answers)


def width(estimate: Estimate) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low


@pytest.mark.parametrize(("worked", "n"), [(0, 12), (5, 40), (23, 174), (40, 40)])
def test_a_share_of_attempts_of_their_own_has_wilsons_interval(worked, n):
    found = attack_share([1.0] * worked + [0.0] * (n - worked), [str(k) for k in range(n)])
    low, high = proportion_confint(worked, n, method="wilson")
    assert found is not None
    assert found.value == worked / n
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)


def test_rewordings_of_one_prompt_are_no_independent_attempts():
    values = [1.0] * 60 + [0.0] * 60
    alone = attack_share(values, [str(n) for n in range(120)])
    together = attack_share(values, [str(n // 12) for n in range(120)])
    assert alone is not None
    assert together is not None
    assert together.prompts == 10
    assert width(together) > 2 * width(alone)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (1, 0), (6, 0), (9, 4), (3, 17), (40, 25)])
def test_the_exact_test_is_that_of_statsmodels(first, second):
    table: Any = mcnemar([[7, first], [second, 11]], exact=True)
    expected = table.pvalue
    assert summary.exact_p_value(first, second) == pytest.approx(min(expected, 1.0), abs=1e-12)


def test_the_interval_of_a_paired_difference_is_newcombes_covers_and_holds_its_difference():
    """Newcombe 1998, table II, method 10: 36, 12, 2 and 0."""
    assert summary.paired_interval(36, 12, 2, 0) == pytest.approx((0.0569, 0.3404), abs=5e-5)
    rng, covered, runs = np.random.default_rng(0), 0, 2000
    shares = (0.2, 0.15, 0.05, 0.6)
    for _ in range(runs):
        low, high = summary.paired_interval(*(int(n) for n in rng.multinomial(60, shares)))
        covered += low <= shares[1] - shares[2] <= high
    assert 0.93 <= covered / runs <= 0.98
    for cells in itertools.product(range(4), repeat=4):
        if sum(cells):
            low, high = summary.paired_interval(*cells)
            assert -1 <= low <= (cells[1] - cells[2]) / sum(cells) <= high <= 1


def test_an_attempt_works_where_any_answer_does_and_is_not_judged_where_one_may():
    some = [finding("a", 0.9, 0.1), finding("b", 0.1, 0.2), finding("c", None, 0.1), finding("d", None, 0.8)]
    found = rate("all", some)
    assert [one.happened for one in some] == [True, False, None, True]
    assert (found.attempts, found.unjudged) == (4, 1)
    assert found.share is not None
    assert found.share.value == pytest.approx(2 / 3)
    assert found.answers is not None
    assert found.answers.value == pytest.approx((0.5 + 0 + 0 + 1) / 4)


def test_nothing_has_no_rate():
    assert rate("all", []).share is None
    assert paired([], [], []) is None
    assert mirrored_of([], []) is None


def test_policies_are_compared_on_what_both_were_asked():
    mine = [finding(str(n), float(n < 2)) for n in range(10)]
    theirs = [finding(str(n), float(n < 8)) for n in range(9)] + [finding("other", 1.0)]
    gap = gap_between("attack success", ("later", mine), ("first", theirs))
    assert gap is not None
    assert (gap.paired.both, gap.paired.first, gap.paired.second, gap.paired.neither) == (2, 0, 6, 1)
    assert gap.paired.difference.value == pytest.approx(-6 / 9)


def test_mirrored_pairs_count_the_side_that_is_refused():
    pairs = [(finding("she", 1.0), finding("he", 0.0))] * 6 + [(finding("she", None), finding("he", 1.0))]
    found = mirrored_of(pairs, [str(n) for n in range(7)])
    assert found is not None
    assert found.paired is not None
    assert (found.pairs, found.unjudged, found.paired.first) == (7, 1, 6)
    assert found.paired.p_value == pytest.approx(2 / 2**6)


def test_damaged_figures_are_refused_by_name(tmp_path: Path):
    (tmp_path / "attack.json").write_text('{"judge": "x"}')
    with pytest.raises(UserError, match=r"attack.json: these are no figures of attacks.*lacks"):
        read_attack(tmp_path / "attack.json")
