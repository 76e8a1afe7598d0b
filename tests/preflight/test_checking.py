"""The frame of checks: every kind of run can be looked over, and is afterwards as it was before."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from plaudit.errors import UserError
from plaudit.preflight.check import refuse_unknown_checks
from plaudit.preflight.checks import CHECKS
from tests.preflight.subjects import Method, failing, healthy


@pytest.mark.one_in(6)
@pytest.mark.parametrize("method", get_args(Method))
def test_a_healthy_run_passes(tmp_path: Path, method: Any) -> None:
    with healthy(method, tmp_path) as subject:
        assert failing(subject) == {}


def test_an_unknown_check_is_refused_with_the_nearest_one() -> None:
    refuse_unknown_checks("--only", ("one-bos", "truncation"), CHECKS)
    with pytest.raises(UserError, match=r"--only one-boss: there is no such check.*one-bos"):
        refuse_unknown_checks("--only", ("one-boss",), CHECKS)
