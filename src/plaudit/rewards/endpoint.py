"""A reward that answers over HTTP: a judge, a verifier or a model that runs elsewhere.

One POST for the answers of one prompt: ``{"prompt": …, "answers": […], "truth": …}`` (``truth`` where there
is one), to which ``{"scores": [number or null, …]}`` is the answer. A prompt is a string or a list of
``{"role", "content"}``. What the network or the server fails at is no verdict, with a reason, after a few
attempts; what no repetition mends (a wrong answer, a refusal) ends the run with what to do.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from plaudit.errors import UserError
from plaudit.records.judging import Task
from plaudit.records.messages import Text, words
from plaudit.rewards.posting import MOST_BYTES, Manners, UnreachedError, address, headers, patiently, posted
from plaudit.rewards.reward import Row

__all__ = ["MOST_BYTES", "EndpointReward", "Manners"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """Some answers of one task.

    Example: ``_Question(task=task, answers=("Mice.",))``
    """

    task: Task
    answers: tuple[Text, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointReward:
    """An HTTP endpoint as a reward.

    Example: ``EndpointReward(url="http://127.0.0.1:8000/score", manners=Manners(seconds=10))``
    """

    url: str
    """Where to POST: http or https."""
    manners: Manners = field(default_factory=Manners)
    """How."""
    reasons: Counter[str] = field(default_factory=Counter[str], compare=False)
    """Filled as answers come."""

    def __post_init__(self) -> None:
        """Refuse what is no address of this kind, and a token that is not there."""
        address(self.url)
        headers(self.manners)

    @property
    def name(self) -> str:
        """What tables and pages call it: where it is, without what may be secret in a query."""
        parts = address(self.url)
        return f"{parts.netloc}{parts.path}"

    @property
    def refused(self) -> Mapping[str, int]:
        """Each reason for having had no verdict, and how many answers it held for so far."""
        return dict(self.reasons)

    def scores(self, tasks: Sequence[Task]) -> tuple[Row, ...]:
        """A row for each task; None where the endpoint says null, or could not be had."""
        size = self.manners.answers_at_once
        questions = [
            [_Question(task=task, answers=task.answers[at : at + size])]
            for task in tasks
            for at in range(0, len(task.answers), size)
        ]
        with ThreadPoolExecutor(self.manners.requests_at_once) as pool:
            said = list(pool.map(lambda one: self._row(one[0]), questions))
        for row in said:
            if isinstance(row, tuple) and isinstance(row[0], str):
                self.reasons[row[0]] += len(row)
        scores = iter([None if isinstance(one, str) else one for row in said for one in row])
        return tuple(tuple(next(scores) for _ in task.answers) for task in tasks)

    def _row(self, question: _Question) -> tuple[float | None, ...] | tuple[str, ...]:
        """The scores, or for each answer the reason for having none."""
        try:
            content = patiently(
                self.name, self.manners, lambda: posted(self.url, self.manners, _body(question))
            )
        except UnreachedError as error:
            return (str(error),) * len(question.answers)
        return _read(self.name, question, content)


def _body(question: _Question) -> bytes:
    prompt = question.task.prompt
    if not isinstance(prompt, str):
        shown: object = [{"role": message.role, "content": words((message,))} for message in prompt]
    else:
        shown = prompt
    truth = {} if question.task.truth is None else {"truth": question.task.truth}
    answers = [words(answer) for answer in question.answers]
    return json.dumps({"prompt": shown, "answers": answers, **truth}).encode()


def _read(name: str, question: _Question, content: bytes) -> tuple[float | None, ...]:
    asked = len(question.answers)
    try:
        said = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} answers what is not JSON: {content[:80]!r} ({error})") from error
    scores = said.get("scores") if isinstance(said, dict) else None
    if not isinstance(scores, list) or len(scores) != asked:
        found = f"{len(scores)} scores" if isinstance(scores, list) else f"{content[:80]!r}"
        raise UserError(
            f'{name} was asked about {asked} answers and says {found}; expected {{"scores": […]}}'
        )
    return tuple(_score(name, one) for one in scores)


def _score(name: str, said: object) -> float | None:
    if said is None:
        return None
    if isinstance(said, bool) or not isinstance(said, int | float) or not math.isfinite(float(said)):
        raise UserError(f"{name} gives the score {said!r}; a score is a finite number, or null")
    return float(said)
