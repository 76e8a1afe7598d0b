"""A model behind an OpenAI-compatible server as a judge, by its word."""

from __future__ import annotations

from dataclasses import replace

from plaudit.feedback.judges.cache import ReplyCache
from plaudit.feedback.judges.chat import ChatServer
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.money import Purse
from plaudit.feedback.judges.words import HowToAsk, parse_judge_word
from plaudit.files.chat import parse_server
from plaudit.files.posting import RetryPolicy


def endpoint_judge(
    word: str,
    cache: ReplyCache,
    retry_policy: RetryPolicy | None = None,
    *,
    ask: HowToAsk | None = None,
    purse: Purse | None = None,
) -> ModelJudge:
    """The judge of ``openai:http://host:port/v1#model,how=letter``; what its word leaves open is in ``ask``.

    >>> import tempfile; from pathlib import Path
    >>> cache = ReplyCache(folder=Path(tempfile.mkdtemp()))
    >>> endpoint_judge("openai:http://127.0.0.1:8000/v1#small-judge", cache).name
    'small-judge'
    """
    parsed = parse_judge_word(word)
    url, model = parse_server(parsed.place)
    chosen = parsed.how(ask)
    retry_policy = retry_policy or RetryPolicy()
    if chosen.requests is not None:
        retry_policy = replace(retry_policy, requests_at_once=chosen.requests)
    if chosen.token_from is not None:
        retry_policy = replace(retry_policy, token_from=chosen.token_from)
    server = ChatServer(
        url=url,
        model=model,
        cache=cache,
        retry_policy=retry_policy,
        prices=chosen.price,
        purse=purse or Purse(),
    )
    return ModelJudge(asker=server, ask=chosen)
