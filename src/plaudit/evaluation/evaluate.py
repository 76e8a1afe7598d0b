"""One model on one file: everything that can be said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from plaudit.errors import UserError
from plaudit.evaluation.accuracy import accuracy, by_strength, slices, ties, worst
from plaudit.evaluation.benchmarks import rewardbench, rewardbench2
from plaudit.evaluation.best_of import best_of_curve
from plaudit.evaluation.calibration import calibration, margins
from plaudit.evaluation.ceiling import ceiling
from plaudit.evaluation.columns import columns, gap, has_verdict
from plaudit.evaluation.pairs import Judged, ScoredPair, Scores, scored_pairs, scores_of, task_scores
from plaudit.evaluation.probes import probes
from plaudit.evaluation.resample import Resampling
from plaudit.evaluation.result import Benchmark, BestOfCurve, Ceiling, Mistake, RewardEvaluation
from plaudit.records.feedback import Ranking
from plaudit.records.judging import Task
from plaudit.records.messages import words
from plaudit.rewards.reward import Reward

MISTAKES = 10
"""How many are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What models are compared with.

    Example: ``Evidence(name="pairs.jsonl", records=read_records("pairs.jsonl").records)``
    """

    name: str
    """The file."""
    records: Sequence[Judged]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """What was found, and the pairs that it was found on.

    Example: ``evaluate(reward, evidence).evaluation.accuracy``
    """

    evaluation: RewardEvaluation
    """All figures."""
    pairs: tuple[ScoredPair, ...]
    """Every pair with its scores."""


def evaluate(reward: Reward, evidence: Evidence, resampling: Resampling | None = None) -> Evaluated:
    """Score every answer of the evidence and say how good the scores are.

    >>> from plaudit.records.feedback import Comparison
    >>> from plaudit.rewards.reward import FunctionReward
    >>> good = Comparison(prompt="Hi", chosen="Hello!", rejected="Go.")
    >>> bad = Comparison(prompt="2 + 2?", chosen="4", rejected="Five")
    >>> long = FunctionReward(name="long", function=lambda prompt, answer: float(len(answer)))
    >>> evaluate(long, Evidence(name="two pairs", records=[good, bad])).evaluation.accuracy.value
    0.5
    """
    resampling = resampling or Resampling()
    if not evidence.records:
        raise UserError(f"{evidence.name}: there is no comparison and no ranking in it to evaluate on")
    scores = scores_of(evidence.records, reward)
    truths = None if evidence.truth is None else scores_of(evidence.records, evidence.truth)
    pairs = scored_pairs(
        evidence.records, scores, truths, placed=evidence.layout not in ("rewardbench", "rewardbench2")
    )
    told = [pair for pair in pairs if has_verdict(pair)]
    _check(told, pairs, reward, evidence)
    return Evaluated(evaluation=_found(reward, evidence, resampling, scores, pairs), pairs=pairs)


def _check(
    told: Sequence[ScoredPair], pairs: Sequence[ScoredPair], reward: Reward, evidence: Evidence
) -> None:
    if all(pair.chance == 0.5 for pair in pairs):
        raise UserError(
            f"{evidence.name}: all of its {len(pairs)} pairs are ties, so there is nothing to be right about"
        )
    if all(pair.chance == 0.5 for pair in told):
        raise UserError(
            f"{reward.name} gives no verdict on any pair of {evidence.name} in which an answer is "
            f"preferred{_reasons(reward)}; see whether it can read these prompts"
        )


def _found(
    reward: Reward,
    evidence: Evidence,
    resampling: Resampling,
    scores: Scores,
    pairs: Sequence[ScoredPair],
) -> RewardEvaluation:
    told = [pair for pair in pairs if has_verdict(pair)]
    table = columns(told)
    categories = slices(told, lambda pair: pair.category, resampling)
    return RewardEvaluation(
        model=reward.name,
        data=evidence.name,
        pairs=len(pairs),
        prompts=len({pair.prompt for pair in pairs}),
        missing=len(pairs) - len(told),
        equal=int(((table.gap_B == 0) & table.told_B).sum()),
        seed=resampling.seed,
        bootstrap=resampling.times,
        accuracy=accuracy(told, resampling),
        ceiling=evidence.ceiling or ceiling(pairs, resampling),
        ties=ties(told),
        worst=worst(categories),
        categories=categories,
        strengths=by_strength(told, resampling),
        annotators=slices(told, lambda pair: pair.annotator, resampling),
        groups=slices(told, lambda pair: pair.group, resampling),
        calibration=calibration(table),
        margins=margins(table),
        probes=probes(told),
        best_of=_best_of(reward, evidence, resampling),
        benchmark=_benchmark(evidence, scores, pairs, resampling),
        mistakes=_mistakes(told),
        notes=_notes(told, pairs, _reasons(reward)),
    )


def _best_of(reward: Reward, evidence: Evidence, resampling: Resampling) -> BestOfCurve | None:
    if not evidence.sampled or evidence.truth is None:
        return None
    proxies, truths = (task_scores(evidence.sampled, one) for one in (reward, evidence.truth))
    return best_of_curve(evidence.sampled, proxies, truths, resampling)


def _benchmark(
    evidence: Evidence, scores: Scores, pairs: Sequence[ScoredPair], resampling: Resampling
) -> Benchmark | None:
    if evidence.layout == "rewardbench":
        return rewardbench(pairs, resampling)
    if evidence.layout == "rewardbench2":
        rankings = [record for record in evidence.records if isinstance(record, Ranking)]
        return rewardbench2(rankings, scores, evidence.ids, resampling)
    return None


def _mistakes(told: Sequence[ScoredPair]) -> tuple[Mistake, ...]:
    """The surest ones, one a prompt."""
    wrong = [pair for pair in told if gap(pair) * (pair.chance - 0.5) < 0]
    found: dict[object, Mistake] = {}
    for pair in sorted(wrong, key=lambda pair: (-abs(gap(pair)), pair.origin)):
        right = 0 if pair.chance > 0.5 else 1
        found.setdefault(
            pair.prompt,
            Mistake(
                prompt=words(pair.prompt),
                preferred=pair.answers[right],
                other=pair.answers[1 - right],
                margin=-abs(gap(pair)),
                category=pair.category,
                origin=pair.origin,
            ),
        )
    return tuple(found.values())[:MISTAKES]


@runtime_checkable
class _Explains(Protocol):
    """A reward that says why it had no verdict."""

    @property
    def refused(self) -> Mapping[str, int]: ...


def _reasons(reward: Reward) -> str:
    """Why answers have no verdict, where the reward keeps count of it."""
    if not isinstance(reward, _Explains) or not reward.refused:
        return ""
    return f" ({'; '.join(f'{count} × {why}' for why, count in reward.refused.items())})"


def _notes(told: Sequence[ScoredPair], pairs: Sequence[ScoredPair], reasons: str) -> tuple[str, ...]:
    notes = []
    if len(told) < len(pairs):
        notes.append(
            f"{len(pairs) - len(told)} of {len(pairs)} pairs have no verdict, and are in no figure{reasons}"
        )
    soft = sum(pair.chance not in (0, 0.5, 1) for pair in told)
    if soft:
        notes.append(f"{soft} pairs have a soft label; accuracy counts the likelier side as right")
    return tuple(notes)
