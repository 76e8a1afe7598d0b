"""The same scores through TRL's reward trainer, in its own environment: the same loss, the same gradient.

What it says is recorded in ``peer_values/reward.json``: every run compares with it.
"""

from pathlib import Path

import pytest
import torch

from plaudit.losses.reward import bradley_terry, centring
from tests.peer import SOURCES, PeerValues, ask_script

CHOSEN, REJECTED = [0.3, -1.2, 2.0, 40.0, -40.0], [0.1, 0.7, -2.5, -40.0, 40.0]
MARGIN = [0.0, 1 / 3, 2 / 3, 1.0, 3.0]
ASKED = {
    "plain": (None, None),
    "margin": (MARGIN, None),
    "centred": (None, 0.01),
    "margin and centred": (MARGIN, 0.1),
}


def ask():
    question = [[CHOSEN, REJECTED, *options] for options in ASKED.values()]
    return dict(zip(ASKED, ask_script("losses/peer_reward.py", question), strict=True))


VALUES = PeerValues(file=Path(__file__).with_name("peer_values") / "reward.json", ask=ask)


@pytest.fixture(scope="module", params=SOURCES)
def peer(request):
    return VALUES.answers(request.param)


@pytest.mark.peer
def test_the_record_is_what_the_peer_says():
    VALUES.prove()


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
