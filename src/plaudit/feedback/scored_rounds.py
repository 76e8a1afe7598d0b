"""How good the answers of each round of revisions are, by a reward or a judge (Bai et al. 2022, figure 5)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from plaudit.data.judging import Judge
from plaudit.data.records import Task
from plaudit.errors import UserError
from plaudit.evaluation.policies.corrected import FEWEST_LABELS, Correction, read_people
from plaudit.evaluation.policies.judge import agreement_with_people, error_note
from plaudit.evaluation.policies.judge_card import cards_of, contest_correction
from plaudit.evaluation.reward_models.pairs import ScoredPair, divided_scores, group_index
from plaudit.evaluation.stats import Estimate, Resampling, bootstrap_mean
from plaudit.feedback.rounds import Revised
from plaudit.rewards.comparing import RewardJudge


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundScore:
    round: int
    """0 is the answers as they were."""
    mean: Estimate | None = None
    """Of a reward, its mean score."""
    wins: Estimate | None = None
    """How often the answer is preferred to the one that was revised; nothing of round 0."""
    corrected: Correction | None = None

    def line(self, by: str) -> str:
        """The round in a sentence."""
        mean = "" if self.mean is None else f"mean {self.mean.text('.3f')}"
        wins = "" if self.wins is None else f"preferred to the answer as it was in {self.wins.text()}"
        if self.corrected is not None:
            wins = f"preferred to the answer as it was: {self.corrected.sentence}"
        return f"round {self.round} by {by}: {'; '.join(filter(None, (mean, wins)))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRounds:
    by: str
    answers: int
    """Those that went through every round: the same ones in each."""
    rounds: list[RoundScore]
    notes: list[str]

    @property
    def sentences(self) -> list[str]:
        """A line a round that says something, and what there is to say of the judge."""
        lines = [each.line(self.by) for each in self.rounds if each.mean or each.wins]
        return [*lines, f"of {self.answers} answers that went through all rounds", *self.notes]


def score_rounds(
    items: Sequence[Revised], judge: Judge, *, people: Path | None, card: Path | None, seed: int
) -> ScoredRounds:
    """The scores of all rounds, of the answers that came to the last of them."""
    most = max((len(item.steps) for item in items), default=0)
    whole = [item for item in items if most and len(item.steps) == most]
    if not whole:
        raise UserError(f"no answer came to the end of a round, so {judge.name} has nothing to score")
    resampling, labels = Resampling(seed=seed), None if people is None else read_people(people)
    own = None if card is None else cards_of({judge.name: judge}, (card,))[judge.name]
    prompts = group_index([item.draft.prompt for item in whole])
    rounds, notes = list[RoundScore](), list[str]()
    for number in range(most + 1):
        texts = [item.texts[number] for item in whole]
        mean = (
            _mean_score(judge, whole, texts, prompts, resampling) if isinstance(judge, RewardJudge) else None
        )
        score = RoundScore(round=number, mean=mean)
        if number:
            contest, duels = agreement_with_people(judge, _pairs(whole, texts), resampling)
            corrected, _ = contest_correction(contest, duels, labels, own) or (None, None)
            notes += contest.notes
            score = replace(score, wins=contest.raw, corrected=corrected)
        rounds.append(score)
    if labels is not None and not any(score.corrected for score in rounds):
        raise UserError(
            f"{people}: fewer than {FEWEST_LABELS} prompts have labels of people in it; they must be of "
            "these very answers: a revision beside the answer as it was, as --pairs has them"
        )
    # A rule does not err; whatever was learnt, or is asked, does.
    errs = not isinstance(judge, RewardJudge) or judge.log_odds
    if errs and not any(score.corrected for score in rounds):
        notes.append(error_note(judge.name))
    return ScoredRounds(by=judge.name, answers=len(whole), rounds=rounds, notes=[*dict.fromkeys(notes)])


def _mean_score(
    judge: RewardJudge,
    items: Sequence[Revised],
    texts: Sequence[str],
    prompts: np.ndarray,
    resampling: Resampling,
) -> Estimate | None:
    tasks = [
        Task(
            prompt=item.draft.prompt,
            answers=(item.completion(text),),
            ended=(True,),
            category=item.draft.category,
        )
        for item, text in zip(items, texts, strict=True)
    ]
    scores = np.array([np.nan if row[0] is None else row[0] for row in divided_scores(judge.reward, tasks)])
    scored = ~np.isnan(scores)
    if not scored.any():
        return None
    return bootstrap_mean(scores[scored], prompts[scored], resampling, share=False)


def _pairs(items: Sequence[Revised], texts: Sequence[str]) -> list[ScoredPair]:
    return [
        ScoredPair(
            prompt=item.draft.prompt,
            answers=(text, item.texts[0]),
            rewards=(None, None),
            p_first=1.0,
            category=item.draft.category,
        )
        for item, text in zip(items, texts, strict=True)
    ]
