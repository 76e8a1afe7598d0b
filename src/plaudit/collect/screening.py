"""Who is kept after a trial: four criteria with soft cut-offs, a ranking, and a proposal to decide on.

The criteria are those by which InstructGPT chose its labelers (Ouyang et al. 2022, arXiv:2203.02155, B.1):
how often somebody prefers what is known to be better, and flags what is known to deserve it; how good the
demonstrations are that they wrote; which areas they say to know. AlpacaFarm kept the sixteen who agreed most.
Nothing here changes anybody's standing: `decide` is called by whoever has looked at the table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
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
from plaudit.collect.store import LabelStore, Transaction
from plaudit.collect.tables import label, project as projects, task
from plaudit.data.labels import answer_to
from plaudit.data.records import Demonstration, text_to_json
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
    """What it rests on: known answers, tasks with known flags, or demonstrations."""


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
    areas: tuple[str, ...]
    """What the person says to know."""
    missed: tuple[str, ...]
    """Criteria whose value is below the cut-off."""
    below: tuple[str, ...]
    """Those of them that are below for certain: the whole interval is."""
    rank: int
    """Among all who were measured, the best first; 0 of somebody of whom nothing is known."""
    proposed: str
    """Unchanged (active if it was failed) for the best with nothing certainly below; else suspended."""
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
    people = [
        member
        for member in everybody
        if member["role"] == "annotator"
        and member["standing"] not in _NOT_SCREENED
        and (member["answered"] or member["pseudonym"] in measures)
    ]
    ranked = sorted(people, key=lambda member: _order(member["pseudonym"], measures, wanted))
    known = [
        member["pseudonym"]
        for member in ranked
        # Who is still qualifying has answered too little to be compared.
        if member["standing"] != "qualifying" and member["pseudonym"] in measures
    ]
    fit = [name for name in known if not _failed(measures[name], wanted, certain=True)][:keep]
    return Screening(
        project=project,
        keep=keep,
        cut_offs=wanted,
        people=tuple(_screened(member, known, fit, measures, wanted) for member in ranked),
        notes=tuple(_notes(settings, measures)),
    )


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
        if (member.high if certain else member.value) < getattr(cut_offs, what)
    )


def _order(name: str, measures: Mapping[str, _Measures], cut_offs: CutOffs) -> tuple[bool, int, float, str]:
    # Who was measured, then who is below in the fewest criteria for certain, then the best on average.
    # By the lower ends: one right answer of one is less than nineteen of twenty.
    own = measures.get(name, {})
    lows = [(m.low - 1) / (TOP_MARK - 1) if what == "demonstrations" else m.low for what, m in own.items()]
    return not own, len(_failed(own, cut_offs, certain=True)), -fmean(lows or [0.0]), name


def _screened(
    member: Mapping[str, Any],
    known: Sequence[str],
    fit: Sequence[str],
    measures: Mapping[str, _Measures],
    cut_offs: CutOffs,
) -> Screened:
    name = member["pseudonym"]
    own = measures.get(name, {})
    rank = known.index(name) + 1 if name in known else 0
    below = _failed(own, cut_offs, certain=True)
    return Screened(
        annotator=name,
        person=member["person"],
        standing=member["standing"],
        comparisons=own.get("comparisons"),
        flags=own.get("flags"),
        demonstrations=own.get("demonstrations"),
        areas=tuple(member["preferences"].get("areas", ())),
        missed=_failed(own, cut_offs, certain=False),
        below=below,
        rank=rank,
        proposed=_proposed(member["standing"], selected=name in fit) if rank else member["standing"],
        reason=_reason(own, rank, len(known), below, selected=name in fit) if rank else "too little is known",
    )


def _proposed(standing: str, *, selected: bool) -> str:
    # What a person's standing is to become; whoever is watched, or was failed, is so for a reason.
    if selected:
        return "active" if standing == "failed" else standing
    return standing if standing == "failed" else "suspended"


def _reason(own: _Measures, rank: int, count: int, below: Sequence[str], *, selected: bool) -> str:
    figures = "; ".join(f"{what} {measure_words(what, measure)}" for what, measure in own.items())
    short = f"below the cut-off: {', '.join(below)}" if below else "others are better"
    return f"screening: {rank} of {count}, {figures}; {'kept' if selected else short}"


def measure_words(what: str, measure: Measure) -> str:
    """A measure as tables and reasons have it.

    >>> measure_words("comparisons", Measure(value=0.88, low=0.7, high=0.958, n=25))
    '88 % of 25 (70–96)'
    """
    if what == "demonstrations":
        return f"{measure.value:.1f} of {TOP_MARK} in {measure.n} ({measure.low:.1f}–{measure.high:.1f})"
    return f"{100 * measure.value:.0f} % of {measure.n} ({100 * measure.low:.0f}–{100 * measure.high:.0f})"


_UNMEASURED = {
    "comparisons": "comparisons are not measured: nobody answered an item whose answer is known",
    "flags": "flags are not measured: no item that was answered has known flags",
    "demonstrations": "demonstrations are not measured: no project of the store that asks for rate has "
    "ratings of what these people wrote (collect screen --demonstrations FILE writes it as tasks)",
}


def _notes(settings: Project, measures: Mapping[str, _Measures]) -> Iterable[str]:
    there = {what for own in measures.values() for what in own}
    for what, words in _UNMEASURED.items():
        # What nobody can have done in such a project needs no word.
        possible = what == "demonstrations" or KINDS[settings.ask].check_gold is not None
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
