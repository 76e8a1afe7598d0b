"""What people say beside verdicts, and the rows that each becomes.

A verdict on answers becomes rows in `plaudit.data.judging`. Here are the other words: an answer that was
written or edited, steps with labels, a conversation of two blind answers a turn, and an attack on a model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from plaudit.data.records import (
    Comparison,
    Demonstration,
    Message,
    Prompt,
    Rating,
    Steps,
    Text,
    answer_to,
    assistant_turn,
    plain_text,
    turns_of,
    user_turn,
)
from plaudit.errors import UserError

STORE_FILE = "labels.db"
"""What a label store is called where nobody named one."""
StepLabel = Literal["right", "neutral", "wrong"]
STEP_SCORES: dict[StepLabel, float] = {"right": 1.0, "neutral": 0.5, "wrong": 0.0}
"""The label of each as a number."""
MOST_SUCCESS = 4
"""How bad the answer to an attack can be; 0 is harmless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTurn:
    message: str
    answers: tuple[str, str]
    strength: int
    """How far the second is better than the first; negative where the first is."""


def written_rows(
    prompt: Text, words: str, draft: Text | None = None, **shared: Any
) -> list[Demonstration | Comparison]:
    """A demonstration; of an edit that changed something also a pair, edited above draft.

    >>> [type(row).__name__ for row in written_rows("Hi", "Hello", "Yo")]
    ['Demonstration', 'Comparison']
    """
    answer = answer_to(prompt, words)
    rows = list[Demonstration | Comparison]()
    rows.append(Demonstration(prompt=prompt, completion=answer, **shared))
    # An edit that changed nothing prefers nothing.
    if draft is not None and plain_text(draft).strip() != words.strip():
        rows.append(Comparison(prompt=prompt, chosen=answer, rejected=draft, **shared))
    return rows


def steps_row(prompt: Text, steps: Sequence[str], labels: Sequence[StepLabel], **shared: Any) -> Steps | None:
    """The labelled steps, without those behind the first error; None where no step was labelled.

    >>> steps_row("?", ("a", "b", "c"), ("right", "wrong")).labels
    (1.0, 0.0)
    """
    if not labels:
        return None
    if len(labels) > len(steps):
        raise UserError(f"{len(labels)} labels of {len(steps)} steps")
    scores = tuple(STEP_SCORES[label] for label in labels)
    return Steps(prompt=prompt, steps=tuple(steps[: len(labels)]), labels=scores, **shared)


def conversation_before(opening: Text, turns: tuple[ComparedTurn, ...], message: str) -> tuple[Message, ...]:
    """What both answers of a turn reply to: the opening, the better answers so far, and the message."""
    before = list[Message](() if opening == "" else turns_of(opening))
    for turn in turns:
        before += [*user_turn(turn.message), *assistant_turn(turn.answers[int(turn.strength > 0)])]
    return (*before, *user_turn(message))


def talk_rows(opening: Text, turns: tuple[ComparedTurn, ...], **shared: Any) -> list[Comparison]:
    """A comparison a turn, each with the conversation before it; none where both answers read the same.

    ``shared`` is what all rows have of `Provenance`.

    >>> turns = (ComparedTurn(message="Hi", answers=("Hello!", "What?"), strength=-2),)
    >>> plain_text(talk_rows("", turns)[0].chosen)
    'Hello!'
    """
    rows = list[Comparison]()
    for place, turn in enumerate(turns):
        better = int(turn.strength > 0)
        if turn.answers[0].strip() == turn.answers[1].strip():
            continue
        rows.append(
            Comparison(
                prompt=conversation_before(opening, turns[:place], turn.message),
                chosen=assistant_turn(turn.answers[better]),
                rejected=assistant_turn(turn.answers[1 - better]),
                strength=float(abs(turn.strength)),
                probability=0.5 if turn.strength == 0 else None,
                places=(better, 1 - better),
                **shared,
            )
        )
    return rows


def attack_rows(
    messages: tuple[Message, ...], *, success: int, worked: str | None = None, **shared: Any
) -> list[Rating | Prompt]:
    """How harmless the last answer was, from 0 to 4, and the attack as a prompt for every later policy.

    ``worked`` says how it came to succeed, ``shared`` is what the rating has of `Provenance`.
    """
    if not messages or messages[-1].role != "assistant":
        raise UserError("an attack ends with an answer of the model")
    if not 0 <= success <= MOST_SUCCESS:
        raise UserError(f"success {success}: expected 0 to {MOST_SUCCESS}")
    before = messages[:-1]
    rating = Rating(
        prompt=before,
        completion=messages[-1:],
        # Turned round, since a success of the attack is a failure of the answer.
        score=float(MOST_SUCCESS - success),
        aspect="harmlessness",
        **shared,
    )
    facts = {"attack_success": success, "category": rating.category, "worked": worked}
    metadata = {name: value for name, value in facts.items() if value is not None}
    return [rating, Prompt(prompt=before, metadata=metadata)]
