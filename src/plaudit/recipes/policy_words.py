"""What a policy run says of its rounds before it begins."""

from __future__ import annotations

from plaudit.recipes.policy_config import PolicyConfig
from plaudit.rollouts.episodes import EpisodeSampler
from plaudit.training.policy_rounds import Rounds


def round_in_words(rounds: Rounds, config: PolicyConfig) -> list[str]:
    """The arithmetic of a round, before it begins."""
    answers, inner = rounds.collector.answers, rounds.inner
    moves = "1 move" if inner == 1 else f"{inner} moves"
    words = [
        f"a round: {config.batch_size} prompts with {answers} answer{'s' * (answers > 1)} each, "
        f"{config.batch_size * answers} answers, and {moves} ({rounds.experience.epochs} times through, "
        f"{rounds.experience.minibatches} at a time)"
    ]
    speaker = rounds.collector.sampler
    if isinstance(speaker, EpisodeSampler):
        words.append(
            f"episodes: {speaker.name} answers the policy, which speaks {speaker.turns} times at most; an "
            f"episode has room for {config.draw.max_tokens} tokens (--draw.max-tokens)"
        )
    row = rounds.experience.row
    if row.divergence == "reward" and config.policy.estimator in ("k2", "k3"):
        words.append(
            f"{config.policy.estimator} in the reward: what the policy then climbs lacks the estimator's own "
            "gradient, so it is held otherwise than by the KL (plaudit prove estimators); k1 is right there"
        )
    if not config.draw.sampling(0).whole:
        words.append(
            "top-k, top-p or min-p leave tokens out when answers are drawn, and the policy learns as if they "
            "did not: the KL can then come out below 0, and ratios are not those of what was drawn"
        )
    return words
