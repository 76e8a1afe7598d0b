"""A speaker for all files that only read it."""

import pytest

from tests.engine.toy import Toy
from tests.methods.iterative.test_loop_runs import make_speaker


@pytest.fixture(scope="session")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """A toy that has learnt to end its answers, and sixteen prompts; demonstrations lie beside them."""
    return make_speaker(tmp_path_factory.mktemp("speaker"))
