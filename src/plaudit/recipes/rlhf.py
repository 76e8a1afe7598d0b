"""Reinforcement learning from human feedback, round after round.

Answers of the newest policy are compared, a reward learns from all comparisons so far, and the policy is
improved by it: Christiano et al. 2017, arXiv:1706.03741; online in rounds Bai et al. 2022, arXiv:2204.05862.
"""

from __future__ import annotations

from pathlib import Path

from plaudit.recipes.loop_folder import finish, is_finished, is_taught, opened
from plaudit.recipes.policy import policy
from plaudit.recipes.policy_rows import chosen
from plaudit.recipes.reward import reward
from plaudit.recipes.reward_losses import loss_of
from plaudit.recipes.rlhf_config import RlhfConfig
from plaudit.recipes.rlhf_folder import close, make_ready
from plaudit.recipes.rlhf_rounds import RlhfRound, policy_config, reward_config, rlhf_round
from plaudit.rewards.combine import COMBINED
from plaudit.training.parallel import Ranks, joined


def rlhf(config: RlhfConfig) -> Path | None:
    """All rounds; the model's folder, on the first rank where one was made."""
    rounds = [rlhf_round(config, number) for number in range(1, config.loop.rounds + 1)]
    chosen(config.loop.teach, policy_config(config, rounds[0]))
    loss_of("comparisons", config.reward_run.reward)
    for one in rounds:
        with joined(config.device) as ranks, opened(config, ranks) as folder:
            if folder is not None:
                make_ready(config, one, folder)
            if is_finished(config, ranks):
                return None
            scored = is_taught(one.reward_run, ranks) or _is_combined(one, ranks)
            improved = is_taught(one.policy_run, ranks)
        if not scored:
            reward(reward_config(config, one))
        if not improved:
            policy(config.loop.teach, policy_config(config, one))
        with joined(config.device) as ranks, opened(config, ranks) as folder:
            if folder is not None:
                close(config, one, folder)
            ranks.wait()
    with joined(config.device) as ranks, opened(config, ranks) as folder:
        if folder is not None:
            finish(folder, rounds[-1].policy_run / "model")
        ranks.wait()
    return config.out / "model" if ranks.first else None


def _is_combined(one: RlhfRound, ranks: Ranks) -> bool:
    """Whether an ensemble is there; what says how it is combined is written last."""
    return bool(ranks.every([float((one.reward_run / COMBINED).exists())])[0][0])
