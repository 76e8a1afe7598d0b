"""What a report on the quality of labels holds; nothing here computes, so a server may load it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

QUALITY_VERSION = 2
"""The shape of reports: one of another version is computed anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number with its 95 % interval, or the reason why there is none."""

    value: float | None
    """The number; None where it is undefined."""
    low: float | None = None
    high: float | None = None
    n: int = 0
    """How many labels, pairs or answers it rests on."""
    reason: str = ""
    """Why there is no number, or no interval; empty where nothing is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementRow:
    """How far people agree, over all labels or a part of them."""

    part: str
    """What the labels have in common: all, aspect, guidelines or group."""
    name: str
    """Which one: an aspect, or a version of the guidelines; empty for all, and for no guidelines."""
    level: str
    """How values are compared: ordinal (strengths, points) or nominal (thumbs)."""
    alpha: Figure
    """Krippendorff's α: 1 is full agreement, 0 what chance alone gives."""
    gwet: Figure
    """Gwet's AC1 of nominal values, AC2 of ordinal ones: the same, where nearly all labels are alike."""
    percent: Figure
    """The share of two people's labels of one thing that are the same."""
    labels: int
    units: int
    """How many pairs, answers or steps at least two people labelled."""
    people: int
    prompts: int
    """How many prompts they belong to: what the intervals resample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonQuality:
    name: str
    standing: str
    """What holds now: active, watch, suspended, qualifying, failed or erased."""
    labels: int
    """How many labels there are of this person, items with a known answer included."""
    seconds: float | None
    """The median of the active seconds a label took; None where no time is known."""
    gold: Figure
    """The share of right answers to items whose answer is known (Wilson's interval)."""
    skill: Figure
    """How often the person reads and then says what people mean (θ), by all labels of the same things."""
    habit: str
    """What is clicked unread: first, second, tie, alternating, random; empty if untold or of no matter."""
    habit_shares: dict[str, float]
    """How those clicks fall, by first, second and tie; empty where it cannot be told."""
    held_out: Figure
    """The share of preferences that are those of the others, who are taken without this person."""
    judge: Figure
    """The share of preferences that are those of the project's judges, by most of them."""
    consistency: Figure
    """The share of repeated tasks that were answered alike (Wilson's interval)."""
    pasted: Figure
    """The share of what the person wrote that was pasted, where the answer is a text (Wilson's interval)."""
    first: Figure
    """The share of preferences that are for the answer shown first."""
    longer: Figure
    """The share for the longer answer, where lengths differ by more than 30 characters."""
    lists: Figure
    """The share for the answer with a list, where only one has one."""
    refusals: Figure
    """The share for the answer that refuses, where only one does."""
    place_odds: Figure
    """The odds of preferring the first shown, where everything else is equal; 1 is no bias."""
    place_p: float | None
    """The chance of odds so far from 1 without a bias, by Holm's rule for all people together."""
    drift: tuple[Drift, ...]
    """The last 50 labels against those before; empty where there are too few."""
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Whether a person's last 50 labels differ from those before."""

    what: str
    """gold (share right), others (share that agrees with the others) or seconds (median)."""
    before: float
    now: float
    p: float
    """Fisher's exact test for shares, Mann and Whitney's for seconds, by Holm's rule for all people."""
    n: int
    """How many of the last 50 labels say something of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """What draws people to an answer while everything else is equal."""

    name: str
    """length, list, refusal or others (what the other people prefer)."""
    unit: str
    odds: Figure
    """The ratio of odds, with an interval that is clustered by prompt; 1 is no preference."""
    p: float | None
    """The chance of odds so far from 1 where there is no preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQuality:
    """What people of a group have in common: means over five of them or more."""

    name: str
    value: str
    """What they said of themselves; empty for all who said nothing."""
    people: int
    labels: int
    gold: Figure
    """The share of right answers to items whose answer is known, as the next two drawn by person."""
    skill: Figure
    held_out: Figure
    """The share of preferences that are those of the others, of whatever group."""
    judge: Figure
    """The share of preferences that are those of the project's judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A standing that the rules propose; only a reviewer sets it."""

    name: str
    standing: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Consensus:
    """What people together say of pairs, as chances."""

    pairs: int
    labels: int
    certain: float
    """The share of pairs of which one answer is preferred with a chance of 0.95 or more."""
    tied: float
    """How often two answers are truly equal, by the fit."""
    undecided: int
    """Pairs with a chance from 0.4 to 0.6: the first to label again, or to decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """How far the labels of a project can be trusted."""

    project: str
    kind: str
    seq: int
    """The position of the log: the last event that changed the project's tasks, labels or people."""
    labels: int
    """Labels that the report rests on: those of people, without surplus, undone and adjudicated ones."""
    people: int
    agreement: tuple[AgreementRow, ...]
    """All labels first, then by aspect, then by version of the guidelines, the oldest first."""
    annotators: tuple[PersonQuality, ...]
    """Everybody with a label, in the order in which they joined."""
    biases: tuple[Odds, ...]
    """What draws all people together; empty for kinds without pairs."""
    proposals: tuple[Proposal, ...]
    """Whom to watch and whom to suspend, the worst first."""
    consensus: Consensus | None
    """Of pairs and rankings; None for other kinds, and without labels."""
    notes: tuple[str, ...]
    groups: tuple[GroupQuality, ...] = ()
    """Of groups of five people with labels or more, where the project asks for groups."""
    judges: tuple[str, ...] = ()
    """Models that judged pairs of the project: whom people are compared with."""
    version: int = QUALITY_VERSION


def quality_to_dict(quality: Quality) -> dict[str, Any]:
    """A report as JSON holds it; tuples become lists when it is written.

    >>> row = Quality(project="p", kind="pair", seq=1, labels=0, people=0, agreement=(), annotators=(),
    ...     biases=(), proposals=(), consensus=None, notes=())
    >>> quality_to_dict(row)["version"]
    2
    """
    return asdict(quality)
