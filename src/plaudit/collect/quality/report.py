"""The report on a project's labels, put together of its parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np

from plaudit.collect import log
from plaudit.collect.export import last_of_labels
from plaudit.collect.kinds import KINDS
from plaudit.collect.quality import bias, skill
from plaudit.collect.quality.agreement import Values, agreements
from plaudit.collect.quality.bias import Course, drifts
from plaudit.collect.quality.gathering import Choices, Gathered, gather
from plaudit.collect.quality.proposals import proposals, standards_of
from plaudit.collect.quality.result import AgreementRow, Consensus, Figure, PersonQuality, Quality
from plaudit.collect.quality.skill import FIRST, TIE
from plaudit.collect.store import LabelStore
from plaudit.evaluation.stats import Resampling

SURE_SKILL = 0.8
"""A person who certainly reads this often has no habit worth a name."""
RANDOM_SKILL = 0.5
"""Whose skill is certainly below this clicks at random, if nothing else; above it, people only err."""
HABIT_SHARE = 0.6
"""The share of a person's clicks from which they are a habit."""
NOT_COMPARED = "the kind of task has no preferences between two answers"
NO_OTHERS = "nobody else answered the same"
_RESAMPLING = Resampling(times=1000)


def quality(store: LabelStore, project: str) -> Quality:
    """How far the labels of a project can be trusted, as of now."""
    with store.looking() as look:
        look.settings(project)
        seq, _ = last_of_labels(look.connection, project, log.last(look.connection)[0])
        found = gather(look.connection, project)
    compared = None if found.choices is None else _Compared(found, found.choices)
    cards = _cards(found, compared)
    return Quality(
        project=project,
        kind=found.project.ask,
        seq=seq,
        labels=len(found.items),
        people=len(found.people),
        agreement=tuple(_agreement_rows(found)),
        annotators=cards,
        biases=() if compared is None else compared.biases.shared,
        proposals=proposals(cards, standards_of(cards, found.project.qualify_floor)),
        consensus=None if compared is None else compared.consensus(),
        notes=tuple(_notes(found)),
    )


def _agreement_rows(found: Gathered) -> Iterator[AgreementRow]:
    trusted = np.array([not person.excluded for person in found.people], dtype=bool)
    whole = {aspect: values.where(trusted[values.person_B]) for aspect, values in found.values.items()}
    if "" in whole:
        yield _agreement_row(whole[""], "all", "")
    for aspect in (name for name in whole if name):
        yield _agreement_row(whole[aspect], "aspect", aspect)
    for aspect, values in whole.items():
        # Where several aspects are rated, a version's figure would mix them; the whole stands for it, if any.
        versions = np.unique(values.guidelines_B)
        if len(versions) > 1 and (aspect == "" or "" not in whole):
            for version in versions:
                name = found.guidelines[version] + (f", {aspect}" if aspect else "")
                yield _agreement_row(values.where(values.guidelines_B == version), "guidelines", name)


def _agreement_row(values: Values, part: str, name: str) -> AgreementRow:
    figures = agreements(values, _RESAMPLING)
    return AgreementRow(
        part=part,
        name=name,
        level=values.level,
        alpha=figures.alpha,
        gwet=figures.gwet,
        percent=figures.percent,
        labels=figures.labels,
        units=figures.units,
        people=figures.people,
        prompts=figures.prompts,
    )


class _Compared:
    """What pairs of answers say of people: skill, habits, agreement with the others, biases."""

    def __init__(self, found: Gathered, choices: Choices) -> None:
        votes = choices.votes
        self.choices, self.votes = choices, votes
        self.skill = skill.fit_skill(votes)
        self.low_J, self.high_J = skill.theta_intervals(votes, self.skill)
        others_BK = skill.truth_without(votes, self.skill)
        self.preferences = bias.preferences_of(votes, choices.looks_UF, choices.prompt_U, others_BK)
        self.shares = bias.shares_of_people(self.preferences)
        self.biases = bias.odds_of(self.preferences)
        size_U = np.bincount(votes.pair_B, minlength=votes.pairs)
        has_others_B = size_U[votes.pair_B] > 1
        self.shared_J = np.bincount(votes.person_B, has_others_B, minlength=votes.people).astype(int)
        first_B = others_BK[:, FIRST] + others_BK[:, TIE] / 2
        # Neither who calls both equal nor others who are at odds can agree with anything.
        self.judged_B = has_others_B & (votes.choice_B != TIE) & (np.abs(first_B - 0.5) > 1e-9)
        self.agrees_B = (first_B > 0.5) == (votes.choice_B == FIRST)

    def skill_of(self, person: int) -> Figure:
        shared = int(self.shared_J[person])
        if not shared:
            return Figure(value=None, reason=NO_OTHERS)
        return Figure(
            value=float(self.skill.theta_J[person]),
            low=float(self.low_J[person]),
            high=float(self.high_J[person]),
            n=shared,
        )

    def held_out(self, person: int) -> Figure:
        """The share of preferences that the others share."""
        rows_B = self.judged_B & (self.votes.person_B == person)
        if not rows_B.any():
            return Figure(value=None, reason=NO_OTHERS)
        prompts = self.choices.prompt_U[self.votes.pair_B[rows_B]]
        return bias.clustered_share(self.agrees_B[rows_B], prompts)

    def habit(self, person: int) -> tuple[str, dict[str, float]]:
        """What is clicked without reading, in a word, and how the clicks fall."""
        if not self.shared_J[person] or self.low_J[person] >= SURE_SKILL:
            return "", {}
        shares = self.skill.habit_JK[person].tolist()
        clicks = dict[str, float](zip(("first", "second", "tie"), shares, strict=True))
        most = max(clicks, key=lambda name: clicks[name])
        if clicks[most] >= HABIT_SHARE:
            return most, clicks
        shown_B = self.votes.shown_B[self.votes.person_B == person]
        if alternates(shown_B):
            return "alternating", clicks
        return ("random", clicks) if self.high_J[person] < RANDOM_SKILL else ("", clicks)

    def agreeing_items(self) -> dict[int, bool]:
        """Of each label that can agree with the others, whether it does; of rankings, most of its pairs."""
        votes = dict[int, list[bool]]()
        for item, agrees in zip(
            self.choices.item_B[self.judged_B].tolist(), self.agrees_B[self.judged_B].tolist(), strict=True
        ):
            votes.setdefault(item, []).append(agrees)
        return {item: 2 * sum(found) > len(found) for item, found in votes.items()}

    def consensus(self) -> Consensus:
        first_U = self.skill.first_U
        return Consensus(
            pairs=self.votes.pairs,
            labels=len(self.votes.choice_B),
            certain=float((np.abs(first_U - 0.5) >= 0.45).mean()),
            tied=self.skill.tie,
            undecided=int((np.abs(first_U - 0.5) <= 0.1).sum()),
        )


def alternates(shown_B: np.ndarray) -> bool:
    """Whether clicks change sides more often than those of a coin would, once in a thousand people.

    >>> alternates(np.array([0, 1] * 20)), alternates(np.array([0, 0, 1, 1] * 10))
    (True, False)
    """
    sides_B = shown_B[shown_B != TIE]
    n = len(sides_B) - 1
    if n < 20:
        return False
    changes = int((sides_B[1:] != sides_B[:-1]).sum())
    # Hoeffding's bound (1963) on the share of changes, and a share that is worth the word.
    return changes / n >= 0.8 and math.exp(-2 * n * (changes / n - 0.5) ** 2) < 1e-3


def _cards(found: Gathered, compared: _Compared | None) -> tuple[PersonQuality, ...]:
    rows_of = [list[int]() for _ in found.people]
    for row, item in enumerate(found.items):
        rows_of[item.person].append(row)
    for rows in rows_of:
        # By the number of the answer: one that was revised stays where it was.
        rows.sort(key=lambda row: found.items[row].number)
    agreeing = {} if compared is None else compared.agreeing_items()
    changes = drifts(
        [
            Course(
                gold=[found.items[row].right for row in rows],
                others=[agreeing.get(row) for row in rows],
                seconds=[found.items[row].seconds for row in rows],
            )
            for rows in rows_of
        ]
    )
    return tuple(
        _card(found, compared, number, rows, drift)
        for number, (rows, drift) in enumerate(zip(rows_of, changes, strict=True))
    )


def _card(
    found: Gathered, compared: _Compared | None, number: int, rows: Sequence[int], drift: tuple
) -> PersonQuality:
    person, items = found.people[number], [found.items[row] for row in rows]
    seconds = [item.seconds for item in items if item.seconds is not None]
    nothing = Figure(value=None, reason=NOT_COMPARED)
    habit, clicks = ("", {}) if compared is None else compared.habit(number)
    return PersonQuality(
        name=person.name,
        standing=person.standing,
        labels=len(items),
        seconds=median(seconds) if seconds else None,
        gold=bias.share([item.right for item in items if item.right is not None]),
        skill=nothing if compared is None else compared.skill_of(number),
        habit=habit,
        habit_shares=clicks,
        held_out=nothing if compared is None else compared.held_out(number),
        consistency=bias.share([item.alike for item in items if item.alike is not None]),
        first=nothing if compared is None else compared.shares["first"][number],
        longer=nothing if compared is None else compared.shares["longer"][number],
        lists=nothing if compared is None else compared.shares["lists"][number],
        refusals=nothing if compared is None else compared.shares["refusals"][number],
        place_odds=nothing if compared is None else compared.biases.place[number],
        place_p=None if compared is None else compared.biases.place_p[number],
        drift=drift,
        skipped=person.skipped,
    )


def _notes(found: Gathered) -> Iterator[str]:
    excluded = sum(person.excluded for person in found.people)
    if excluded:
        yield (
            f"Agreement leaves out the labels of {excluded} people who are suspended or did not qualify; "
            "skill and biases are computed with them."
        )
    if found.chosen and found.values:
        yield (
            f"Agreement leaves out {found.chosen} tasks that were chosen by a score: what is hard says "
            "nothing of what is not."
        )
    elif found.chosen:
        yield (f"There is no agreement: all {found.chosen} tasks were chosen by a score, none at random.")
    kind = KINDS[found.project.ask]
    if kind.valued is None:
        yield f"Tasks of the kind {kind.name} are answered by each person alone, so nobody can agree."
    if kind.note:
        yield kind.note
