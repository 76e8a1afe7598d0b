"""The report on a project's labels, put together of its parts.

Whom to watch and whom to suspend: rules with their figures in words, which a reviewer accepts or not.

A rule never acts. Each is a function from a report card to its reason, or to nothing; what is uncertain is
judged by the end of the interval that speaks for the person.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from statistics import median

import numpy as np
import pyarrow

from plaudit.collect.columns import Head, labels_of
from plaudit.collect.kinds import KINDS
from plaudit.collect.project import LEAST_IN_A_GROUP, large_enough
from plaudit.collect.quality import bias, result, skill
from plaudit.collect.quality.agreement import Values, agreements
from plaudit.collect.quality.bias import Course, drifts
from plaudit.collect.quality.gathering import Choices, Gathered, gather
from plaudit.collect.quality.skill import FIRST, TIE
from plaudit.collect.store import LabelStore
from plaudit.evaluation.stats import Resampling, bootstrap_mean

LEAST_SKILL = 0.6
"""Of the usual skill: who certainly has less, and clicks the rest, is proposed for suspension."""
LEAST_CONSISTENCY = 0.7
"""Repeated tasks answered alike, below which somebody is watched."""
PLACE_SHARE = 0.6
"""The share of preferences for one place from which a bias is worth a look, however certain it is."""
MOST_PASTED = 0.5
"""Of what people write: who certainly pastes more of it is watched, as it may be another's, or a model's."""
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
    judge: float | None
    """The median of people's agreement with the project's judge."""


Rule = Callable[[result.PersonQuality, Standards], str | None]
"""The reason that a rule gives, in words; None where it does not apply."""


def _certainly_below(figure: result.Figure, bound: float) -> bool:
    return figure.high is not None and figure.high < bound


def _interval(figure: result.Figure) -> str:
    return f"{figure.low:.0%} to {figure.high:.0%}"


def _gold_fails(person: result.PersonQuality, standards: Standards) -> str | None:
    gold = person.gold
    if gold.value is None or not _certainly_below(gold, standards.gold_floor):
        return None
    return (
        f"{round(gold.value * gold.n)} of {gold.n} gold answers are right ({_interval(gold)}), and the floor "
        f"is {standards.gold_floor:.0%}"
    )


def _seems_not_to_read(
    person: result.PersonQuality, standards: Standards, *, certain: bool = False
) -> str | None:
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


def _gold_is_low(person: result.PersonQuality, standards: Standards) -> str | None:
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


def _prefers_a_place(person: result.PersonQuality, standards: Standards) -> str | None:
    first = person.first
    if first.value is None or person.place_p is None or person.place_p >= SURE:
        return None
    share, place = (first.value, "first") if first.value >= 0.5 else (1 - first.value, "second")
    if share < PLACE_SHARE:
        return None
    return (
        f"prefers the answer shown {place} in {share:.0%} of {first.n} preferences (p = {person.place_p:.2g})"
    )


def _agrees_less(agreement: result.Figure, usual: float | None, whom: str) -> str | None:
    # A tenth apart and not a hair: with a thousand labels any difference is certain.
    if agreement.value is None or usual is None or not _certainly_below(agreement, usual - 0.1):
        return None
    return (
        f"agrees with {whom} in {agreement.value:.0%} of {agreement.n} preferences ({_interval(agreement)}), "
        f"where {usual:.0%} is usual"
    )


def _differs_from_others(person: result.PersonQuality, standards: Standards) -> str | None:
    return _agrees_less(person.held_out, standards.held_out, "the others")


def _differs_from_the_judge(person: result.PersonQuality, standards: Standards) -> str | None:
    # AlpacaFarm (arXiv:2305.14387) left out whom its judge agreed with far less than with the rest: the judge
    # errs alike for everybody, so that only the difference to what is usual says something of a person.
    return _agrees_less(person.judge, standards.judge, "the judge")


def _contradicts_itself(person: result.PersonQuality, standards: Standards) -> str | None:
    if person.consistency.value is None or not _certainly_below(person.consistency, LEAST_CONSISTENCY):
        return None
    found = person.consistency
    return f"answers {found.value:.0%} of {found.n} repeated tasks as before ({_interval(found)})"


def _pastes(person: result.PersonQuality, standards: Standards) -> str | None:
    if person.pasted.value is None or person.pasted.low is None or person.pasted.low <= MOST_PASTED:
        return None
    found = person.pasted
    return f"pasted {found.value:.0%} of what {found.n} answers hold ({_interval(found)})"


def _is_fast(person: result.PersonQuality, standards: Standards) -> str | None:
    if person.seconds is None or standards.seconds is None or person.seconds >= TOO_FAST * standards.seconds:
        return None
    return f"takes {person.seconds:.1f} s a label in the median, where {standards.seconds:.1f} s is usual"


def _has_drifted(person: result.PersonQuality, standards: Standards) -> str | None:
    # Faster is no fault by itself: everybody gets faster. Half the time is.
    worse = (d for d in person.drift if d.now < (d.before / 2 if d.what == "seconds" else d.before))
    return "; ".join(_drift_words(drift) for drift in worse if drift.p < SURE) or None


def _drift_words(drift: result.Drift) -> str:
    if drift.what == "seconds":
        return (
            f"took {drift.now:.1f} s for the last 50 labels, {drift.before:.1f} s before (p = {drift.p:.2g})"
        )
    what = "gold answers right" if drift.what == "gold" else "preferences with the others"
    return (
        f"{drift.now:.0%} of {drift.n} {what} among the last 50 labels, {drift.before:.0%} before "
        f"(p = {drift.p:.2g})"
    )


SUSPEND: Mapping[str, Rule] = {"gold": _gold_fails, "skill": partial(_seems_not_to_read, certain=True)}
"""Rules of which one is enough to propose suspension."""
WATCH: Mapping[str, Rule] = {
    "gold": _gold_is_low,
    "skill": _seems_not_to_read,
    "place": _prefers_a_place,
    "others": _differs_from_others,
    "judge": _differs_from_the_judge,
    "consistency": _contradicts_itself,
    "pasted": _pastes,
    "seconds": _is_fast,
    "drift": _has_drifted,
}
"""Rules of which one is enough to propose to watch somebody."""


def standards_of(cards: Sequence[result.PersonQuality], gold_floor: float) -> Standards:
    def usual(values: Iterable[float | None]) -> float | None:
        # Three at least: of two people the slower one is half of what is usual.
        known = [value for value in values if value is not None]
        return median(known) if len(known) >= 3 else None

    return Standards(
        gold_floor=gold_floor,
        skill=usual(card.skill.value for card in cards),
        seconds=usual(card.seconds for card in cards),
        held_out=usual(card.held_out.value for card in cards),
        judge=usual(card.judge.value for card in cards),
    )


def reasons_of(card: result.PersonQuality, standards: Standards) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The reasons to suspend somebody, and those to watch them, whatever holds of them now."""
    severe, mild = (
        tuple(reason for rule in rules.values() if (reason := rule(card, standards)) is not None)
        for rules in (SUSPEND, WATCH)
    )
    return severe, mild


def proposals(cards: Sequence[result.PersonQuality], standards: Standards) -> tuple[result.Proposal, ...]:
    """What the rules propose, suspensions first; nothing of those whom it holds for already."""
    found = list[result.Proposal]()
    for card in cards:
        if card.standing in ("suspended", "failed", "erased"):
            continue
        severe, mild = reasons_of(card, standards)
        standing = "suspended" if severe else "watch"
        if severe or (mild and card.standing != "watch"):
            found.append(result.Proposal(name=card.name, standing=standing, reasons=(*severe, *mild)))
    return tuple(
        sorted(found, key=lambda proposal: (proposal.standing != "suspended", -len(proposal.reasons)))
    )


SURE_SKILL = 0.8
"""A person who certainly reads this often has no habit worth a name."""
RANDOM_SKILL = 0.5
"""Whose skill is certainly below this clicks at random, if nothing else; above it, people only err."""
HABIT_SHARE = 0.6
"""The share of a person's clicks from which they are a habit."""
NOT_COMPARED = "the kind of task has no preferences between two answers"
SHARES = ("first", "longer", "lists", "refusals")
"""Fields of a card that are shares of preferences, by their names in `bias.shares_of_people`."""
NO_OTHERS = "nobody else answered the same"
NO_JUDGE = "no judge of the project has a side in any of these preferences"
_RESAMPLING = Resampling(times=1000)


def quality(store: LabelStore, project: str) -> result.Quality:
    """How far the labels of a project can be trusted, as of now."""
    return report_of(*labels_of(store, project))


def cards_of(store: LabelStore, project: str) -> tuple[tuple[result.PersonQuality, ...], Standards]:
    """Everybody with a label, and what is usual: the people of a report, without the rest of it."""
    head, labels = labels_of(store, project)
    found = gather(head.project, head.people, labels)
    cards = _cards(found, None if found.choices is None else _Compared(found, found.choices))
    return cards, standards_of(cards, head.project.qualify_floor)


def report_of(head: Head, labels: pyarrow.Table) -> result.Quality:
    """The report on labels of a store or of a snapshot; without the tasks' bodies, how far people agree."""
    project, found = head.project, gather(head.project, head.people, labels)
    compared = None if found.choices is None else _Compared(found, found.choices)
    cards = _cards(found, compared) if "body" in labels.column_names else ()
    return result.Quality(
        project=project.name,
        kind=project.ask,
        seq=head.seq,
        labels=len(found.items.person_B),
        people=len(found.people),
        agreement=tuple(_agreement_rows(found)),
        annotators=cards,
        biases=() if compared is None else compared.biases.shared,
        proposals=proposals(cards, standards_of(cards, project.qualify_floor)),
        consensus=None if compared is None else compared.consensus(),
        groups=() if not cards else tuple(_group_rows(found, cards)),
        judges=found.judges,
        notes=tuple(_notes(found)),
    )


def _agreement_rows(found: Gathered) -> Iterator[result.AgreementRow]:
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

    for name, value, member_J in _large_groups(found):
        if "" in whole:
            inside_B = member_J[whole[""].person_B]
            yield _agreement_row(whole[""].where(inside_B), "group", f"{name}: {value or 'not said'}")


def _large_groups(found: Gathered) -> Iterator[tuple[str, str, np.ndarray]]:
    # Groups of which figures may be told, each with who is in it. The erased and suspended count for nobody.
    trusted = [not person.excluded and person.standing != "erased" for person in found.people]
    for name, values in found.project.values_of_groups.items():
        answer_J = np.array([person.groups.get(name, "") for person in found.people], dtype=object)
        members = {value: (answer_J == value) & trusted for value in (*values, "")}
        shown = large_enough({value: int(member_J.sum()) for value, member_J in members.items()})
        yield from ((name, value, member_J) for value, member_J in members.items() if value in shown)


def _group_rows(found: Gathered, cards: Sequence[result.PersonQuality]) -> Iterator[result.GroupQuality]:
    for name, value, member_J in _large_groups(found):
        own = [cards[person] for person in np.flatnonzero(member_J).tolist()]
        skills = [card.skill.value for card in own if card.skill.value is not None]
        figures = {"skill": _mean(skills)}
        for what in ("gold", "held_out", "judge"):
            # Counts of hits, since a share of each person is one of another number of labels.
            shares = [getattr(card, what) for card in own if getattr(card, what).value is not None]
            hit_B = [hit for s in shares for hit in np.arange(s.n) < round(s.value * s.n)]
            person_B = np.repeat(np.arange(len(shares)), [s.n for s in shares])
            # By person: their answers are alike, and another group would be other people.
            figures[what] = bias.clustered_share(np.array(hit_B, dtype=bool), person_B)
        labels = sum(card.labels for card in own)
        yield result.GroupQuality(name=name, value=value, people=len(own), labels=labels, **figures)


def _mean(values: Sequence[float]) -> result.Figure:
    if len(values) < LEAST_IN_A_GROUP:
        return result.Figure(value=None, n=len(values), reason=NO_OTHERS)
    found = bootstrap_mean(np.array(values), np.arange(len(values)), _RESAMPLING, share=False)
    return result.Figure(value=found.value, low=found.low, high=found.high, n=len(values))


def _agreement_row(values: Values, part: str, name: str) -> result.AgreementRow:
    figures = agreements(values, _RESAMPLING)
    found = {field.name: getattr(figures, field.name) for field in fields(figures)}
    return result.AgreementRow(part=part, name=name, level=values.level, **found)


class _Compared:
    """What pairs of answers say of people: skill, habits, agreement with the others, biases."""

    def __init__(self, found: Gathered, choices: Choices) -> None:
        votes = choices.votes
        self.choices, self.votes = choices, votes
        self.rows_J = bias.rows_by_person(votes.person_B, votes.people)
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
        judge_U = np.zeros(votes.pairs) if found.judge_U is None else found.judge_U
        self.by_judge_B = judge_U[votes.pair_B] * (votes.choice_B != TIE)
        self.like_judge_B = (self.by_judge_B > 0) == (votes.choice_B == FIRST)

    def skill_of(self, person: int) -> result.Figure:
        shared = int(self.shared_J[person])
        if not shared:
            return result.Figure(value=None, reason=NO_OTHERS)
        return result.Figure(
            value=float(self.skill.theta_J[person]),
            low=float(self.low_J[person]),
            high=float(self.high_J[person]),
            n=shared,
        )

    def held_out(self, person: int) -> result.Figure:
        """The share of preferences that the others share."""
        return self._share(person, self.judged_B, self.agrees_B, NO_OTHERS)

    def judge(self, person: int) -> result.Figure:
        """The share of preferences that the project's judges share."""
        return self._share(person, self.by_judge_B != 0, self.like_judge_B, NO_JUDGE)

    def _share(self, person: int, counted_B: np.ndarray, hit_B: np.ndarray, nothing: str) -> result.Figure:
        rows = self.rows_J[person][counted_B[self.rows_J[person]]]
        if not len(rows):
            return result.Figure(value=None, reason=nothing)
        return bias.clustered_share(hit_B[rows], self.choices.prompt_U[self.votes.pair_B[rows]])

    def habit(self, person: int) -> tuple[str, dict[str, float]]:
        """What is clicked without reading, in a word, and how the clicks fall."""
        if not self.shared_J[person] or self.low_J[person] >= SURE_SKILL:
            return "", {}
        shares = self.skill.habit_JK[person].tolist()
        clicks = dict[str, float](zip(("first", "second", "tie"), shares, strict=True))
        most = max(clicks, key=lambda name: clicks[name])
        if clicks[most] >= HABIT_SHARE:
            return most, clicks
        shown_B = self.votes.shown_B[self.rows_J[person]]
        if alternates(shown_B):
            return "alternating", clicks
        return ("random", clicks) if self.high_J[person] < RANDOM_SKILL else ("", clicks)

    def agreeing_items(self, items: int) -> np.ndarray:
        """Whether each label agrees with the others, of rankings most of its pairs; NaN where it cannot."""
        item_B, agrees_B = self.choices.item_B[self.judged_B], self.agrees_B[self.judged_B]
        pairs_I = np.bincount(item_B, minlength=items)
        return np.where(pairs_I > 0, 2 * np.bincount(item_B, agrees_B, minlength=items) > pairs_I, np.nan)

    def consensus(self) -> result.Consensus:
        first_U = self.skill.first_U
        return result.Consensus(
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


def _cards(found: Gathered, compared: _Compared | None) -> tuple[result.PersonQuality, ...]:
    items, nothing_B = found.items, np.full(len(found.items.person_B), np.nan)
    agreeing_B = nothing_B if compared is None else compared.agreeing_items(len(nothing_B))
    # By the number of the answer: one that was revised stays where it was.
    rows_of = [
        rows[np.argsort(items.number_B[rows], kind="stable")]
        for rows in bias.rows_by_person(items.person_B, len(found.people))
    ]
    changes = drifts(
        [
            Course(gold=items.right_B[rows], others=agreeing_B[rows], seconds=items.seconds_B[rows])
            for rows in rows_of
        ]
    )
    return tuple(
        _card(found, compared, number, rows, drift)
        for number, (rows, drift) in enumerate(zip(rows_of, changes, strict=True))
    )


def _card(
    found: Gathered, compared: _Compared | None, number: int, rows: np.ndarray, drift: tuple
) -> result.PersonQuality:
    items = found.items
    seconds, right, alike, pasted = (
        values_B[rows][~np.isnan(values_B[rows])]
        for values_B in (items.seconds_B, items.right_B, items.alike_B, items.pasted_B)
    )
    person = found.people[number]
    nothing = result.Figure(value=None, reason=NOT_COMPARED)
    habit, clicks = ("", {}) if compared is None else compared.habit(number)
    return result.PersonQuality(
        name=person.name,
        standing=person.standing,
        labels=len(rows),
        seconds=float(np.median(seconds)) if len(seconds) else None,
        gold=bias.share(right),
        skill=nothing if compared is None else compared.skill_of(number),
        habit=habit,
        habit_shares=clicks,
        held_out=nothing if compared is None else compared.held_out(number),
        judge=nothing if compared is None else compared.judge(number),
        consistency=bias.share(alike),
        # Of clicks it would be the share of a reason, which says nothing of the click.
        pasted=bias.share(pasted if KINDS[found.project.ask].essence else ()),
        **{name: nothing if compared is None else compared.shares[name][number] for name in SHARES},
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
