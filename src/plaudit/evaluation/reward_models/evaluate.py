"""Evaluates one reward model on one file of preference data, which is read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from plaudit.data.read import DEFAULT_OPTIONS, ReadOptions, ReadResult, open_rows, read_records
from plaudit.data.records import Comparison, Ranking, Record, Task, plain_text
from plaudit.data.transforms import some_of
from plaudit.errors import UserError
from plaudit.evaluation.reward_models.accuracy import (
    accuracy,
    accuracy_by_strength,
    accuracy_ceiling,
    accuracy_slices,
    best_of_n_curve,
    held_out_people,
    margin_histogram,
    reward_calibration,
    tie_statistics,
    worst_category,
)
from plaudit.evaluation.reward_models.bias_probes import probe_biases, probe_flat_errors
from plaudit.evaluation.reward_models.pairs import (
    PreferenceRecord,
    ScoredPair,
    ScoresByAnswer,
    divided_refusals,
    has_verdict,
    pair_columns,
    reward_gap,
    score_records,
    score_tasks,
    scored_pairs,
)
from plaudit.evaluation.reward_models.result import (
    Benchmark,
    BestOfNCurve,
    Ceiling,
    Mistake,
    Probes,
    RewardEvaluation,
)
from plaudit.evaluation.reward_models.rewardbench import score_rewardbench, score_rewardbench2
from plaudit.evaluation.stats import Resampling
from plaudit.rewards.base import Reward, refusal_reasons

MAX_MISTAKES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardEvaluationData:
    """What a reward model is compared with: preference records of one file, and what is known about them.

    Example: ``RewardEvaluationData(name="pairs.jsonl", records=read_records("pairs.jsonl").records)``
    """

    name: str
    """The file."""
    records: Sequence[PreferenceRecord]
    """Its comparisons and rankings."""
    layout: str = "plaudit"
    """The layout that it was read in; public benchmarks are scored by their own rules as well."""
    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the rows call themselves, by origin."""
    truth: Reward | None = None
    """The true utility, where it is known."""
    sampled: Sequence[Task] = ()
    """Answers that a policy gave to some prompts, for the best-of-n curve; needs ``truth``."""
    ceiling: Ceiling | None = None
    """Of the accuracy, where it is known from elsewhere than repeated judgements."""
    learnt_from: frozenset[str] | None = None
    """The annotators whose labels the models learnt from, where that is known."""
    flat_errors: Sequence[Task] = ()
    """A right answer that hedges and a wrong one that does not, for each of some prompts."""
    flat_errors_by_annotators: float | None = None
    """How often the annotators would prefer the right one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedReward:
    evaluation: RewardEvaluation
    pairs: tuple[ScoredPair, ...]


def evaluate_reward(
    reward: Reward, data: RewardEvaluationData, resampling: Resampling | None = None
) -> EvaluatedReward:
    """Score every answer of the evidence and say how good the scores are.

    >>> from plaudit.rewards.base import FunctionReward
    >>> good = Comparison(prompt="Hi", chosen="Hello!", rejected="Go.")
    >>> bad = Comparison(prompt="2 + 2?", chosen="4", rejected="Five")
    >>> long = FunctionReward(name="long", function=lambda prompt, answer: float(len(answer)))
    >>> evaluate_reward(long, RewardEvaluationData(name="two pairs", records=[good,
    ...     bad])).evaluation.accuracy.value
    0.5
    """
    resampling = resampling or Resampling()
    if not data.records:
        raise UserError(f"{data.name}: there is no comparison and no ranking in it to evaluate on")
    scores = score_records(data.records, reward)
    truths = None if data.truth is None else score_records(data.records, data.truth)
    # Benchmarks list the right answers first: that order is the label, not a place on a screen.
    pairs = scored_pairs(
        data.records, scores, truths, in_shown_order=data.layout not in ("rewardbench", "rewardbench2")
    )
    scored = [pair for pair in pairs if has_verdict(pair)]
    if all(pair.p_first == 0.5 for pair in pairs):
        raise UserError(
            f"{data.name}: all of its {len(pairs)} pairs are ties, so there is nothing to be right about"
        )
    if all(pair.p_first == 0.5 for pair in scored):
        raise UserError(
            f"{reward.name} gives no verdict on any pair of {data.name} in which an answer is "
            f"preferred{refusal_reasons(divided_refusals(reward))}; see whether it can read these prompts"
        )
    evaluation = _reward_evaluation(reward, data, resampling, scores, pairs)
    return EvaluatedReward(evaluation=evaluation, pairs=pairs)


def _reward_evaluation(
    reward: Reward,
    data: RewardEvaluationData,
    resampling: Resampling,
    scores: ScoresByAnswer,
    pairs: Sequence[ScoredPair],
) -> RewardEvaluation:
    scored = [pair for pair in pairs if has_verdict(pair)]
    columns = pair_columns(scored)
    categories = accuracy_slices(scored, lambda pair: pair.category, resampling)
    return RewardEvaluation(
        model=reward.name,
        data=data.name,
        pairs=len(pairs),
        prompts=len({pair.prompt for pair in pairs}),
        missing=len(pairs) - len(scored),
        equal=int(((columns.gap_B == 0) & columns.has_preference_B).sum()),
        seed=resampling.seed,
        bootstrap=resampling.times,
        accuracy=accuracy(scored, resampling),
        # Of all pairs: how far people agree does not hang on what this model could score.
        ceiling=data.ceiling or accuracy_ceiling(pairs, resampling),
        ties=tie_statistics(scored),
        worst=worst_category(categories),
        categories=categories,
        strengths=accuracy_by_strength(scored, resampling),
        annotators=accuracy_slices(scored, lambda pair: pair.annotator, resampling),
        groups=accuracy_slices(scored, lambda pair: pair.group, resampling),
        calibration=reward_calibration(columns),
        margins=margin_histogram(columns),
        probes=_probes(reward, data, resampling, scored),
        best_of=_best_of_n(reward, data, resampling),
        benchmark=_score_benchmark(data, scores, pairs, resampling),
        mistakes=_worst_mistakes(scored),
        notes=_evaluation_notes(scored, pairs, refusal_reasons(divided_refusals(reward))),
        held_out=None if data.learnt_from is None else held_out_people(scored, data.learnt_from, resampling),
    )


def _probes(
    reward: Reward, data: RewardEvaluationData, resampling: Resampling, scored: Sequence[ScoredPair]
) -> Probes:
    scores = score_tasks(data.flat_errors, reward)
    flat_errors = probe_flat_errors(data.flat_errors, scores, data.flat_errors_by_annotators, resampling)
    return replace(probe_biases(scored), flat_errors=flat_errors)


def _best_of_n(reward: Reward, data: RewardEvaluationData, resampling: Resampling) -> BestOfNCurve | None:
    if not data.sampled or data.truth is None:
        return None
    proxies, truths = (score_tasks(data.sampled, scorer) for scorer in (reward, data.truth))
    return best_of_n_curve(data.sampled, proxies, truths, resampling)


def _score_benchmark(
    data: RewardEvaluationData, scores: ScoresByAnswer, pairs: Sequence[ScoredPair], resampling: Resampling
) -> Benchmark | None:
    if data.layout == "rewardbench":
        return score_rewardbench(pairs, resampling)
    if data.layout == "rewardbench2":
        rankings = [record for record in data.records if isinstance(record, Ranking)]
        return score_rewardbench2(rankings, scores, data.ids, resampling)
    return None


def _worst_mistakes(scored: Sequence[ScoredPair]) -> tuple[Mistake, ...]:
    """The wrong pairs with the largest reward gaps, one a prompt, at most `MAX_MISTAKES` of them."""
    wrong = [pair for pair in scored if reward_gap(pair) * (pair.p_first - 0.5) < 0]
    mistakes: dict[object, Mistake] = {}
    # Equal margins by origin, so that the same data always show the same mistakes.
    for pair in sorted(wrong, key=lambda pair: (-abs(reward_gap(pair)), pair.origin)):
        preferred = 0 if pair.p_first > 0.5 else 1
        mistakes.setdefault(
            pair.prompt,
            Mistake(
                prompt=plain_text(pair.prompt),
                preferred=pair.answers[preferred],
                other=pair.answers[1 - preferred],
                margin=-abs(reward_gap(pair)),
                category=pair.category,
                origin=pair.origin,
            ),
        )
    return tuple(mistakes.values())[:MAX_MISTAKES]


def _evaluation_notes(
    scored: Sequence[ScoredPair], pairs: Sequence[ScoredPair], reasons: str
) -> tuple[str, ...]:
    notes = []
    if len(scored) < len(pairs):
        notes.append(
            f"{len(pairs) - len(scored)} of {len(pairs)} pairs have no verdict, and are in no figure{reasons}"
        )
    soft = sum(pair.p_first not in (0, 0.5, 1) for pair in scored)
    if soft:
        notes.append(f"{soft} pairs have a soft label; accuracy counts the likelier side as right")
    return tuple(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRewardData:
    data: RewardEvaluationData
    notes: tuple[str, ...]


def read_reward_data(
    path: Path,
    *,
    format: str | None = None,
    threshold: float = 0.01,
    n: int | None = None,
    seed: int = 0,
    options: ReadOptions = DEFAULT_OPTIONS,
) -> LoadedRewardData:
    """The comparisons and rankings of a file, or n of them by chance, in the order of the file."""
    reading = read_records(path, format=format, threshold=threshold, options=options)
    preferences = [record for record in reading.records if isinstance(record, Comparison | Ranking)]
    if not preferences:
        counts = ", ".join(f"{count} × {kind}" for kind, count in reading.counts.items()) or "no record"
        raise UserError(
            f"{path}: holds {counts}, and neither a comparison nor a ranking; a reward "
            "model is evaluated on answers that people compared"
        )
    # In the file's order: benchmarks are sorted by subset.
    used = some_of(preferences, n, seed)
    data = RewardEvaluationData(
        name=path.name,
        records=used,
        layout=reading.format_name,
        ids=_row_ids(path, format, options) if reading.format_name == "rewardbench2" else {},
    )
    return LoadedRewardData(data=data, notes=tuple(_reading_notes(path, reading, preferences, used)))


def annotators_of(
    path: Path, *, threshold: float = 0.01, options: ReadOptions = DEFAULT_OPTIONS
) -> frozenset[str]:
    records = read_records(path, threshold=threshold, options=options).records
    names = {getattr(record, "annotator", None) for record in records} - {None}
    if not names:
        raise UserError(f"{path}: no row names its annotator, so nobody can be known as held out")
    return frozenset(map(str, names))


def _reading_notes(
    path: Path, reading: ReadResult, records: Sequence[Record], used: Sequence[Record]
) -> list[str]:
    lines = [reading.format_sentence]
    if reading.problems:
        lines.append(f"{path.name}: {len(reading.problems)} of {reading.rows} rows are bad and left out")
    lines += [f"{path.name}: {count} × {reason} left out" for reason, count in reading.left_out.items()]
    others = len(reading.records) - len(records)
    if others:
        lines.append(f"{path.name}: {others} records are neither comparisons nor rankings, and left out")
    if len(used) < len(records):
        lines.append(f"{path.name}: {len(used)} of {len(records)} records, drawn by chance")
    return lines


def _row_ids(path: Path, format: str | None, options: ReadOptions) -> dict[str, str]:
    """What each row calls itself: RewardBench 2 couples rows by it, and records do not keep it."""
    rows = (row.raw for row in open_rows(path, format=format, options=options).rows)
    return {
        row.origin: str(row.value["id"]) for row in rows if isinstance(row.value, dict) and "id" in row.value
    }
