"""Whether the models know how sure they may be, and how far they hold the answers apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from plaudit.evaluation.page_shown import NOT_KNOWN, Shown, cell, paragraph, table
from plaudit.evaluation.resample import wilson
from plaudit.evaluation.result import Bin, Calibration, Margins, RewardEvaluation
from plaudit.page.bars import Bar, Promise, histogram, reliability
from plaudit.page.html import Html, element, section
from plaudit.page.marks import Span
from plaudit.page.words import counted, figure, percent

_SMALL = 0.02
"""A difference between claim and outcome that nobody acts on."""
_NOTE = "upright lines: 95 % intervals as if no two pairs shared a prompt"


def calibration(models: Sequence[Shown]) -> Html:
    """For each model what its rewards promise in words, a reliability diagram and a histogram of margins."""
    held = [
        model for model in models if model.found.calibration is not None or model.found.margins is not None
    ]
    if not held:
        nothing = element("p", {}, "There is no pair with a preference to hold the rewards against.")
        return section("How sure it may be", "calibration", nothing)
    rows = [_row(model, alone=len(models) == 1) for model in held]
    return section("How sure it may be", "calibration", *rows, _scores(models))


def _row(model: Shown, *, alone: bool) -> Html:
    words = element("div", {}, *_sentences(model, alone=alone))
    return element("div", {"class": "curves"}, words, *_charts(model, alone=alone))


def _charts(model: Shown, *, alone: bool) -> Iterator[Html]:
    found, whose = model.found, "" if alone else f"{model.name}: "
    if found.calibration is not None:
        promises = [promise(one) for one in found.calibration.by_width]
        yield reliability(
            f"{whose}Reliability", promises, unit="share right over how sure the model was", note=_NOTE
        )
    if found.margins is not None:
        yield histogram(
            f"{whose}Margins",
            _bars(found.margins),
            unit="pairs by reward of the preferred answer less the other's",
            zero="right from here",
            note="The outermost bars also hold all that lies beyond.",
        )


def _sentences(model: Shown, *, alone: bool) -> Iterator[Html]:
    found = model.found
    name = "The model" if alone else model.name
    if found.calibration is not None:
        yield paragraph(_how_sure(name, found.calibration))
    if found.ties is not None:
        elsewhere = found.ties.gap_elsewhere
        beside = "" if elsewhere is None else f", against {figure(elsewhere)} on the other pairs"
        pairs = counted(found.ties.pairs, "pair")
        who = "the model" if alone else model.name
        gap = f"a gap of {figure(found.ties.gap)} on average{beside}"
        yield paragraph(f"On the {pairs} that annotators call equal, {who} sees {gap}.")


def _how_sure(name: str, found: Calibration) -> str:
    off = sum(one.pairs * (one.confidence - one.right) for one in found.by_mass) / found.pairs
    claims = sum(one.pairs * one.confidence for one in found.by_mass) / found.pairs
    way = "about as sure as it may be"
    if abs(off) >= _SMALL:
        way = "surer than it may be" if off > 0 else "less sure than it might be"
    claimed = f"by its rewards it would be right in {percent(claims)} of the pairs"
    return f"{name} is {way}: {claimed}, and it is right in {percent(claims - off)}."


def promise(one: Bin) -> Promise:
    """A bin as a reliability diagram draws it."""
    low, high = wilson(one.right, one.pairs)
    return Promise(
        bar=Bar(low=one.low, high=one.high, count=one.pairs),
        said=one.confidence,
        came=Span(value=one.right, low=low, high=high),
    )


def _bars(margins: Margins) -> list[Bar]:
    return [
        Bar(low=low, high=high, count=count)
        for low, high, count in zip(margins.edges, margins.edges[1:], margins.counts, strict=False)
    ]


def _scores(models: Sequence[Shown]) -> Html:
    def of(part: Callable[[Calibration], float], write: Callable[[float], str]) -> Callable[..., Html]:
        def written(found: RewardEvaluation) -> Html:
            return cell(NOT_KNOWN if found.calibration is None else write(part(found.calibration)))

        return written

    def margin(part: Callable[[Margins], float]) -> Callable[..., Html]:
        def written(found: RewardEvaluation) -> Html:
            return cell(NOT_KNOWN if found.margins is None else figure(part(found.margins)))

        return written

    rows = {
        "log-loss (0.69 knows nothing)": of(lambda one: one.log_loss, figure),
        "Brier score (0.25 knows nothing)": of(lambda one: one.brier, figure),
        "calibration error, bins of equal size": of(lambda one: one.ece_mass, percent),
        "calibration error, bins of equal width": of(lambda one: one.ece_width, percent),
        "mean margin": margin(lambda one: one.mean),
        "median margin": margin(lambda one: one.median),
    }
    return table("Scores of σ(r₁ − r₂) as the chance that the first answer is preferred", models, rows)
