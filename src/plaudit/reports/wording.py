"""What was found, in sentences: which policy is better, and whether the figures allow saying so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from plaudit.evaluation.policies.result import Contest, PolicyEvaluation, PolicyFigures
from plaudit.evaluation.result import Estimate
from plaudit.page.html import shortened
from plaudit.page.words import figure, moment, percent

MOST_NAME = 40
"""Letters of a policy's or a stage's name that have room."""


def named(text: str) -> str:
    """A name as it has room in a sentence or a table."""
    return shortened(text, MOST_NAME)


def when(written: str) -> str:
    """A time of day as it was written down, in words where it is one.

    >>> when("2026-11-21T12:03:00Z"), when("yesterday")
    ('2026-11-21 at 12:03 UTC', 'yesterday')
    """
    try:
        return moment(datetime.fromisoformat(written).astimezone(UTC))
    except ValueError:
        return named(written)


def between(one: Estimate, *, share: bool = False) -> str:
    """From where to where a figure may be.

    >>> between(Estimate(value=0.7, low=0.61, high=0.79, n=9, prompts=9), share=True)
    '61.0 to 79.0'
    """
    if one.low is None or one.high is None:
        return "interval not known"
    ends = [percent(end).removesuffix(" %") if share else figure(end) for end in (one.low, one.high)]
    return " to ".join(ends)


def contest_of(found: PolicyEvaluation, policy: str) -> Contest | None:
    """The first judge's contest of a policy against the reference, or against whatever it met first."""
    own = [one for one in found.contests if one.policy == policy]
    against = [one for one in own if one.against == found.reference]
    return next(iter(against or own), None)


def verdict(one: Estimate | None) -> str:
    """What the interval of a share of wins says: ``better``, ``worse``, ``open``, or ``unknown``.

    >>> verdict(Estimate(value=0.52, low=0.48, high=0.56, n=100, prompts=100))
    'open'
    """
    if one is None or one.low is None or one.high is None:
        return "unknown"
    return "better" if one.low > 0.5 else "worse" if one.high < 0.5 else "open"


def lede(found: PolicyEvaluation) -> str:
    """Which policy is best, against which, and whether chance alone could have made it so."""
    rivals = [one for one in found.policies if one.name != found.reference]
    best = _best(found, rivals)
    if best is None:
        return "There is no figure by which the policies could be ranked."
    return " ".join((*_worth(found, best), *_won(found, best), *_near(rivals, best)))


def _best(found: PolicyEvaluation, rivals: Sequence[PolicyFigures]) -> PolicyFigures | None:
    if (known := [one for one in rivals if one.gold is not None]) and found.gold is not None:
        return max(known, key=lambda one: one.gold.value if one.gold else 0.0)
    won = {
        one.name: contest.raw.value
        for one in rivals
        if (contest := contest_of(found, one.name)) and contest.raw
    }
    return max((one for one in rivals if one.name in won), key=lambda one: won[one.name], default=None)


def _worth(found: PolicyEvaluation, best: PolicyFigures) -> Iterator[str]:
    if best.gold is None:
        return
    start = next((one for one in found.policies if one.name == found.reference), None)
    said = f"{named(best.name)} is best: its answers are worth {_with_ends(best.gold)} on average"
    if start is None or start.gold is None:
        yield f"{said}."
    else:
        yield f"{said}, those of {named(start.name)} {_with_ends(start.gold)}."


def _with_ends(one: Estimate) -> str:
    return f"{figure(one.value)} ({between(one)})"


def _won(found: PolicyEvaluation, best: PolicyFigures) -> Iterator[str]:
    contest = contest_of(found, best.name)
    if contest is None or contest.raw is None:
        return
    share = f"{percent(contest.raw.value)} ({between(contest.raw, share=True)})"
    name, judge = named(contest.against), named(contest.judge)
    who = named(best.name) if best.gold is None else "it"
    yield f"Against {name} {who} wins {share}, a tie counted as half, by {judge}:"
    yield {
        "better": f"the interval leaves out one half, so on prompts like these it is better than {name}.",
        "worse": f"the interval lies below one half, so on prompts like these it is worse than {name}.",
        "open": f"the interval holds one half, so it cannot be said that it is better than {name}.",
        "unknown": "there are too few prompts for an interval.",
    }[verdict(contest.raw)]


def _near(rivals: Sequence[PolicyFigures], best: PolicyFigures) -> Iterator[str]:
    """Who may be as good, as far as intervals of each alone can tell."""
    if best.gold is None or best.gold.low is None:
        return
    near = [
        named(one.name)
        for one in rivals
        if one is not best and one.gold and one.gold.high is not None and one.gold.high >= best.gold.low
    ]
    if near:
        yield f"Its interval overlaps with that of {', '.join(near)}: do not take their order for certain."
