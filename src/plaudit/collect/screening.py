"""Who is kept after a trial: criteria with soft cut-offs, a ranking, and a proposal to decide on.

The criteria are those by which InstructGPT chose its labelers (Ouyang et al. 2022, arXiv:2203.02155, B.1):
how often somebody prefers what is known to be better, and flags what is known to deserve it; how good the
demonstrations are that they wrote; which areas they say to know. AlpacaFarm kept the sixteen who agreed most.
How well somebody reads and agrees is what the report on quality says, and its rules hold here too: with few
known answers a click on the first of two may be right as often as a reader's.
Nothing here changes anybody's standing: `decide` is called by whoever has looked at the table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from scipy.stats import beta
from sqlalchemy import Connection, bindparam, select

from plaudit.collect import views
from plaudit.collect.answers import agreed_flags, agrees_with_gold
from plaudit.collect.kinds import KINDS
from plaudit.collect.kinds.kind import text_of
from plaudit.collect.log import same
from plaudit.collect.people import set_standing
from plaudit.collect.progress import project_people
from plaudit.collect.project import Project
from plaudit.collect.quality.report import cards_of, reasons_of
from plaudit.collect.quality.result import Figure, PersonQuality
from plaudit.collect.store import LabelStore, Transaction
from plaudit.collect.tables import label, project as projects, task
from plaudit.data.records import Demonstration, answer_to, text_to_json
from plaudit.errors import UserError

TOP_MARK = 7
"""Demonstrations are told on a scale from 1 to this, whichever scale they were rated on."""
_NOT_SCREENED = ("suspended", "erased")

_KNOWN = (
    select(label.c.annotator, label.c.label, label.c.shown, task.c.body)
    .join(task, same(task, label, id="task"))
    # Not repetitions: who answers an item twice was right or wrong once.
    .where(label.c.project == bindparam("p"), label.c.purpose.in_(("gold", "qualify")))
    .order_by(label.c.seq)
)
_RATED = (
    select(label.c.label, label.c.shown, task.c.body)
    .join(task, same(task, label, id="task"))
    .where(label.c.project == bindparam("p"), label.c.purpose.in_(("work", "adjudicated")))
    .where(label.c.surplus == 0)
    .order_by(label.c.seq)
)
_WRITTEN = (
    select(label.c.annotator, label.c.label, task.c.body)
    .join(task, same(task, label, id="task"))
    .where(label.c.project == bindparam("p"), label.c.purpose == "work")
    .order_by(label.c.seq)
)
_NAMES = select(projects.c.name).order_by(projects.c.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOffs:
    """What somebody should reach; soft, since only who is below for certain is held back."""

    comparisons: float = 0.75
    """The share of known answers that are agreed with."""
    flags: float = 0.75
    """The share of answers that are flagged for exactly what they deserve."""
    demonstrations: float = 6.0
    """The mean score of what the person wrote, from 1 to 7."""

    def __post_init__(self) -> None:
        if not (0 <= self.comparisons <= 1 and 0 <= self.flags <= 1):
            raise UserError(
                f"cut-offs of agreement are shares from 0 to 1, not {self.comparisons:g} and {self.flags:g}"
            )
        if not 1 <= self.demonstrations <= TOP_MARK:
            raise UserError(
                f"the cut-off of demonstrations is from 1 to {TOP_MARK}, not {self.demonstrations:g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    value: float
    """The share, or the mean score."""
    low: float
    """The lower end of its 95 % interval."""
    high: float
    n: int
    """What it rests on: known answers, tasks with known flags, demonstrations, or shared labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """One person by all criteria; what was not measured is None."""

    annotator: str
    person: str | None
    standing: str
    comparisons: Measure | None
    """Agreement with known answers."""
    flags: Measure | None
    """Agreement with known flags."""
    demonstrations: Measure | None
    """The mean score of what the person wrote, from 1 to 7."""
    reading: Measure | None
    """How often the person reads and then says what people mean, as the report on quality has it."""
    others: Measure | None
    """The share of preferences that are those of the others."""
    habit: str
    """What is clicked unread; empty where nothing is."""
    suspend: tuple[str, ...]
    """Why the report on quality would suspend the person: nobody with such a reason is kept."""
    watch: tuple[str, ...]
    """Why it would watch the person: who is kept is watched then."""
    areas: tuple[str, ...]
    """What the person says to know."""
    missed: tuple[str, ...]
    """Criteria whose value is below the cut-off."""
    below: tuple[str, ...]
    """Those of them that are below for certain: the whole interval is."""
    rank: int
    """Among all who were measured, the best first; 0 of somebody of whom nothing is known."""
    proposed: str
    """Active or watch for the best with nothing certainly below; else suspended, or failed as before."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Screening:
    """Everybody who tried, the best first."""

    project: str
    keep: int
    cut_offs: CutOffs
    people: tuple[Screened, ...]
    """The best first; those of whom nothing was measured last."""
    notes: tuple[str, ...]
    """What could not be measured, and why."""

    @property
    def decisions(self) -> tuple[Screened, ...]:
        return tuple(member for member in self.people if member.rank and member.proposed != member.standing)


_Measures = Mapping[str, Measure]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """All that is known of one person."""

    member: Mapping[str, Any]
    measures: _Measures
    habit: str
    suspend: tuple[str, ...]
    watch: tuple[str, ...]
    below: tuple[str, ...]
    """Criteria of which the whole interval is below the cut-off."""

    @property
    def reading(self) -> Measure:
        return self.measures.get("reading", _UNREAD)

    @property
    def is_known(self) -> bool:
        # Who is still qualifying has answered too little to be compared.
        return bool(self.measures) and self.member["standing"] != "qualifying"


_CUT_OFFS = ("comparisons", "flags", "demonstrations")


def screen(
    store: LabelStore,
    project: str,
    *,
    keep: int = 16,
    cut_offs: CutOffs | None = None,
    written_in: str | None = None,
) -> Screening:
    """Everybody of a project who qualified or tried, by four criteria; nothing is written.

    ``written_in`` is the project in which they wrote demonstrations, under the same names, where it is
    another one. Whoever a reviewer suspended is left out: no rule overrules a person.
    """
    wanted = CutOffs() if cut_offs is None else cut_offs
    with store.looking() as look:
        settings = look.settings(project)
        everybody = project_people(look, project)
        authors = _authors(look, everybody, project, written_in or project)
        measures = _measured(look.connection, project, authors)
    cards, standards = cards_of(store, project)
    card_of = {card.name: (card, *reasons_of(card, standards)) for card in cards}
    people = [
        _judged(member, measures.get(member["pseudonym"], {}), card_of.get(member["pseudonym"]), wanted)
        for member in everybody
        if member["role"] == "annotator"
        and member["standing"] not in _NOT_SCREENED
        and (member["answered"] or member["pseudonym"] in measures)
    ]
    held = _held(people)
    ranked = [*_in_order([p for p in people if p not in held]), *_in_order(held)]
    known = [person for person in ranked if person.is_known]
    fit = [person for person in known if person not in held][:keep]
    ranked.sort(key=lambda person: not person.measures)
    return Screening(
        project=project,
        keep=keep,
        cut_offs=wanted,
        people=tuple(_screened(person, known, fit, wanted) for person in ranked),
        notes=tuple(_notes(settings, people)),
    )


def _judged(
    member: Mapping[str, Any],
    measures: _Measures,
    card: tuple[PersonQuality, tuple[str, ...], tuple[str, ...]] | None,
    cut_offs: CutOffs,
) -> _Judged:
    habit, suspend, watch, own = "", (), (), dict(measures)
    if card is not None:
        habit, suspend, watch = card[0].habit, card[1], card[2]
        for what, figure in (("reading", card[0].skill), ("others", card[0].held_out)):
            if (measure := _measure_of_figure(figure)) is not None:
                own[what] = measure
    below = _failed(own, cut_offs, certain=True)
    return _Judged(member=member, measures=own, habit=habit, suspend=suspend, watch=watch, below=below)


def _measure_of_figure(figure: Figure) -> Measure | None:
    if figure.value is None or figure.low is None or figure.high is None:
        return None
    return Measure(value=figure.value, low=figure.low, high=figure.high, n=figure.n)


def _held(people: Sequence[_Judged]) -> list[_Judged]:
    # Known answers may be few and odd: by them alone nobody goes while a clearly worse reader stays.
    free = [person for person in people if person.is_known and not person.suspend and not person.below]
    worst = min((person.reading.high for person in free), default=1.0)
    return [
        person
        for person in people
        if person.suspend
        or {*person.below} - {"comparisons"}
        or (person.below and person.reading.low <= worst)
    ]


def _in_order(people: Sequence[_Judged]) -> list[_Judged]:
    # By the lower ends (one right answer of one is less than nineteen of twenty), each as it differs from
    # what is usual, so that what was not measured of somebody speaks neither for nor against them. And
    # whoever clearly reads better comes first, whatever a few known answers say.
    lows = [{what: _low(what, m) for what, m in person.measures.items()} for person in people]
    usual = {
        what: median(own[what] for own in lows if what in own)
        for what in {what for own in lows for what in own}
    }

    def order(place: int) -> tuple[int, bool, float, str]:
        own, person = lows[place], people[place]
        score = sum(low - usual[what] for what, low in own.items())
        return len(person.below), bool(person.watch), -score, person.member["pseudonym"]

    left, ordered = [people[place] for place in sorted(range(len(people)), key=order)], list[_Judged]()
    while left:
        best = max(person.reading.low for person in left)
        ordered.append(next(person for person in left if person.reading.high >= best))
        left.remove(ordered[-1])
    return ordered


def _low(what: str, measure: Measure) -> float:
    return (measure.low - 1) / (TOP_MARK - 1) if what == "demonstrations" else measure.low


def _authors(
    look: Transaction, everybody: Sequence[Mapping[str, Any]], project: str, written_in: str
) -> dict[tuple[str, str], str]:
    if written_in == project:
        return {(project, member["pseudonym"]): member["pseudonym"] for member in everybody}
    look.settings(written_in)
    there = project_people(look, written_in)
    names = {member["person"]: member["pseudonym"] for member in everybody}
    # A name that two people of either project have says nobody; those who were erased have none.
    unclear = {
        name
        for side in (everybody, there)
        for name, count in Counter(member["person"] for member in side).items()
        if count > 1 or name is None
    }
    return {
        (written_in, member["pseudonym"]): names[member["person"]]
        for member in there
        if member["person"] in names.keys() - unclear
    }


def _measured(
    connection: Connection, project: str, authors: Mapping[tuple[str, str], str]
) -> dict[str, _Measures]:
    right, flags = dict[str, list[float]](), dict[str, list[float]]()
    for row in connection.execute(_KNOWN, {"p": project}):
        answer, order, body = (json.loads(text) for text in (row.label, row.shown, row.body))
        agrees, flagged = agrees_with_gold(answer, body, order), agreed_flags(answer, body, order)
        if agrees is not None:
            right.setdefault(row.annotator, []).append(int(agrees))
        if flagged is not None:
            good, count = flagged
            # A task counts once: whoever takes its answers for each other is wrong about both.
            flags.setdefault(row.annotator, []).append(good / count)
    marks = _marks(connection, authors)
    measured = dict[str, _Measures]()
    for name in right.keys() | flags.keys() | marks.keys():
        found = {
            "comparisons": measure_of(right.get(name, [])),
            "flags": measure_of(flags.get(name, [])),
            "demonstrations": measure_of(marks.get(name, []), 1, TOP_MARK),
        }
        measured[name] = {what: measure for what, measure in found.items() if measure is not None}
    return measured


def _marks(connection: Connection, authors: Mapping[tuple[str, str], str]) -> dict[str, list[float]]:
    # The mean mark of each demonstration, in any project of the store that rates them, by their authors.
    marks = dict[tuple[str, str], list[float]]()
    for (name,) in connection.execute(_NAMES):
        settings = views.settings_of(connection, name)
        if settings is None or KINDS[settings.ask].marks is None:
            continue
        for row in connection.execute(_RATED, {"p": name}):
            answer, order, body = (json.loads(text) for text in (row.label, row.shown, row.body))
            for author, written, mark in _marks_of_label(answer, order, body, settings):
                if author in authors:
                    marks.setdefault((authors[author], written), []).append(mark)
    means = dict[str, list[float]]()
    for (author, _), given in marks.items():
        means.setdefault(author, []).append(fmean(given))
    return means


def _marks_of_label(
    answer: Mapping[str, Any], order: Sequence[int], body: Mapping[str, Any], settings: Project
) -> Iterable[tuple[tuple[str, str], str, float]]:
    # The mark of each answer, by the project and the pseudonym of who wrote it, and what they wrote.
    marks = KINDS[settings.ask].marks
    assert marks is not None
    for place, candidate in enumerate(order):
        source = body["candidates"][candidate].get("source") or {}
        given = [
            1 + (TOP_MARK - 1) * (points - 1) / (most - 1) for points, most in marks(answer, place, settings)
        ]
        if given:
            written = json.dumps([body["prompt"], body["candidates"][candidate]["text"]])
            yield (str(source.get("project")), str(source.get("annotator"))), written, fmean(given)


def measure_of(values: Sequence[float], least: float = 0, most: float = 1) -> Measure | None:
    """The mean of values between two ends, with the exact interval of Clopper and Pearson (1934).

    Of all values in these bounds those at the ends scatter most, so of marks it is wide enough: also of three
    that are alike, which say nothing of how others would scatter.
    """
    if not values:
        return None
    count, width = len(values), most - least
    good = sum(value - least for value in values) / width
    low = 0.0 if good == 0 else float(beta.ppf(0.025, good, count - good + 1))
    high = 1.0 if good == count else float(beta.ppf(0.975, good + 1, count - good))
    return Measure(value=fmean(values), low=least + width * low, high=least + width * high, n=count)


def _failed(measures: _Measures, cut_offs: CutOffs, *, certain: bool) -> tuple[str, ...]:
    # Criteria whose value, or whose whole interval, is below the cut-off.
    return tuple(
        what
        for what, member in measures.items()
        if what in _CUT_OFFS and (member.high if certain else member.value) < getattr(cut_offs, what)
    )


def _screened(
    person: _Judged, known: Sequence[_Judged], fit: Sequence[_Judged], cut_offs: CutOffs
) -> Screened:
    own, standing = person.measures, person.member["standing"]
    rank = known.index(person) + 1 if person in known else 0
    selected = person in fit
    return Screened(
        annotator=person.member["pseudonym"],
        person=person.member["person"],
        standing=standing,
        **{what: own.get(what) for what in (*_CUT_OFFS, "reading", "others")},
        habit=person.habit,
        suspend=person.suspend,
        watch=person.watch,
        areas=tuple(person.member["preferences"].get("areas", ())),
        missed=_failed(own, cut_offs, certain=False),
        below=person.below,
        rank=rank,
        proposed=_proposed(person, selected=selected) if rank else standing,
        reason=_reason(person, rank, len(known), selected=selected) if rank else "too little is known",
    )


def _proposed(person: _Judged, *, selected: bool) -> str:
    # What a person's standing is to become; whoever is watched, or was failed, is so for a reason.
    standing = person.member["standing"]
    if selected:
        return "watch" if person.watch or standing == "watch" else "active"
    return standing if standing == "failed" else "suspended"


def _reason(person: _Judged, rank: int, count: int, *, selected: bool) -> str:
    figures = "; ".join(f"{what} {measure_words(what, measure)}" for what, measure in person.measures.items())
    why = "others are better"
    if person.suspend or person.below:
        below = (f"below the cut-off: {', '.join(person.below)}",) if person.below else ()
        why = "; ".join((*person.suspend, *below))
    if selected:
        why = f"kept, and watched: {'; '.join(person.watch)}" if person.watch else "kept"
    return f"screening: {rank} of {count}, {figures}; {why}"


def measure_words(what: str, measure: Measure) -> str:
    """A measure as tables and reasons have it.

    >>> measure_words("comparisons", Measure(value=0.88, low=0.7, high=0.958, n=25))
    '88 % of 25 (70–96)'
    """
    if what == "demonstrations":
        return f"{measure.value:.1f} of {TOP_MARK} in {measure.n} ({measure.low:.1f}–{measure.high:.1f})"
    return f"{100 * measure.value:.0f} % of {measure.n} ({100 * measure.low:.0f}–{100 * measure.high:.0f})"


_UNREAD = Measure(value=0.5, low=0.0, high=1.0, n=0)
_UNMEASURED = {
    "comparisons": "comparisons are not measured: nobody answered an item whose answer is known",
    "flags": "flags are not measured: no item that was answered has known flags",
    "demonstrations": "demonstrations are not measured: no project of the store that asks for rate has "
    "ratings of what these people wrote (collect screen --demonstrations FILE writes it as tasks)",
    "reading": "reading is not measured: nobody labelled work that somebody else did",
}


def _notes(settings: Project, people: Sequence[_Judged]) -> Iterable[str]:
    there, kind = {what for person in people for what in person.measures}, KINDS[settings.ask]
    for what, words in _UNMEASURED.items():
        # What nobody can have done in such a project needs no word.
        needs = kind.compared if what == "reading" else kind.check_gold
        possible = what == "demonstrations" or needs is not None
        if what not in there and possible:
            yield words


def decide(store: LabelStore, screening: Screening, *, actor: str) -> tuple[Screened, ...]:
    """Set the standing of everybody whose proposal differs from it, with the reason; gives those."""
    for member in screening.decisions:
        standing, reason = member.proposed, member.reason
        store.write(set_standing, screening.project, member.annotator, standing, reason=reason, actor=actor)
    return screening.decisions


def demonstration_tasks(store: LabelStore, project: str) -> list[dict[str, Any]]:
    """What people wrote, as tasks for a project that asks for rate; reviewers see no author in them."""
    with store.looking() as look:
        ask = look.settings(project).ask
        if Demonstration not in KINDS[ask].usual_of:
            raise UserError(f"project {project} asks for {ask}, and nobody writes in it")
        rows = look.connection.execute(_WRITTEN, {"p": project}).all()
    rated = next(kind.name for kind in KINDS.values() if kind.marks is not None)
    tasks = list[dict[str, Any]]()
    for row in rows:
        prompt, answer = json.loads(row.body)["prompt"], json.loads(row.label)["answer"]
        text = text_to_json(answer_to(text_of(prompt), answer))
        source = {"annotator": row.annotator, "project": project}
        tasks.append({"kind": rated, "prompt": prompt, "candidates": [{"text": text, "source": source}]})
    return tasks
