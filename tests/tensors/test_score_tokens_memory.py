"""Memory grows with one block, never with tokens × vocabulary."""

import json
import subprocess
import sys

import pytest

from tests.peer import ROOT


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_no_tensor_of_all_logits_ever_exists() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.tensors.measure_memory"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    mib = json.loads(done.stdout)
    assert mib["naive"] > 2 * mib["logits"]
    assert mib["blocked"] < mib["naive"] / 10
    assert mib["blocked"] < mib["logits"] / 5
