"""The top of the page: the finding in a sentence, what was done, the headline table."""

from __future__ import annotations

from collections.abc import Iterator

from plaudit.evaluation.page_head import found_so
from plaudit.evaluation.page_shown import shown
from plaudit.evaluation.policies.result import PolicyEvaluation, PolicyFigures
from plaudit.page.flow import Step, flow
from plaudit.page.html import Html, element, section, shortened
from plaudit.page.words import counted, duration, percent
from plaudit.reports.cells import NOT_KNOWN, amount, table
from plaudit.reports.doubts import Doubt
from plaudit.reports.story import Stage, Story
from plaudit.reports.wording import contest_of, lede, named, when

_MOST_SAID = 280


def head(story: Story, found: tuple[Doubt, ...]) -> Html:
    """Name, state, and the finding."""
    kind, state = ("finished", "Finished") if story.finished else ("open", "Not finished")
    parts: list[str] = [element("b", {"class": kind}, state)]
    parts.append(f" · {counted(len(story.stages), 'stage')}")
    if story.seconds:
        parts.append(f", {duration(story.seconds)} of work")
    ended = max((stage.ended for stage in story.stages), default="")
    if ended:
        parts.append(f" · ended {when(ended)}")
    if found:
        parts += [" · ", element("a", {"href": "#warnings"}, counted(len(found), "warning"))]
    said = lede(story.evaluation) if story.evaluation else _without(story)
    return element(
        "header",
        {},
        element("h1", {}, shortened(story.name, 120)),
        element("p", {"class": "state"}, *parts),
        element("p", {"class": "lede"}, said.replace(" %", "\N{NO-BREAK SPACE}%")),
        *(element("p", {}, line) for line in _missing(story)),
    )


def done(story: Story) -> Html:
    """The pipeline drawn, beside each stage with its time and a sentence."""
    at = {stage.name: stage.number for stage in story.stages}
    steps = [
        Step(
            name=stage.name,
            about=_time(stage),
            needs=tuple(need for need in stage.needs if at.get(need, stage.number) < stage.number),
            link=stage.link,
            kind="done" if stage.state == "done" else "open",
        )
        for stage in story.stages
    ]
    items = [_item(stage) for stage in story.stages]
    drawn = flow(f"The stages of {shortened(story.name, 60)}", steps)
    words = element("div", {}, element("ol", {"class": "stages"}, *items))
    return section("What was done", "done", element("div", {"class": "pair"}, drawn, words))


def headline(story: Story) -> Html:
    """Every policy with the figures that matter most."""
    title, name = "What came of it", "headline"
    found, judged = story.evaluation, story.judged
    if found is None or judged is None:
        return section(title, name, element("p", {}, "No stage has compared policies yet."))
    wins = f"preferred to {named(found.reference)}" if found.reference else "preferred"
    columns = [
        *(["true worth"] if any(one.gold for one in found.policies) else []),
        wins,
        "of those that differ",
        "at equal length",
        "KL, nats",
        "tokens",
        "ended",
    ]
    rows = [(named(one.name), _cells(found, one)) for one in found.policies]
    about = element("p", {"class": "quiet"}, *_measured(found, judged))
    return section(
        title, name, table("Each figure with its 95 % interval over prompts", columns, rows), about
    )


def _cells(found: PolicyEvaluation, one: PolicyFigures) -> list[Html]:
    contest = contest_of(found, one.name)
    gold = [amount(one.gold)] if any(other.gold for other in found.policies) else []
    if one.name == found.reference:
        wins = [element("span", {"class": "quiet"}, said) for said in ("the reference", NOT_KNOWN, NOT_KNOWN)]
    else:
        wins = [
            amount(contest and contest.raw, percent),
            amount(contest and contest.decided, percent),
            amount(contest and contest.length_controlled, percent),
        ]
    return [*gold, *wins, amount(one.kl), amount(one.length), amount(one.finished, percent)]


def _measured(found: PolicyEvaluation, judged: Stage) -> Iterator[str]:
    judges = list(dict.fromkeys(named(one.judge) for one in found.contests))
    yield f"{counted(found.prompts, 'prompt')}, {counted(found.answers, 'answer')} to each; "
    yield f"{shortened(found.sampling, _MOST_SAID)}. "
    if found.gold:
        yield f"True worth is that of {named(found.gold)}. "
    if judges:
        yield f"Wins are counted by {', '.join(judges)}; a tie is half a win. "
    yield element("a", {"href": f"#{judged.link}"}, "Where these figures come from")
    yield "."


def _about(stage: Stage) -> str:
    kind = "" if stage.do == stage.name else named(stage.do)
    return " · ".join(part for part in (kind, _time(stage)) if part)


def _time(stage: Stage) -> str:
    if stage.seconds:
        return duration(stage.seconds)
    return {"done": "", "begun": "begun", "waiting": "to do"}[stage.state]


def _item(stage: Stage) -> Html:
    link = element("a", {"href": f"#{stage.link}"}, element("b", {}, named(stage.name)))
    about = element("span", {"class": "quiet"}, f" {_about(stage)}" if _about(stage) else "")
    first = found_so(shown(stage.rewards)) if stage.rewards else " ".join(stage.said[:1])
    said = shortened(first, _MOST_SAID)
    return element("li", {}, link, about, element("div", {}, said))


def _without(story: Story) -> str:
    ended = sum(stage.state == "done" for stage in story.stages)
    return f"{ended} of {counted(len(story.stages), 'stage')} have ended, and none of them compares policies."


def _missing(story: Story) -> Iterator[str]:
    left = [stage for stage in story.stages if stage.state != "done"]
    if left:
        said = ", ".join(f"{named(s.name)} ({'begun' if s.state == 'begun' else 'to do'})" for s in left)
        yield f"Not ended yet: {said}. The page shows what is there; the same command goes on from here."
