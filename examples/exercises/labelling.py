"""Twenty pairs that the reader labels: own agreement with the truth and with a crowd, and own biases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from markupsafe import Markup

from examples.exercises import pages
from examples.exercises.exercise import captioned, claim_rows, exercise, result_table, table_head
from examples.exercises.measure import claim_above_zero
from plaudit.data.read import read_records
from plaudit.data.records import Comparison, Text, plain_text, preference_probability
from plaudit.errors import UserError
from plaudit.evaluation.reward_models.pairs import group_index
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean
from plaudit.lab.world.gold import gold_of

_LABELLERS = {"own": "own labels", "crowd": "the crowd"}
_FIGURES = ("truth", "crowd", "longer", "first")
_PairKey = tuple[str, frozenset[str]]
_Figures = Mapping[str, Estimate | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPair:
    """A pair of the exercise with what somebody preferred of it."""

    key: _PairKey
    prompt: Text
    preferred: str
    other: str
    annotator: str | None
    was_first: bool | None
    """Whether the preferred answer was shown before the other; None where nobody says."""


def analyse(folder: pages.PipelineFolder) -> pages.ExerciseResult:
    pairs = {pair.key for pair in _labelled(folder.stage("pairs") / "rows.jsonl")}
    labels = {name: _labelled(folder.stage(name) / "rows.jsonl", pairs) for name in _LABELLERS}
    for name, own in labels.items():
        if not own:
            raise UserError(
                f"{folder.stage(name)}: no answer to any of the {len(pairs)} pairs is preferred there; label "
                f"{folder.stage('pairs') / 'rows.jsonl'} with plaudit collect, and name what comes of it"
            )
    figures = {
        name: {
            "truth": _truth_share(own),
            "crowd": _crowd_share(own, labels["crowd"]),
            "longer": _longer_share(own),
            "first": _first_share(own),
        }
        for name, own in labels.items()
    }
    counts = {name: len(own) for name, own in labels.items()}
    longer = _longer_share([_truly(label) for label in labels["crowd"]])
    truth = {"truth": "100 %", "longer": _cell(longer)}
    rows = [
        (_LABELLERS[name], str(counts[name]), *(_cell(own[figure]) for figure in _FIGURES))
        for name, own in figures.items()
    ]
    last = ("the truth", "", *(truth.get(figure, "–") for figure in _FIGURES))
    table, chart = result_table("labelling", [*rows, last]), _picture(figures)
    return pages.ExerciseResult(
        claims=(*_claims(figures),), table=table, charts=captioned("labelling", chart)
    )


def _labelled(rows: Path, wanted: Iterable[_PairKey] | None = None) -> list[LabelledPair]:
    """All pairs of a file; or of those of the exercise the ones in which an answer is preferred."""
    found = list[LabelledPair]()
    for record in read_records(rows).records:
        if not isinstance(record, Comparison) or (wanted is not None and _key(record) not in {*wanted}):
            continue
        probability = preference_probability(record)
        answers = plain_text(record.chosen), plain_text(record.rejected)
        preferred, other = answers if probability > 0.5 else answers[::-1]
        if probability != 0.5 or wanted is None:
            found.append(
                LabelledPair(
                    key=_key(record),
                    prompt=record.prompt,
                    preferred=preferred,
                    other=other,
                    annotator=record.annotator,
                    was_first=(record.places[0] < record.places[1]) == (probability > 0.5)
                    if record.places
                    else None,
                )
            )
    return found


def _key(record: Comparison) -> _PairKey:
    answers = (plain_text(answer).strip() for answer in (record.chosen, record.rejected))
    return plain_text(record.prompt), frozenset(answers)


def _share(values: Sequence[tuple[_PairKey, float]]) -> Estimate | None:
    """A share with its interval over pairs; None of nothing."""
    if not values:
        return None
    return bootstrap_mean(
        np.array([value for _, value in values]), group_index([key for key, _ in values]), Resampling()
    )


def _truth_share(labels: Sequence[LabelledPair]) -> Estimate | None:
    return _share([(label.key, float(gap > 0)) for label in labels if (gap := _gold_gap(label))])


def _gold_gap(label: LabelledPair) -> float:
    return gold_of(label.prompt, label.preferred).utility - gold_of(label.prompt, label.other).utility


def _crowd_share(labels: Sequence[LabelledPair], crowd: Sequence[LabelledPair]) -> Estimate | None:
    """How often a label is that of one of the crowd; of the crowd's own that of another of them."""
    if labels is crowd:
        pairs = [
            (label, other) for label, other in combinations(crowd, 2) if label.annotator != other.annotator
        ]
    else:
        pairs = [(label, other) for label in labels for other in crowd]
    return _share(
        [
            (label.key, float(label.preferred == other.preferred))
            for label, other in pairs
            if label.key == other.key
        ]
    )


def _longer_share(labels: Sequence[LabelledPair]) -> Estimate | None:
    gaps = [(label.key, len(label.preferred.split()) - len(label.other.split())) for label in labels]
    return _share([(key, float(gap > 0)) for key, gap in gaps if gap])


def _first_share(labels: Sequence[LabelledPair]) -> Estimate | None:
    """How often the answer that was shown first is preferred; None where rows do not say which it was."""
    return _share([(label.key, float(label.was_first)) for label in labels if label.was_first is not None])


def _claims(figures: Mapping[str, _Figures]) -> Iterator[pages.Claim]:
    shares = (figures["crowd"]["truth"], figures["own"]["truth"], figures["own"]["crowd"])
    for row, share in zip(claim_rows("labelling"), shares, strict=True):
        if share is None:
            yield pages.Claim(statement=row["says"], holds=None, evidence="no pair tells")
        else:
            # Less what a coin would reach.
            low, high = (None if end is None else end - 0.5 for end in (share.low, share.high))
            gap = replace(share, value=share.value - 0.5, low=low, high=high)
            yield claim_above_zero(row["says"], gap, row["gap"])


def _truly(label: LabelledPair) -> LabelledPair:
    is_right = _gold_gap(label) >= 0
    return label if is_right else replace(label, preferred=label.other, other=label.preferred)


def _cell(share: Estimate | None) -> str:
    if share is None:
        return "–"
    ends = (
        ""
        if share.low is None or share.high is None
        else f" ({pages.percent(share.low)} to {pages.percent(share.high)})"
    )
    return f"{pages.percent(share.value)}{ends}"


def _picture(figures: Mapping[str, _Figures]) -> Markup:
    rows = [
        pages.interval_row(words, *(figures[name][figure] for name in _LABELLERS))
        for figure, words in zip(_FIGURES, table_head("labelling")[2:], strict=True)
    ]
    data = pages.IntervalRows(rows=rows, series=(*_LABELLERS.values(),))
    return pages.share_chart("Preferences", "share, with 95 % intervals", data)


EXERCISE = exercise("labelling", analyse)
