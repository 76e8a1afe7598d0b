"""A reward that answers over HTTP: a judge, a verifier or a model that runs elsewhere.

One POST for the answers of one prompt: ``{"prompt": …, "answers": […]}``, with ``"reference_answer"`` where
there is one, to which ``{"scores": [number or null, …]}`` is the answer. A prompt is a string or a list
of ``{"role", "content"}``. The server may be slow, busy or gone: attempts are repeated with growing waits and
limits of time and bytes. What still fails is no verdict, with a reason; what no repetition mends (a wrong
answer, a refusal, a wrong address) is an error with what to do.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import ClassVar

from plaudit.data.records import Task, plain_text, tool_fields, words_of
from plaudit.errors import UserError
from plaudit.files import exact_json, posting
from plaudit.rewards.base import RewardTraits, TaskScores


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointReward:
    url: str
    retry_policy: posting.RetryPolicy = field(default_factory=posting.RetryPolicy)
    traits: ClassVar[RewardTraits] = RewardTraits(exact=True, remote=True)
    refused: Counter[str] = field(default_factory=Counter[str], compare=False)

    def __post_init__(self) -> None:
        posting.parse_url(self.url)
        posting.request_headers(self.retry_policy)

    @property
    def name(self) -> str:
        """What tables and pages call it: where it is, without what may be secret in a query."""
        parts = posting.parse_url(self.url)
        return f"{parts.netloc}{parts.path}"

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """A row for each task; None where the endpoint says null, or could not be had."""
        size = self.retry_policy.answers_at_once
        requests = [
            replace(task, answers=task.answers[at : at + size], ended=task.ended[at : at + size])
            for task in tasks
            for at in range(0, len(task.answers), size)
        ]
        with ThreadPoolExecutor(self.retry_policy.requests_at_once) as pool:
            results = list(pool.map(self._request_scores, requests))
        for row in results:
            if isinstance(row, tuple) and isinstance(row[0], str):
                self.refused[row[0]] += len(row)
        scores = iter([None if isinstance(item, str) else item for row in results for item in row])
        return tuple(tuple(next(scores) for _ in task.answers) for task in tasks)

    def _request_scores(self, request: Task) -> tuple[float | None, ...] | tuple[str, ...]:
        try:
            content = posting.with_retries(
                self.name,
                self.retry_policy,
                lambda: posting.post(self.url, self.retry_policy, _score_request_body(request)),
            )
        except posting.UnreachableError as error:
            return (str(error),) * len(request.answers)
        return _parse_scores(self.name, request, content)


def _score_request_body(request: Task) -> bytes:
    prompt = request.prompt
    if not isinstance(prompt, str):
        prompt_json: object = [
            {"role": message.role, "content": words_of(message), **tool_fields(message)} for message in prompt
        ]
    else:
        prompt_json = prompt
    reference_answer = request.reference_answer
    reference = {} if reference_answer is None else {"reference_answer": reference_answer}
    answers = [plain_text(answer) for answer in request.answers]
    return json.dumps({"prompt": prompt_json, "answers": answers, **reference}).encode()


def _parse_scores(name: str, request: Task, content: bytes) -> tuple[float | None, ...]:
    expected = len(request.answers)
    try:
        response = exact_json.loads_foreign(content)
    except ValueError as error:
        raise UserError(f"{name} answers what is not JSON: {content[:80]!r} ({error})") from error
    scores = response.get("scores") if isinstance(response, dict) else None
    if not isinstance(scores, list) or len(scores) != expected:
        received = f"{len(scores)} scores" if isinstance(scores, list) else f"{content[:80]!r}"
        raise UserError(
            f'{name} was asked about {expected} answers and says {received}; expected {{"scores": […]}}'
        )
    return tuple(_parse_score(name, score) for score in scores)


def _parse_score(name: str, value: object) -> float | None:
    if value is None:
        return None
    score = math.nan
    # To Python JSON's true is an int.
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            score = float(value)
        # An integer of more than some 300 digits.
        except OverflowError:
            score = math.inf
    # JSON's parser takes NaN.
    if not math.isfinite(score):
        raise UserError(
            f"{name} gives the score {posting.excerpt_of(value)}; a score is a finite number, or null"
        )
    return score
