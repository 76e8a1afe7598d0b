"""Whom to watch and whom to suspend: rules with their figures in words, which a reviewer accepts or not.

A rule never acts. Each is a function from a report card to its reason, or to nothing; what is uncertain is
judged by the end of the interval that speaks for the person.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from plaudit.collect.quality.result import Drift, Figure, PersonQuality, Proposal

LEAST_SKILL = 0.6
"""Of the usual skill: who certainly has less, and clicks the rest, is proposed for suspension."""
LEAST_CONSISTENCY = 0.7
"""Repeated tasks answered alike, below which somebody is watched."""
PLACE_SHARE = 0.6
"""The share of preferences for one place from which a bias is worth a look, however certain it is."""
TOO_FAST = 1 / 3
"""Of the median of all people's seconds."""
SURE = 0.01
"""The p-value, corrected for all people, below which a rule of chance applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standards:
    gold_floor: float
    """The share of right gold answers that the project asks of people who qualify."""
    skill: float | None
    """The median of people's skills: where answers are hard to tell apart, nobody's is high."""
    seconds: float | None
    """The median of people's median seconds."""
    held_out: float | None
    """The median of people's agreement with the others."""


Rule = Callable[[PersonQuality, Standards], str | None]
"""The reason that a rule gives, in words; None where it does not apply."""


def _certainly_below(figure: Figure, bound: float) -> bool:
    return figure.high is not None and figure.high < bound


def _interval(figure: Figure) -> str:
    return f"{figure.low:.0%} to {figure.high:.0%}"


def _gold_fails(person: PersonQuality, standards: Standards) -> str | None:
    gold = person.gold
    if gold.value is None or not _certainly_below(gold, standards.gold_floor):
        return None
    return (
        f"{round(gold.value * gold.n)} of {gold.n} gold answers are right ({_interval(gold)}), and the floor "
        f"is {standards.gold_floor:.0%}"
    )


def _does_not_read(person: PersonQuality, standards: Standards) -> str | None:
    return _seems_not_to_read(person, standards, certain=True)


def _seems_not_to_read(person: PersonQuality, standards: Standards, *, certain: bool = False) -> str | None:
    found, usual = person.skill, standards.skill
    if found.value is None or usual is None or found.value >= LEAST_SKILL * usual:
        return None
    # Of what is certain the other rule speaks.
    if _certainly_below(found, LEAST_SKILL * usual) != certain:
        return None
    habits = {
        "first": "and clicks the first otherwise",
        "second": "and clicks the second otherwise",
        "tie": "and calls the answers equal otherwise",
        "alternating": "and clicks first and second in turn otherwise",
        "random": "and clicks at random otherwise",
    }
    how = f", {habits[person.habit]}" if person.habit else ""
    return (
        f"reads {found.value:.0%} of {found.n} pairs ({_interval(found)}), as far as others' labels tell, "
        f"where {usual:.0%} is usual{how}"
    )


def _gold_is_low(person: PersonQuality, standards: Standards) -> str | None:
    gold = person.gold
    if (
        gold.value is None
        or gold.value >= standards.gold_floor
        or _certainly_below(gold, standards.gold_floor)
    ):
        return None
    return (
        f"{round(gold.value * gold.n)} of {gold.n} gold answers are right, below the floor of "
        f"{standards.gold_floor:.0%}, but these are too few to be sure"
    )


def _prefers_a_place(person: PersonQuality, standards: Standards) -> str | None:
    first = person.first
    if first.value is None or person.place_p is None or person.place_p >= SURE:
        return None
    share, place = (first.value, "first") if first.value >= 0.5 else (1 - first.value, "second")
    if share < PLACE_SHARE:
        return None
    return (
        f"prefers the answer shown {place} in {share:.0%} of {first.n} preferences (p = {person.place_p:.2g})"
    )


def _differs_from_others(person: PersonQuality, standards: Standards) -> str | None:
    found, usual = person.held_out, standards.held_out
    # A tenth apart and not a hair: with a thousand labels any difference is certain.
    if found.value is None or usual is None or not _certainly_below(found, usual - 0.1):
        return None
    return (
        f"agrees with the others in {found.value:.0%} of {found.n} preferences ({_interval(found)}), where "
        f"{usual:.0%} is usual"
    )


def _contradicts_itself(person: PersonQuality, standards: Standards) -> str | None:
    if person.consistency.value is None or not _certainly_below(person.consistency, LEAST_CONSISTENCY):
        return None
    found = person.consistency
    return f"answers {found.value:.0%} of {found.n} repeated tasks as before ({_interval(found)})"


def _is_fast(person: PersonQuality, standards: Standards) -> str | None:
    if person.seconds is None or standards.seconds is None or person.seconds >= TOO_FAST * standards.seconds:
        return None
    return f"takes {person.seconds:.1f} s a label in the median, where {standards.seconds:.1f} s is usual"


def _has_drifted(person: PersonQuality, standards: Standards) -> str | None:
    reasons = [_drift_words(drift) for drift in person.drift if drift.p < SURE and _is_worse(drift)]
    return "; ".join(reasons) or None


def _is_worse(drift: Drift) -> bool:
    # Faster is no fault by itself: everybody gets faster. Half the time is.
    return drift.now < (drift.before / 2 if drift.what == "seconds" else drift.before)


def _drift_words(drift: Drift) -> str:
    if drift.what == "seconds":
        return (
            f"took {drift.now:.1f} s for the last 50 labels, {drift.before:.1f} s before (p = {drift.p:.2g})"
        )
    what = "gold answers right" if drift.what == "gold" else "preferences with the others"
    return (
        f"{drift.now:.0%} of {drift.n} {what} among the last 50 labels, {drift.before:.0%} before "
        f"(p = {drift.p:.2g})"
    )


SUSPEND: Mapping[str, Rule] = {"gold": _gold_fails, "skill": _does_not_read}
"""Rules of which one is enough to propose suspension."""
WATCH: Mapping[str, Rule] = {
    "gold": _gold_is_low,
    "skill": _seems_not_to_read,
    "place": _prefers_a_place,
    "others": _differs_from_others,
    "consistency": _contradicts_itself,
    "seconds": _is_fast,
    "drift": _has_drifted,
}
"""Rules of which one is enough to propose to watch somebody."""


def standards_of(cards: Sequence[PersonQuality], gold_floor: float) -> Standards:
    seconds = [card.seconds for card in cards if card.seconds is not None]
    # Three at least: of two people the slower one is half of what is usual.
    held_out = [card.held_out.value for card in cards if card.held_out.value is not None]
    skills = [card.skill.value for card in cards if card.skill.value is not None]
    return Standards(
        gold_floor=gold_floor,
        skill=median(skills) if len(skills) >= 3 else None,
        seconds=median(seconds) if len(seconds) >= 3 else None,
        held_out=median(held_out) if len(held_out) >= 3 else None,
    )


def proposals(cards: Sequence[PersonQuality], standards: Standards) -> tuple[Proposal, ...]:
    """What the rules propose, suspensions first; nothing of those whom it holds for already."""
    found = list[Proposal]()
    for card in cards:
        if card.standing in ("suspended", "failed", "erased"):
            continue
        severe, mild = (
            [reason for rule in rules.values() if (reason := rule(card, standards)) is not None]
            for rules in (SUSPEND, WATCH)
        )
        standing = "suspended" if severe else "watch"
        if severe or (mild and card.standing != "watch"):
            found.append(Proposal(name=card.name, standing=standing, reasons=(*severe, *mild)))
    return tuple(
        sorted(found, key=lambda proposal: (proposal.standing != "suspended", -len(proposal.reasons)))
    )
