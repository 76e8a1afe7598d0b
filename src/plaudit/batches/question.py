"""A prompt that waits for answers: what a policy is sampled on, and what a reward may know of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plaudit.batches.cut import Refused
from plaudit.batches.rows import Encoding
from plaudit.batches.template import Encoder
from plaudit.errors import UserError
from plaudit.records.feedback import Prompt, Record
from plaudit.records.judging import Task
from plaudit.records.messages import Text, assistant_says, user_says

REPEATED = "a prompt that an earlier row has too is asked only once"
"""Said of rows with the prompt of an earlier one."""
PLAIN = (
    "a prompt in plain text is asked as a user's turn, since the model has a chat template, and the reward "
    "is shown it in plain text; where a reward model learnt from conversations, give prompts as messages"
)
"""Said of rows that the policy and a reward model may read unlike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One prompt.

    Example: ``Question(text="2 + 2 =", prompt=(1, 5, 9), truth="4", origin="sums.jsonl:3")``
    """

    text: Text
    """What is asked."""
    prompt: tuple[int, ...]
    """The tokens that the model is shown."""
    truth: str | None = None
    """The reference answer, when there is one."""
    facts: Mapping[str, object] = field(default_factory=dict[str, object], hash=False)
    """Whatever else its row carried."""
    origin: str = ""
    """File and row."""

    def task(self, answers: Iterable[tuple[str, bool]]) -> Task:
        """What a reward is asked: answers, and whether each ended by itself; of a conversation, as turns."""
        said = tuple(answers)
        plain = isinstance(self.text, str)
        return Task(
            prompt=self.text,
            answers=tuple(text if plain else assistant_says(text) for text, _ in said),
            ended=tuple(ended for _, ended in said),
            truth=self.truth,
            facts=self.facts,
        )


def questions_of(records: Iterable[Record], encoder: Encoder, longest: int) -> Encoding[Question]:
    """The prompts of records of any kind, each once; ``longest`` leaves room for an answer."""
    found: dict[tuple[int, ...], Question] = {}
    refused: list[Refused] = []
    repeated = 0
    for record in records:
        try:
            question = _question(record, encoder)
        except UserError as error:
            refused.append(Refused(origin=record.origin, reason=str(error)))
            continue
        if len(question.prompt) > longest:
            reason = (
                f"the prompt has {len(question.prompt):,} tokens, and with room for an answer there is space "
                f"for {longest:,}; shorten it, or let answers be shorter"
            )
            refused.append(Refused(origin=record.origin, reason=reason))
        elif question.prompt in found:
            repeated += 1
        else:
            found[question.prompt] = question
    plain = sum(isinstance(one.text, str) for one in found.values()) if encoder.manner is not None else 0
    notes = {said: rows for said, rows in ((REPEATED, repeated), (PLAIN, plain)) if rows}
    return Encoding(examples=tuple(found.values()), refused=tuple(refused), notes=notes)


def _question(record: Record, encoder: Encoder) -> Question:
    text = record.prompt
    turns = user_says(text) if isinstance(text, str) and encoder.manner is not None else text
    bare = record if isinstance(record, Prompt) else None
    return Question(
        text=record.prompt,
        prompt=encoder.encode_prompt(turns),
        truth=None if bare is None else bare.answer,
        facts={} if bare is None else bare.metadata,
        origin=record.origin,
    )
