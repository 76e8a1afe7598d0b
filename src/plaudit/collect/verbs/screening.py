"""``plaudit collect screen``: who is kept after a trial, by four criteria."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from plaudit.cli.parser import Subparsers, given_path, positive_integer
from plaudit.collect.verbs.opening import ACTOR, add_project_option, opened, project_name

if TYPE_CHECKING:
    from plaudit.collect.screening import Measure, Screened, Screening

_HEADS = ("", "person", "standing", "comparisons", "flags", "demonstrations", "areas", "proposed")


def add_parsers(verbs: Subparsers) -> None:
    """Add the verb."""
    screen = verbs.add_parser("screen", help="rank who tried, and propose whom to keep")
    add = screen.add_argument
    add("--keep", type=positive_integer, default=16, metavar="N", help="how many (default: 16)")
    add("--agreement", type=float, default=0.75, metavar="X", help="with known answers (default: 0.75)")
    add("--flags", type=float, default=0.75, metavar="X", help="with known flags (default: 0.75)")
    add("--score", type=float, default=6.0, metavar="X", help="of demonstrations, 1 to 7 (default: 6)")
    add("--written-in", metavar="NAME", help="the project in which they wrote, by the same names")
    do = screen.add_mutually_exclusive_group()
    do.add_argument("--apply", action="store_true", help="decide as proposed; each decision is logged")
    do.add_argument(
        "--demonstrations",
        type=given_path,
        metavar="FILE.jsonl",
        help="write what people wrote as tasks for a project that asks for rate",
    )
    add("--json", action="store_true", help="print one JSON object")
    add_project_option(screen)
    screen.set_defaults(run_verb=_screen)


def _screen(args: argparse.Namespace) -> None:
    from plaudit.collect.screening import CutOffs, decide, screen, screening_to_dict

    if args.demonstrations is not None:
        _write_demonstrations(args)
        return
    cut_offs = CutOffs(comparisons=args.agreement, flags=args.flags, demonstrations=args.score)
    with opened(args) as store:
        name = project_name(store, args.project)
        found = screen(store, name, keep=args.keep, cut_offs=cut_offs, written_in=args.written_in)
        decided = decide(store, found, actor=ACTOR) if args.apply else ()
    if args.json:
        print(json.dumps({**screening_to_dict(found), "decided": [member.annotator for member in decided]}))
        return
    for line in _lines(found):
        print(line)
    if args.apply:
        print(f"decisions written to the log, each with its reason: {len(decided)}")


def _write_demonstrations(args: argparse.Namespace) -> None:
    from plaudit.collect.screening import demonstration_tasks
    from plaudit.files.atomic import write_text

    with opened(args) as store:
        tasks = demonstration_tasks(store, project_name(store, args.project))
    write_text(args.demonstrations, "".join(f"{json.dumps(task, ensure_ascii=False)}\n" for task in tasks))
    print(f"{args.demonstrations}: {len(tasks)} tasks; add them to a project that asks for rate")


def _lines(found: Screening) -> Iterable[str]:
    selected = sum(member.rank > 0 and member.proposed in ("active", "watch") for member in found.people)
    tried = f"{found.project}: {len(found.people)} people tried"
    yield f"{tried}; {selected} are proposed, of {found.keep} at most"
    known = f"{100 * found.cut_offs.comparisons:g} % of known answers, {100 * found.cut_offs.flags:g} % of"
    yield (
        f"soft cut-offs: {known} known flags, {found.cut_offs.demonstrations:g} of 7 for demonstrations; "
        "held back is who is below one for certain"
    )
    rows = [_HEADS, *(_cells(member) for member in found.people)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    for row in rows if found.people else ():
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    yield from found.notes
    if found.decisions:
        yield f"decisions that follow: {len(found.decisions)}; --apply writes them, each with its reason"


def _cells(member: Screened) -> tuple[str, ...]:
    measures = (
        ("comparisons", member.comparisons),
        ("flags", member.flags),
        ("demonstrations", member.demonstrations),
    )
    return (
        str(member.rank or "–"),
        f"{member.annotator} {member.person or ''}".strip(),
        member.standing,
        *(_measure_cell(what, measure, member.below) for what, measure in measures),
        ", ".join(member.areas) or "–",
        member.proposed if member.rank else "–",
    )


def _measure_cell(what: str, measure: Measure | None, below: Iterable[str]) -> str:
    from plaudit.collect.screening import measure_words

    if measure is None:
        return "–"
    return f"{measure_words(what, measure)}{' below' if what in below else ''}"
