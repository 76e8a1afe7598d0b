"""What the truth and public benchmarks say: best-of-n where there is a truth, sections of RewardBench."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import sqrt

from plaudit.evaluation.page_shown import NOT_KNOWN, Shown, cell, groups, share, span, table
from plaudit.evaluation.result import BestOfCurve, RewardEvaluation
from plaudit.page.bands import Band, Bands, bands
from plaudit.page.html import Html, element, section
from plaudit.page.marks import Span
from plaudit.page.words import counted, figure, percent

_BOUND = "√KL is an upper bound where answers share a reward."


def best_of(models: Sequence[Shown]) -> Html:
    """Truth and proxy over the distance from the sampled policy; nothing where no truth is known."""
    driven = [model for model in models if model.found.best_of is not None]
    if not driven:
        nothing = "No truth was given to hold the chosen answers against, so there is no best-of-n curve."
        return section("What a policy would make of it", "best-of", element("p", {}, nothing))
    sentences = [element("p", {}, _sentence(model, alone=len(models) == 1)) for model in driven]
    charts = [_truths(group) for group in groups(driven)]
    charts += [_proxy(model, alone=len(models) == 1) for model in driven]
    return section(
        "What a policy would make of it", "best-of", *sentences, element("div", {"class": "curves"}, *charts)
    )


def benchmarks(models: Sequence[Shown]) -> Iterator[Html]:
    """A section for each benchmark that a file was."""
    names = dict.fromkeys(model.found.benchmark.name for model in models if model.found.benchmark)
    for number, name in enumerate(names, start=1):
        yield _benchmark(name, f"benchmark-{number}", [m for m in models if _is(m.found, name)])


def _curve(model: Shown) -> BestOfCurve:
    curve = model.found.best_of
    assert curve is not None
    return curve


def _truths(models: Sequence[Shown]) -> Html:
    lines = [
        Band(
            label=model.name if len(models) > 1 else "chosen by the model",
            points=tuple((sqrt(at.kl), span(at.truth)) for at in _curve(model).points),
        )
        for model in models
    ]
    longest = max((_curve(model) for model in models), key=lambda curve: len(curve.points))
    possible = tuple((sqrt(at.kl), Span(value=at.possible)) for at in longest.points)
    shown = Bands(
        lines=lines,
        limit=Band(label="chosen by the truth", points=possible),
        places=_places(longest),
        over="n",
    )
    return bands("True utility of the best of n", "over √KL, with its 95 % interval", shown, note=_BOUND)


def _proxy(model: Shown, *, alone: bool) -> Html:
    curve = _curve(model)
    points = tuple((sqrt(at.kl), Span(value=at.proxy)) for at in curve.points)
    title = "The model's own reward" if alone else f"{model.name}: its own reward"
    shown = Bands(lines=[Band(label="reward", points=points)], places=_places(curve), over="n")
    return bands(title, "of the same answers, over √KL", shown)


def _places(curve: BestOfCurve) -> list[tuple[float, str]]:
    return [(sqrt(at.kl), str(at.n)) for at in curve.points]


def _sentence(model: Shown, *, alone: bool) -> str:
    curve = _curve(model)
    first, last = curve.points[0], curve.points[-1]
    best = max(curve.points, key=lambda at: at.truth.value)
    name = "the model" if alone else model.name
    said = (
        f"Choosing the best of {last.n} by {name} takes the true utility from {figure(first.truth.value)} to "
        f"{figure(last.truth.value)}; the truth itself would reach {figure(last.possible)}"
    )
    if best.n < last.n and _apart(best.truth.low, last.truth.high):
        said += (
            f". It is highest at n = {best.n}, {figure(best.truth.value)}: beyond, the model is overdriven"
        )
    return f"{said} ({counted(curve.prompts, 'prompt')} of {curve.answers:,} answers each)."


def _apart(low: float | None, high: float | None) -> bool:
    return low is not None and high is not None and low > high


def _is(found: RewardEvaluation, name: str) -> bool:
    return found.benchmark is not None and found.benchmark.name == name


def _benchmark(name: str, link: str, models: Sequence[Shown]) -> Html:
    def overall(found: RewardEvaluation) -> Html:
        value = found.benchmark and found.benchmark.overall
        return cell(NOT_KNOWN if value is None else percent(value))

    def of(part: str) -> Callable[[RewardEvaluation], Html]:
        def write(found: RewardEvaluation) -> Html:
            sections = found.benchmark.sections if found.benchmark else ()
            return share(next((one.score for one in sections if one.name == part), None))

        return write

    parts = dict.fromkeys(one.name for m in models if m.found.benchmark for one in m.found.benchmark.sections)
    notes = dict.fromkeys(note for m in models if m.found.benchmark for note in m.found.benchmark.notes)
    items = [element("li", {}, note) for note in notes]
    shown = table(
        f"{name}, scored by its own rules", models, {"overall": overall, **{p: of(p) for p in parts}}
    )
    return section(name, link, shown, *([element("ul", {"class": "notes"}, *items)] if items else []))
