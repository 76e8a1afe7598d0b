"""What answers about scenes are worth: the graph's truth as a reward, accuracy by kind, CHAIR and POPE."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from plaudit.data.records import Task, plain_text
from plaudit.errors import UserError
from plaudit.evaluation.shares import share_estimate
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean
from plaudit.pictures.world.gold import Gold, chair, judge_answer, says_yes
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
    """The mean worth."""
    right: Mapping[str, Estimate]
    """By kind, the share whose aim was reached; of descriptions, of all that there is."""
    chair_i: Estimate | None
    """Of what descriptions name, the share that is not there; None without descriptions."""
    chair_s: Estimate | None
    """The share of descriptions that name anything that is not there."""
    words: Estimate | None
    """Words of a description."""
    pope: Mapping[str, Pope]
    """By how absent things were chosen; each with all questions about things that are there."""


def measure(questions: Sequence[Question], answers: Sequence[str], *, seed: int = 0) -> Measures:
    """Measure one answer to each question."""
    golds = [judge_answer(*pair) for pair in zip(questions, answers, strict=True)]
    aims: dict[str, list[float]] = {}
    for question, gold in zip(questions, golds, strict=True):
        aims.setdefault(question.kind, []).append(gold.aim)
    told = [(q, a, g) for q, a, g in zip(questions, answers, golds, strict=True) if q.kind == "describe"]
    chairs = [(*chair(a, q.scene), g.mentioned) for q, a, g in told]
    resampling = Resampling(seed=seed)
    return Measures(
        score=_share([gold.score for gold in golds]),
        right={kind: _share(values) for kind, values in aims.items()},
        chair_i=_ratio([i for i, _, _ in chairs], [n for _, _, n in chairs], resampling),
        chair_s=_share([s for _, s, _ in chairs]) if chairs else None,
        words=_mean([g.words for *_, g in told], resampling),
        pope=_pope(questions, answers, resampling),
    )


def _share(values: Sequence[float]) -> Estimate:
    return share_estimate(np.array(values, dtype=float), np.arange(len(values)))


def _mean(values: Sequence[float], resampling: Resampling) -> Estimate | None:
    rows = np.arange(len(values))
    return bootstrap_mean(np.array(values, float), rows, resampling, share=False) if values else None


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
    there = [(true, said) for trap, true, said in rows if not trap]
    absent = {trap: [(true, said) for which, true, said in rows if which == trap] for trap in TRAPS}
    return {
        trap: _pope_of([*there, *negatives], resampling)
        for trap, negatives in absent.items()
        if there and negatives
    }


def _pope_of(rows: Sequence[tuple[bool, bool]], resampling: Resampling) -> Pope:
    yes = [float(true) for true, said in rows if said]
    # F1 is 2 TP / (2 TP + FP + FN): a mean of hits in which a hit counts twice and a right no nothing.
    f1 = _ratio([float(t and s) for t, s in rows], [float(t) + float(s) for t, s in rows], resampling)
    return Pope(
        accuracy=_share([float(true == said) for true, said in rows]),
        precision=_share(yes) if yes else None,
        recall=_share([float(said) for true, said in rows if true]),
        f1=f1,
        yes_share=_share([float(said) for _, said in rows]),
    )
