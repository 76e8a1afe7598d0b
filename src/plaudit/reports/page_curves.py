"""How each stage learnt: a few curves that tell most, the others folded, reward and judge along √KL."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from math import sqrt

from plaudit.evaluation.policies.result import PolicyEvaluation
from plaudit.evaluation.result import Estimate
from plaudit.page.html import Html, element, folded, section
from plaudit.page.marks import Span
from plaudit.page.places import Places, Spot, places
from plaudit.page.words import counted
from plaudit.reports.story import Stage, Story
from plaudit.reports.wording import MOST_NAME, named
from plaudit.training.page.facts import RunFacts
from plaudit.training.page.figure import CURVES, Curve, figures
from plaudit.training.page.pursuit import along_kl
from plaudit.training.page.words import what_happened

_FIRST = {
    "policy": ("Reward", "Judge", "Distance from the reference", "Length", "Entropy"),
    "pairs": ("Loss", "Accuracy", "Margin", "Distance from the reference"),
    "other": ("Loss", "Token accuracy", "Accuracy"),
}
"""The curves that are not folded, by what the run reports."""
_MOST_SPOTS = 14


def training(story: Story) -> Iterator[Html]:
    """The curves of every stage with a run folder; nothing where there is none."""
    parts = [part for stage, run in story.trained for part in _stage(stage, run)]
    if parts:
        yield section("How it learnt", "training", *parts)


def distance(story: Story) -> Iterator[Html]:
    """True worth and learnt reward of each policy over √KL; nothing where no policy has both."""
    found = story.evaluation
    if found is None:
        return
    charts = [*_along(found, truth=True), *_along(found, truth=False)]
    if charts:
        said = (
            "The further a policy is driven from its reference, the more the reward promises; the true worth "
            "follows, and may turn back (Gao et al. 2022). Where the upper marks fall while the lower ones "
            "rise, the reward is gamed."
        )
        first = element("p", {}, said)
        yield section("How far it went", "distance", first, element("div", {"class": "curves"}, *charts))


def _stage(stage: Stage, run: RunFacts) -> Iterator[Html]:
    history = run.history
    title = element("h3", {"class": "stage"}, element("a", {"href": f"#{stage.link}"}, named(stage.name)))
    yield title
    inner = run.path.relative_to(stage.folder) if run.path.is_relative_to(stage.folder) else run.path
    which = "" if inner.as_posix() in ("run", ".") else f"{inner.as_posix().removeprefix('run/')}: "
    yield element("p", {"class": "quiet"}, which, what_happened(history, finished=run.finished))
    if not history.columns:
        return
    first, rest = divided(history.columns)
    yield element("div", {"class": "curves"}, figures(history, first), *along_kl(history))
    if any({curve.trained, curve.held_out} & set(history.columns) for curve in rest):
        more = element("div", {"class": "curves"}, figures(history, rest))
        yield element("div", {"class": "rarely"}, folded(f"More curves of {named(stage.name)}", more))


def divided(names: Container[str]) -> tuple[Sequence[Curve], Sequence[Curve]]:
    """The curves that tell most of a run with these figures, and the others."""
    kind = "policy" if "reward" in names else "pairs" if "margin" in names else "other"
    first = [curve for curve in CURVES if curve.title in _FIRST[kind]]
    return first, [curve for curve in CURVES if curve not in first]


def _along(found: PolicyEvaluation, *, truth: bool) -> Iterator[Html]:
    spots = [
        Spot(label=named(one.name), across=sqrt(max(one.kl.value, 0.0)), up=_span(up))
        for one in found.policies
        if one.kl is not None and (up := one.gold if truth else one.reward) is not None
    ][:_MOST_SPOTS]
    if len(spots) < 2:
        return
    best = found.best_of
    points = [] if best is None else best.points
    path = [(sqrt(at.kl), at.truth.value if truth else at.proxy) for at in points]
    start = named(found.reference or "the reference")
    label = f"the best of n answers of {start}, n to {points[-1].n}" if points else ""
    title, whose = ("True worth over √KL", found.gold) if truth else ("Learnt reward over √KL", found.reward)
    unit = f"by {named(whose)[:MOST_NAME]}" if whose else ""
    note = f"{counted(found.prompts, 'prompt')}; upright lines: 95 % intervals"
    if truth and found.over_optimisation is not None:
        note += f"; of more answers to choose from: {found.over_optimisation.sentence}"
    yield places(title, unit, Places(spots=spots, path=path, path_label=label), note=note)


def _span(one: Estimate) -> Span:
    return Span(value=one.value, low=one.low, high=one.high)
