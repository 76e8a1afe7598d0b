"""The top of the page: how often the models are right, in a sentence, beside how right anybody could be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plaudit.evaluation.page_shown import MOST_NAME, NOT_KNOWN, Shown, cell, interval, paragraph, share, table
from plaudit.evaluation.result import Ceiling, Estimate, RewardEvaluation
from plaudit.page.html import Html, card, element, shortened
from plaudit.page.words import counted, figure, percent


def head(models: Sequence[Shown]) -> Html:
    """Name, files, the finding in a sentence, and the figures that matter most."""
    alone = len(models) == 1
    title = f"Reward model {models[0].name}" if alone else f"{len(models)} reward models"
    files = dict.fromkeys(model.found.data for model in models)
    state = f"Compared with the preferences in {', '.join(shortened(file, MOST_NAME) for file in files)}"
    # Models that were compared with the same file share a ceiling.
    ceilings = list(dict.fromkeys(model.found.ceiling for model in models))
    lede = " ".join([found_so(models), *(ceiling_words(ceiling) for ceiling in ceilings)])
    figures = element("dl", {"class": "cards"}, *_cards(models[0].found)) if alone else _beside(models)
    return element(
        "header",
        {},
        element("h1", {}, title),
        element("p", {"class": "state"}, f"{state}: {_size(models)}" if len(files) == 1 else state),
        paragraph(lede, "lede"),
        *(paragraph(_source(ceiling), "quiet") for ceiling in ceilings),
        figures,
    )


def ceiling_words(ceiling: Ceiling) -> str:
    """How right the best of models could be, in a sentence."""
    ends = ceiling_ends(ceiling)
    if ends is None:
        return "How right a model could be at most is not known."
    low, high = (percent(end) for end in ends)
    most = low if low == high else f"between {low} and {high}"
    # A ceiling that was seen on a handful of pairs is not to be taken for more than that.
    seen = "" if ceiling.accuracy is None else f", going by {counted(ceiling.accuracy.n, 'pair')}"
    return f"As annotators agree with each other, the most that a model could reach is {most}{seen}."


def ceiling_ends(ceiling: Ceiling) -> tuple[float, float] | None:
    """Between which accuracies the ceiling lies; None where nobody knows."""
    known = [end for end in (ceiling.accuracy and ceiling.accuracy.value, ceiling.at_most) if end is not None]
    return (min(known), max(known)) if known else None


def found_so(models: Sequence[Shown]) -> str:
    """How often the best of them is right, and how certain that is."""
    judged = [(model, model.found.accuracy) for model in models if model.found.accuracy is not None]
    if not judged:
        return "No pair has both a preference and two rewards, so there is no accuracy."
    best, accuracy = max(judged, key=lambda pair: pair[1].value)
    sure = f"95 % interval {interval(accuracy)}"
    how_often = f"{percent(accuracy.value)} of {counted(accuracy.n, 'pair')} ({sure})"
    what = f"the answer that annotators prefer in {how_often}"
    if len(models) == 1:
        return f"The model prefers {what}."
    return f"{best.name} is right most often: it prefers {what}.{_doubt(best, judged)}"


def _doubt(best: Shown, judged: Sequence[tuple[Shown, Estimate]]) -> str:
    floor = next(accuracy.low for model, accuracy in judged if model is best)
    near = [
        model.name
        for model, accuracy in judged
        if model is not best and (floor is None or accuracy.high is None or accuracy.high >= floor)
    ]
    if not near:
        return ""
    return f" Its interval overlaps with that of {', '.join(near)}: do not take their order for certain."


def _size(models: Sequence[Shown]) -> str:
    found = models[0].found
    return f"{counted(found.pairs, 'pair')} on {counted(found.prompts, 'prompt')}"


def _source(ceiling: Ceiling) -> str:
    if ceiling_ends(ceiling) is None:
        return f"No ceiling: {ceiling.words}."
    return f"The ceiling is that of {ceiling.source}: {ceiling.words}."


def _ceiling(found: RewardEvaluation) -> str:
    ends = ceiling_ends(found.ceiling)
    if ends is None:
        return NOT_KNOWN
    low, high = (percent(end) for end in ends)
    return low if low == high else f"{low.removesuffix(' %')}–{high}"


def _cards(found: RewardEvaluation) -> Iterator[Html]:
    if found.accuracy is not None:
        yield card("Accuracy", percent(found.accuracy.value), interval(found.accuracy))
    if ceiling_ends(found.ceiling) is not None:
        yield card("Ceiling", _ceiling(found), found.ceiling.source)
    worst = _worst(found)
    if worst is not None:
        yield card("Worst category", percent(worst[1].value), shortened(worst[0], MOST_NAME))
    if found.calibration is not None:
        loss = f"log-loss {figure(found.calibration.log_loss)}; 0.69 knows nothing"
        yield card("Calibration error", percent(found.calibration.ece_mass), loss)


def _worst(found: RewardEvaluation) -> tuple[str, Estimate] | None:
    return next(((one.name, one.accuracy) for one in found.categories if one.name == found.worst), None)


def _beside(models: Sequence[Shown]) -> Html:
    def worst(found: RewardEvaluation) -> Html:
        known = _worst(found)
        if known is None:
            return cell(NOT_KNOWN)
        name = element("span", {"class": "interval"}, shortened(known[0], MOST_NAME))
        return element("td", {}, percent(known[1].value), " ", name)

    def error(found: RewardEvaluation) -> Html:
        return cell(NOT_KNOWN if found.calibration is None else percent(found.calibration.ece_mass))

    def loss(found: RewardEvaluation) -> Html:
        return cell(NOT_KNOWN if found.calibration is None else figure(found.calibration.log_loss))

    return table(
        "The models beside each other; intervals are of 95 %",
        models,
        {
            "accuracy": lambda found: share(found.accuracy),
            "ceiling": lambda found: cell(_ceiling(found)),
            "worst category": worst,
            "calibration error": error,
            "log-loss (0.69 knows nothing)": loss,
            "pairs": lambda found: cell(f"{found.pairs:,}"),
        },
    )
