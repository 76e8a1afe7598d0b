"""Chat completions as OpenAI's clients ask for them: a request becomes turns and settings, answers its reply.

Pictures come as data URLs. A server that fetched an address, or opened a file, would do so for whoever asks.
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from plaudit.data.fields import Node
from plaudit.data.records import Part, parts_of, pictures
from plaudit.data.turns import Turns, read_messages
from plaudit.errors import UserError
from plaudit.files.pictures import open_picture
from plaudit.rollouts.sampler import Answer, SamplingSettings

MOST_PICTURES = 32
MOST_ANSWERS = 128
MOST_TOKENS = 1024
"""The room of an answer where the request names none."""
_NOT_SERVED = ("logprobs", "tools", "functions", "response_format")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatQuestion:
    """A request, as far as it is served.
    Example: ``read_question({"messages": [{"role": "user", "content": "Hi"}], "n": 2}, "tiny")``."""

    turns: Turns
    settings: SamplingSettings
    answers: int
    streamed: bool
    facts: Mapping[str, Any]
    """What stands in every reply to it: an id, the time, the model."""

    def completion(self, answers: Sequence[Answer], prompt_tokens: int) -> dict[str, Any]:
        """The reply with whole answers."""
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": answer.text},
                "finish_reason": finish_reason(answer),
            }
            for index, answer in enumerate(answers)
        ]
        tokens = sum(answer.tokens for answer in answers)
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": tokens}
        usage["total_tokens"] = prompt_tokens + tokens
        return {**self.facts, "object": "chat.completion", "choices": choices, "usage": usage}

    def chunk(self, index: int, delta: Mapping[str, str], finish: str | None = None) -> dict[str, Any]:
        """A piece of an answer."""
        choice = {"index": index, "delta": delta, "finish_reason": finish}
        return {**self.facts, "object": "chat.completion.chunk", "choices": [choice]}


def read_question(body: Mapping[str, Any], model: str) -> ChatQuestion:
    """The turns and settings of a request's JSON; what cannot be served is refused in words."""
    for name in _NOT_SERVED:
        if body.get(name):
            raise UserError(f"{name}: not served here; leave it out")
    names = ("temperature", "top_p", "top_k", "min_p")
    given = {name: body[name] for name in names if body.get(name) is not None}
    room, seed, stop = (body.get(name) for name in ("max_tokens", "seed", "stop"))
    settings = SamplingSettings(
        max_tokens=room or body.get("max_completion_tokens") or MOST_TOKENS,
        seed=secrets.randbits(31) if seed is None else int(seed),
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        **given,
    )
    turns, answers = read_messages(Node(value=body["messages"], path="messages")), body.get("n") or 1
    if not 1 <= answers <= MOST_ANSWERS:
        raise UserError(f"n {answers}: expected 1 to {MOST_ANSWERS}")
    if len(sources := pictures(turns)) > MOST_PICTURES:
        raise UserError(f"{len(sources)} pictures are too many: send {MOST_PICTURES} at most")
    for source in sources:
        if not source.startswith("data:"):
            raise UserError(
                f"the picture {source[:80]!r}: nothing is fetched and no file opened here; send it as "
                "data:image/png;base64,…"
            )
    facts = {"id": f"chatcmpl-{secrets.token_hex(8)}", "created": int(time.time()), "model": model}
    streamed = bool(body.get("stream"))
    return ChatQuestion(turns=turns, settings=settings, answers=answers, streamed=streamed, facts=facts)


@contextmanager
def with_files(question: ChatQuestion) -> Iterator[Turns]:
    """The turns with each picture as a file, while they are answered.
    What is computed of a picture is kept by its name, and a name of megabytes would be kept as well."""
    with TemporaryDirectory(prefix="plaudit-") as folder:

        def stored(part: Part) -> Part:
            if part.source is None:
                return part
            path = Path(folder) / f"{blake2b(part.source.encode(), digest_size=16).hexdigest()}.png"
            open_picture(part.source).save(path)
            return replace(part, source=str(path))

        yield tuple(
            replace(turn, content=tuple(map(stored, parts_of(turn)))) if pictures((turn,)) else turn
            for turn in question.turns
        )


def finish_reason(answer: Answer) -> str:
    return "stop" if answer.ended else "length"
