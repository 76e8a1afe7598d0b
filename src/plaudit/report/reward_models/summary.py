"""The top of the page: how often the models are right, in a sentence, beside how right anybody could be.

Models beside each other: what each is called on the page, and a table with a column for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from plaudit.evaluation.reward_models.result import Ceiling, Estimate, RewardEvaluation, short_names
from plaudit.report.charts.axes import SERIES_CLASSES, Span
from plaudit.report.html import Html, element, figure_card, shortened
from plaudit.report.words import counted, number_text, percent

MAX_NAME_LENGTH = 60
"""Letters of a model's name, or a category's, that have room in a sentence or a table."""
NO_VALUE = "–"
"""What stands in a table where there is no figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedModel:
    """A reward model's evaluation, and the unique name that the page gives it.

    Example: ``ReportedModel(name="mean-head", evaluation=evaluation)``
    """

    name: str
    """Unlike every other on the page."""
    evaluation: RewardEvaluation
    """What was found."""


def reported_models(evaluations: Sequence[RewardEvaluation]) -> tuple[ReportedModel, ...]:
    """The evaluations under names that tell them apart: by model, then by file, then by number."""
    files = [f" on {shortened(evaluation.data, MAX_NAME_LENGTH)}" for evaluation in evaluations]
    numbers = [f" ({number})" for number in range(1, len(evaluations) + 1)]
    names = [shortened(name, MAX_NAME_LENGTH) for name in short_names(evaluations)]
    names = _disambiguated(_disambiguated(names, files), numbers)
    return tuple(
        ReportedModel(name=name, evaluation=evaluation)
        for name, evaluation in zip(names, evaluations, strict=True)
    )


def _disambiguated(names: Sequence[str], suffixes: Sequence[str]) -> list[str]:
    """The names, with more after those that occur more than once, where more tells them apart."""
    suffixes_of_name = {
        name: {end for other, end in zip(names, suffixes, strict=True) if other == name} for name in names
    }
    return [
        f"{name}{end}" if len(suffixes_of_name[name]) > 1 else name
        for name, end in zip(names, suffixes, strict=True)
    ]


def chart_groups(models: Sequence[ReportedModel]) -> Iterator[Sequence[ReportedModel]]:
    """The models in groups of about equal size, each of which has room in one chart."""
    count = -(-len(models) // len(SERIES_CLASSES))
    for at in range(count):
        yield models[at * len(models) // count : (at + 1) * len(models) // count]


def estimate_span(estimate: Estimate) -> Span:
    """An estimate as charts draw it."""
    return Span(value=estimate.value, low=estimate.low, high=estimate.high)


def share_cell(estimate: Estimate | None) -> Html:
    """The cell of a share: its value, and its interval under it."""
    if estimate is None:
        return element("td", {}, NO_VALUE)
    ends = element("span", {"class": "interval"}, interval_text(estimate))
    return element("td", {}, percent(estimate.value), " ", ends)


def interval_text(estimate: Estimate) -> str:
    """From where to where a share may be."""
    if estimate.low is None or estimate.high is None:
        return "interval not known"
    return f"{percent(estimate.low).removesuffix(' %')} to {percent(estimate.high).removesuffix(' %')}"


def paragraph(text: str, kind: str = "") -> Html:
    """A sentence or more, in which no number is parted from its per cent."""
    unbroken = text.replace(" %", "\N{NO-BREAK SPACE}%")
    return element("p", {"class": kind} if kind else {}, unbroken)


def text_cell(text: str) -> Html:
    """A cell of a table."""
    return element("td", {}, text)


def models_table(
    caption: str, models: Sequence[ReportedModel], rows: Mapping[str, Callable[[RewardEvaluation], Html]]
) -> Html:
    """A row for each figure and a column for each model; it scrolls by itself where it is too wide."""
    names = ["", *(model.name for model in models)]
    head = element("tr", {}, *(element("th", {"scope": "col"}, name) for name in names))
    body = [
        element(
            "tr", {}, element("th", {"scope": "row"}, label), *(write(model.evaluation) for model in models)
        )
        for label, write in rows.items()
    ]
    parts = (element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, *body))
    # A keyboard reaches what lies beyond the edge only where the box itself can be reached.
    box = {"class": "wide", "tabindex": 0, "role": "region", "aria-label": caption}
    return element("div", box, element("table", {"class": "numbers beside"}, *parts))


def header(models: Sequence[ReportedModel]) -> Html:
    """Name, files, the finding in a sentence, and the figures that matter most."""
    is_single = len(models) == 1
    title = f"Reward model {models[0].name}" if is_single else f"{len(models)} reward models"
    files = dict.fromkeys(model.evaluation.data for model in models)
    subtitle = (
        f"Compared with the preferences in {', '.join(shortened(file, MAX_NAME_LENGTH) for file in files)}"
    )
    # Models that were compared with the same file share a ceiling.
    ceilings = list(dict.fromkeys(model.evaluation.ceiling for model in models))
    finding = " ".join([accuracy_sentence(models), *(ceiling_sentence(ceiling) for ceiling in ceilings)])
    figures = (
        element("dl", {"class": "cards"}, *_header_cards(models[0].evaluation))
        if is_single
        else _comparison_table(models)
    )
    return element(
        "header",
        {},
        element("h1", {}, title),
        element(
            "p", {"class": "state"}, f"{subtitle}: {_data_size(models)}" if len(files) == 1 else subtitle
        ),
        paragraph(finding, "lede"),
        *(paragraph(_ceiling_source(ceiling), "quiet") for ceiling in ceilings),
        figures,
    )


def ceiling_sentence(ceiling: Ceiling) -> str:
    """How right the best of models could be, in a sentence."""
    ends = ceiling_range(ceiling)
    if ends is None:
        return "How right a model could be at most is not known."
    low, high = (percent(end) for end in ends)
    highest = low if low == high else f"between {low} and {high}"
    # A ceiling that was seen on a handful of pairs is not to be taken for more than that.
    basis = "" if ceiling.accuracy is None else f", going by {counted(ceiling.accuracy.n, 'pair')}"
    return f"As annotators agree with each other, the most that a model could reach is {highest}{basis}."


def ceiling_range(ceiling: Ceiling) -> tuple[float, float] | None:
    """Between which accuracies the ceiling lies; None where nobody knows."""
    ends = [end for end in (ceiling.accuracy and ceiling.accuracy.value, ceiling.at_most) if end is not None]
    return (min(ends), max(ends)) if ends else None


def accuracy_sentence(models: Sequence[ReportedModel]) -> str:
    """A sentence that says how often the best of the models is right, and how certain that is."""
    accuracies = [
        (model, model.evaluation.accuracy) for model in models if model.evaluation.accuracy is not None
    ]
    if not accuracies:
        return "No pair has both a preference and two rewards, so there is no accuracy."
    best, accuracy = max(accuracies, key=lambda pair: pair[1].value)
    interval_words = f"95 % interval {interval_text(accuracy)}"
    how_often = f"{percent(accuracy.value)} of {counted(accuracy.n, 'pair')} ({interval_words})"
    preference = f"the answer that annotators prefer in {how_often}"
    if len(models) == 1:
        return f"The model prefers {preference}."
    return f"{best.name} is right most often: it prefers {preference}.{_overlap_sentence(best, accuracies)}"


def _overlap_sentence(best: ReportedModel, accuracies: Sequence[tuple[ReportedModel, Estimate]]) -> str:
    lowest = next(accuracy.low for model, accuracy in accuracies if model is best)
    overlapping = [
        model.name
        for model, accuracy in accuracies
        if model is not best and (lowest is None or accuracy.high is None or accuracy.high >= lowest)
    ]
    if not overlapping:
        return ""
    return (
        f" Its interval overlaps with that of {', '.join(overlapping)}: do not take their order for certain."
    )


def _data_size(models: Sequence[ReportedModel]) -> str:
    evaluation = models[0].evaluation
    return f"{counted(evaluation.pairs, 'pair')} on {counted(evaluation.prompts, 'prompt')}"


def _ceiling_source(ceiling: Ceiling) -> str:
    if ceiling_range(ceiling) is None:
        return f"No ceiling: {ceiling.words}."
    return f"The ceiling is that of {ceiling.source}: {ceiling.words}."


def _ceiling_text(evaluation: RewardEvaluation) -> str:
    ends = ceiling_range(evaluation.ceiling)
    if ends is None:
        return NO_VALUE
    low, high = (percent(end) for end in ends)
    return low if low == high else f"{low.removesuffix(' %')}–{high}"


def _header_cards(evaluation: RewardEvaluation) -> Iterator[Html]:
    if evaluation.accuracy is not None:
        yield figure_card("Accuracy", percent(evaluation.accuracy.value), interval_text(evaluation.accuracy))
    if ceiling_range(evaluation.ceiling) is not None:
        yield figure_card("Ceiling", _ceiling_text(evaluation), evaluation.ceiling.source)
    worst = _worst_slice(evaluation)
    if worst is not None:
        yield figure_card("Worst category", percent(worst[1].value), shortened(worst[0], MAX_NAME_LENGTH))
    if evaluation.calibration is not None:
        loss = f"log-loss {number_text(evaluation.calibration.log_loss)}; 0.69 knows nothing"
        yield figure_card("Calibration error", percent(evaluation.calibration.ece_mass), loss)


def _worst_slice(evaluation: RewardEvaluation) -> tuple[str, Estimate] | None:
    return next(
        ((one.name, one.accuracy) for one in evaluation.categories if one.name == evaluation.worst), None
    )


def _comparison_table(models: Sequence[ReportedModel]) -> Html:
    def worst(found: RewardEvaluation) -> Html:
        known = _worst_slice(found)
        if known is None:
            return text_cell(NO_VALUE)
        name = element("span", {"class": "interval"}, shortened(known[0], MAX_NAME_LENGTH))
        return element("td", {}, percent(known[1].value), " ", name)

    def error(found: RewardEvaluation) -> Html:
        return text_cell(NO_VALUE if found.calibration is None else percent(found.calibration.ece_mass))

    def loss(found: RewardEvaluation) -> Html:
        return text_cell(NO_VALUE if found.calibration is None else number_text(found.calibration.log_loss))

    return models_table(
        "The models beside each other; intervals are of 95 %",
        models,
        {
            "accuracy": lambda found: share_cell(found.accuracy),
            "ceiling": lambda found: text_cell(_ceiling_text(found)),
            "worst category": worst,
            "calibration error": error,
            "log-loss (0.69 knows nothing)": loss,
            "pairs": lambda found: text_cell(f"{found.pairs:,}"),
        },
    )
