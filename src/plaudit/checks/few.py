"""A few of the user's own rows, short ones: as tokens, and as the pieces that a step is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Any

import torch

from plaudit.batches.judged import muted
from plaudit.batches.split import portions, split
from plaudit.batches.tokens import Completion, Example
from plaudit.checks.subject import FEW, Lesson, Subject
from plaudit.errors import UserError
from plaudit.training.policy import PolicyPiece
from plaudit.training.policy_rounds import Rounds
from plaudit.training.preference import PreferencePiece
from plaudit.training.supervised import SupervisedPiece, likelihood, pieces_of, rows_of

CANDIDATES = 256
"""Rows at the beginning of a file among which the shortest are looked for."""
ROWS = 4
"""Rows of a step that is tried."""
SAID = 12
"""Tokens of another prompt with which a prompt without an answer goes on."""
DRAWN = 16
"""The longest answer of a round that is tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A step on a few rows.

    Example: ``Trial(lesson=lesson, batch=(…,), what="4 rows")``
    """

    lesson: Lesson
    """What is learnt, and how."""
    batch: tuple[Any, ...]
    """Its pieces as the run makes them."""
    what: str
    """Which rows they are, for the user."""

    @property
    def rows(self) -> list[Any]:
        """Each row as a piece of the same batch."""
        return [row for piece in self.batch for row in self.lesson.alone(piece)]


def few_examples(subject: Subject, count: int = FEW) -> list[Example]:
    """The shortest rows as they are trained; a prompt without an answer goes on with words of the next."""
    if subject.trained:
        return [subject.trained[number] for number in _shortest(subject.trained, count)]
    prompts = [subject.encoder.encode_prompt(one) for one in subject.prompts]
    short = sorted(prompts, key=len)[:count]
    return [
        Example(prompt=prompt, completions=(_said(other),), origin="a prompt")
        for prompt, other in zip(short, [*short[1:], *short[:1]], strict=True)
    ]


def trial(subject: Subject) -> Trial | None:
    """A step on a few short rows of different lengths; None where nothing is learnt.

    Where answers are drawn it is a round of two prompts, of which the run itself knows nothing; where such a
    round comes to nothing, likelihood under the same policy.
    """
    lesson = subject.lesson
    if lesson is None:
        return None
    if not lesson.draws:
        numbers = _shortest(subject.trained, 2 * ROWS)
        chosen = numbers[::2] if len(numbers) >= 2 * ROWS else numbers[:ROWS]
        return Trial(lesson=lesson, batch=tuple(lesson.pieces(1, chosen)), what=f"{len(chosen)} rows")
    return _drawn(lesson) or likely(subject)


def likely(subject: Subject) -> Trial | None:
    """Likelihood under the policy of a run that draws its answers, of text made of its prompts."""
    lesson, policy = subject.lesson, subject.policy
    examples = few_examples(subject, ROWS)
    if lesson is None or policy is None or not examples:
        return None
    rounds = lesson.companions.get("rounds")
    assert isinstance(rounds, Rounds), "answers are drawn in rounds"
    own = replace(lesson, objective=likelihood(policy, subject.products), alone=rows_of)
    batch = pieces_of(examples, rounds.ranks, sum(one.tokens for one in examples))
    return Trial(lesson=own, batch=batch, what=f"likelihood of {len(examples)} prompts continued")


def divided(piece: Any, ranks: int, tokens_at_once: int) -> list[list[Any]] | None:
    """What each of several ranks would compute of a piece; None where only the whole batch can be dealt."""
    if isinstance(piece, PolicyPiece):
        groups = [place.group for place in piece.places]
        shares: Any = piece.round.shares(groups, ranks=ranks, tokens_at_once=tokens_at_once)
        name = "places"
    elif isinstance(piece, SupervisedPiece):
        shares, name = split(piece.examples, ranks=ranks, tokens_at_once=tokens_at_once), "examples"
    elif isinstance(piece, PreferencePiece) and piece.known.beside is not None:
        return None
    else:
        shares, name = portions(piece.rows, muted, ranks=ranks, tokens_at_once=tokens_at_once), "rows"
    return [[replace(piece, **{name: rows}) for rows in own] for own in shares]


def tokens_of(piece: Any) -> int:
    """How many tokens have to be computed for a piece."""
    if isinstance(piece, PolicyPiece):
        return sum(place.tokens for place in piece.places)
    rows = piece.examples if isinstance(piece, SupervisedPiece) else piece.rows
    return sum(row.tokens for row in rows)


def _shortest(examples: Sequence[Example], count: int) -> list[int]:
    near = range(min(len(examples), CANDIDATES))
    return nsmallest(count, near, key=lambda number: examples[number].tokens)


def _said(prompt: tuple[int, ...]) -> Completion:
    ids = prompt[-SAID:]
    return Completion(ids=ids, mask=(True,) * len(ids), finished=False)


def _drawn(lesson: Lesson) -> Trial | None:
    """A round of two prompts with short answers; None where all of them are left out."""
    rounds = lesson.companions.get("rounds")
    assert isinstance(rounds, Rounds), "answers are drawn in rounds"
    shaper = rounds.experience.shaper
    kept = shaper.tensors()
    try:
        drawn = _small(rounds).pieces(1, list(range(min(lesson.rows, 2))))
    except UserError:
        # What is wrong with the reward is for the checks of the reward to say.
        return None
    finally:
        shaper.take_up(kept)
    pieces = [piece for piece in drawn if isinstance(piece, PolicyPiece)]
    if not pieces:
        return None
    made = pieces[0].round
    answers = sum(len(example.completions) for example in made.examples)
    what = f"a round of {answers} short answers"
    if not bool(made.told.advantage_NT.any()):
        # As good as each other, so that nothing could be learnt of them.
        sign_N = 1 - 2 * torch.arange(answers).remainder(2)
        advantage_NT = sign_N[:, None].expand_as(made.told.advantage_NT).to(made.told.advantage_NT)
        made = replace(made, told=replace(made.told, advantage_NT=advantage_NT))
        what += ", called good and bad in turn"
    later = [replace(piece, round=made, first=False, only=False) for piece in pieces]
    return Trial(lesson=lesson, batch=tuple(later), what=what)


def _small(rounds: Rounds) -> Rounds:
    """Rounds of their own, with few and short answers."""
    collector = rounds.collector
    sampling = replace(collector.sampling, max_tokens=min(DRAWN, collector.sampling.max_tokens))
    return replace(
        rounds,
        collector=replace(collector, sampling=sampling, answers=min(2, collector.answers)),
        experience=replace(rounds.experience, minibatches=1, epochs=1),
        beside=_nothing_beside,
        curriculum=None,
        replay=None,
    )


def _nothing_beside(step: int) -> Sequence[Any]:
    del step
    return ()
