"""The frame of checks: every kind of run can be looked over, and is afterwards as it was before."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from tests.preflight.subjects import Method, failing, healthy


@pytest.mark.one_in(6)
@pytest.mark.parametrize("method", get_args(Method))
def test_a_healthy_run_passes(tmp_path: Path, method: Any) -> None:
    with healthy(method, tmp_path) as subject:
        assert failing(subject) == {}
