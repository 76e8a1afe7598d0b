"""The ways in which a model that judges says what it thinks, each an entry of `MODES`.

- verdict: reasons, then A, B, tie or refuse between delimiters: 1, 0 or ½.
- letter: A or B at one token, by their log-probs (RLAIF's soft label, Lee et al. 2023, arXiv:2309.00267);
  where there are no log-probs, by the share of several draws.
- reasons: a chain of thought, then the letter; the chance is clamped to 0.40–0.60, since reasons make models
  too sure (Bai et al. 2022, arXiv:2212.08073).
- grade: reasons, then points for each answer by itself (Zheng et al. 2023, arXiv:2306.05685).
- points: for each answer by itself, by the aspects of a rubric; with log-probs, the mean over them. Of two
  answers, P(the first has more) + ½ P(as many), which is 0, ½ or 1 where there are whole numbers alone.
- answer: whether each answer is right, given the true one.

Each asks in the wording of its name (``wordings.yaml``).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from plaudit.config import did_you_mean
from plaudit.data.judging import LOGPROBS_REFUSED
from plaudit.data.records import Task, Text, plain_text
from plaudit.errors import UserError
from plaudit.feedback.judges.cache import Reply
from plaudit.feedback.judges.constitution import Constitution
from plaudit.feedback.judges.ledger import ChatRequest
from plaudit.feedback.judges.money import Prices
from plaudit.feedback.judges.replies import Read, Reader, plain_forms, read_verdict
from plaudit.feedback.judges.rubric import (
    BY_PRINCIPLE,
    OVERALL,
    Aspect,
    distribution_of_mean,
    probability_of_more,
    read_rubric,
    weighted_mean,
)
from plaudit.feedback.judges.wording import Question, wording_named

How = Literal["verdict", "letter", "reasons", "grade", "points", "answer"]
HOWS: tuple[How, ...] = get_args(How)
LETTERS = ("A", "B")
"""What stands for the answers that are shown first and second."""
YES_NO = ("Yes", "No")
"""What is replied to whether an answer is right."""
WORD_TOKENS = 8
"""The most tokens of a reply of one word: Markdown around it is not cut."""
_VERDICTS = {word: {"A": first, "B": 1 - first} for word, first in (("A", 1.0), ("B", 0.0), ("tie", 0.5))}
"""The chance that either answer is better, by what is said."""

QuestionParts = tuple[tuple[tuple[str, str], ...], Mapping[str, str]]
"""What is quoted in a question, each under its header, and what stands in place of names in braces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HowToAsk:
    how: How | None = None
    """In which way it answers; None: a verdict for an evaluation, a letter for rows, points for a reward."""
    draws: int = 8
    """How often a letter is drawn where a server gives no log-probs."""
    temperature: float = 0.0
    """The sampling temperature of replies; of several draws 1 where it is 0."""
    max_tokens: int = 512
    clamp: float = 0.4
    """Of reasons: the chance lies between this and 1 less it, since reasons make judges too sure; 0: no."""
    points: int = 5
    """The most points that an answer is given; the fewest are 1."""
    rubric: Path | None = None
    """A file of aspects with their weights; None: the answer as a whole."""
    constitution: Constitution | None = None
    """The principles that say what counts; None: the wording's own words."""
    principles: int | Literal["all"] = 1
    """How many of them are drawn for a task; the log-odds of several are averaged."""
    preamble: str | None = None
    """What stands above the question: examples, say."""
    price: Prices | None = None
    requests: int | None = None
    """How many requests are under way at the same time."""
    token_from: str | None = None
    """The environment variable with the server's token."""

    def __post_init__(self) -> None:
        if self.how is not None and self.how not in HOWS:
            raise UserError(f"how={self.how}{did_you_mean(self.how, HOWS) or ''}: one of {', '.join(HOWS)}")
        if min(self.draws, self.max_tokens, self.requests or 1) < 1 or not 2 <= self.points <= 9:
            raise UserError("draws, max-tokens and requests are at least 1, points 2 to 9 (one digit)")
        if not 0 <= self.temperature < math.inf or not 0 <= self.clamp <= 0.5:
            raise UserError("temperature is 0 or more, clamp from 0 to 0.5")
        self._refuse_constitution()

    @property
    def drawn_principles(self) -> int:
        """How many principles a task is judged by at most; 0 without a constitution."""
        if self.constitution is None:
            return 0
        return len(self.constitution.principles) if self.principles == "all" else self.principles

    def _refuse_constitution(self) -> None:
        """Refuse principles without a constitution, more than it has, and ways to ask that want none."""
        if self.constitution is None:
            if self.principles != 1:
                raise UserError(
                    f"principles={self.principles} are of a constitution: constitution=FILE, or ours"
                )
            return
        there = len(self.constitution.principles)
        if self.principles != "all" and not 1 <= self.principles <= there:
            raise UserError(
                f"principles={self.principles}: {self.constitution.name} has {there}; give 1 to {there}, or "
                "all"
            )
        scoring = None if self.how is None else MODES[self.how].scoring
        if scoring is not None and scoring.needs_reference:
            raise UserError(
                f"how={self.how} compares with the true answer, and a constitution says what is better; "
                "leave one of them out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """How a mode scores each answer by itself, of one that does."""

    questions: Callable[[HowToAsk, Task, Text], list[QuestionParts]]
    score: Callable[[HowToAsk, Sequence[Read]], float]
    first_better: Callable[[HowToAsk, Sequence[Read], Sequence[Read]], float]
    unit: str
    """What stands before both scores in a rationale."""
    needs_reference: bool = False
    """Whether it compares with the true answer."""
    principles_by_prompt: bool = False
    """Whether all answers to a prompt are judged by the same principles, wherever they are met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    settings: tuple[str, ...]
    """What else of how it is asked changes what it says."""
    request: Callable[[HowToAsk, Question], ChatRequest]
    read: Callable[[HowToAsk, Reader, Sequence[ChatRequest]], list[Read]]
    without_logprobs: str | None = None
    """What has to be said of a model that gives none; None of a mode that wants none."""
    scoring: Scoring | None = None


def aspects_of(ask: HowToAsk) -> Sequence[Aspect]:
    if ask.rubric is not None:
        return read_rubric(ask.rubric)
    return OVERALL if ask.constitution is None else BY_PRINCIPLE


def word_request(ask: HowToAsk, question: Question, words: tuple[str, ...] = YES_NO) -> ChatRequest:
    """A question whose reply is one of these words."""
    return ChatRequest(
        question=question, words=words, is_word=True, temperature=ask.temperature, max_tokens=WORD_TOKENS
    )


def _text_request(ask: HowToAsk, question: Question, words: tuple[str, ...] = ()) -> ChatRequest:
    return ChatRequest(question=question, words=words, temperature=ask.temperature, max_tokens=ask.max_tokens)


def _read_reasons(ask: HowToAsk, reader: Reader, requests: Sequence[ChatRequest]) -> list[Read]:
    found = reader.asker.replies(requests)
    if LOGPROBS_REFUSED in found:
        reader.gives_logprobs = False
        found = reader.asker.replies(plain_forms(requests))
    return [_clamped(ask, reader, reply) for reply in found]


def _clamped(ask: HowToAsk, reader: Reader, reply: Reply | str) -> Read:
    read = read_verdict(reply, {letter: _VERDICTS[letter] for letter in LETTERS})
    if read.reason is not None or isinstance(reply, str):
        return read
    first = read.shares["A"]
    if reply.odds is None:
        reader.gives_logprobs = False
    else:
        first = reply.odds["A"] / sum(reply.odds.values())
    first = min(max(first, ask.clamp), 1 - ask.clamp)
    return replace(read, shares={"A": first, "B": 1 - first})


def read_drawn(ask: HowToAsk, reader: Reader, requests: Sequence[ChatRequest]) -> list[Read]:
    """The shares of words by log-probs, or by draws where there are none."""
    return reader.odds(requests, lambda some: reader.drawn(some, ask.draws))


def _points_questions(ask: HowToAsk, task: Task, answer: Text) -> list[QuestionParts]:
    blocks, points = (("Answer", plain_text(answer)),), str(ask.points)
    return [
        (blocks, {"aspect": aspect.name, "description": aspect.description, "points": points})
        for aspect in aspects_of(ask)
    ]


def _points_score(ask: HowToAsk, reads: Sequence[Read]) -> float:
    points = [sum(int(word) * share for word, share in read.shares.items()) for read in reads]
    return float(weighted_mean(points, aspects_of(ask)))


def _more_points(ask: HowToAsk, first: Sequence[Read], second: Sequence[Read]) -> float:
    return probability_of_more(_distribution(ask, first), _distribution(ask, second))


def _distribution(ask: HowToAsk, reads: Sequence[Read]) -> dict[float, float]:
    shares = [{int(word): share for word, share in read.shares.items()} for read in reads]
    return distribution_of_mean(shares, aspects_of(ask))


def _right_questions(ask: HowToAsk, task: Task, answer: Text) -> list[QuestionParts]:
    if task.reference_answer is None:
        return []
    return [((("Answer", plain_text(answer)), ("True answer", task.reference_answer)), {})]


def _numbers(ask: HowToAsk) -> tuple[str, ...]:
    return tuple(str(number) for number in range(1, ask.points + 1))


_POINTS = Scoring(
    questions=_points_questions,
    score=_points_score,
    first_better=_more_points,
    unit="points:",
    principles_by_prompt=True,
)
_DRAWS = "the share of {draws} draws stands for the chance"
MODES: Mapping[How, Mode] = {
    "verdict": Mode(
        settings=("temperature", "max_tokens"),
        request=_text_request,
        read=lambda ask, reader, requests: [
            read_verdict(reply, _VERDICTS) for reply in reader.asker.replies(requests)
        ],
    ),
    "letter": Mode(
        settings=("temperature", "draws"),
        request=lambda ask, question: word_request(ask, question, LETTERS),
        read=read_drawn,
        without_logprobs=_DRAWS,
    ),
    "reasons": Mode(
        settings=("temperature", "max_tokens", "clamp"),
        request=lambda ask, question: _text_request(ask, question, LETTERS),
        read=_read_reasons,
        without_logprobs="the letter alone decides between the clamps",
    ),
    "grade": Mode(
        settings=("temperature", "max_tokens", "points"),
        request=_text_request,
        # The number as it is written: it follows from the reasons, and is what a critic learns to say.
        read=lambda ask, reader, requests: [
            read_verdict(reply, {number: {number: 1.0} for number in _numbers(ask)})
            for reply in reader.asker.replies(requests)
        ],
        scoring=_POINTS,
    ),
    "points": Mode(
        settings=("temperature", "points"),
        request=lambda ask, question: word_request(ask, question, _numbers(ask)),
        # Points are read as they stand: the mean of draws would cost several times as much.
        read=lambda ask, reader, requests: reader.odds(requests, reader.plain),
        without_logprobs="points are whole numbers",
        scoring=_POINTS,
    ),
    "answer": Mode(
        settings=("temperature", "draws"),
        request=word_request,
        read=read_drawn,
        without_logprobs=_DRAWS,
        scoring=Scoring(
            questions=_right_questions,
            score=lambda ask, reads: reads[0].shares["Yes"],
            first_better=lambda ask, first, second: (
                0.5 + (first[0].shares["Yes"] - second[0].shares["Yes"]) / 2
            ),
            unit="right by",
            needs_reference=True,
        ),
    ),
}


def question_text(
    way: str, prompt: Text, blocks: tuple[tuple[str, str], ...], fill: Mapping[str, str] | None = None
) -> str:
    """A question in the wording of a name, without the number that is drawn for each call."""
    return Question(wording=wording_named(way), prompt=prompt, blocks=blocks, fill=fill or {}).text()


def points_question(prompt: Text, answer: str) -> str:
    """What ``how=points`` asks about an answer as a whole."""
    [aspect] = OVERALL
    fill = {"aspect": aspect.name, "description": aspect.description, "points": str(HowToAsk().points)}
    return question_text("points", prompt, (("Answer", answer),), fill)
