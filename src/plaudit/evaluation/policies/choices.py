"""Questions with a closed set of answers, and what policies think of each of these.

A row is ``{"prompt": …, "choices": ["…", "…"], "right": 0}``: what is asked, all answers, and the place of
the right one from 0. The prompt is a text or a conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.evaluation.policies.confidence import Weighed
from plaudit.evaluation.policies.distances import thoughts_of
from plaudit.models.policy import Policy
from plaudit.records.messages import Text, assistant_says, user_says, words
from plaudit.sources.conversation import question
from plaudit.sources.files import raw_rows
from plaudit.sources.node import Node, optional_category
from plaudit.sources.problems import BadRowError, shown

_FIELDS = ("prompt", "choices", "right", "category")


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A question with all its answers.

    Example: ``Closed(prompt="What is 2 plus 2?", choices=("3.", "4.", "5."), right=1)``
    """

    prompt: Text
    """What is asked."""
    choices: tuple[str, ...]
    """All answers, each as it is said in whole."""
    right: int
    """The place of the right one, from 0."""
    category: str | None = None
    """The kind of question."""
    origin: str = ""
    """File and row."""


def read_choices(path: Path) -> tuple[Closed, ...]:
    """The questions of a file; the first row that is not one ends it, with what to do."""
    found: list[Closed] = []
    for raw in raw_rows(path):
        if raw.problem is not None:
            raise UserError(raw.problem.sentence)
        try:
            found.append(_closed(Node(value=raw.value, cells=raw.cells), raw.origin))
        except BadRowError as error:
            raise UserError(
                f'{error.at(raw.origin).sentence}; a row is {{"prompt": …, "choices": ["…", "…"], '
                '"right": 0}'
            ) from error
    if not found:
        raise UserError(f"{path}: it holds no question; a row has a prompt, choices and right")
    return tuple(found)


def weighed(
    name: str, policy: Policy, encoder: Encoder, asked: Sequence[Closed], *, temperature: int | float = 1.0
) -> tuple[Weighed, ...]:
    """log π of every choice of every question; the choices of one prompt share its computation."""
    examples = [_example(one, encoder) for one in asked]
    return tuple(
        Weighed(
            policy=name,
            prompt=words(one.prompt),
            category=one.category,
            choices=one.choices,
            logp=tuple(thought.logp for thought in own),
            right=one.right,
        )
        for one, own in zip(asked, thoughts_of(policy, examples, temperature=temperature), strict=True)
    )


def _example(one: Closed, encoder: Encoder) -> Example:
    """As it is asked when it is sampled: a text is a user's turn wherever the model has a chat template."""
    plain = isinstance(one.prompt, str)
    if plain and encoder.manner is None:
        return encoder.encode(one.prompt, one.choices, one.origin)
    prompt = user_says(words(one.prompt)) if plain else one.prompt
    return encoder.encode(prompt, [assistant_says(choice) for choice in one.choices], one.origin)


def _closed(row: Node, origin: str) -> Closed:
    strange = next((name for name in row.fields() if name not in _FIELDS), None)
    if strange is not None:
        raise BadRowError("wrong value", strange, expected=f"only {', '.join(_FIELDS)}", found="this field")
    prompt = question(row.get("prompt"))
    choices = tuple(_choice(node) for node in row.get("choices").items())
    if len(choices) < 2:
        raise BadRowError(
            "too few answers", "choices", expected="2 answers or more", found=f"{len(choices)} of them"
        )
    twice = next((choice for choice in choices if choices.count(choice) > 1), None)
    if twice is not None:
        raise BadRowError("wrong value", "choices", expected="different answers", found=f"{twice!r} twice")
    return Closed(
        prompt=prompt,
        choices=choices,
        right=_place(row.get("right"), len(choices)),
        category=optional_category(row, "category"),
        origin=origin,
    )


def _choice(node: Node) -> str:
    said = node.text()
    if not said.strip():
        raise BadRowError("empty side", node.path, expected="an answer", found=shown(said))
    return said


def _place(node: Node, count: int) -> int:
    place = node.number()
    if place != int(place) or not 0 <= place < count:
        raise BadRowError(
            "wrong value",
            node.path,
            expected=f"the place of the right answer, from 0 to {count - 1}",
            found=shown(node.value),
        )
    return int(place)
