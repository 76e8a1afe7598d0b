"""Who wins against whom: shares of wins with intervals, won and lost, true worth by category, ratings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plaudit.evaluation.policies.result import Contest, PolicyEvaluation, Rating
from plaudit.evaluation.result import Estimate
from plaudit.page.html import Html, element, section, together
from plaudit.page.intervals import Guide, Row, Rows, amounts, shares
from plaudit.page.marks import Span
from plaudit.page.portions import Portions, portions
from plaudit.page.words import figure, percent
from plaudit.reports.cells import NOT_KNOWN, amount, table
from plaudit.reports.story import Story
from plaudit.reports.wording import between, named

_MOST_CONTESTS = 24
_MOST_CATEGORIES = 40
_HEATS = 10
_READING = (
    "Raw counts a tie as half a win. At equal length is what it would be, had both answers been as long "
    "(AlpacaEval 2, Dubois et al. 2024), at equal style also with as many headers, lists and bold words. An "
    "interval that crosses the broken line does not say who is better."
)


def wins(story: Story) -> Iterator[Html]:
    """Contests by each judge; nothing where none was held."""
    found = story.evaluation
    if found is None or not found.contests:
        return
    judges = list(dict.fromkeys(one.judge for one in found.contests))
    charts = [chart for judge in judges for chart in _charts(found, judge, alone=len(judges) == 1)]
    charts += [_ratings(found.ratings)] if found.ratings else []
    how = element("p", {"class": "how"}, _READING)
    yield section("Who wins", "wins", element("div", {"class": "curves"}, *charts, how), *_details(found))


def categories(story: Story) -> Iterator[Html]:
    """True worth by category of the prompt, a column for each policy, shaded by its size."""
    found = story.evaluation
    parts = {} if found is None else {one.name: one.by_category for one in found.policies if one.by_category}
    names = list(dict.fromkeys(part.name for own in parts.values() for part in own))[:_MOST_CATEGORIES]
    if found is None or not names:
        return
    values = {(policy, part.name): part.value for policy, own in parts.items() for part in own}
    known = [one.value for one in values.values()]
    low, high = min(known), max(known)
    rows = [
        (named(name), [_heated(values.get((policy, name)), low, high) for policy in parts]) for name in names
    ]
    caption = (
        f"True worth by category, shaded from {figure(low)} to {figure(high)}; 95 % intervals over prompts"
    )
    heat = table(caption, [named(policy) for policy in parts], rows)
    yield section("What it is better at", "categories", element("div", {"class": "heat"}, heat))


def span(one: Estimate | None) -> Span | None:
    """An estimate as charts draw it."""
    return None if one is None else Span(value=one.value, low=one.low, high=one.high)


def _charts(found: PolicyEvaluation, judge: str, *, alone: bool) -> Iterator[Html]:
    held = [one for one in found.contests if one.judge == judge][:_MOST_CONTESTS]
    whose = "" if alone else f", by {named(judge)}"
    styled = any(one.style_controlled for one in held)
    rows = [Row(label=_pair(one), spans=_spans(one, styled=styled)) for one in held]
    half = Guide(low=0.5, high=0.5, label="as often as not")
    series = ["raw", "at equal length", *(["at equal style"] if styled else [])]
    yield shares(f"Share of wins{whose}", "of pairs", Rows(rows=rows, series=series, guide=half))
    counts = [Portions(label=_pair(one), counts=(one.won, one.tied, one.lost)) for one in held]
    yield portions(f"Won, tied and lost{whose}", "pairs", counts, ("won", "tied", "lost"))


def _spans(one: Contest, *, styled: bool) -> tuple[Span | None, ...]:
    controlled = (span(one.style_controlled),) if styled else ()
    return (span(one.raw), span(one.length_controlled), *controlled)


def _pair(one: Contest) -> str:
    return f"{named(one.policy)} against {named(one.against)}"


def _ratings(ratings: Sequence[Rating]) -> Html:
    ranked = sorted(ratings, key=lambda one: -one.elo)
    rows = [
        Row(label=named(one.name), spans=(Span(value=one.elo, low=one.low, high=one.high),)) for one in ranked
    ]
    shown = Rows(rows=rows, series=("rating",), guide=Guide(low=1000, high=1000, label="the mean"))
    return amounts("Ratings", "Bradley and Terry 1952, as Elo points", shown)


def _details(found: PolicyEvaluation) -> Iterator[Html]:
    """What the charts do not show of each contest."""
    columns = ["won, of those decided", "both orders agree", "the first is preferred", "p", "no verdict"]
    rows = [(f"{_pair(one)}, by {named(one.judge)}", list(_detail(one))) for one in found.contests]
    yield table("Paired by prompt; p: that neither is better", columns, rows[: 2 * _MOST_CONTESTS])


def _detail(one: Contest) -> Iterator[Html]:
    yield amount(one.decided, percent)
    yield amount(one.consistency, percent)
    yield amount(one.first, percent)
    yield together(
        NOT_KNOWN if one.p_value is None else "< 0.001" if one.p_value < 1e-3 else figure(one.p_value)
    )
    yield together(f"{one.unjudged:,}")


def _heated(one: Estimate | None, low: float, high: float) -> Html:
    if one is None:
        return together(NOT_KNOWN)
    degree = round(_HEATS * (one.value - low) / (high - low)) if high > low else 0
    ends = element("span", {"class": "interval"}, between(one))
    return element("div", {"class": f"degree d{degree}"}, figure(one.value), " ", ends)
