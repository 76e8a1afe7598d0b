"""What the reward models are worth: how often right, how sure they may be, what they like too much."""

from __future__ import annotations

from collections.abc import Iterator

from plaudit.evaluation.page_calibration import calibration
from plaudit.evaluation.page_head import ceiling_words, found_so
from plaudit.evaluation.page_probes import probes
from plaudit.evaluation.page_shown import paragraph, shown
from plaudit.page.html import Html, element, section
from plaudit.reports.story import Story
from plaudit.reports.wording import named


def rewards(story: Story) -> Iterator[Html]:
    """Every reward model that a stage judged; nothing where none did."""
    judging = [stage for stage in story.stages if stage.rewards]
    if not judging:
        return
    models = shown([one for stage in judging for one in stage.rewards])
    ceilings = dict.fromkeys(model.found.ceiling for model in models)
    words = " ".join([found_so(models), *map(ceiling_words, ceilings)])
    links = [element("a", {"href": f"#{stage.link}"}, named(stage.name)) for stage in judging]
    whence = element("p", {"class": "quiet"}, "Compared with annotators' choices in ", *_joined(links), ".")
    yield section("What the reward is worth", "reward", paragraph(words), whence)
    yield calibration(models)
    yield probes(models)


def _joined(links: list[Html]) -> Iterator[str]:
    for at, link in enumerate(links):
        yield ", " if at else ""
        yield link
