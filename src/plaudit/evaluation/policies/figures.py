"""What one policy says and how: its figures, and its answers as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plaudit.evaluation.policies.confidence import Calibration, calibration
from plaudit.evaluation.policies.distances import Distances, Thoughts, distances, entropy, places
from plaudit.evaluation.policies.diversity import diversity
from plaudit.evaluation.policies.drawn import Asked, Drawing, Drawn
from plaudit.evaluation.policies.result import PolicyFigures, Said, Shown
from plaudit.evaluation.policies.worth import Worth, by_category, mean_worth
from plaudit.evaluation.resample import Resampling, estimate
from plaudit.models.pad_token import other_token
from plaudit.records.messages import words


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """All that was drawn and scored.

    Example: ``Evidence(asked=asked, policies=policies, reference="sft", theirs={}, gold={}, reward={})``
    """

    asked: Sequence[Asked]
    """The questions."""
    policies: Sequence[Drawn]
    """What each said."""
    reference: str
    """The policy that KL is measured from."""
    theirs: Mapping[str, Thoughts]
    """What the reference thinks of each policy's answers; policies that it cannot judge are not there."""
    gold: Mapping[str, Worth]
    """The true worth of each policy's answers; empty where nobody knows it."""
    reward: Mapping[str, Worth]
    """What the learnt reward says of them."""


def figures(one: Drawn, evidence: Evidence, cut_to: int, resampling: Resampling) -> PolicyFigures:
    """Everything that is said of one policy; answers are cut to so many words where length would decide."""
    flat = [rollout.answer for group in one.rollouts for rollout in group]
    place_B = places(one.rollouts)
    length_B, ended_B = (
        np.array([float(getattr(answer, name)) for answer in flat]) for name in ("tokens", "ended")
    )
    apart = _apart(one, evidence, resampling)
    gold = evidence.gold.get(one.name)
    return PolicyFigures(
        name=one.name,
        model=str(one.folder),
        gold=mean_worth(gold, resampling),
        by_category=by_category(gold, evidence.asked, resampling),
        reward=mean_worth(evidence.reward.get(one.name), resampling),
        length=estimate(length_B, place_B, resampling, share=False),
        finished=estimate(ended_B, place_B, resampling),
        kl=None if apart is None else apart.kl,
        kl_token=None if apart is None else apart.kl_token,
        entropy=entropy(one.thoughts, resampling),
        diversity=diversity(answers_by_prompt(one), cut_to),
        calibration=_calibration(one, evidence, resampling),
    )


def answers_by_prompt(one: Drawn) -> dict[str, list[str]]:
    """The texts of the answers by the number of their prompt."""
    return {str(place): [own.answer.text for own in group] for place, group in enumerate(one.rollouts)}


def no_distance(one: Drawn, reference: Drawn, drawing: Drawing) -> str | None:
    """Why a policy's KL from the reference cannot be measured; None where it can."""
    if not drawing.sampling.whole:
        return f"answers were drawn with {drawing.in_words}, and KL needs them from the whole distribution"
    token = other_token(one.encoder.info, reference.encoder.info)
    if token is not None:
        return f"their tokenizers differ (in {token!r}, for one)"
    if any(
        mine[0].prompt != theirs[0].prompt
        for mine, theirs in zip(one.rollouts, reference.rollouts, strict=True)
    ):
        return "their chat templates differ, so that the same question is other tokens to each"
    return None


def rows(evidence: Evidence) -> tuple[Shown, ...]:
    """Every answer, question by question; each row holds one of every policy."""
    found: list[Shown] = []
    for place, question in enumerate(evidence.asked):
        for draw in range(len(evidence.policies[0].rollouts[place])):
            said = tuple(_said(one, evidence, place, draw) for one in evidence.policies)
            found.append(Shown(prompt=words(question.prompt), category=question.category, said=said))
    return tuple(found)


def _said(one: Drawn, evidence: Evidence, place: int, draw: int) -> Said:
    answer, thought = one.rollouts[place][draw].answer, one.thoughts[place][draw]
    theirs = evidence.theirs.get(one.name)
    return Said(
        policy=one.name,
        text=answer.text,
        ended=answer.ended,
        tokens=answer.tokens,
        gold=_of(evidence.gold.get(one.name), place, draw),
        reward=_of(evidence.reward.get(one.name), place, draw),
        logp=thought.logp,
        kl=None if theirs is None else thought.logp - theirs[place][draw].logp,
    )


def _of(worth: Worth | None, place: int, draw: int) -> float | None:
    return None if worth is None else worth[place][draw]


def _apart(one: Drawn, evidence: Evidence, resampling: Resampling) -> Distances | None:
    theirs = evidence.theirs.get(one.name)
    return None if theirs is None else distances(one.thoughts, theirs, resampling)


def _calibration(one: Drawn, evidence: Evidence, resampling: Resampling) -> Calibration | None:
    if not one.weighed:
        return None
    [start] = [other for other in evidence.policies if other.name == evidence.reference]
    return calibration(one.weighed, resampling, None if start is one else start.weighed)
