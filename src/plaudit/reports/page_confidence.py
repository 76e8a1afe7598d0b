"""Whether the policies know what they know: reliability of answers to closed questions, side by side."""

from __future__ import annotations

from collections.abc import Iterator

from plaudit.evaluation.page_calibration import promise
from plaudit.evaluation.policies.confidence import Calibration
from plaudit.page.bars import reliability
from plaudit.page.html import Html, element, section
from plaudit.page.words import percent
from plaudit.reports.cells import NOT_KNOWN, amount, table
from plaudit.reports.story import Story
from plaudit.reports.wording import named

_MOST = 8
_READING = (
    "Of each question with a closed set of answers, how sure a policy is of the one that it finds likeliest, "
    "and how often that one is right. On the diagonal it is as often right as it is sure; below, it is surer "
    "than right. Nothing is drawn for it. The calibration error is the mean distance from the diagonal, over "
    "ten bins of as many questions (Guo et al. 2017); few questions alone make it more than 0, which its "
    "interval takes off."
)
_COLUMNS = (
    "right",
    "how sure",
    "surer than right by",
    "calibration error",
    "error, less the reference's",
    "Brier score",
    "log-loss",
    "of all it may say",
)


def confidence(story: Story) -> Iterator[Html]:
    """A reliability diagram for each policy, and their figures; nothing where no such question was asked."""
    found = story.evaluation
    held = {} if found is None else {one.name: one.calibration for one in found.policies if one.calibration}
    if not held:
        return
    asked = next(iter(held.values())).accuracy.n
    charts = [picture(name, one) for name, one in list(held.items())[:_MOST]]
    caption = f"{asked:,} questions with choices; 95 % intervals over prompts"
    rows = [(named(name), list(_figures(one))) for name, one in held.items()]
    yield section(
        "Do they know what they know",
        "confidence",
        element("p", {}, _READING),
        element("div", {"class": "curves"}, *charts),
        table(caption, _COLUMNS, rows),
    )


def picture(name: str, one: Calibration) -> Html:
    """The reliability diagram of one policy."""
    promises = [promise(held) for held in one.by_width]
    return reliability(named(name), promises, unit="share right over how sure", of="question")


def _figures(one: Calibration) -> Iterator[Html | str]:
    yield amount(one.accuracy, percent)
    yield amount(one.confidence, percent)
    yield amount(one.surplus)
    yield amount(one.ece)
    yield NOT_KNOWN if one.ece_change is None else amount(one.ece_change)
    yield amount(one.brier)
    yield amount(one.log_loss)
    yield percent(one.covered.value)
