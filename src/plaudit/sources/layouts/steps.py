"""PRM800K: solutions with a label for each step (Lightman et al. 2023, https://arxiv.org/abs/2305.20050)."""

from __future__ import annotations

from collections.abc import Iterator

from plaudit.records.feedback import Record, Steps
from plaudit.sources.conversation import not_empty
from plaudit.sources.layouts.layout import OBJECT, Layout, ReadOptions
from plaudit.sources.node import Node, optional_name
from plaudit.sources.problems import BadRowError, LeftOutError, shown

_Labelled = tuple[tuple[str, float], ...]


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


def _solutions(steps: Node, neutral: float) -> Iterator[_Labelled]:
    followed: _Labelled = ()
    for step in steps.items():
        completions = _completions(step)
        chosen = _chosen(step, len(completions))
        for i, completion in enumerate(completions):
            label = _label(completion, neutral)
            if i != chosen and label is not None:
                yield (*followed, (_words(completion), label))
        taken = completions[chosen] if chosen is not None else step.maybe("human_completion")
        if taken is None:
            break
        label = 1.0 if chosen is None else _label(taken, neutral)
        if label is None:
            break
        followed = (*followed, (_words(taken), label))
    if followed:
        yield followed


def _completions(step: Node) -> tuple[Node, ...]:
    """The rated completions of a step; null where the labeller only wrote one."""
    node = step.maybe("completions")
    return () if node is None else node.items()


def _chosen(step: Node, count: int) -> int | None:
    node = step.maybe("chosen_completion")
    if node is None:
        return None
    index = int(node.number())
    if not 0 <= index < count:
        raise BadRowError("wrong value", node.path, expected=f"an index below {count}", found=str(index))
    return index


def _label(completion: Node, neutral: float) -> float | None:
    """1 right, 0 wrong, the reader's choice between; None where nobody rated it."""
    node = completion.maybe("rating")
    if node is None:
        return None
    if node.value not in (-1, 0, 1):
        raise BadRowError("wrong value", node.path, expected="-1, 0 or 1", found=shown(node.value))
    return {-1.0: 0.0, 0.0: neutral, 1.0: 1.0}[node.number()]


def _words(completion: Node) -> str:
    text = completion.get("text")
    return str(not_empty(text.text(), text.path))


STEP_LAYOUTS = (
    Layout(
        name="prm800k",
        title="PRM800K",
        schema={"question": OBJECT, "label": OBJECT},
        also=frozenset(["labeler"]),
        parse=_prm800k,
        gives="steps: the path followed and each rated side step; a neutral 0 is 0.5, or what `neutral` says",
    ),
)
"""PRM800K."""
