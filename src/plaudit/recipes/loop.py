"""Loops that make their own rows: draw answers, score them, choose, train on what was chosen, and again.

Rejection sampling: Touvron et al. 2023, arXiv:2307.09288, section 3.2.3. All of them: ``loop_table``.
"""

from __future__ import annotations

from pathlib import Path

from plaudit.recipes.loop_config import LoopConfig, settled
from plaudit.recipes.loop_folder import finish, is_finished, is_taught, opened, ready
from plaudit.recipes.loop_rounds import round_of
from plaudit.recipes.loop_table import LOOPS
from plaudit.recipes.loop_teaching import refuse_what_cannot_be_taught, teach
from plaudit.training.parallel import joined


def loop(name: str, config: LoopConfig) -> Path | None:
    """All rounds of the algorithm of this name; the model's folder, on the first rank where one was made."""
    facts = LOOPS[name]
    how = settled(facts, config)
    refuse_what_cannot_be_taught(facts, how, config)
    assert how.rounds is not None
    rounds = [round_of(facts, how, config, number) for number in range(1, how.rounds + 1)]
    for one in rounds:
        with joined(config.device) as ranks, opened(config, ranks) as folder:
            if folder is not None:
                ready(facts, how, config, one, folder)
            if is_finished(config, ranks):
                return None
            taught = is_taught(one.run, ranks)
        if not taught:
            teach(facts, how, config, one)
    with joined(config.device) as ranks, opened(config, ranks) as folder:
        if folder is not None:
            finish(folder, rounds[-1].run / "model")
        ranks.wait()
    return config.out / "model" if ranks.first else None
