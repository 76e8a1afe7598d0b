"""Making an example fit: the prompt gives way from the left, an answer never loses its end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from plaudit.batches.tokens import Example
from plaudit.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A row that cannot be trained, and why.

    Example: ``Refused(origin="a.jsonl:3", reason="an answer of 3,000 tokens does not fit in 2,048")``
    """

    origin: str
    """File and row."""
    reason: str
    """What is wrong with it, and what would help."""


def cut(example: Example, max_tokens: int, *, bos: int | None = None) -> Example | Refused:
    """The example in at most ``max_tokens`` a row: its prompt cut from the left, its answers whole.

    All K answers keep the same prompt, so the longest decides. A leading ``bos`` stays, and so does at
    least one token of the prompt behind it.

    >>> from plaudit.batches.tokens import Completion
    >>> answer = Completion(ids=(7, 2), mask=(True, True), finished=True)
    >>> shorter = cut(Example(prompt=(1, 5, 6, 8), completions=(answer,)), 4, bos=1)
    >>> shorter.prompt
    (1, 8)
    """
    if max_tokens < 2:
        raise UserError(
            f"a row of at most {max_tokens} tokens has no room for a prompt and an answer; allow more"
        )
    longest = max(len(completion.ids) for completion in example.completions)
    head = 1 if bos is not None and example.prompt[:1] == (bos,) else 0
    room = max_tokens - longest
    if room >= len(example.prompt):
        return example
    if room < head + 1:
        return Refused(
            origin=example.origin,
            reason=f"an answer of {longest:,} tokens does not fit in {max_tokens:,} beside its prompt; "
            "cut short it could never end: allow longer rows, or shorten the answer",
        )
    kept = example.prompt[len(example.prompt) - (room - head) :]
    return replace(example, prompt=example.prompt[:head] + kept)


def describe_cut(before: Example, after: Example) -> str | None:
    """What ``cut`` took away, in words; None when it took nothing."""
    gone = len(before.prompt) - len(after.prompt)
    if gone == 0:
        return None
    where = f"{before.origin}: " if before.origin else ""
    of = f"{len(before.prompt):,}"
    return f"{where}{gone:,} of {of} prompt tokens were cut from its start to let the answer fit whole"
