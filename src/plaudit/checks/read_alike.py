"""What a reward model is shown of a conversation: all its words, in its own turns, and nothing stranger."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.checks.check import Result, failed, not_applicable, passed
from plaudit.checks.subject import Subject
from plaudit.checks.tasks import leaves, one_answer_each
from plaudit.errors import UserError
from plaudit.models.pad_token import other_token
from plaudit.records.judging import Task
from plaudit.records.messages import Text, words
from plaudit.rewards.learned import LearnedReward

ROWS = 4
"""Prompts that are rendered."""


def template(subject: Subject) -> Result:
    """A few prompts with an answer are rendered by the policy's template and by that of the reward model.

    The text of the reward model's tokens must hold every word that the policy's holds, in its order, and no
    control token of the policy may stand there as ordinary letters. A template of its own is no fault: it is
    told.
    """
    if subject.reward is None:
        own = subject.scorer is not None
        return not_applicable(
            "the reward model reads by the run's own template" if own else "there is no reward"
        )
    parts = [leaf for leaf in leaves(subject.reward) if isinstance(leaf, LearnedReward)]
    rows = one_answer_each(subject, ROWS)
    if not parts or not rows:
        return not_applicable("no reward model is read here" if not parts else "no prompt can be asked")
    for part in parts:
        for origin, task in rows:
            wrong = _wrong(subject.encoder, part.encoder, task)
            if wrong is not None:
                return failed(f"{part.name}, {origin}: {wrong}")
    return passed("; ".join(f"{part.name} {_manner(subject.encoder, part.encoder, rows)}" for part in parts))


def _wrong(policy: Encoder, reader: Encoder, task: Task) -> str | None:
    """What the reader misses, or is shown as letters; None where all is well."""
    try:
        example = reader.encode(task.prompt, task.answers)
    except UserError as error:
        return f"it cannot read this: {error}"
    known = reader.info.tokenizer.get_vocab()
    told = "\n".join(words(text) for text in (task.prompt, *task.answers))
    strange = [one for one in policy.info.specials if len(one) > 2 and one in told and one not in known]
    if strange:
        return f"the policy's control token {strange[0]!r} stands in the text, and it is shown it as letters"
    lost = _lost(_shown(reader, example), task)
    if lost is None or _lost(_shown(policy, _by_policy(policy, task)), task) is not None:
        return None
    return f"{lost[:80]!r} is not among what it is shown: {_shown(reader, example)[-120:]!r}"


def _by_policy(policy: Encoder, task: Task) -> Example | None:
    """The same as the policy would be trained on it; None where it cannot be."""
    try:
        return policy.encode(task.prompt, task.answers)
    except UserError:
        return None


def _shown(reader: Encoder, example: Example | None) -> str:
    if example is None:
        return ""
    return reader.info.decode((*example.prompt, *example.completions[0].ids))


def _lost(shown: str, task: Task) -> str | None:
    """The first turn whose words do not stand in the text behind those of the turn before; None: all do."""
    text, here = _squeezed(shown), 0
    for turn in (*_turns(task.prompt), *_turns(task.answers[0])):
        found = text.find(_squeezed(turn), here)
        if found < 0:
            return turn
        here = found + len(_squeezed(turn))
    return None


def _turns(text: Text) -> list[str]:
    return [text] if isinstance(text, str) else [words((message,)) for message in text]


def _squeezed(text: str) -> str:
    """Without what a tokenizer may write in another way: blanks, capitals, forms of one sign."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def _manner(policy: Encoder, reader: Encoder, rows: Sequence[tuple[str, Task]]) -> str:
    """How the reader is shown what the policy says."""
    if policy.manner is not None and isinstance(rows[0][1].prompt, str):
        how = "is shown these prompts in plain text, while the policy is asked them as a user's turn"
        return (
            how
            if reader.manner is None
            else f"{how}; if it learnt from conversations, give prompts as messages"
        )
    if policy.template != reader.template:
        return "has a template of its own, in which no word is lost"
    same = other_token(policy.info, reader.info) is None
    return (
        f"reads by the policy's template, in {'the same' if same else 'tokens of its own'}{' tokens' * same}"
    )
