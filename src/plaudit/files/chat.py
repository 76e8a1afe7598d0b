"""Servers of chat completions: how a word names one with its model, and what an answer of it holds."""

from dataclasses import dataclass
from typing import Any

from plaudit.errors import UserError
from plaudit.files import exact_json
from plaudit.files.posting import TransientError, excerpt_of, is_passing_status, parse_url

_SERVER = "openai:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    text: str
    refused: bool
    cut: bool
    """Whether it ended at the most tokens of a reply."""
    prompt_tokens: int | None
    reply_tokens: int | None
    logprobs: Any = None
    """As the server gave them: whatever that is."""


def parse_server(word: str) -> tuple[str, str]:
    """The address and the model of a server's word, or a complaint.

    >>> parse_server("openai:http://127.0.0.1:8000/v1#small-judge")
    ('http://127.0.0.1:8000/v1', 'small-judge')
    """
    url, _, model = word.removeprefix(_SERVER).partition("#")
    if not model:
        raise UserError(f"{word}: name the model behind a #, as in openai:http://127.0.0.1:8000/v1#model")
    parse_url(url)
    return url, model


def read_completion(url: str, content: bytes) -> Completion:
    """What the server's JSON holds; a server that speaks another language is refused."""
    try:
        body: Any = exact_json.loads_foreign(content)
    except ValueError as error:
        raise _another_language(url, content, f" ({error})") from error
    _refuse_error(url, body)
    try:
        choice: Any = body["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        text, refusal = message.get("content"), message.get("refusal")
    except (LookupError, TypeError, AttributeError) as error:
        raise _another_language(url, content) from error
    # A refusal may come without words; a list or a number in their place is another language.
    if not isinstance(text, str | None):
        raise _another_language(url, content, f" (its content is {text!r:.40}, not text)")
    usage = body.get("usage")
    return Completion(
        text=text or "",
        refused=bool(refusal) or finish == "content_filter",
        cut=finish == "length",
        logprobs=choice.get("logprobs"),
        prompt_tokens=_count(usage, "prompt_tokens"),
        reply_tokens=_count(usage, "completion_tokens"),
    )


def _another_language(url: str, content: bytes, why: str = "") -> UserError:
    return UserError(
        f"{url} answers {content[:120]!r}; expected the JSON of a chat completion with "
        f"choices[0].message{why}"
    )


def _refuse_error(url: str, body: Any) -> None:
    """An error that comes under status 200, as some proxies send it."""
    error = body.get("error") if isinstance(body, dict) else None
    if not error or body.get("choices"):
        return
    message = error.get("message", error) if isinstance(error, dict) else error
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and is_passing_status(code):
        raise TransientError(f"an error under status 200: {code} {excerpt_of(message)}")
    raise UserError(f"{url} answers status 200 with an error in it: {excerpt_of(message)}")


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
