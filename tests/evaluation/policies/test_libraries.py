"""A library that is missing is named before anything is drawn."""

from __future__ import annotations

import pytest

from plaudit.errors import UserError
from plaudit.evaluation.policies import alignment_tax
from plaudit.evaluation.policies.evaluate import EvaluationSettings, check_policies
from tests.evaluation.policies.tiny import ASKED


def test_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(alignment_tax, "REQUIRED_LIBRARIES", ("scipy", "no_such_library"))
    with pytest.raises(
        UserError, match=r'needs no_such_library; it is missing: pip install "plaudit\[eval\]"'
    ):
        check_policies({"sft": tmp_path}, ASKED, EvaluationSettings())
