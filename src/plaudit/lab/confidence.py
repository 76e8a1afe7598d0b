"""Lost calibration: a policy that is trained hard grows surer, whether it is right or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from plaudit.errors import UserError
from plaudit.evaluation.policies.confidence import (
    Calibration,
    Weighed,
    at_temperature,
    calibration,
    fitted_temperature,
)
from plaudit.evaluation.policies.result import PolicyEvaluation
from plaudit.evaluation.resample import Resampling
from plaudit.evaluation.result import Estimate
from plaudit.lab.exercise import Claim, Exercise, Picture, Seen, Table
from plaudit.lab.left import evaluated, policy
from plaudit.lab.measured import with_ends
from plaudit.lab.scored import decided
from plaudit.page.html import Html, element
from plaudit.page.intervals import Row, Rows, shares
from plaudit.pipeline.folder import Folder
from plaudit.reports.page_confidence import picture
from plaudit.reports.page_wins import span
from plaudit.world.prompts import question_of

START, LEASHED, FREE, SHARP = "sft", "leashed", "free", "sharp"
"""The policies of the config: before, GRPO with a leash and without, DPO with a small β."""
SUMS = "arithmetic"
"""The questions on which the policy begins about as sure as right."""
_NAMES = {START: "at the start", LEASHED: "GRPO, leashed", FREE: "GRPO, free", SHARP: "DPO, small β"}
_DRAWS = Resampling()
_Said = Mapping[str, Sequence[Weighed]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A policy whose log-probs are divided by a temperature that was fitted on other questions.

    Example: ``mended(weighed).after.ece.value``
    """

    heats: tuple[float, float]
    """The temperatures of the two halves of the questions, each fitted on the other half."""
    after: Calibration
    """Of all questions, the change since before beside it."""


def look(folder: Folder) -> Seen:
    """How sure and how often right each policy is of facts and sums, and what a temperature mends."""
    found = evaluated(folder, "evaluation")
    said = {name: [one for one in found.weighed if one.policy == name] for name in _NAMES}
    sums = {name: [one for one in own if one.category == SUMS] for name, own in said.items()}
    if not all(sums.values()):
        raise UserError(
            f"{folder.stage('evaluation')}: not every policy was asked sums with their choices; evaluate "
            f"{', '.join(_NAMES)} on the world's own questions, n 40 or more"
        )
    cured = {name: mended(own) for name, own in sums.items()}
    return Seen(
        claims=(*_claims(said, sums, cured[FREE]),),
        table=_table(found, sums, cured),
        pictures=(*_pictures(said, sums, cured[FREE]),),
    )


def mended(asked: Sequence[Weighed]) -> Mended:
    """Each half of the questions at the temperature that fits the other; no sum stands in both halves."""
    entities = sorted({_entity(one) for one in asked})
    first = {entity for at, entity in enumerate(entities) if at % 2 == 0}
    halves = [[one for one in asked if (_entity(one) in first) is half] for half in (True, False)]
    if not all(halves):
        raise UserError(f"{len(asked)} questions cannot be halved; evaluate more of them")
    one, other = (fitted_temperature(half) for half in halves)
    cooled = [at_temperature([row], other if _entity(row) in first else one)[0] for row in asked]
    return Mended(heats=(other, one), after=calibration(cooled, _DRAWS, asked))


def _entity(one: Weighed) -> str:
    return question_of(one.prompt).entity


def _claims(said: _Said, sums: _Said, cured: Mended) -> Iterator[Claim]:
    grown = "confidence less accuracy, less that of the start"
    for name, words in ((FREE, "Without a leash GRPO"), (SHARP, "With a small β DPO")):
        change = calibration(said[name], _DRAWS, said[START]).surplus_change
        yield decided(f"{words} makes the policy surer beside how often it is right.", _known(change), grown)
    free = calibration(sums[FREE], _DRAWS, sums[START])
    yield decided("Of sums it is then surer than right.", free.surplus, "confidence less accuracy on sums")
    yield decided(
        "Its calibration error on sums has grown.",
        _known(free.ece_change),
        "the error less that of the start",
    )
    held = calibration(sums[FREE], _DRAWS, sums[LEASHED]).surplus_change
    yield decided(
        "A leash keeps some of it.", _known(held), "on sums, surer than right by so much more than leashed"
    )
    lost = _known(cured.after.ece_change)
    less = Estimate(
        value=-lost.value,
        low=None if lost.high is None else -lost.high,
        high=None if lost.low is None else -lost.low,
        n=lost.n,
        prompts=lost.prompts,
    )
    heats = " and ".join(f"{heat:.2f}" for heat in cured.heats)
    yield decided(
        "A temperature that was fitted on other sums mends the free policy.",
        less,
        f"T {heats}; the error before less that after",
    )


def _known(change: Estimate | None) -> Estimate:
    assert change is not None, "it was compared"
    return change


def _table(found: PolicyEvaluation, sums: _Said, cured: Mapping[str, Mended]) -> Table:
    rows = []
    for name, label in _NAMES.items():
        own, one = calibration(sums[name], _DRAWS), policy(found, name)
        heat = " / ".join(f"{value:.2f}" for value in cured[name].heats)
        told = (own.accuracy, own.confidence, own.ece, cured[name].after.ece, one.gold)
        rows.append((label, *map(with_ends, told[:3]), heat, *map(with_ends, told[3:])))
    return Table(
        head=("policy", "right", "how sure", "calibration error", "T that fits", "error at T", "true worth"),
        rows=tuple(rows),
        note=f"Of {len(sums[START])} sums, each with the right number and its neighbours as choices. Each "
        "half of them is judged at the T that fits the other. True worth is that of all kinds of prompts.",
    )


def _pictures(said: _Said, sums: _Said, cured: Mended) -> Iterator[Picture]:
    yield Picture(
        title="Sure and right",
        says="Where the second mark lies to the right of the first, the policy is surer than right.",
        drawn=_sure_and_right(said),
    )
    charts = [picture(_NAMES[name], calibration(own, _DRAWS)) for name, own in sums.items()]
    charts.append(picture(f"{_NAMES[FREE]}, at T", cured.after))
    yield Picture(
        title="Reliability on sums",
        says="On the diagonal a policy is as often right as it is sure. Points below it are boasts.",
        drawn=element("div", {"class": "curves"}, *charts),
    )


def _sure_and_right(said: _Said) -> Html:
    rows = []
    for name, own in said.items():
        for kind, label in (("fact", "facts"), (SUMS, "sums")):
            one = calibration([row for row in own if row.category == kind], _DRAWS)
            spans = (span(one.accuracy), span(one.confidence))
            rows.append(Row(label=f"{_NAMES[name]}: {label}", spans=spans))
    return shares("Sure and right", "of questions", Rows(rows=rows, series=("right", "how sure")))


EXERCISE = Exercise(
    name="confidence",
    title="Does a policy that is trained hard still know what it knows?",
    why="A model that was only fine-tuned is about as often right as it is sure: it has learnt how often "
    "people say what. A reward does not pay for doubt, so whoever follows it makes likely what pleases. "
    "The GPT-4 report (arXiv:2303.08774, figure 8) shows calibration lost like this; Kadavath et al. "
    "(2022, arXiv:2207.05221) show that a temperature gives much of it back.",
    minutes=1.8,
    look=look,
    further=(
        "plaudit lab confidence --set leashed.policy.beta=3: a shorter leash",
        "plaudit lab confidence --set sharp.preference.beta=0.3: DPO with an ordinary β",
        "plaudit lab confidence --set free.rounds=80: twice as long without a leash",
    ),
)
"""Confidence before and after policies were trained hard."""
