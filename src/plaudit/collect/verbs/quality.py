"""``plaudit collect quality``: how far labels can be trusted, as plain tables or as JSON."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from plaudit.cli.parser import Subparsers
from plaudit.collect.verbs.opening import add_project_option, opened, project_name

if TYPE_CHECKING:
    from plaudit.collect.quality.result import AgreementRow, Figure, Odds, PersonQuality, Quality

_PERSON = (
    *("person", "standing", "labels", "seconds", "gold", "reads", "habit", "like others", "repeats"),
    *("first", "longer", "list", "refusal"),
)


def add_parsers(verbs: Subparsers) -> None:
    """Add the verb."""
    quality = verbs.add_parser("quality", help="say how far people agree, who reads, and what sways them")
    quality.add_argument("--json", action="store_true", help="print one JSON object")
    add_project_option(quality)
    quality.set_defaults(run_verb=_quality)


def _quality(args: argparse.Namespace) -> None:
    from plaudit.collect.quality.report import quality
    from plaudit.collect.quality.result import quality_to_dict

    with opened(args) as store:
        found = quality(store, project_name(store, args.project))
        where = store.where
    if args.json:
        print(json.dumps(quality_to_dict(found)))
        return
    size = f"{found.labels} labels of {found.people} people"
    print(f"{found.project} asks for {found.kind}: {size}; {where} at event {found.seq}")
    for line in _lines(found):
        print(line)


def _lines(found: Quality) -> Iterator[str]:
    """The report as plain tables."""
    if found.agreement:
        head = ("agreement", "alpha", "AC", "the same", "labels", "of")
        yield from _table(head, [_agreement(row) for row in found.agreement])
    if found.annotators:
        yield from _table(_PERSON, [_person(card) for card in found.annotators])
    if found.biases:
        yield from _table(("all else equal", "odds", "p"), [_odds(odds) for odds in found.biases])
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
    yield from (f"note: {note}" for note in found.notes)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A blank line, then columns as wide as what stands in them."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    yield ""
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _agreement(row: AgreementRow) -> list[str]:
    name = "all" if row.part == "all" else f"{row.part} {row.name or 'none'}"
    parts = f"{row.units} units, {row.people} people, {row.prompts} prompts"
    return [name, _number(row.alpha), _number(row.gwet), _share(row.percent), str(row.labels), parts]


def _person(card: PersonQuality) -> list[str]:
    return [
        card.name,
        card.standing,
        str(card.labels),
        "–" if card.seconds is None else f"{card.seconds:.1f}",
        _share(card.gold),
        _share(card.skill),
        card.habit or "–",
        _share(card.held_out),
        _share(card.consistency),
        _share(card.first),
        _share(card.longer),
        _share(card.lists),
        _share(card.refusals),
    ]


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
