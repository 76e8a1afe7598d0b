"""Pairs of answers to be compared, and how people are asked which is better: in a label store."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plaudit.data.judging import Judge, to_comparison
from plaudit.data.records import Comparison, Task
from plaudit.errors import UserError
from plaudit.evaluation.policies import POLICY
from plaudit.methods.iterative.rounds import ScoredAnswer, is_complete
from plaudit.tokens.prompts import EncodedPrompt
from plaudit.wings import offered

COLLECT = "collect"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPair:
    number: int
    prompt: EncodedPrompt
    first: str
    """The answer that is shown first; the order is random."""
    second: str
    sources: tuple[str, str] = (POLICY, POLICY)
    """Whose each of them is."""
    method: str | None = None
    """How it was chosen from the round's pairs; None: all are compared."""
    propensity: float | None = None
    """With which chance it was drawn, where it was."""

    @property
    def task(self) -> Task:
        return self.prompt.task(((self.first, True), (self.second, True)))


def make_pairs(
    prompts: Sequence[EncodedPrompt],
    groups: Sequence[Sequence[ScoredAnswer]],
    seed: str,
    others: Sequence[tuple[str, Sequence[ScoredAnswer]]] | None = None,
) -> list[AnswerPair]:
    """For each prompt the first two answers that differ and ended by themselves, in random order.

    ``others`` has for each prompt another source and its answers, of which the second is taken.
    """
    rng, pairs = random.Random(f"{seed}/shown"), list[AnswerPair]()
    for place, (encoded_prompt, group) in enumerate(zip(prompts, groups, strict=True)):
        source, other = (POLICY, group) if others is None else others[place]
        mine = [answer for answer in group if is_complete(answer)][:1]
        # Blanks at the ends make no difference that anyone could judge.
        theirs = [
            answer
            for answer in other
            if mine and is_complete(answer) and answer.text.strip() != mine[0].text.strip()
        ]
        if theirs:
            # In random order, since people and models alike favour the answer that stands first.
            both = rng.sample([(mine[0].text, POLICY), (theirs[0].text, source)], 2)
            (first, second), sources = zip(*both, strict=True)
            pair = AnswerPair(number=len(pairs) + 1, prompt=encoded_prompt, first=first, second=second)
            pairs.append(replace(pair, sources=sources))
    if not pairs:
        raise UserError(
            "no prompt has two answers that differ and came to an end, so there is nothing to compare: draw "
            "more with --loop.answers, raise --draw.temperature, or give more room with --draw.max-tokens"
        )
    return pairs


def judge_pairs(judge: Judge, pairs: Sequence[AnswerPair], seed: str) -> list[Comparison]:
    """What a judge says of the pairs, as rows; a pair of which it says nothing gives none."""
    return [
        # Of a judge that was asked in both orders only the side counts here, as of everybody else.
        replace(
            to_comparison(
                pair.task, verdict if verdict.orders is None else replace(verdict, probability=None)
            ),
            origin=pair.prompt.origin,
            method=pair.method,
            propensity=pair.propensity,
        )
        for pair, verdict in zip(pairs, judge.verdicts([pair.task for pair in pairs], seed), strict=True)
        if verdict is not None
    ]


def count_unjudged(pairs: Sequence[AnswerPair], rows: Sequence[Comparison]) -> int:
    """Pairs of which nothing was said; of others several people may have said something."""
    # As sets: a store that had the pair before may have its answers in the other order.
    judged = {(row.prompt, frozenset((row.chosen, row.rejected))) for row in rows}
    return sum((pair.task.prompt, frozenset(pair.task.answers)) not in judged for pair in pairs)


def check_people(store: str, project: str) -> None:
    """Complain, before any answer is drawn, where people could not be asked."""
    offered("check_people", of=COLLECT)(store, project)


def ask_people(
    pairs: Sequence[AnswerPair], out: Path, *, store: str, project: str, source: Mapping[str, Any]
) -> None:
    """Write what people say of the pairs as rows; raises `WaitingError` while labels are missing.

    source: the round whose answers these are and the policy that gave them, as tasks in the store have it.
    """
    number = source["round"]
    tasks = [
        (
            pair.task,
            {
                **{"round": number, "pair": pair.number, "origin": pair.prompt.origin},
                **({} if pair.method is None else {"method": pair.method, "chance": pair.propensity}),
                "sources": pair.sources,
            },
        )
        for pair in pairs
    ]
    nothing = offered("ask_people", of=COLLECT)(tasks, out, store=store, project=project, source=source)
    if nothing is not None:
        raise UserError(
            f"round {number}: nothing was said of any pair, so there is nothing to learn from ({nothing})"
        )
