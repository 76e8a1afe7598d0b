"""From questions to judged answers, over all ranks: draw, score, and ask again where it pays."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from plaudit.batches.question import Question
from plaudit.rewards.asking import reasons_of
from plaudit.rewards.step_pay import Paid
from plaudit.rollouts.sampling import Answer, Rollout, SamplingSettings
from plaudit.training.judged_answers import JudgedGroup, Scorer, Speaker, answers_to, judged
from plaudit.training.parallel import Ranks

PRIME = 1_000_003
"""Seeds of rounds lie so far apart that those of two runs do not meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a round has to learn from.

    Example: ``collector.collect(questions, number=3)``
    """

    groups: tuple[JudgedGroup, ...]
    """Prompts with the answers that have a verdict; none is empty."""
    rivals: tuple[JudgedGroup, ...]
    """For each group the one answer that it is only measured against; empty where there is none."""
    drawn: int
    """Answers that were drawn, those of rivals left out."""
    undecided: int
    """Of these, how many have no verdict."""
    flat: int
    """Prompts all of whose answers have the same score."""
    seen: tuple[JudgedGroup, ...]
    """All prompts that were asked, those that were dropped among them."""
    again: tuple[JudgedGroup, ...] = ()
    """Groups of earlier rounds that are learnt from once more."""

    @property
    def fresh(self) -> int:
        """How many answers are new."""
        return sum(len(group.answers) for group in self.groups)

    @property
    def scores(self) -> Float[Tensor, " N"]:
        """The score of every answer, new ones first, one behind the other."""
        known = [score for group in (*self.groups, *self.again) for score in group.scores]
        return torch.tensor(known, dtype=torch.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Who gives one more answer to each prompt, which is scored like the others and never learnt from.

    Example: ``Rival(sampler=sampler, sampling=SamplingSettings(temperature=0))``: the likeliest answer.
    """

    sampler: Speaker
    """Answers with the weights of this moment."""
    sampling: SamplingSettings
    """How; the seed is made of the round's, so that its chance has nothing to do with that of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collector:
    """Who draws and who judges.

    Example: ``Collector(sampler=…, reward=reward_named("number"), sampling=…, answers=8, ranks=alone())``
    """

    sampler: Speaker
    """Answers with the weights of this moment."""
    reward: Scorer
    """Scores them."""
    sampling: SamplingSettings
    """How answers are drawn; its seed is the run's."""
    answers: int
    """How many to each prompt."""
    ranks: Ranks
    """This process among its peers."""
    rival: Rival | None = None
    """Who gives the answer that the others are only measured against."""
    unlike: bool = False
    """Whether only prompts are kept whose answers have unlike scores, and others are asked for the rest."""
    whole: bool = False
    """Whether a prompt is left out when one of its answers has no verdict."""
    refills: int = 3
    """How often others are asked at most."""

    def collect(self, questions: Sequence[Question], number: int, spare: Sequence[Question]) -> Collected:
        """Every rank comes with the same questions; ``spare`` are those that others are taken from."""
        seen = self._judged(questions, number)
        kept = [one for one in seen if self._teaches(one)]
        asked = set(questions)
        rest = [question for question in spare if question not in asked] if self.unlike else []
        random.Random(f"{self.sampling.seed}/{number}/spare").shuffle(rest)
        for _ in range(self.refills if self.unlike else 0):
            missing = len(questions) - len(kept)
            if missing <= 0 or not rest:
                break
            # As many as the share that taught so far lets hope for, and at least what is missing.
            hoped = round(missing * len(seen) / max(1, len(kept)))
            wanted, rest = rest[: min(hoped, len(questions))], rest[min(hoped, len(questions)) :]
            more = self._judged(wanted, number)
            seen, kept = [*seen, *more], [*kept, *(one for one in more if self._teaches(one))]
        kept = kept[: len(questions)]
        return self._collected(seen, kept)

    def _collected(self, seen: Sequence[JudgedGroup], kept: Sequence[JudgedGroup]) -> Collected:
        rivals: list[JudgedGroup] = []
        groups: list[JudgedGroup] = []
        for one in kept:
            group, last = self._parted(one)
            enough = len(group.answers) >= (self.answers if self.whole else 1)
            if enough and (last.answers or self.rival is None):
                groups.append(group)
                rivals += [] if self.rival is None else [last]
        own = [self._own(one) for one in seen]
        undecided = sum(score is None for one in own for score in one.scores)
        drawn = sum(len(one.answers) for one in own)
        return Collected(
            groups=tuple(groups),
            rivals=tuple(rivals),
            drawn=drawn,
            undecided=undecided,
            flat=sum(_flat(one.with_verdict()) for one in own),
            seen=tuple(own),
        )

    def objection(self, collected: Collected, *, alone: bool) -> str | None:
        """Why nothing can be learnt of these answers; ``alone`` says that one to a prompt is enough."""
        if collected.undecided == collected.drawn:
            first = collected.seen[0].question
            why = "; ".join(f"{reason} ({count} times)" for reason, count in reasons_of(self.reward).items())
            return (
                f"{self.reward.name} has a verdict on none of {collected.drawn} answers (the first to "
                f"{first.origin or repr(str(first.text)[:40])}), so nothing can be learnt"
                + (f". It says: {why}" if why else ": look at what it needs, an answer in the rows perhaps")
            )
        lonely = all(len(group.answers) < 2 for group in collected.groups)
        if not alone and lonely and collected.undecided:
            return (
                "no prompt has two answers with a verdict, and this algorithm compares the answers to one "
                "prompt; look at what the reward needs to give a verdict"
            )
        return None

    def _judged(self, questions: Sequence[Question], number: int) -> list[JudgedGroup]:
        """All groups, each drawn and scored by one rank; every rank gets all of them."""
        world, rank = self.ranks.world, self.ranks.rank
        mine = [(place, question) for place, question in enumerate(questions) if place % world == rank]
        settings = replace(self.sampling, seed=self.sampling.seed * PRIME + number)
        own = [question for _, question in mine]
        groups = answers_to(own, self.sampler, settings, n=self.answers) if own else []
        if self.rival is not None and own:
            # With the round's own seed it would draw the very numbers of the first answer.
            apart = replace(self.rival.sampling, seed=~settings.seed)
            beside = answers_to(own, self.rival.sampler, apart, n=1)
            groups = [[*group, *one] for group, one in zip(groups, beside, strict=True)]
        found = judged(own, groups, self.reward)
        if world == 1:
            return found
        words = [words_of(place, group) for (place, _), group in zip(mine, found, strict=True)]
        told = dict(group_from(word, questions) for word in self.ranks.gather_words(words))
        return [told[place] for place in range(len(questions))]

    def _own(self, group: JudgedGroup) -> JudgedGroup:
        """Without the rival's answer, which stands last."""
        return group.only([k < self.answers for k in range(len(group.answers))])

    def _parted(self, group: JudgedGroup) -> tuple[JudgedGroup, JudgedGroup]:
        """The answers with a verdict, and the rival's where it has one."""
        last = group.only([k >= self.answers for k in range(len(group.answers))])
        return self._own(group).with_verdict(), last.with_verdict()

    def _teaches(self, group: JudgedGroup) -> bool:
        return not self.unlike or not _flat(self._own(group).with_verdict())


def _flat(group: JudgedGroup) -> bool:
    return len(set(group.scores)) < 2


def words_of(place: int, group: JudgedGroup) -> str:
    """A group as JSON; floats are read back to the last bit."""
    answers = [asdict(replace(answer, played=None)) for answer in group.answers]
    steps = [None if paid is None else asdict(paid) for paid in group.steps]
    return json.dumps(
        {
            "place": place,
            "answers": answers,
            "scores": group.scores,
            "parts": dict(group.parts),
            "steps": steps,
        }
    )


def group_from(word: str, questions: Sequence[Question]) -> tuple[int, JudgedGroup]:
    """The group that was made to words, and its place."""
    facts: dict[str, Any] = json.loads(word)
    answers = tuple(
        Rollout(
            prompt=tuple(one["prompt"]),
            ids=tuple(one["ids"]),
            logp=tuple(one["logp"]),
            whole_logp=tuple(one["whole_logp"]),
            answer=Answer(**one["answer"]),
            mask=None if one["mask"] is None else tuple(one["mask"]),
        )
        for one in facts["answers"]
    )
    group = JudgedGroup(
        question=questions[facts["place"]],
        answers=answers,
        scores=tuple(facts["scores"]),
        parts={name: tuple(row) for name, row in facts["parts"].items()},
        steps=tuple(
            None if one is None else Paid(**{name: tuple(row) for name, row in one.items()})
            for one in facts["steps"]
        ),
    )
    return facts["place"], group
