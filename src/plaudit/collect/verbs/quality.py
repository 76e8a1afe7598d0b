"""``plaudit collect quality`` and ``screen``: how far labels can be trusted, and whom to keep."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from plaudit.collect import screening
from plaudit.collect.columns import SCHEMA, labels_of, read_snapshot, write_snapshot
from plaudit.collect.database import shown_address
from plaudit.collect.kinds import KINDS
from plaudit.collect.quality.report import report_of
from plaudit.collect.quality.result import (
    AgreementRow,
    Figure,
    GroupQuality,
    Odds,
    PersonQuality,
    Quality,
    quality_to_dict,
)
from plaudit.collect.verbs.store import ACTOR, opened, project_name, table_lines
from plaudit.data.files import file_ending
from plaudit.data.write import check_output_path
from plaudit.errors import UserError
from plaudit.files.atomic import write_text

_PERSON = (
    *("person", "standing", "labels", "seconds", "gold", "reads", "habit", "like others", "repeats"),
    *("first", "longer", "list", "refusal"),
)
_GROUP = ("group", "people", "labels", "gold", "reads", "like others", "like the judge")


def show_quality(args: argparse.Namespace) -> None:
    where, found = args.store, _report(args)
    if args.json:
        print(json.dumps(quality_to_dict(found)))
        return
    size = f"{found.labels} labels of {found.people} people"
    print(f"{found.project} asks for {found.kind}: {size}; {shown_address(where)} at event {found.seq}")
    for line in _lines(found):
        print(line)


def _report(args: argparse.Namespace) -> Quality:
    # Bodies are most of what there is to read, and agreement is between labels alone.
    columns = [name for name in SCHEMA.names if name != "body" or not args.agreement]
    if not args.store.endswith(".parquet"):
        with opened(args) as store:
            head, labels = labels_of(store, project_name(store, args.project))
        return report_of(head, labels.select(columns))
    head, labels = read_snapshot(Path(args.store), columns)
    if args.project not in (None, head.project.name):
        raise UserError(f"{args.store}: it is of project {head.project.name}, not of {args.project}")
    return report_of(head, labels)


def keep_snapshot(args: argparse.Namespace) -> None:
    file_ending(args.out, (".parquet",))
    check_output_path(args.out)
    with opened(args) as store:
        head, count = write_snapshot(store, project_name(store, args.project), args.out)
    print(f"{args.out}: {count} labels of {head.project.name}, as of event {head.seq}")


def _lines(found: Quality) -> Iterator[str]:
    # A column more where there is a judge, or a text: the table is wide enough without it.
    judge, pasted = bool(found.judges), bool(KINDS[found.kind].essence)
    people = (*_PERSON, *(["like the judge"] if judge else []), *(["pasted"] if pasted else []))
    tables = (
        (("agreement", "alpha", "AC", "the same", "labels", "of"), map(_agreement, found.agreement)),
        (people, (_person(card, judge=judge, pasted=pasted) for card in found.annotators)),
        (_GROUP, map(_group, found.groups)),
        (("all else equal", "odds", "p"), map(_odds, found.biases)),
    )
    for heads, rows in tables:
        cells = [*rows]
        yield from ("", *table_lines(heads, cells)) if cells else ()
    if found.groups:
        yield "Groups of fewer than five people, and what would tell of such a one, are left out."
    if found.consensus is not None:
        yield ""
        yield (
            f"consensus: {found.consensus.pairs} pairs, {found.consensus.certain:.0%} of them with a chance "
            f"of 0.95 or more, {found.consensus.undecided} undecided (0.4 to 0.6)"
        )
    for proposal in found.proposals:
        yield f"proposed: {proposal.name}: {proposal.standing}: {'; '.join(proposal.reasons)}"
    if found.proposals:
        yield "A reviewer decides; nothing is done by itself."
    if found.judges:
        yield f"judges: {', '.join(found.judges)}; what most of them prefer is what people are compared with"
    yield from (f"note: {note}" for note in found.notes)


def _agreement(row: AgreementRow) -> list[str]:
    name = "all" if row.part == "all" else f"{row.part} {row.name or 'none'}"
    parts = f"{row.units} units, {row.people} people, {row.prompts} prompts"
    return [name, _number(row.alpha), _number(row.gwet), _share(row.percent), str(row.labels), parts]


def _person(card: PersonQuality, *, judge: bool, pasted: bool) -> list[str]:
    return [
        card.name,
        card.standing,
        str(card.labels),
        "–" if card.seconds is None else f"{card.seconds:.1f}",
        *map(_share, (card.gold, card.skill)),
        card.habit or "–",
        *map(_share, (card.held_out, card.consistency)),
        *map(_share, (card.first, card.longer, card.lists, card.refusals)),
        *([_share(card.judge)] if judge else []),
        *([_share(card.pasted)] if pasted else []),
    ]


def _group(row: GroupQuality) -> list[str]:
    counts = (str(row.people), str(row.labels))
    shares = map(_share, (row.gold, row.skill, row.held_out, row.judge))
    return [f"{row.name}: {row.value or 'not said'}", *counts, *shares]


def _odds(found: Odds) -> list[str]:
    return [found.unit, _number(found.odds), "–" if found.p is None else f"{found.p:.2g}"]


def _number(figure: Figure) -> str:
    """A number with its interval, or why there is none."""
    if figure.value is None:
        return figure.reason
    if figure.low is None or figure.high is None:
        return f"{figure.value:.2f} ({figure.reason})"
    return f"{figure.value:.2f} ({figure.low:.2f} to {figure.high:.2f})"


def _share(figure: Figure) -> str:
    """A share with its interval in percent; a dash where nothing is known, as of most people's gold."""
    if figure.value is None:
        return "–"
    if figure.low is None or figure.high is None:
        return f"{figure.value:.0%}"
    return f"{figure.value:.0%} ({figure.low:.0%}–{figure.high:.0%})"


_MEASURES = ("comparisons", "flags", "demonstrations", "reading", "others")
_HEADS = ("", "person", "standing", *_MEASURES, "habit", "areas", "proposed")


def screen_people(args: argparse.Namespace) -> None:
    if args.demonstrations is not None:
        _write_demonstrations(args)
        return
    cut_offs = screening.CutOffs(comparisons=args.agreement, flags=args.flags, demonstrations=args.score)
    with opened(args) as store:
        name = project_name(store, args.project)
        found = screening.screen(store, name, keep=args.keep, cut_offs=cut_offs, written_in=args.written_in)
        decided = screening.decide(store, found, actor=ACTOR) if args.apply else ()
    if args.json:
        print(json.dumps({**asdict(found), "decided": [member.annotator for member in decided]}))
        return
    for line in _screening_lines(found):
        print(line)
    if args.apply:
        print(f"decisions written to the log, each with its reason: {len(decided)}")


def _write_demonstrations(args: argparse.Namespace) -> None:
    with opened(args) as store:
        tasks = screening.demonstration_tasks(store, project_name(store, args.project))
    write_text(args.demonstrations, "".join(f"{json.dumps(task, ensure_ascii=False)}\n" for task in tasks))
    print(f"{args.demonstrations}: {len(tasks)} tasks; add them to a project that asks for rate")


def _screening_lines(found: screening.Screening) -> Iterable[str]:
    selected = sum(member.rank > 0 and member.proposed in ("active", "watch") for member in found.people)
    tried = f"{found.project}: {len(found.people)} people tried"
    yield f"{tried}; {selected} are proposed, of {found.keep} at most"
    known = f"{100 * found.cut_offs.comparisons:g} % of known answers, {100 * found.cut_offs.flags:g} % of"
    yield (
        f"soft cut-offs: {known} known flags, {found.cut_offs.demonstrations:g} of 7 for demonstrations; "
        "held back is who is below one for certain, or whom `collect quality` would suspend"
    )
    if found.people:
        yield from table_lines(_HEADS, [_cells(member) for member in found.people])
    for member in found.people:
        yield from (f"{member.annotator}: {reason}" for reason in (*member.suspend, *member.watch))
    yield from found.notes
    if found.decisions:
        yield f"decisions that follow: {len(found.decisions)}; --apply writes them, each with its reason"


def _cells(member: screening.Screened) -> tuple[str, ...]:
    return (
        str(member.rank or "–"),
        f"{member.annotator} {member.person or ''}".strip(),
        member.standing,
        *(_measure_cell(what, getattr(member, what), member.below) for what in _MEASURES),
        member.habit or "–",
        ", ".join(member.areas) or "–",
        member.proposed if member.rank else "–",
    )


def _measure_cell(what: str, measure: screening.Measure | None, below: Iterable[str]) -> str:
    if measure is None:
        return "–"
    return f"{screening.measure_words(what, measure)}{' below' if what in below else ''}"
