"""A model that is asked which of two answers is better, or what one is worth, in any way that models can.

- verdict: reasons, then A, B, tie or refuse between delimiters: 1, 0 or ½.
- letter: A or B at one token, by their log-probs (RLAIF's soft label, Lee et al. 2023, arXiv:2309.00267);
  where there are no log-probs, by the share of several draws.
- reasons: a chain of thought, then the letter; the chance is clamped to 0.40–0.60, since reasons make models
  too sure (Bai et al. 2022, arXiv:2212.08073).
- points: for each answer by itself, by the aspects of a rubric; with log-probs, the mean over them. Of two
  answers, P(the first has more) + ½ P(as many), which is 0, ½ or 1 where there are whole numbers alone.
- answer: whether each answer is right, given the true one.

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
from typing import ClassVar, Protocol

from plaudit.data.judging import (
    LOGPROBS_REFUSED,
    NoVerdict,
    Orders,
    Task,
    Verdict,
    first_probability,
    probable_verdict,
    verdict_of_orders,
    verdicts_only,
)
from plaudit.data.records import Text, plain_text
from plaudit.errors import UserError
from plaudit.feedback.judges.cache import Reply
from plaudit.feedback.judges.constitution import Principle
from plaudit.feedback.judges.ledger import ChatRequest
from plaudit.feedback.judges.money import Estimate
from plaudit.feedback.judges.pooling import pooled_verdict
from plaudit.feedback.judges.replies import parse_verdict, parse_word
from plaudit.feedback.judges.rubric import (
    BY_PRINCIPLE,
    OVERALL,
    Aspect,
    distribution_of_mean,
    probability_of_more,
    read_rubric,
    weighted_mean,
)
from plaudit.feedback.judges.wording import Question, ShownPair, Wording, pair_question, wording_named
from plaudit.feedback.judges.words import LETTERS, How, HowToAsk

REFUSED = "refused"
"""The reason where the judge refused to judge."""
UNREADABLE = "not to be read"
"""The reason where the reply holds no verdict."""
CUT = "cut off"
"""The reason where the reply was longer than it may be, before it came to its verdict."""
NO_TRUE_ANSWER = "no true answer to compare with"
"""The reason where a judge that is given the true answer has none."""
YES_NO = ("Yes", "No")
"""What is replied to whether an answer is right."""
WORD_TOKENS = 8
"""The most tokens of a reply of one word: Markdown around it is not cut."""
_FIRST_WIN_PROBABILITY = {"A": 1.0, "B": 0.0, "tie": 0.5}
_SETTINGS_THAT_COUNT: Mapping[How, tuple[str, ...]] = {
    "verdict": ("temperature", "max_tokens"),
    "letter": ("temperature", "draws"),
    "reasons": ("temperature", "max_tokens", "clamp"),
    "points": ("temperature", "points"),
    "answer": ("temperature", "draws"),
}
"""What else of how it is asked changes what it says."""


class Asker(Protocol):
    """Whatever a model can be asked through: a server, or a folder on this machine."""

    @property
    def model(self) -> str: ...

    def replies(self, requests: Sequence[ChatRequest]) -> list[Reply | str]: ...

    def estimate(self, requests: Sequence[ChatRequest]) -> Estimate:
        """What is still to be asked, and what it costs at most."""
        ...

    def spent(self, requests: Sequence[ChatRequest]) -> tuple[int, float]:
        """The tokens and the price of the replies that are there."""
        ...


@dataclass(slots=True)
class _Logprobs:
    """Whether the model gives log-probs, as far as it is known."""

    given: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJudge:
    """A model as a judge of pairs and of single answers.

    Example: ``ModelJudge(asker=ChatServer(url=url, model="small", cache=cache), ask=HowToAsk(how="letter"))``
    """

    asker: Asker
    ask: HowToAsk = field(default_factory=HowToAsk)
    _logprobs: _Logprobs = field(default_factory=_Logprobs, compare=False, repr=False)
    asks_both_orders: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Refuse a rubric that cannot be read, before anything is asked."""
        if self.ask.rubric is not None:
            read_rubric(self.ask.rubric)

    @property
    def name(self) -> str:
        """What tables and pages call it."""
        return self.asker.model

    @property
    def how(self) -> How:
        return self.ask.how or "verdict"

    @property
    def version(self) -> str:
        """What its judgements hang on besides the model: the way to ask, wording, constitution with the
        number of its principles, rubric, preamble, and settings that are not the usual ones.
        """
        # A temperature that was fitted on clamped chances, or points of 7, are of another judge.
        usual = HowToAsk()
        own = [
            f"{name}={getattr(self.ask, name)}"
            for name in _SETTINGS_THAT_COUNT[self.how]
            if getattr(self.ask, name) != getattr(usual, name)
        ]
        if self.ask.rubric is not None:
            own = ["", *(f"{a.name}/{a.description}/{a.weight}" for a in self._aspects), *own]
        if self.ask.preamble is not None:
            own.append(f"preamble={self.ask.preamble}")
        tail = hashlib.sha256("\n".join(own).encode()).hexdigest()[:6]
        file = self.ask.constitution
        principles = "" if file is None else f"-c{file.version}x{self.ask.drawn_principles}"
        return f"{self.how}-{self._wording.version}{principles}{f'-{tail}' if own else ''}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be said of its judgements so far."""
        if self._logprobs.given is not False:
            return ()
        how = {
            "letter": f"the share of {self.ask.draws} draws stands for the chance",
            "answer": f"the share of {self.ask.draws} draws stands for the chance",
            "points": "points are whole numbers",
            "reasons": "the letter alone decides between the clamps",
        }
        return (f"{self.name} gives no log-probs: {how[self.how]}",) if self.how in how else ()

    def verdicts(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | None]:
        """The mean of both orders of two answers; two that read the same are a tie without asking."""
        return verdicts_only(self.outcomes(tasks, seed))

    def outcomes(self, tasks: Sequence[Task], seed: int | str) -> list[Verdict | NoVerdict]:
        """As ``verdicts``, with why there is none; nothing is drawn here, so that every seed is the same."""
        del seed
        orders = [_both_orders(task) for task in tasks]
        differ = [task for task, both in zip(tasks, orders, strict=True) if both is not None]
        if self.how == "answer" and differ and all(task.reference_answer is None for task in differ):
            raise UserError(
                f"{self.name}: how=answer compares with a true answer, and none of these {len(differ):,} "
                "pairs has one; ask in another way (how=letter), or let --model answer prompts that have one"
            )
        by_scores = self.how in ("points", "answer")
        cases = [self._cases(task) for task in differ]
        every = [case for row in cases for case in row]
        parts = iter(self._by_scores(every) if by_scores else self._by_orders(every))
        found = iter([self._joined([next(parts) for _ in row]) for row in cases])
        return [self._tie() if both is None else next(found) for both in orders]

    def scores(self, tasks: Sequence[Task]) -> list[list[float | NoVerdict]]:
        """What each answer is worth by itself: its points, or the chance that it is right."""
        if self.how not in ("points", "answer"):
            raise UserError(f"{self.name} compares by {self.how}, and has no score for one answer alone")
        cases = [self._cases(task) for task in tasks]
        rows = iter(self._score_reads([case for own in cases for case in own]))
        found = [[[self._score(some) for some in next(rows)] for _ in own] for own in cases]
        return [_mean_scores(by_each) for by_each in found]

    def word_shares(
        self, questions: Sequence[Question], words: tuple[str, ...] = YES_NO
    ) -> list[Mapping[str, float] | NoVerdict]:
        """The share of each word in the reply to each question, whatever is asked, or why there is none."""
        reads = self._odds([self.word_request(question, words) for question in questions])
        return [read.shares if read.reason is None else NoVerdict(reason=read.reason) for read in reads]

    def word_request(self, question: Question, words: tuple[str, ...] = YES_NO) -> ChatRequest:
        return ChatRequest(
            question=question,
            words=words,
            is_word=True,
            temperature=self.ask.temperature,
            max_tokens=WORD_TOKENS,
        )

    def estimate(self, tasks: Sequence[Task]) -> Estimate:
        """What is still to be asked about these tasks, and what it costs at most."""
        return self.asker.estimate([request for task in tasks for request in self._requests(task)])

    def spent(self, task: Task) -> tuple[int, float]:
        """The tokens and the price of what was replied to a task's questions."""
        requests = self._requests(task)
        # Where log-probs were missing it was asked in other forms as well; what was not asked costs nothing.
        plain = [replace(request, words=(), is_word=False) for request in requests]
        draws = self._draws(requests) if self.how in ("letter", "answer") else []
        return self.asker.spent([*requests, *(plain if self.how != "verdict" else ()), *draws])

    def _requests(self, task: Task) -> list[ChatRequest]:
        return [request for case in self._cases(task) for request in self._case_requests(case)]

    def _case_requests(self, case: _Case) -> list[ChatRequest]:
        if self.how in ("points", "answer"):
            return [request for answer in case.task.answers for request in self._score_requests(case, answer)]
        return [self._pair_request(case, pair) for pair in _both_orders(case.task) or ()]

    @property
    def _wording(self) -> Wording:
        wording = wording_named(self.how)
        if self.ask.preamble is None:
            return wording
        return replace(wording, introduction=f"{self.ask.preamble}\n\n{wording.introduction}")

    @property
    def _aspects(self) -> Sequence[Aspect]:
        if self.ask.rubric is not None:
            return read_rubric(self.ask.rubric)
        return OVERALL if self.ask.constitution is None else BY_PRINCIPLE

    def _cases(self, task: Task) -> list[_Case]:
        """A task by each principle that is drawn for it; the task as it is where there is no constitution."""
        file = self.ask.constitution
        if file is None:
            return [_Case(task=task)]
        # Points of answers to one prompt are compared with each other, wherever the answers are met.
        answers = () if self.how == "points" else sorted(map(plain_text, task.answers))
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

    def _tie(self) -> Verdict:
        return probable_verdict(0.5, annotator=self.name, orders=Orders(forward=0.5, backward=0.5))

    def _by_orders(self, cases: Sequence[_Case]) -> list[Verdict | NoVerdict]:
        requests = [
            self._pair_request(case, pair) for case in cases for pair in _both_orders(case.task) or ()
        ]
        shares = self._odds(requests) if self.how == "letter" else self._read(requests)
        both = zip(cases, shares[::2], shares[1::2], strict=True)
        return [case.marked(self._outcome(forward, backward)) for case, forward, backward in both]

    def _pair_request(self, case: _Case, pair: ShownPair) -> ChatRequest:
        is_letter = self.how == "letter"
        return ChatRequest(
            question=pair_question(self._wording, pair, case.fill),
            words=() if self.how == "verdict" else LETTERS,
            is_word=is_letter,
            temperature=self.ask.temperature,
            max_tokens=WORD_TOKENS if is_letter else self.ask.max_tokens,
        )

    def _outcome(self, forward: _Read, backward: _Read) -> Verdict | NoVerdict:
        reason = next((read.reason for read in (forward, backward) if read.reason is not None), None)
        second = backward.shares.get("A")
        # In the second order the other answer stood first.
        orders = Orders(forward=forward.shares.get("A"), backward=None if second is None else 1 - second)
        found = verdict_of_orders(orders, reason, annotator=self.name)
        if isinstance(found, NoVerdict):
            return found
        return replace(found, rationale="\n\n".join(read.text for read in (forward, backward)))

    def _score_reads(self, cases: Sequence[_Case]) -> list[list[list[_Read]]]:
        """What was read for each answer of each task; nothing where there is no true answer."""
        plan = [[self._score_requests(case, answer) for answer in case.task.answers] for case in cases]
        replies = iter(self._odds([request for row in plan for some in row for request in some]))
        return [[[next(replies) for _ in some] for some in row] for row in plan]

    def _by_scores(self, cases: Sequence[_Case]) -> list[Verdict | NoVerdict]:
        rows = zip(cases, self._score_reads(cases), strict=True)
        return [case.marked(self._compared(first, second)) for case, (first, second) in rows]

    def _compared(self, first: Sequence[_Read], second: Sequence[_Read]) -> Verdict | NoVerdict:
        """Of points, the chance that the first has more, and half of that of as many; of two chances to be
        right, half of their difference is added to ½.
        """
        scores = [self._score(reads) for reads in (first, second)]
        for score in scores:
            if isinstance(score, NoVerdict):
                return score
        if self.how == "answer":
            share = 0.5 + (first[0].shares["Yes"] - second[0].shares["Yes"]) / 2
        else:
            share = probability_of_more(*(self._points(reads) for reads in (first, second)))
        orders = Orders(forward=share, backward=share)
        found = probable_verdict(share, annotator=self.name, orders=orders)
        unit = "right by" if self.how == "answer" else "points:"
        return replace(found, rationale=f"{unit} {scores[0]:.3g} and {scores[1]:.3g}")

    def _points(self, reads: Sequence[_Read]) -> dict[float, float]:
        """How likely each number of points is, over all aspects."""
        shares = [{int(word): share for word, share in read.shares.items()} for read in reads]
        return distribution_of_mean(shares, self._aspects)

    def _score_requests(self, case: _Case, answer: Text) -> list[ChatRequest]:
        """The requests that make an answer's score; none where there is no true answer to compare with."""
        blocks = (("Answer", plain_text(answer)),)
        if self.how == "answer":
            if case.task.reference_answer is None:
                return []
            blocks = (*blocks, ("True answer", case.task.reference_answer))
            return [self._word_request(case.task, blocks, case.fill, YES_NO)]
        words = tuple(str(number) for number in range(1, self.ask.points + 1))
        return [
            self._word_request(
                case.task,
                blocks,
                case.fill
                | {"aspect": aspect.name, "description": aspect.description, "points": str(self.ask.points)},
                words,
            )
            for aspect in self._aspects
        ]

    def _word_request(
        self, task: Task, blocks: tuple[tuple[str, str], ...], fill: dict[str, str], words: tuple[str, ...]
    ) -> ChatRequest:
        question = Question(wording=self._wording, prompt=task.prompt, blocks=blocks, fill=fill)
        return self.word_request(question, words)

    def _score(self, reads: Sequence[_Read]) -> float | NoVerdict:
        if not reads:
            return NoVerdict(reason=NO_TRUE_ANSWER)
        for read in reads:
            if read.reason is not None:
                return NoVerdict(reason=read.reason)
        if self.how == "answer":
            return reads[0].shares["Yes"]
        points = [sum(int(word) * share for word, share in read.shares.items()) for read in reads]
        return float(weighted_mean(points, self._aspects))

    def _read(self, requests: Sequence[ChatRequest]) -> list[_Read]:
        """Replies with reasons: the verdict between the delimiters, and its letter's chance where known."""
        found = self.asker.replies(requests)
        if self.how == "reasons" and LOGPROBS_REFUSED in found:
            self._logprobs.given = False
            found = self.asker.replies([replace(request, words=()) for request in requests])
        return [self._read_verdict(reply) for reply in found]

    def _read_verdict(self, reply: Reply | str) -> _Read:
        if isinstance(reply, str):
            return _Read(reason=reply)
        verdict = None if reply.cut else parse_verdict(reply.text, reply.number)
        if reply.refused or verdict == "refuse":
            return _Read(reason=REFUSED, text=reply.text)
        if verdict is None or (self.how == "reasons" and verdict == "tie"):
            return _Read(reason=CUT if reply.cut else UNREADABLE, text=reply.text)
        first = _FIRST_WIN_PROBABILITY[verdict]
        if self.how == "reasons":
            if reply.odds is None:
                self._logprobs.given = False
            else:
                first = reply.odds["A"] / sum(reply.odds.values())
            first = min(max(first, self.ask.clamp), 1 - self.ask.clamp)
        return _Read(shares={"A": first, "B": 1 - first}, text=reply.text)

    def _odds(self, requests: Sequence[ChatRequest]) -> list[_Read]:
        """Replies of one word: the share of each by log-probs, or by draws where there are none."""
        if not requests:
            return []
        if self._logprobs.given is None:
            # One question shows whether there are log-probs: without them all others are drawn at once.
            [first] = self.asker.replies(requests[:1])
            refused = first == LOGPROBS_REFUSED
            no_odds = isinstance(first, Reply) and first.odds is None and _is_word(first, requests[0])
            self._logprobs.given = False if refused or no_odds else None
        if self._logprobs.given is False:
            return self._drawn(requests)
        found = self.asker.replies(requests)
        lacking = [
            n
            for n, reply in enumerate(found)
            if reply == LOGPROBS_REFUSED
            or (isinstance(reply, Reply) and reply.odds is None and _is_word(reply, requests[n]))
        ]
        reads = [_read_word(reply, request) for reply, request in zip(found, requests, strict=True)]
        # One odd reply of a server that gives log-probs must not change how all later ones are asked.
        if any(isinstance(reply, Reply) and reply.odds is not None for reply in found):
            self._logprobs.given = True
        elif lacking:
            self._logprobs.given = False
        for n, read in zip(lacking, self._drawn([requests[n] for n in lacking]), strict=True):
            reads[n] = read
        return reads

    def _drawn(self, requests: Sequence[ChatRequest]) -> list[_Read]:
        # Points are read as they stand: the mean of draws would cost several times as much.
        if self.how == "points":
            plain = [replace(request, words=(), is_word=False) for request in requests]
            found = self.asker.replies(plain)
            return [_read_word(reply, request) for reply, request in zip(found, requests, strict=True)]
        found = self.asker.replies(self._draws(requests))
        rows = [found[at : at + self.ask.draws] for at in range(0, len(found), self.ask.draws)]
        return [_share(row, request) for row, request in zip(rows, requests, strict=True)]

    def _draws(self, requests: Sequence[ChatRequest]) -> list[ChatRequest]:
        return [
            replace(request, words=(), is_word=False, temperature=request.temperature or 1.0, seed=draw)
            for request in requests
            for draw in range(self.ask.draws)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A task with the principle that it is judged by."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What was read of replies: the share of each word, or why there is none."""

    shares: dict[str, float] = field(default_factory=dict[str, float])
    reason: str | None = None
    text: str = ""


def _is_word(reply: Reply, request: ChatRequest) -> bool:
    return parse_word(reply.text, request.words) is not None


def _read_word(reply: Reply | str, request: ChatRequest) -> _Read:
    if isinstance(reply, str):
        return _Read(reason=reply)
    word = parse_word(reply.text, request.words)
    if reply.refused:
        return _Read(reason=REFUSED, text=reply.text)
    # A reply that says more than the word is cut, for so few tokens it may have: what it means is not known.
    if word is None:
        return _Read(reason=CUT if reply.cut else UNREADABLE, text=reply.text)
    if reply.odds is None:
        shares = {other: float(other == word) for other in request.words}
    else:
        total = sum(reply.odds.values())
        shares = {other: share / total for other, share in reply.odds.items()}
    return _Read(shares=shares, text=reply.text)


def _share(replies: Sequence[Reply | str], request: ChatRequest) -> _Read:
    """The share of each word among the draws that can be read; of fewer than half it says nothing."""
    reads = [_read_word(reply, request) for reply in replies]
    sound = [read for read in reads if read.reason is None]
    if 2 * len(sound) < len(reads):
        return next(read for read in reads if read.reason is not None)
    shares = {word: sum(read.shares[word] for read in sound) / len(sound) for word in request.words}
    return _Read(shares=shares, text=" ".join(read.text.strip() for read in reads))


def _mean_scores(rows: Sequence[Sequence[float | NoVerdict]]) -> list[float | NoVerdict]:
    """The mean over principles of what each answer is worth by it, where all of them have a score."""
    found = list[float | NoVerdict]()
    for scores in zip(*rows, strict=True):
        missing = next((score for score in scores if isinstance(score, NoVerdict)), None)
        known = [score for score in scores if not isinstance(score, NoVerdict)]
        found.append(fmean(known) if missing is None else missing)
    return found


def _both_orders(task: Task) -> tuple[ShownPair, ShownPair] | None:
    """The two answers in both orders; None where they read the same."""
    if len(task.answers) != 2:
        raise UserError(f"a judge compares two answers, and the task has {len(task.answers)}")
    first, other = (plain_text(answer) for answer in task.answers)
    if first == other:
        return None
    return (
        ShownPair(prompt=task.prompt, first=first, second=other),
        ShownPair(prompt=task.prompt, first=other, second=first),
    )
