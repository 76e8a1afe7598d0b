"""Duels for tests: by hand, and drawn from a judge whose taste is known."""

import numpy as np

from plaudit.evaluation.policies.win_rate import JudgedPair
from plaudit.evaluation.stats import Resampling

DRAWS = Resampling(times=200, seed=1)


def duel(forward, backward="same", **told):
    """A pair by hand; a judge that sees no order unless both are told."""
    told = {"prompt": "q", "mine": "mine", "theirs": "other", **told}
    return JudgedPair(forward=forward, backward=forward if backward == "same" else backward, **told)


def drawn(worth, taste, *, longer=0.0, prompts=400, each=1, seed=0):
    """Duels in which P(mine) = σ(worth + taste · tanh(Δ/40)), Δ about ``longer`` characters on average."""
    chance = np.random.default_rng(seed)
    found = []
    for n in range(prompts):
        # What a prompt's pairs share.
        own = 0.0 if each == 1 else chance.normal()
        for _ in range(each):
            gap = int(np.clip(round(chance.normal(longer, 40)), -150, 150))
            p = 1 / (1 + np.exp(-(worth + own + taste * np.tanh(gap / 40))))
            mine, theirs = "a" * (200 + gap), "b" * 200
            found.append(duel(float(chance.random() < p), prompt=f"q{n}", mine=mine, theirs=theirs))
    return found
