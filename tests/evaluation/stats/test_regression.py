"""Regressions of preferences: as statsmodels has them, and what becomes of features that cannot be fitted."""

import numpy as np
import pytest
from statsmodels.discrete.discrete_model import Logit

from plaudit.evaluation import stats


def drawn(n: int = 500):
    """Two features, and a judge of known coefficients; two pairs a prompt."""
    chance = np.random.default_rng(7)
    x_BF = np.stack([chance.normal(size=n), chance.choice([-1.0, 0.0, 1.0], size=n)], axis=1)
    y_B = (chance.random(n) < 1 / (1 + np.exp(-x_BF @ np.array([1.0, -0.5])))).astype(float)
    return x_BF, y_B, np.arange(n) // 2


X_BF, Y_B, PROMPT_B = drawn()


def test_coefficients_and_clustered_errors_agree_with_logit_of_statsmodels():
    found = stats.fit_judges(X_BF, {"ada": Y_B}, PROMPT_B)
    assert (X_BF != 0).any(1).all()
    peer = Logit(Y_B, X_BF).fit(disp=0, cov_type="cluster", cov_kwds={"groups": PROMPT_B})
    assert found.beta == pytest.approx(peer.params, rel=1e-5)
    assert np.sqrt(np.diag(found.covariance)) == pytest.approx(peer.bse, rel=0.01)
    assert found.beta == pytest.approx([1.0, -0.5], abs=0.25)


def test_two_judges_fitted_together_have_the_coefficients_that_each_has_alone():
    other_B = np.random.default_rng(1).choice([0.0, 0.5, 1.0], size=len(Y_B))
    both = stats.fit_judges(X_BF, {"ada": Y_B, "bob": other_B}, PROMPT_B)
    alone = [stats.fit_judges(X_BF, {"one": said}, PROMPT_B).beta for said in (Y_B, other_B)]
    assert both.beta == pytest.approx(np.concatenate(alone), rel=1e-5)
    assert both.fits["bob"].coefficient_index == {0: 2, 1: 3}


def test_a_judge_does_not_differ_from_itself_and_the_interval_knows_it():
    """Errors of the same judge cancel, which they would not if the two were taken for strangers."""
    found = stats.fit_judges(X_BF, {"ada": Y_B, "again": Y_B}, PROMPT_B)
    value, error = stats.contrast_and_error(found, {0: 1.0, 2: -1.0})
    assert value == pytest.approx(0, abs=1e-6)
    assert error < 1e-5
    assert stats.contrast_and_error(found, {0: 1.0})[1] > 0.05


def test_it_does_not_matter_which_answer_is_called_the_first():
    turn_B = np.where(np.random.default_rng(2).random(len(Y_B)) < 0.5, 1.0, -1.0)
    turned = stats.fit_judges(X_BF * turn_B[:, None], {"ada": np.where(turn_B == 1, Y_B, 1 - Y_B)}, PROMPT_B)
    assert turned.beta == pytest.approx(stats.fit_judges(X_BF, {"ada": Y_B}, PROMPT_B).beta, rel=1e-5)


def test_a_feature_that_is_constant_or_goes_along_with_others_is_named_and_the_rest_fitted():
    wide_BF = np.column_stack([X_BF[:, 0], np.zeros(len(Y_B)), 2 * X_BF[:, 0], X_BF[:, 1]])
    found = stats.fit_judges(wide_BF, {"ada": Y_B}, PROMPT_B)
    assert found.fits["ada"].faults == {1: stats.NEVER_DIFFERS, 2: stats.COLLINEAR}
    assert found.beta == pytest.approx(stats.fit_judges(X_BF, {"ada": Y_B}, PROMPT_B).beta, rel=1e-5)


@pytest.mark.parametrize(("sign", "fault"), [(1.0, stats.ALWAYS_PREFERRED), (-1.0, stats.NEVER_PREFERRED)])
def test_a_feature_that_decides_alone_is_named_and_the_others_are_fitted_where_it_is_silent(sign, fault):
    rule_B = np.where(np.arange(len(Y_B)) % 3 == 0, sign * (2 * Y_B - 1), 0.0)
    found = stats.fit_judges(np.column_stack([rule_B, X_BF]), {"ada": Y_B}, PROMPT_B)
    silent = rule_B == 0
    assert found.fits["ada"].faults == {0: fault}
    assert found.beta == pytest.approx(
        stats.fit_judges(X_BF[silent], {"a": Y_B[silent]}, PROMPT_B[silent]).beta, rel=1e-5
    )


def test_a_feature_that_differs_only_where_another_decides_is_said_to():
    rule_B = np.where(np.arange(len(Y_B)) % 3 == 0, 2 * Y_B - 1, 0.0)
    shadow_B = np.where(rule_B != 0, X_BF[:, 0], 0.0)
    found = stats.fit_judges(np.column_stack([rule_B, shadow_B, X_BF]), {"ada": Y_B}, PROMPT_B)
    assert found.fits["ada"].faults == {0: stats.ALWAYS_PREFERRED, 1: stats.DECIDED_BY_OTHERS}


def test_features_that_only_together_foretell_everything_have_no_odds():
    found = stats.fit_judges(X_BF, {"ada": (X_BF @ np.array([1.0, -0.5]) > 0).astype(float)}, PROMPT_B)
    assert found.fits["ada"].faults == {0: stats.PERFECTLY_SEPARATED, 1: stats.PERFECTLY_SEPARATED}
    assert len(found.beta) == 0


def test_a_pair_of_which_neither_is_preferred_ends_a_perfect_rule():
    y_B = (X_BF[:, 0] > 0).astype(float)
    y_B[:5] = 0.5
    found = stats.fit_judges(X_BF[:, :1], {"ada": y_B}, PROMPT_B)
    assert found.fits["ada"].faults == {}
    assert found.beta[0] > 3


def test_an_interval_stays_one_where_fitted_chances_reach_their_ends():
    """The statsmodels covariance is no number there, and a width of 0 would pass for certainty."""
    chance = np.random.default_rng(0)
    worth_B = np.concatenate([chance.normal(size=300) * 400, chance.normal(size=60) * 0.5])
    long_B = chance.normal(size=360)
    first_B = (chance.random(360) < 1 / (1 + np.exp(-np.clip(8 * worth_B + long_B, -700, 700)))).astype(float)
    found = stats.fit_judges(np.stack([worth_B, long_B], 1), {"ada": first_B}, np.arange(360))
    assert found.fits["ada"].coefficient_index == {0: 0, 1: 1}
    for place in (0, 1):
        estimate, error = stats.contrast_and_error(found, {place: 1.0})
        assert error > 0.01 * abs(estimate)
    beta, error = stats.contrast_and_error(found, {1: 1.0})
    assert abs(beta - 1) < 3 * error
