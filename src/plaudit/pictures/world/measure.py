"""What answers about scenes are worth: the graph's truth as a reward, accuracy by kind, CHAIR and POPE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from plaudit.data.records import Task, plain_text
from plaudit.errors import UserError
from plaudit.evaluation.shares import share_estimate
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean
from plaudit.pictures.world.gold import Gold, judge_answer, says_yes
from plaudit.pictures.world.questions import TRAPS, Question, question_of
from plaudit.rewards.base import RewardTraits, TaskScores

WORD = "picture-gold"
PARTS = tuple(part.name for part in fields(Gold) if part.name != "overlooked")


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureGold:
    """The true worth of answers as a reward, or a part of it, by the scene in each prompt's metadata."""

    part: str = "score"
    traits: ClassVar[RewardTraits] = RewardTraits(exact=True)

    @property
    def name(self) -> str:
        return f"{WORD}:{self.part}"

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        return tuple(
            tuple(
                float(getattr(judge_answer(question, plain_text(answer), ended=ended), self.part))
                for answer, ended in zip(task.answers, task.ended, strict=True)
            )
            for task in tasks
            for question in [question_of(task.metadata)]
        )


def picture_gold(word: str, device: str = "auto", dtype: str = "auto") -> PictureGold:
    """The reward of ``picture-gold:score``, ``picture-gold:invented`` or another part."""
    part = word.partition(":")[2]
    if part not in PARTS:
        raise UserError(f"{word}: of an answer about a picture there is {', '.join(PARTS)}")
    return PictureGold(part=part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pope:
    """How questions whether something is there were answered; what is no yes counts as a no."""

    accuracy: Estimate
    precision: Estimate | None
    """None where nobody said yes."""
    recall: Estimate
    f1: Estimate | None
    yes_share: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What answers to questions about scenes come to."""

    score: Estimate
    right: Mapping[str, Estimate]
    """By kind, the share whose aim was reached; of descriptions, of all that there is."""
    chair_i: Estimate | None
    """Of what descriptions name, the share that is not there; None without descriptions."""
    chair_s: Estimate | None
    """The share of descriptions that name anything that is not there."""
    pope: Mapping[str, Pope]
    """By how absent things were chosen; each with all questions about things that are there."""
    wins: Estimate | None = None
    """How often an answer is worth more than somebody else's, ties half."""


def measure(
    questions: Sequence[Question], answers: Sequence[str], *, against: Sequence[str] = (), seed: int = 0
) -> Measures:
    """Measure one answer to each question; ``against`` are somebody else's."""
    golds = [judge_answer(*pair) for pair in zip(questions, answers, strict=True)]
    others = [judge_answer(*pair).score for pair in zip(questions, against, strict=True)] if against else []
    gaps = [gold.score - other for gold, other in zip(golds, others, strict=bool(against))]
    aims: dict[str, list[float]] = {}
    for question, gold in zip(questions, golds, strict=True):
        aims.setdefault(question.kind, []).append(gold.aim)
    described = [g for q, g in zip(questions, golds, strict=True) if q.kind == "describe"]
    resampling = Resampling(seed=seed)
    named = [gold.mentioned for gold in described]
    return Measures(
        score=_share([gold.score for gold in golds]),
        right={kind: _share(values) for kind, values in aims.items()},
        chair_i=_ratio([g.invented / max(1, g.mentioned) for g in described], named, resampling),
        chair_s=_share([float(gold.invented > 0) for gold in described]) if described else None,
        pope=_pope(questions, answers, resampling),
        wins=_share([(gap > 0) + 0.5 * (gap == 0) for gap in gaps]) if gaps else None,
    )


def _share(values: Sequence[float]) -> Estimate:
    return share_estimate(np.array(values, dtype=float), np.arange(len(values)))


def _ratio(values: Sequence[float], weights: Sequence[float], resampling: Resampling) -> Estimate | None:
    """Σ w v / Σ w, None where nothing has a weight."""
    weighed = [(v, w) for v, w in zip(values, weights, strict=True) if w]
    if not weighed:
        return None
    value_B, weight_B = np.array(weighed, dtype=float).T
    return bootstrap_mean(value_B, np.arange(len(value_B)), resampling, weight_B=weight_B)


def _pope(
    questions: Sequence[Question], answers: Sequence[str], resampling: Resampling
) -> Mapping[str, Pope]:
    rows = [
        (question.trap, question.truth == "yes", says_yes(question, answer))
        for question, answer in zip(questions, answers, strict=True)
        if question.kind == "present"
    ]
    traps = {trap for trap, *_ in rows} - {""} if any(there for _, there, _ in rows) else ()
    return {
        trap: _pope_of([(there, yes) for which, there, yes in rows if which in ("", trap)], resampling)
        for trap in TRAPS
        if trap in traps
    }


def _pope_of(rows: Sequence[tuple[bool, bool]], resampling: Resampling) -> Pope:
    hits = [float(there) for there, yes in rows if yes]
    # F1 is 2 TP / (2 TP + FP + FN): a mean of hits in which a hit counts twice and a right no nothing.
    both, either = [float(there and yes) for there, yes in rows], [float(there + yes) for there, yes in rows]
    return Pope(
        accuracy=_share([float(there == yes) for there, yes in rows]),
        precision=_share(hits) if hits else None,
        recall=_share([float(yes) for there, yes in rows if there]),
        f1=_ratio(both, either, resampling),
        yes_share=_share([float(yes) for _, yes in rows]),
    )
