"""What a reader should doubt: each warning with its figure, its threshold and the reason for that.

A threshold is no truth: it says from where on a figure deserves a look at the answers themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from plaudit.evaluation.policies.result import Contest, PolicyEvaluation, PolicyFigures
from plaudit.evaluation.result import Estimate
from plaudit.page.html import shortened
from plaudit.page.words import figure, percent
from plaudit.reports.story import Story
from plaudit.reports.wording import between, contest_of, named, verdict

LONGER = 1.25
"""A mean length so many times the reference's, or the reference's so many times it."""
LESS_UNLIKE = 2 / 3
"""A share of the reference's distinct pairs of words."""
FAR = 10.0
"""Nats of KL an answer."""
UNJUDGED = 0.05
"""A share of pairs without a verdict."""
CONSISTENT = 0.8
"""How often both orders should say the same."""
FINISHED = 0.9
"""The share of answers that should come to an end by themselves."""
FEW = 100
"""Prompts."""
MOST_SAID = 600
"""Letters of a note that have room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One warning.

    Example: ``Doubt(about="ppo", what="answers grew from 10.4 to 22.1 tokens", why="a reward that …")``
    """

    about: str
    """The policy, stage or judge."""
    what: str
    """What is seen, with its figure."""
    why: str
    """From where on it is said, and why it matters."""


def doubts(story: Story) -> tuple[Doubt, ...]:
    """Everything that a reader should know before believing the page."""
    policies = of_policies(story.evaluation) if story.evaluation else ()
    return (*_of_files(story), *_of_runs(story), *policies)


def of_policies(found: PolicyEvaluation) -> tuple[Doubt, ...]:
    """What the figures of policies warn of.

    A policy that is named before the reference is what the reference was made from: nothing drove it away.
    """
    names = [one.name for one in found.policies]
    at = names.index(found.reference) if found.reference in names else -1
    start = found.policies[at] if at >= 0 else None
    later = found.policies[at + 1 :] or found.policies[:at]
    return (
        *_few(found),
        *(doubt for one in later if start for doubt in _moved(one, start)),
        *(doubt for one in (*([start] if start else []), *later) for doubt in _alone(one, start)),
        *(doubt for one in later for doubt in _contested(found, one)),
        *(doubt for one in found.contests for doubt in _judged(one)),
    )


def _of_files(story: Story) -> Iterator[Doubt]:
    for stage in story.stages:
        for name in stage.changed:
            yield Doubt(
                about=named(stage.name),
                what=f"{name} is not as the stage left it",
                why="Its sha256 is not the one that was written down: figures of this page may be made up.",
            )
    codes = {(stage.code.get("plaudit"), stage.code.get("commit")) for stage in story.stages if stage.code}
    if len(codes) > 1:
        yield Doubt(
            about="stages",
            what=f"they were made by {len(codes)} versions of the code",
            why="Figures of different code are compared. To make all of them again: plaudit run --fresh.",
        )


def _of_runs(story: Story) -> Iterator[Doubt]:
    """What a run remarked while it learnt; what it said before its first step only describes it."""
    for stage, run in story.trained:
        for note in run.notes:
            if note.step != 0:
                when = "" if note.step is None else f" after step {note.step:,}"
                text = shortened(note.text, MOST_SAID).rstrip(".")
                yield Doubt(about=named(stage.name), what=text, why=f"Noted by the run itself{when}.")


def _few(found: PolicyEvaluation) -> Iterator[Doubt]:
    if found.prompts < FEW:
        yield Doubt(
            about="prompts",
            what=f"there were only {found.prompts:,}",
            why=f"With fewer than {FEW} a share of wins is known to no better than about ten points.",
        )


def _moved(one: PolicyFigures, start: PolicyFigures) -> Iterator[Doubt]:
    """What changed on the way from the reference."""
    name, origin = named(one.name), named(start.name)
    before, after = start.length, one.length
    if min(before.value, after.value) > 0 and _apart(before, after):
        factor = after.value / before.value
        if max(factor, 1 / factor) >= LONGER:
            yield Doubt(
                about=name,
                what=f"an answer has {figure(after.value)} tokens, {origin}'s {figure(before.value)}",
                why=f"Said from a factor of {LONGER} on: a reward that likes length is gamed by length.",
            )
    old, new = start.diversity.distinct_2, one.diversity.distinct_2
    if old and new is not None and new < LESS_UNLIKE * old:
        yield Doubt(
            about=name,
            what=f"of its pairs of words {percent(new)} are unlike, of {origin}'s {percent(old)}",
            why="Said below two thirds: it says the same to many prompts (mode collapse). Read the samples.",
        )
    yield from _gamed(one, start)
    yield from _mistaken(one, start)
    yield from _worse_parts(one, start)


def _gamed(one: PolicyFigures, start: PolicyFigures) -> Iterator[Doubt]:
    if one.reward is None or start.reward is None or one.gold is None or start.gold is None:
        return
    if _above(one.reward, start.reward) and _above(start.gold, one.gold):
        gold = f"{figure(start.gold.value)} to {figure(one.gold.value)}"
        reward = f"{figure(start.reward.value)} to {figure(one.reward.value)}"
        yield Doubt(
            about=named(one.name),
            what=f"its learnt reward rose from {reward} and its true worth fell from {gold}",
            why="The intervals are apart: the reward is gamed. Stop earlier, or raise β.",
        )


def _mistaken(one: PolicyFigures, start: PolicyFigures) -> Iterator[Doubt]:
    if one.calibration is None or start.calibration is None:
        return
    change, now = one.calibration.ece_change, one.calibration
    # The interval of a change of errors is too narrow now and then; that of the surplus is not.
    if change is not None and _above_zero(change) and _above_zero(now.surplus_change):
        errors = f"{figure(now.ece.value)}, {named(start.name)}'s is {figure(start.calibration.ece.value)}"
        yield Doubt(
            about=named(one.name),
            what=f"its calibration error is {errors}: {figure(change.value)} more ({between(change)})",
            why=f"It is {percent(now.confidence.value)} sure where {percent(now.accuracy.value)} are right. "
            "Do not read its probabilities as chances.",
        )


def _above_zero(one: Estimate | None) -> bool:
    return one is not None and one.low is not None and one.low > 0


def _worse_parts(one: PolicyFigures, start: PolicyFigures) -> Iterator[Doubt]:
    before = {part.name: part.value for part in start.by_category}
    fell = [
        f"{named(part.name)} ({figure(before[part.name].value)} to {figure(part.value.value)})"
        for part in one.by_category
        if part.name in before and _above(before[part.name], part.value)
    ]
    if fell:
        yield Doubt(
            about=named(one.name),
            what=f"its worth fell on {', '.join(fell)}",
            why="The intervals are apart. A mean over all prompts hides it.",
        )


def _alone(one: PolicyFigures, start: PolicyFigures | None) -> Iterator[Doubt]:
    name = named(one.name)
    if one.kl is not None and one.kl.value > FAR:
        answers = math.exp(min(one.kl.value + 1, 700.0))
        origin = named(start.name) if start else "its reference"
        yield Doubt(
            about=name,
            what=f"it is {figure(one.kl.value)} nats an answer from {origin}",
            why=f"Said from {FAR:.0f} on: the best of about {figure(answers)} answers is as far, and the "
            "reward never saw such answers when it was learnt.",
        )
    if one.finished.value < FINISHED:
        yield Doubt(
            about=name,
            what=f"only {percent(one.finished.value)} of its answers come to an end by themselves",
            why=f"Said below {percent(FINISHED)}: cut answers are judged as they are. Allow more tokens.",
        )


def _contested(found: PolicyEvaluation, one: PolicyFigures) -> Iterator[Doubt]:
    contest = contest_of(found, one.name)
    if contest is None or contest.raw is None:
        return
    against = named(contest.against)
    ends = between(contest.raw, share=True)
    if verdict(contest.raw) == "open":
        yield Doubt(
            about=named(one.name),
            what=f"it wins {percent(contest.raw.value)} against {against} ({ends})",
            why="The interval holds one half: these prompts do not show which of the two is better.",
        )
    controlled = contest.length_controlled
    if verdict(contest.raw) == "better" and controlled is not None and verdict(controlled) != "better":
        ends = between(controlled, share=True)
        yield Doubt(
            about=named(one.name),
            what=f"at equal length it would win {percent(controlled.value)} against {against} ({ends})",
            why="Raw it is better and at equal length that cannot be said: its wins may be those of length.",
        )


def _judged(one: Contest) -> Iterator[Doubt]:
    judge, pairs = named(one.judge), one.won + one.tied + one.lost + one.unjudged
    about = f"{judge} on {named(one.policy)}"
    if pairs and one.unjudged / pairs > UNJUDGED:
        reasons = ", ".join(f"{count:,} {named(reason)}" for reason, count in one.reasons.items())
        yield Doubt(
            about=about,
            what=f"{one.unjudged:,} of {pairs:,} pairs have no verdict{f' ({reasons})' if reasons else ''}",
            why=f"Said from {percent(UNJUDGED)} on: those left out may not be like the others.",
        )
    if one.consistency is not None and one.consistency.value < CONSISTENT:
        yield Doubt(
            about=about,
            what=f"the two orders agree in only {percent(one.consistency.value)} of the pairs",
            why=f"Said below {percent(CONSISTENT)}: so much of the verdict is the place of the answer.",
        )


def _apart(one: Estimate, other: Estimate) -> bool:
    return _above(one, other) or _above(other, one)


def _above(one: Estimate, other: Estimate) -> bool:
    """Whether one's interval lies wholly above the other's."""
    return one.low is not None and other.high is not None and one.low > other.high
