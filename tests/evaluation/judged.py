"""Pairs of answers with rewards and preferences as a test wants them."""

from plaudit.evaluation.reward_models.pairs import ScoredPair


def pair(
    first: int | float | None,
    second: int | float | None,
    *,
    chance: float = 1.0,
    prompt: str = "q",
    answers: tuple[str, str] = ("one", "other"),
    **more,
) -> ScoredPair:
    """A pair of which the first answer is preferred, unless the chance says otherwise."""
    rewards = tuple(None if score is None else float(score) for score in (first, second))
    return ScoredPair(prompt=prompt, answers=answers, rewards=rewards, p_first=float(chance), **more)
