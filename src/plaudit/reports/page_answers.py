"""What the policies say: length and variety before and after, and answers side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from plaudit.evaluation.policies.result import PolicyEvaluation, PolicyFigures, Said, Shown
from plaudit.page.html import Html, element, quoted, section, shortened
from plaudit.page.intervals import Guide, Row, Rows, amounts
from plaudit.page.plot import cut
from plaudit.page.words import counted, figure, percent
from plaudit.reports.cells import amount, plain, table
from plaudit.reports.differing import pieces
from plaudit.reports.page_wins import span
from plaudit.reports.story import Story
from plaudit.reports.wording import named

MOST_SHOWN = 20
"""Prompts whose answers are shown."""
_MOST_CHARACTERS = 1000
_MOST_ROWS = 24
_MOST_LABEL = 18


def habits(story: Story) -> Iterator[Html]:
    """Length and variety of every policy; nothing where none was evaluated."""
    found = story.evaluation
    if found is None:
        return
    start = next((one for one in found.policies if one.name == found.reference), None)
    guide = start and _at(start.length.value, start.name)
    rows = [Row(label=named(one.name), spans=(span(one.length),)) for one in found.policies[:_MOST_ROWS]]
    length = amounts("Length", "tokens of an answer", Rows(rows=rows, series=("length",), guide=guide))
    words = {one.diversity.words for one in found.policies}
    same = (
        f"answers cut to {counted(min(words), 'word')}" if len(words) == 1 else "answers cut to equal length"
    )
    caption = f"How unlike each other answers are; {same}, so that length decides nothing"
    columns = (
        "unlike answers",
        "unlike words",
        "unlike pairs",
        "self-BLEU",
        "to one prompt",
        "entropy, nats",
    )
    variety = table(caption, columns, [(named(one.name), _variety(one)) for one in found.policies])
    said = element(
        "p",
        {"class": "quiet"},
        "Self-BLEU: how like an answer is to those to other prompts; 100 is always the same.",
    )
    pair = element("div", {"class": "pair"}, length, element("div", {}, variety, said))
    yield section("How long and how varied", "habits", pair)


def samples(story: Story) -> Iterator[Html]:
    """Prompts drawn by chance with everybody's answers."""
    found = story.evaluation
    if found is None or not found.shown:
        return
    reference = found.reference or found.policies[0].name
    how = (
        f"{counted(min(len(found.shown), MOST_SHOWN), 'prompt')}, drawn by chance. Marked words are those "
        f"that {named(reference)} did not say."
    )
    shown = [
        _exchange(number, one, found, reference) for number, one in enumerate(found.shown[:MOST_SHOWN], 1)
    ]
    yield section("What they say", "samples", element("p", {}, how), *shown)


def _at(value: float, name: str) -> Guide:
    return Guide(low=value, high=value, label=cut(name, _MOST_LABEL))


def _variety(one: PolicyFigures) -> list[Html]:
    held = one.diversity
    return [
        plain(held.unique, percent),
        plain(held.distinct_1, percent),
        plain(held.distinct_2, percent),
        plain(held.self_bleu),
        plain(held.unique_within, percent),
        amount(one.entropy),
    ]


def _exchange(number: int, one: Shown, found: PolicyEvaluation, reference: str) -> Html:
    base = next((said.text for said in one.said if said.policy == reference), None)
    quiet = [] if one.category is None else [element("span", {"class": "quiet"}, f" {named(one.category)}")]
    worth = {said.policy: said.gold for said in one.said}
    sides = [_side(said, base, worth, reference) for said in one.said]
    return element(
        "article",
        {"class": "exchange"},
        element("h3", {}, f"Prompt {number}", *quiet),
        quoted(one.prompt, _MOST_CHARACTERS),
        element("div", {"class": "sides answers"}, *sides),
    )


def _side(said: Said, base: str | None, worth: Mapping[str, float | None], reference: str) -> Html:
    own = said.policy == reference
    name = element("h4", {}, named(said.policy), *_moved(said.gold, worth.get(reference), own=own))
    about = [
        "" if said.gold is None else f"worth {figure(said.gold)}",
        "" if said.reward is None else f"reward {figure(said.reward)}",
        counted(said.tokens, "token"),
        "" if said.ended else "cut",
    ]
    scores = element("p", {"class": "scores"}, " · ".join(part for part in about if part))
    return element(
        "div", {"class": "before" if own else "now"}, name, _told(said.text, base, own=own), scores
    )


def _moved(worth: float | None, before: float | None, *, own: bool) -> Iterator[Html]:
    if own or worth is None or before is None or worth == before:
        return
    kind, sign, said = ("up", "▲", "better") if worth > before else ("down", "▼", "worse")
    yield element("span", {"class": kind}, f" {sign} {said}")


def _told(text: str, base: str | None, *, own: bool) -> Html:
    if own or base is None or not text.strip():
        return quoted(text, _MOST_CHARACTERS)
    if text == base:
        return element("div", {"class": "said quiet"}, "(the same)")
    shown = text[:_MOST_CHARACTERS]
    marked = [
        element("mark", {}, piece) if unlike and piece.strip() else piece
        for piece, unlike in pieces(shown, base[:_MOST_CHARACTERS])
    ]
    rest = shortened(text, _MOST_CHARACTERS)[len(shown) :]
    return element("div", {"class": "said", "dir": "auto"}, *marked, rest)
