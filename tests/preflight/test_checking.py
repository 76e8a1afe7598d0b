"""The frame of checks: every kind of run can be looked over, and is afterwards as it was before."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from plaudit.errors import UserError
from plaudit.preflight.checks import CHECKS, OLD_CHECK_NAMES, named_checks
from tests.preflight.subjects import Method, failing, healthy


@pytest.mark.parametrize("method", get_args(Method))
def test_a_healthy_run_passes(tmp_path: Path, method: Any) -> None:
    with healthy(method, tmp_path) as subject:
        assert failing(subject) == {}


def test_old_names_of_checks_are_taken_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    assert named_checks("--allow", ("one-bos", "room")) == ("one-bos", "truncation")
    note = "plaudit: --allow room is called truncation now; the old name is taken for this release"
    assert capsys.readouterr().err == note + "\n"
    assert set(OLD_CHECK_NAMES.values()) <= set(CHECKS)
    assert not set(OLD_CHECK_NAMES) & set(CHECKS)
    with pytest.raises(UserError, match="--only one-boss: there is no such check"):
        named_checks("--only", ("one-boss",))
