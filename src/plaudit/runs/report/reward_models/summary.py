"""Reward models beside each other: what each is called, how often it is right, how right anybody could be."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from plaudit.evaluation.reward_models.result import Calibration, Ceiling, RewardEvaluation, Slice, short_names
from plaudit.evaluation.stats import Estimate
from plaudit.runs.report.charts.axes import SERIES_CLASSES
from plaudit.runs.report.parts import NO_VALUE, Card, Cell, Table, estimate_cell, interval_text, say
from plaudit.runs.report.words import number_text, percent, shortened

MAX_NAME_LENGTH = 60
"""Letters of a model's name, or a category's, that have room in a sentence or a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedModel:
    """A reward model's evaluation, and the unique name that the page gives it."""

    name: str
    evaluation: RewardEvaluation
    is_single: bool = True
    """Whether the page is of this model alone, and need not name it again and again."""

    @property
    def subject(self) -> str:
        return "the model" if self.is_single else self.name

    def title(self, text: str, owned: str = "") -> str:
        """A title, with whose it is where there are several; ``owned`` is how it goes on there."""
        return text if self.is_single else f"{self.name}: {owned or text}"


def reported_models(evaluations: Sequence[RewardEvaluation]) -> tuple[ReportedModel, ...]:
    """The evaluations under names that tell them apart: by model, then by file, then by number."""
    files = [f" on {shortened(evaluation.data, MAX_NAME_LENGTH)}" for evaluation in evaluations]
    numbers = [f" ({number})" for number in range(1, len(evaluations) + 1)]
    names = [shortened(name, MAX_NAME_LENGTH) for name in short_names(evaluations)]
    names = _disambiguated(_disambiguated(names, files), numbers)
    return tuple(
        ReportedModel(name=name, evaluation=evaluation, is_single=len(names) == 1)
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
    count = -(-len(models) // len(SERIES_CLASSES))
    for at in range(count):
        yield models[at * len(models) // count : (at + 1) * len(models) // count]


def models_table(
    caption: str, models: Sequence[ReportedModel], rows: Mapping[str, Callable[[RewardEvaluation], Cell]]
) -> Table:
    cells = [(label, [write(model.evaluation) for model in models]) for label, write in rows.items()]
    return Table(caption=caption, columns=[model.name for model in models], rows=cells, stacked=False)


def subtitle(models: Sequence[ReportedModel]) -> str:
    files = dict.fromkeys(model.evaluation.data for model in models)
    names = ", ".join(shortened(file, MAX_NAME_LENGTH) for file in files)
    one_file = "_one_file" if len(files) == 1 else ""
    return say(f"reward.subtitle{one_file}", files=names, found=models[0].evaluation)


def finding(models: Sequence[ReportedModel]) -> str:
    """How often the best of the models is right, and how right it could be."""
    return " ".join([accuracy_sentence(models), *map(_ceiling_sentence, ceilings(models))])


def ceilings(models: Sequence[ReportedModel]) -> list[Ceiling]:
    """The ceilings of the models; those that were compared with the same file share one."""
    return list(dict.fromkeys(model.evaluation.ceiling for model in models))


def _ceiling_sentence(ceiling: Ceiling) -> str:
    ends = ceiling_range(ceiling)
    if ends is None:
        return say("reward.no_ceiling")
    low, high = ends
    highest = percent(low) if percent(low) == percent(high) else say("reward.between", low=low, high=high)
    # A ceiling that was seen on a handful of pairs is not to be taken for more than that.
    if ceiling.accuracy is not None:
        return say("reward.ceiling_of_pairs", highest=highest, pairs=ceiling.accuracy.n)
    return say("reward.ceiling", highest=highest)


def ceiling_range(ceiling: Ceiling) -> tuple[float, float] | None:
    """Between which accuracies the ceiling lies; None where nobody knows."""
    ends = [end for end in (ceiling.accuracy and ceiling.accuracy.value, ceiling.at_most) if end is not None]
    return (min(ends), max(ends)) if ends else None


def ceiling_source(ceiling: Ceiling) -> str:
    unknown = "no_" if ceiling_range(ceiling) is None else ""
    return say(f"reward.{unknown}ceiling_source", ceiling=ceiling)


def accuracy_sentence(models: Sequence[ReportedModel]) -> str:
    found = [(model, model.evaluation.accuracy) for model in models if model.evaluation.accuracy is not None]
    if not found:
        return say("reward.no_accuracy")
    best, accuracy = max(found, key=lambda pair: pair[1].value)
    if len(models) == 1:
        return say("reward.accuracy", accuracy=accuracy)
    overlapping = [name.name for name, other in found if name is not best and _reaches(other, accuracy.low)]
    overlap = f" {say('reward.overlap', names=', '.join(overlapping))}" if overlapping else ""
    return say("reward.best", name=best.name, accuracy=accuracy) + overlap


def _reaches(estimate: Estimate, low: float | None) -> bool:
    return low is None or estimate.high is None or estimate.high >= low


def _ceiling_text(evaluation: RewardEvaluation) -> str:
    ends = ceiling_range(evaluation.ceiling)
    if ends is None:
        return NO_VALUE
    low, high = (percent(end) for end in ends)
    return low if low == high else f"{low.removesuffix(' %')}–{high}"


def headline_cards(evaluation: RewardEvaluation) -> Iterator[Card]:
    accuracy, calibration = evaluation.accuracy, evaluation.calibration
    if accuracy is not None:
        ends = interval_text(accuracy, share=True)
        yield Card(label="Accuracy", value=percent(accuracy.value), more=ends)
    if ceiling_range(evaluation.ceiling) is not None:
        yield Card(label="Ceiling", value=_ceiling_text(evaluation), more=evaluation.ceiling.source)
    worst = _worst_slice(evaluation)
    if worst is not None:
        category = shortened(worst.name, MAX_NAME_LENGTH)
        yield Card(label="Worst category", value=percent(worst.accuracy.value), more=category)
    if calibration is not None:
        loss = say("reward.log_loss", calibration=calibration)
        yield Card(label="Calibration error", value=percent(calibration.ece_mass), more=loss)


def _worst_slice(evaluation: RewardEvaluation) -> Slice | None:
    return next((part for part in evaluation.categories if part.name == evaluation.worst), None)


def calibration_cell(
    write: Callable[[float], str], part: Callable[[Calibration], float]
) -> Callable[[RewardEvaluation], Cell]:
    """A figure of how sure each model is, for a row of a table."""
    return lambda found: Cell(text=NO_VALUE if found.calibration is None else write(part(found.calibration)))


def comparison_table(models: Sequence[ReportedModel]) -> Table:

    def worst(found: RewardEvaluation) -> Cell:
        part = _worst_slice(found)
        if part is None:
            return Cell(text=NO_VALUE)
        return Cell(text=percent(part.accuracy.value), interval=shortened(part.name, MAX_NAME_LENGTH))

    rows = {
        "accuracy": lambda found: estimate_cell(found.accuracy, percent),
        "ceiling": lambda found: Cell(text=_ceiling_text(found)),
        "worst category": worst,
        "calibration error": calibration_cell(percent, lambda found: found.ece_mass),
        "log-loss (0.69 knows nothing)": calibration_cell(number_text, lambda found: found.log_loss),
        "pairs": lambda found: Cell(text=f"{found.pairs:,}"),
    }
    return models_table(say("reward.comparison"), models, rows)
