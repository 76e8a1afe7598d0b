"""PRM800K: solutions with a label for each step (Lightman et al. 2023, https://arxiv.org/abs/2305.20050)."""

from __future__ import annotations

from collections.abc import Iterator

from plaudit.data.fields import (
    BadRowError,
    LeftOutError,
    Node,
    optional_name,
    require_not_empty,
)
from plaudit.data.formats.layout import OBJECT, ReadOptions, RowFormat
from plaudit.data.records import Record, Steps

_LabelledSteps = tuple[tuple[str, float], ...]


def _prm800k(row: Node, origin: str, options: ReadOptions) -> tuple[Record, ...]:
    """The solution that the labeller followed; each rated step beside it is a solution that ends there."""
    problem = row.get("question").get("problem").text()
    solutions = tuple(_solutions(row.get("label").get("steps"), options.neutral))
    if not solutions:
        raise LeftOutError("problems without a labelled step")
    return tuple(
        Steps(
            prompt=problem,
            steps=tuple(step for step, _ in solution),
            labels=tuple(label for _, label in solution),
            annotator=optional_name(row, "labeler"),
            origin=origin,
        )
        for solution in solutions
    )


def _solutions(steps: Node, neutral: float) -> Iterator[_LabelledSteps]:
    followed: _LabelledSteps = ()
    for step in steps.items():
        completions = _completions(step)
        chosen_index = _chosen_index(step, len(completions))
        for i, completion in enumerate(completions):
            label = _label(completion, neutral)
            # A side step ends its own solution: nobody rated what would have followed it.
            if i != chosen_index and label is not None:
                yield (*followed, (_step_text(completion), label))
        followed_step = (
            completions[chosen_index] if chosen_index is not None else step.optional("human_completion")
        )
        if followed_step is None:
            break
        # What the labeller wrote in place of all completions counts as right.
        label = 1.0 if chosen_index is None else _label(followed_step, neutral)
        # Beyond a step that nobody rated, nothing is known of the solution.
        if label is None:
            break
        followed = (*followed, (_step_text(followed_step), label))
    if followed:
        yield followed


def _completions(step: Node) -> tuple[Node, ...]:
    """The rated completions of a step; null where the labeller only wrote one."""
    node = step.optional("completions")
    return () if node is None else node.items()


def _chosen_index(step: Node, count: int) -> int | None:
    node = step.optional("chosen_completion")
    if node is None:
        return None
    index = int(node.number())
    if not 0 <= index < count:
        raise BadRowError("wrong value", node.path, expected=f"an index below {count}", found=str(index))
    return index


def _label(completion: Node, neutral: float) -> float | None:
    """1 right, 0 wrong, the reader's choice between; None where nobody rated it."""
    node = completion.optional("rating")
    if node is None:
        return None
    if node.value not in (-1, 0, 1):
        raise node.error("wrong value", "-1, 0 or 1")
    return {-1.0: 0.0, 0.0: neutral, 1.0: 1.0}[node.number()]


def _step_text(completion: Node) -> str:
    text = completion.get("text")
    return str(require_not_empty(text.text(), text.path))


STEP_FORMATS = (
    RowFormat(
        name="prm800k",
        title="PRM800K",
        schema={"question": OBJECT, "label": OBJECT},
        optional_fields=frozenset(["labeler"]),
        parse=_prm800k,
        produces="steps: the path followed and each rated side step; a neutral 0 is 0.5, or what `neutral` "
        "says",
    ),
)
