"""One round of a loop: its answers, what is chosen of them, the rows that are trained, and its figures."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from plaudit.batches.question import Question
from plaudit.errors import UserError
from plaudit.recipes.loop_config import LoopConfig, LoopSettings
from plaudit.recipes.loop_draws import Said
from plaudit.recipes.loop_table import LoopFacts
from plaudit.records.feedback import Comparison, Demonstration
from plaudit.records.messages import Text, assistant_says, user_says
from plaudit.rewards.reward import Row
from plaudit.training.choosing import Choice, Picks, best_of_n_kl, threshold_of_top


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Where a round is, and what it begins with.

    Example: ``round_of(LOOPS["rejection"], how, config, 2).folder``
    """

    number: int
    """The first is 1."""
    folder: Path
    """Its folder."""
    model: Path
    """The model that it trains."""
    speaker: Path
    """The model that answers."""
    drawn: int
    """The round whose answers it chooses among; its own, or an earlier one."""
    stage: int
    """Which of the thresholds is its own; the first is 0."""

    @property
    def rows(self) -> Path:
        """What it trains on."""
        return self.folder / "rows.jsonl"

    @property
    def run(self) -> Path:
        """Its training."""
        return self.folder / "run"

    @property
    def answers(self) -> Path:
        """All answers with their scores, also of an earlier round."""
        return self.folder.with_name(str(self.drawn)) / "answers.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What came of a round's drawing and choosing.

    Example: ``Figures(round=1, answers=640, …).sentence``
    """

    round: int
    """The first is 1."""
    drawn: int
    """The round in which the answers were drawn."""
    prompts: int
    """How many were asked."""
    answers: int
    """How many answers there are."""
    unjudged: int
    """Answers without a verdict."""
    cut: int
    """Answers that were cut or are empty, and so are never chosen."""
    mean: float
    """The mean score of all answers that have one."""
    rows: int
    """What is trained: answers, or pairs."""
    chosen: float
    """The mean score of those chosen; of pairs, of the better ones."""
    rejected: float | None
    """The mean score of the worse ones of pairs."""
    none: int
    """Prompts of which nothing was chosen."""
    threshold: float | None = None
    """The least score that was chosen, where that was asked for."""
    kl_bound: float | None = None
    """At most so many nats lie between what was chosen and the model that was drawn from."""

    @property
    def sentence(self) -> str:
        """All of it in a line."""
        again = "" if self.drawn == self.round else f" of round {self.drawn}"
        chosen = f"{self.chosen:.3f}" + ("" if self.rejected is None else f" against {self.rejected:.3f}")
        words = [f"round {self.round}: {self.answers} answers{again} to {self.prompts} prompts"]
        words += [f"mean reward {self.mean:.3f}", f"{self.rows} rows chosen, mean reward {chosen}"]
        words += [f"{self.none} prompts with none"]
        words += [f"{self.unjudged} answers without a verdict"] if self.unjudged else []
        words += [f"{self.cut} cut or empty"] if self.cut else []
        words += [] if self.threshold is None else [f"threshold {self.threshold:.3f}"]
        words += [] if self.kl_bound is None else [f"at most {self.kl_bound:.2f} nats from the drawn"]
        return ", ".join(words)


def round_of(facts: LoopFacts, how: LoopSettings, config: LoopConfig, number: int) -> Round:
    """A round by its number."""
    home, stage = config.out / "rounds", (number - 1) % (how.improves or number)
    drawn = number - stage if how.improves else number
    return Round(
        number=number,
        folder=home / str(number),
        model=_result(config, home, number - 1 if facts.starts == "newest" else 0),
        speaker=_result(config, home, drawn - 1 if facts.draws == "newest" else 0),
        drawn=drawn,
        stage=stage,
    )


def chosen(
    facts: LoopFacts, how: LoopSettings, one: Round, groups: Sequence[Sequence[Said]], seed: int
) -> tuple[list[Picks], Figures]:
    """What is picked of each prompt's answers, and the figures; nothing at all is refused, in words."""
    rows = [_eligible(group, distinct=how.distinct) for group in groups]
    _refuse_silence(groups, rows)
    threshold = _threshold(how, one.stage, rows)
    picks = [
        facts.choose(row, _choice(how, threshold, one.drawn, seed, (place, len(row))))
        for place, row in enumerate(rows)
    ]
    found = [(row, pick) for row, some in zip(rows, picks, strict=True) for pick in some]
    if not found:
        so_far = f". The model so far is in {one.model}" if one.number > 1 else ""
        raise UserError(f"round {one.number}: {_why_nothing(facts, how, rows, threshold)}{so_far}")
    better = [score for row, pick in found if (score := row[pick[0]]) is not None]
    worse = [score for row, pick in found if (score := row[pick[-1]]) is not None]
    scores = [said.score for group in groups for said in group if said.score is not None]
    return picks, Figures(
        round=one.number,
        drawn=one.drawn,
        prompts=len(groups),
        answers=sum(len(group) for group in groups),
        unjudged=sum(said.score is None for group in groups for said in group),
        cut=sum(not is_whole(said) for group in groups for said in group),
        mean=fmean(scores),
        rows=len(found),
        chosen=fmean(better),
        rejected=fmean(worse) if facts.pairs else None,
        none=sum(not some for some in picks),
        threshold=threshold,
        kl_bound=best_of_n_kl(how.answers or 1) if facts.bounded else None,
    )


def rows_of(
    asked: Sequence[Question], groups: Sequence[Sequence[Said]], picks: Sequence[Picks], *, chats: bool
) -> list[Demonstration | Comparison]:
    """The picks as rows; with a chat template a plain prompt becomes the user's turn."""
    return [
        _row(question, [group[place].text for place in pick], chats=chats)
        for question, group, some in zip(asked, groups, picks, strict=True)
        for pick in some
    ]


def as_line(figures: Figures) -> Mapping[str, Any]:
    """Figures as JSON holds them, without what a row does not have."""
    return {name: value for name, value in asdict(figures).items() if value is not None}


def _result(config: LoopConfig, home: Path, number: int) -> Path:
    return home / str(number) / "run" / "model" if number else config.model


def _row(question: Question, texts: Sequence[str], *, chats: bool) -> Demonstration | Comparison:
    prompt = question.text
    asked = user_says(prompt) if isinstance(prompt, str) and chats else prompt
    said: list[Text] = [text if isinstance(asked, str) else assistant_says(text) for text in texts]
    if len(said) == 1:
        return Demonstration(prompt=asked, completion=said[0], origin=question.origin)
    return Comparison(prompt=asked, chosen=said[0], rejected=said[1], origin=question.origin)


def is_whole(said: Said) -> bool:
    """A cut answer would be learnt with an end that nobody said; an empty one, or one with NUL, is no row."""
    return said.ended and bool(said.text.strip()) and "\0" not in said.text


def _eligible(group: Sequence[Said], *, distinct: bool) -> Row:
    """The scores of those that may be chosen."""
    texts = [said.text.strip() for said in group]
    return tuple(
        said.score if is_whole(said) and not (distinct and text in texts[:place]) else None
        for place, (said, text) in enumerate(zip(group, texts, strict=True))
    )


def _choice(
    how: LoopSettings, threshold: float | None, drawn: int, seed: int, where: tuple[int, int]
) -> Choice:
    place, count = where
    chance = random.Random(f"{seed}/accept/{drawn}/{place}")
    usual = Choice()
    return Choice(
        threshold=usual.threshold if threshold is None else threshold,
        keep=how.keep,
        beta=usual.beta if how.beta is None else how.beta,
        gap=usual.gap if how.gap is None else how.gap,
        chances=tuple(chance.random() for _ in range(count)),
    )


def _threshold(how: LoopSettings, stage: int, rows: Sequence[Row]) -> float | None:
    if how.threshold:
        return how.threshold[min(stage, len(how.threshold) - 1)]
    return threshold_of_top(rows, how.top[min(stage, len(how.top) - 1)]) if how.top else None


def _refuse_silence(groups: Sequence[Sequence[Said]], rows: Sequence[Row]) -> None:
    said = [one for group in groups for one in group]
    if all(one.score is None for one in said):
        raise UserError(
            f"the reward has no verdict on any of the {len(said)} answers, so nothing can be chosen; "
            "a rule may need reference answers, and a server may be down (docs/rewards.md)"
        )
    if all(score is None for row in rows for score in row):
        raise UserError(
            f"every one of the {len(said)} answers that has a verdict is cut or empty, and such an answer is "
            "not learnt; give more room with --sampling.max-tokens, or a model that ends its answers"
        )


def _why_nothing(facts: LoopFacts, how: LoopSettings, rows: Sequence[Row], threshold: float | None) -> str:
    known = [score for row in rows for score in row if score is not None]
    if not facts.pairs:
        return (
            f"no answer reaches the threshold {threshold:g}; the best score seen is {max(known):g}. "
            "Set --loop.threshold lower, draw more with --loop.answers, or begin with a better model"
        )
    spans = [max(own) - min(own) for own in ([s for s in row if s is not None] for row in rows) if own]
    if max(spans) == 0:
        return (
            "all answers to each prompt have the same score, so no pair can be formed; draw more with "
            "--loop.answers, raise --sampling.temperature, or take a finer reward"
        )
    if how.gap is not None:
        return (
            f"no two answers to one prompt are further apart than {how.gap:g}; the widest gap seen is "
            f"{max(spans):g}. Set --loop.gap lower"
        )
    return "no two accepted answers to one prompt differ in score; raise --loop.beta or --loop.answers"
