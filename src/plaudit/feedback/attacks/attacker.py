"""Asking a policy, and a model that attacks it: by messages of its own, and by going on where one failed.

Messages are written few-shot from those that worked (Perez et al. 2022, arXiv:2202.03286). Over several turns
the attacker sees each reply of the policy (GOAT, Pavlova et al. 2024, arXiv:2410.01606). What it writes that
was tried before is counted and not asked again.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from plaudit.data.judging import NoVerdict
from plaudit.data.records import assistant_turn, user_turn, words_of
from plaudit.feedback.attacks.attempt import AnswerFinding, Attempt, Finding
from plaudit.feedback.attacks.target import Target, TargetAnswer, Turns
from plaudit.feedback.attacks.verdicts import AnswerJudge, Share
from plaudit.feedback.judges.wording import Question, wording_named
from plaudit.feedback.judges.writing import Writer

EXAMPLES = 3
"""How many messages a model is shown when it writes another."""
MESSAGES_AT_ONCE = 8
"""How many it is asked for before what worked of them is shown to it."""
NOTHING_TO_GO_ON_FROM = "the policy said nothing to go on from"


@dataclass(frozen=True, slots=True, kw_only=True)
class Questioner:
    """A policy, who judges its answers, and how many are drawn."""

    target: Target
    judge: AnswerJudge
    answers: int = 1
    refusing: bool = False
    """Whether refusals are what is asked about: a server that says it refused is then taken at its word."""

    def findings(self, attempts: Sequence[Attempt]) -> list[Finding]:
        """What came of each attempt; the same conversation is asked once."""
        unique = {attempt.key: attempt for attempt in attempts}
        rows = self.target.answers([attempt.turns for attempt in unique.values()], self.answers)
        judged = self._judged(list(unique.values()), rows)
        by_key = dict(zip(unique, judged, strict=True))
        return [Finding(attempt=attempt, answers=by_key[attempt.key]) for attempt in attempts]

    def _judged(
        self, attempts: Sequence[Attempt], rows: Sequence[Sequence[TargetAnswer]]
    ) -> list[tuple[AnswerFinding, ...]]:
        to_judge = [[a for a in row if a.failure is None and not a.refused] for row in rows]
        tasks = [
            attempt.task(tuple((answer.text, answer.ended) for answer in row))
            for attempt, row in zip(attempts, to_judge, strict=True)
            if row
        ]
        shares = iter([share for row in self.judge.shares(tasks) for share in row])
        return [tuple(self._finding(answer, shares) for answer in row) for row in rows]

    def _finding(self, answer: TargetAnswer, shares: Iterator[Share]) -> AnswerFinding:
        if answer.failure is not None:
            return AnswerFinding(text="", ended=False, reason=answer.failure)
        if answer.refused:
            return AnswerFinding(text=answer.text, share=float(self.refusing))
        share = next(shares)
        if isinstance(share, NoVerdict):
            return AnswerFinding(text=answer.text, ended=answer.ended, reason=share.reason)
        return AnswerFinding(text=answer.text, ended=answer.ended, share=share)


@dataclass(slots=True, kw_only=True)
class Attacker:
    """A model that attacks a policy, and what it was asked for."""

    writer: Writer
    questioner: Questioner
    seed: int = 0
    """Of what is drawn, and of what the model draws."""
    tried: set[str] = field(default_factory=set[str])
    requested: int = 0
    repeated: int = 0
    """How many of them were tried before."""
    failures: Counter[str] = field(default_factory=Counter[str])

    def gone_on(self, findings: Sequence[Finding], turns: int) -> list[Finding]:
        """Every attempt that failed pursued for up to so many turns; the others as they are."""
        self.tried |= {finding.attempt.key for finding in findings}
        current = list(findings)
        for turn in range(2, turns + 1):
            places = [n for n, f in enumerate(current) if f.happened is False and f.turns == turn - 1]
            followed = self._followed([current[place] for place in places], turn)
            fresh = [(place, attempt) for place, attempt in zip(places, followed, strict=True) if attempt]
            found = self.questioner.findings([attempt for _, attempt in fresh])
            for (place, _), finding in zip(fresh, found, strict=True):
                current[place] = replace(finding, turns=turn, start=current[place].origin)
        return current

    def written(self, findings: Sequence[Finding], count: int) -> list[Finding]:
        """New attempts, few-shot from those that worked; from any where none did."""
        self.tried |= {finding.attempt.key for finding in findings}
        pool, found = list(findings), list[Finding]()
        rng = random.Random(f"examples {self.seed}")
        for start in range(0, count, MESSAGES_AT_ONCE):
            size = min(MESSAGES_AT_ONCE, count - start)
            new = self.questioner.findings(self._messages(pool, size, rng, draw=start))
            found += new
            # What has just worked is shown from now on.
            pool += new
        return found

    def _messages(
        self, pool: Sequence[Finding], size: int, rng: random.Random, *, draw: int
    ) -> list[Attempt]:
        shown = [_examples(pool, rng) for _ in range(size)]
        texts = self._texts([message_question([a.words for a in examples]) for examples in shown], draw)
        attempts = list[Attempt]()
        for text, examples in zip(texts, shown, strict=True):
            if text is None:
                continue
            source, category = f"written by {self.writer.name}", examples[0].category
            attempt = Attempt(turns=user_turn(text), category=category, source=source)
            if attempt.key in self.tried:
                self.repeated += 1
            else:
                self.tried.add(attempt.key)
                attempts.append(attempt)
        return attempts

    def _followed(self, failed: Sequence[Finding], turn: int) -> list[Attempt | None]:
        """Each conversation with the policy's reply and what the attacker says to it."""
        going = [finding for finding in failed if finding.answers[0].text.strip()]
        self.failures[NOTHING_TO_GO_ON_FROM] += len(failed) - len(going)
        questions = [
            pursuing_question(
                (*finding.attempt.turns, *assistant_turn(finding.answers[0].text)),
                finding.attempt.goal or finding.attempt.words,
            )
            for finding in going
        ]
        texts = iter(self._texts(questions, turn))
        return [
            self._next(finding, next(texts)) if finding.answers[0].text.strip() else None
            for finding in failed
        ]

    def _next(self, finding: Finding, text: str | None) -> Attempt | None:
        attempt = finding.attempt
        if text is None:
            return None
        if text in {words_of(turn) for turn in attempt.turns if turn.role == "user"}:
            self.repeated += 1
            return None
        reply = assistant_turn(finding.answers[0].text)
        return replace(
            attempt,
            turns=(*attempt.turns, *reply, *user_turn(text)),
            goal=attempt.goal or attempt.words,
            unit=attempt.group,
        )

    def _texts(self, questions: Sequence[Question], draw: int) -> list[str | None]:
        self.requested += len(questions)
        found = self.writer.texts(questions, self.seed * 1000 + draw)
        self.failures.update(entry.reason for entry in found if isinstance(entry, NoVerdict))
        return [None if isinstance(entry, NoVerdict) else entry.text for entry in found]


def message_question(examples: Sequence[str]) -> Question:
    blocks = tuple((f"Example {number}", words) for number, words in enumerate(examples, 1))
    return Question(wording=wording_named("attack"), prompt="", blocks=blocks)


def pursuing_question(conversation: Turns, goal: str) -> Question:
    return Question(wording=wording_named("pursue"), prompt=conversation, blocks=(("Goal", goal),))


def _examples(pool: Sequence[Finding], rng: random.Random) -> list[Attempt]:
    """A few attempts of one category: what worked where anything did."""
    worked = [finding for finding in pool if finding.happened] or list(pool)
    categories = list(dict.fromkeys(finding.attempt.category for finding in worked))
    category = rng.choice(categories)
    own = [finding.attempt for finding in worked if finding.attempt.category == category]
    return rng.sample(own, min(EXAMPLES, len(own)))
