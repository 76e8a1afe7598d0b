"""The same scores through TRL's reward trainer, in its own environment: the same loss, the same gradient."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch

from plaudit.losses.reward import bradley_terry, centring

ROOT = Path(__file__).parents[2]
PEER = Path(os.environ.get("PLAUDIT_PEER_PYTHON", ROOT / ".peers/trl/bin/python"))
pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(not PEER.exists(), reason=f"no peer environment at {PEER}"),
]
CHOSEN, REJECTED = [0.3, -1.2, 2.0, 40.0, -40.0], [0.1, 0.7, -2.5, -40.0, 40.0]
MARGIN = [0.0, 1 / 3, 2 / 3, 1.0, 3.0]
ASKED = {
    "plain": (None, None),
    "margin": (MARGIN, None),
    "centred": (None, 0.01),
    "margin and centred": (MARGIN, 0.1),
}


@pytest.fixture(scope="module")
def peer():
    run = subprocess.run(
        [str(PEER), str(Path(__file__).with_name("peer_reward.py"))],
        input=json.dumps([[CHOSEN, REJECTED, *options] for options in ASKED.values()]),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return dict(zip(ASKED, json.loads(run.stdout.partition("ANSWERS")[2]), strict=True))


@pytest.mark.parametrize("name", ASKED)
def test_loss_and_gradient_are_the_peers(peer, name):
    margin, weight = ASKED[name]
    chosen_B, rejected_B = (
        torch.tensor(values, dtype=torch.float64).requires_grad_() for values in (CHOSEN, REJECTED)
    )
    margin_B = torch.tensor(margin or [0.0] * len(CHOSEN), dtype=torch.float64)
    loss_B = bradley_terry(chosen_B, rejected_B, margin=margin_B)
    loss = (loss_B + centring(chosen_B, rejected_B, weight=weight or 0.0)).sum() / len(CHOSEN)
    grads = torch.autograd.grad(loss, (chosen_B, rejected_B))
    theirs, *their_grads = peer[name]
    assert loss.item() == pytest.approx(theirs, rel=0, abs=1e-12)
    for grad_B, their_grad_B in zip(grads, their_grads, strict=True):
        assert grad_B.tolist() == pytest.approx(their_grad_B, rel=0, abs=1e-12)
