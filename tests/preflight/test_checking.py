"""The frame of checks: every kind of run can be looked over, and is afterwards as it was before."""

from pathlib import Path
from typing import Any, get_args

import pytest

from plaudit.preflight import check
from tests.preflight.subjects import Method, failing, healthy


@pytest.mark.one_in(6)
@pytest.mark.parametrize("method", get_args(Method))
def test_a_healthy_run_passes(tmp_path: Path, method: Any) -> None:
    with healthy(method, tmp_path) as subject:
        assert failing(subject) == {}


def test_checks_see_some_of_many_rows_and_all_of_fewer(tmp_path, monkeypatch):
    seen: list[tuple[int, int]] = []

    def looked(subject: check.PreflightSubject) -> check.Result:
        seen.append((len(subject.records), len(subject.trained)))
        return check.passed("seen")

    with healthy("sft", tmp_path) as subject:
        rows = len(subject.records), len(subject.trained)
        monkeypatch.setattr(check, "MAX_ROWS", 4)
        for bound in (rows[0] + 1, rows[1]):
            monkeypatch.setattr(check, "MANY_ROWS", bound)
            assert [*check.run_checks(subject, [check.Check(name="looked", run=looked)])]
    assert seen[0] == rows
    assert all(2 <= some <= 4 for some in seen[1])
