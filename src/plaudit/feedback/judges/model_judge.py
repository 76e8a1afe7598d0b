"""A model that is asked which of two answers is better, or what one is worth, in any of the `MODES`.

Of pairs both orders are asked and kept, and their mean counts (Wang et al. 2023, arXiv:2305.17926).

With a constitution each task is judged by principles that a hash draws: of the prompt for points, so that all
answers to it are judged alike, and of prompt and answers for pairs. The log-odds of several are averaged, or
their points.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import ClassVar

from plaudit.data.judging import (
    NoVerdict,
    Orders,
    Verdict,
    first_probability,
    probable_verdict,
    verdict_of_orders,
    verdicts_only,
)
from plaudit.data.records import Task, Text, plain_text
from plaudit.errors import UserError
from plaudit.feedback.judges import modes
from plaudit.feedback.judges.constitution import Principle
from plaudit.feedback.judges.jury import pooled_verdict
from plaudit.feedback.judges.ledger import Asker, ChatRequest
from plaudit.feedback.judges.money import Estimate
from plaudit.feedback.judges.replies import Read, Reader, drawn_forms, plain_forms
from plaudit.feedback.judges.rubric import read_rubric
from plaudit.feedback.judges.wording import Question, ShownPair, Wording, pair_question, wording_named

Rated = tuple[float, str]
"""What an answer is worth by itself, and the judge's words on it."""
NO_TRUE_ANSWER = "no true answer to compare with"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJudge:
    """A model as a judge of pairs and of single answers."""

    asker: Asker
    ask: modes.HowToAsk = field(default_factory=modes.HowToAsk)
    mode: modes.Mode = field(init=False, compare=False, repr=False)
    reader: Reader = field(init=False, compare=False, repr=False)
    asks_both_orders: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Choose the mode; refuse a rubric that cannot be read, before anything is asked."""
        object.__setattr__(self, "mode", modes.MODES[self.how])
        object.__setattr__(self, "reader", Reader(asker=self.asker))
        if self.ask.rubric is not None:
            read_rubric(self.ask.rubric)

    @property
    def name(self) -> str:
        return self.asker.model

    @property
    def how(self) -> modes.How:
        return self.ask.how or "verdict"

    @property
    def version(self) -> str:
        """What its judgements hang on besides the model: the way to ask, wording, constitution with the
        number of its principles, rubric, preamble, and settings that are not the usual ones."""
        # A temperature that was fitted on clamped chances, or points of 7, are of another judge.
        usual = modes.HowToAsk()
        own = [
            f"{name}={getattr(self.ask, name)}"
            for name in self.mode.settings
            if getattr(self.ask, name) != getattr(usual, name)
        ]
        if self.ask.rubric is not None:
            own = ["", *(f"{a.name}/{a.description}/{a.weight}" for a in modes.aspects_of(self.ask)), *own]
        if self.ask.preamble is not None:
            own.append(f"preamble={self.ask.preamble}")
        tail = hashlib.sha256("\n".join(own).encode()).hexdigest()[:6]
        file = self.ask.constitution
        principles = "" if file is None else f"-c{file.version}x{self.ask.drawn_principles}"
        return f"{self.how}-{self._wording.version}{principles}{f'-{tail}' if own else ''}"

    @property
    def notes(self) -> tuple[str, ...]:
        words = self.mode.without_logprobs
        if self.reader.gives_logprobs is not False or words is None:
            return ()
        return (f"{self.name} gives no log-probs: {words.format(draws=self.ask.draws)}",)

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """The mean of both orders of two answers; two that read the same are a tie without asking."""
        return verdicts_only(self.outcomes(tasks, seed))

    def outcomes(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | NoVerdict]:
        """As ``verdicts``, with why there is none; nothing is drawn here, so that every seed is the same."""
        orders = [_both_orders(task) for task in tasks]
        differ = [task for task, both in zip(tasks, orders, strict=True) if both is not None]
        scoring = self.mode.scoring
        has_none = bool(differ) and all(task.reference_answer is None for task in differ)
        if scoring is not None and scoring.needs_reference and has_none:
            raise UserError(
                f"{self.name}: how={self.how} compares with a true answer, and none of these {len(differ):,} "
                "pairs has one; ask in another way (how=letter), or let --model answer prompts that have one"
            )
        cases = [self._cases(task) for task in differ]
        every = [case for row in cases for case in row]
        parts = iter(self._by_orders(every) if scoring is None else self._by_scores(every, scoring))
        found = iter([self._joined([next(parts) for _ in row]) for row in cases])
        tie = probable_verdict(0.5, annotator=self.name, orders=Orders(forward=0.5, backward=0.5))
        return [tie if both is None else next(found) for both in orders]

    def scores(self, tasks: Sequence[Task]) -> list[list[float | NoVerdict]]:
        """What each answer is worth by itself: its points, or the chance that it is right."""
        rows = self.ratings(tasks)
        return [[each if isinstance(each, NoVerdict) else each[0] for each in row] for row in rows]

    def ratings(self, tasks: Sequence[Task]) -> list[list[Rated | NoVerdict]]:
        """The same with the judge's words, empty where it gave none."""
        scoring = self.mode.scoring
        if scoring is None:
            raise UserError(f"{self.name} compares by {self.how}, and has no score for one answer alone")
        cases = [self._cases(task) for task in tasks]
        rows = iter(self._score_reads([case for own in cases for case in own], scoring))
        found = [[[self._score(some, scoring) for some in next(rows)] for _ in own] for own in cases]
        return [_mean_rating(by_each) for by_each in found]

    def word_shares(self, questions: Sequence[Question]) -> list[Mapping[str, float] | NoVerdict]:
        """The shares of yes and no in the reply to each question, or why there are none."""
        requests = [self.word_request(question) for question in questions]
        reads = modes.read_drawn(self.ask, self.reader, requests)
        return [read.shares if read.reason is None else NoVerdict(reason=read.reason) for read in reads]

    def word_request(self, question: Question) -> ChatRequest:
        return modes.word_request(self.ask, question)

    def estimate(self, tasks: Sequence[Task]) -> Estimate:
        """What is still to be asked about these tasks, and what it costs at most."""
        return self.asker.estimate([request for task in tasks for request in self._requests(task)])

    def spent(self, task: Task) -> tuple[int, float]:
        """The tokens and the price of what was replied to a task's questions."""
        requests = self._requests(task)
        # Where log-probs were missing it was asked in other forms as well; what was not asked costs nothing.
        plain = [] if self.mode.without_logprobs is None else plain_forms(requests)
        draws = drawn_forms(requests, self.ask.draws) if self.mode.read is modes.read_drawn else []
        return self.asker.spent([*requests, *plain, *draws])

    def _requests(self, task: Task) -> list[ChatRequest]:
        scoring, cases = self.mode.scoring, self._cases(task)
        if scoring is None:
            return [self._pair_request(case, pair) for case in cases for pair in _both_orders(task) or ()]
        scored = [(case, answer) for case in cases for answer in task.answers]
        return [request for pair in scored for request in self._score_requests(*pair, scoring)]

    @property
    def _wording(self) -> Wording:
        wording = wording_named(self.how)
        if self.ask.preamble is None:
            return wording
        return replace(wording, introduction=f"{self.ask.preamble}\n\n{wording.introduction}")

    def _cases(self, task: Task) -> list[_Case]:
        """A task by each principle that is drawn for it; the task as it is where there is no constitution."""
        file = self.ask.constitution
        if file is None:
            return [_Case(task=task)]
        # Points of answers to one prompt are compared with each other, wherever the answers are met.
        by_prompt = self.mode.scoring is not None and self.mode.scoring.principles_by_prompt
        answers = () if by_prompt else sorted(map(plain_text, task.answers))
        key = "\0".join([plain_text(task.prompt), *answers])
        drawn = file.drawn(key, category=task.category, count=self.ask.drawn_principles)
        return [_Case(task=task, principle=principle) for principle in drawn]

    def _joined(self, parts: Sequence[Verdict | NoVerdict]) -> Verdict | NoVerdict:
        if len(parts) == 1:
            return parts[0]
        voices = [(1.0, part) for part in parts if isinstance(part, Verdict)]
        if 2 * len(voices) <= len(parts):
            return next(part for part in parts if isinstance(part, NoVerdict))
        words = (
            f"{', '.join(part.principles)} {first_probability(part):.2f}: {part.rationale}"
            for _, part in voices
        )
        return replace(pooled_verdict(voices, annotator=self.name), rationale="\n\n".join(words))

    def _by_orders(self, cases: Sequence[_Case]) -> list[Verdict | NoVerdict]:
        requests = [
            self._pair_request(case, pair) for case in cases for pair in _both_orders(case.task) or ()
        ]
        shares = self.mode.read(self.ask, self.reader, requests)
        both = zip(cases, shares[::2], shares[1::2], strict=True)
        return [case.marked(self._outcome(forward, backward)) for case, forward, backward in both]

    def _pair_request(self, case: _Case, pair: ShownPair) -> ChatRequest:
        return self.mode.request(self.ask, pair_question(self._wording, pair, case.fill))

    def _outcome(self, forward: Read, backward: Read) -> Verdict | NoVerdict:
        reason = next((read.reason for read in (forward, backward) if read.reason is not None), None)
        second = backward.shares.get("A")
        # In the second order the other answer stood first.
        orders = Orders(forward=forward.shares.get("A"), backward=None if second is None else 1 - second)
        found = verdict_of_orders(orders, reason, annotator=self.name)
        if isinstance(found, NoVerdict):
            return found
        return replace(found, rationale="\n\n".join(read.text for read in (forward, backward)))

    def _score_reads(self, cases: Sequence[_Case], scoring: modes.Scoring) -> list[list[list[Read]]]:
        plan = [
            [self._score_requests(case, answer, scoring) for answer in case.task.answers] for case in cases
        ]
        requests = [request for row in plan for some in row for request in some]
        reads = iter(self.mode.read(self.ask, self.reader, requests))
        return [[[next(reads) for _ in some] for some in row] for row in plan]

    def _by_scores(self, cases: Sequence[_Case], scoring: modes.Scoring) -> list[Verdict | NoVerdict]:
        rows = zip(cases, self._score_reads(cases, scoring), strict=True)
        return [case.marked(self._compared(first, second, scoring)) for case, (first, second) in rows]

    def _compared(
        self, first: Sequence[Read], second: Sequence[Read], scoring: modes.Scoring
    ) -> Verdict | NoVerdict:
        scores = list[Rated]()
        for score in (self._score(reads, scoring) for reads in (first, second)):
            if isinstance(score, NoVerdict):
                return score
            scores.append(score)
        share = scoring.first_better(self.ask, first, second)
        found = probable_verdict(share, annotator=self.name, orders=Orders(forward=share, backward=share))
        points = " and ".join(f"{score:.3g}" for score, _ in scores)
        words = (words for _, words in scores if words)
        return replace(found, rationale="\n\n".join((f"{scoring.unit} {points}", *words)))

    def _score_requests(self, case: _Case, answer: Text, scoring: modes.Scoring) -> list[ChatRequest]:
        prompt = case.task.prompt
        return [
            self.mode.request(
                self.ask,
                Question(wording=self._wording, prompt=prompt, blocks=blocks, fill={**case.fill, **fill}),
            )
            for blocks, fill in scoring.questions(self.ask, case.task, answer)
        ]

    def _score(self, reads: Sequence[Read], scoring: modes.Scoring) -> Rated | NoVerdict:
        if not reads:
            return NoVerdict(reason=NO_TRUE_ANSWER)
        reason = next((read.reason for read in reads if read.reason is not None), None)
        if reason is not None:
            return NoVerdict(reason=reason)
        return scoring.score(self.ask, reads), "\n\n".join(read.reasons for read in reads if read.reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    task: Task
    principle: Principle | None = None

    @property
    def fill(self) -> dict[str, str]:
        """What stands in place of the wording's own words."""
        return {} if self.principle is None else {"principle": self.principle.choose}

    def marked(self, outcome: Verdict | NoVerdict) -> Verdict | NoVerdict:
        if self.principle is None or isinstance(outcome, NoVerdict):
            return outcome
        return replace(outcome, principles=(self.principle.id,))


def _mean_rating(rows: Sequence[Sequence[Rated | NoVerdict]]) -> list[Rated | NoVerdict]:
    """The mean over principles of what each answer is worth by it, where all of them have a score."""
    found = list[Rated | NoVerdict]()
    for ratings in zip(*rows, strict=True):
        missing = next((each for each in ratings if isinstance(each, NoVerdict)), None)
        scored = [each for each in ratings if not isinstance(each, NoVerdict)]
        words = "\n\n".join(words for _, words in scored if words)
        found.append((fmean(score for score, _ in scored), words) if missing is None else missing)
    return found


def _both_orders(task: Task) -> tuple[ShownPair, ShownPair] | None:
    if len(task.answers) != 2:
        raise UserError(f"a judge compares two answers, and the task has {len(task.answers)}")
    first, other = (plain_text(answer) for answer in task.answers)
    if first == other:
        return None
    return (
        ShownPair(prompt=task.prompt, first=first, second=other),
        ShownPair(prompt=task.prompt, first=other, second=first),
    )
