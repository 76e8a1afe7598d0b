"""What a model has replied so far, and what that cost: alike for a server, a folder and a function.

A reply is known by the hash of all that it depends on, so nothing is asked, or paid for, twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from plaudit.feedback.judges.cache import Reply, ReplyCache, cache_key
from plaudit.feedback.judges.money import FREE, Estimate, Prices, Purse, estimated_tokens
from plaudit.feedback.judges.wording import Conversation, Question, sound_id

PICTURE_TOKENS = 1500
"""The most tokens that servers count for a picture of `LONG_SIDE` pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    question: Question | Conversation
    words: tuple[str, ...] = ()
    """The words whose log-probs are wanted; none: no log-probs are asked for."""
    is_word: bool = False
    """Whether the reply is to be one of these words and nothing else."""
    temperature: int | float = 0.0
    max_tokens: int = 512
    seed: int | None = None
    """What tells one draw of the same question from another."""

    def prompt_tokens(self, number: str = "0" * 16) -> int:
        """How many tokens the question has, rather more than less."""
        return estimated_tokens(self.question.text(number)) + PICTURE_TOKENS * len(self.question.pictures)


class WithLedger(Protocol):
    @property
    def ledger(self) -> ReplyLedger: ...

    def estimate(self, requests: Sequence[ChatRequest]) -> Estimate:
        """What is still to be asked, and what it costs at most."""
        return self.ledger.estimate(requests)

    def spent(self, requests: Sequence[ChatRequest]) -> tuple[int, float]:
        """The tokens and the price of the replies that are there."""
        return self.ledger.spent(requests)


class Asker(WithLedger, Protocol):
    """Whatever a model can be asked through: a server, a folder on this machine, or a function."""

    @property
    def model(self) -> str: ...

    def replies(self, requests: Sequence[ChatRequest]) -> list[Reply | str]:
        """The reply to each, from disk or the model, or why there is none; the same request is asked once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyLedger:
    identity: Mapping[str, object]
    """Who replies: what a reply depends on beside the question."""
    cache: ReplyCache
    prices: Prices | None = None
    """What its tokens cost; None: nobody knows."""
    purse: Purse = field(default_factory=Purse, compare=False)

    def key(self, request: ChatRequest) -> str:
        """The hash of everything that a reply depends on."""
        # By their pixels: the same one under another name is not asked about anew.
        ids = tuple(map(sound_id, request.question.pictures))
        wanted = {"words": request.words, "seed": request.seed, "pictures": ids}
        fields = {
            **self.identity,
            "wording": request.question.version,
            "temperature": float(request.temperature),
            "max_tokens": request.max_tokens,
            # Without a number, which is drawn for each call and would make every key a new one.
            "question": request.question.text(),
        }
        return cache_key(fields | {name: value for name, value in wanted.items() if value not in ((), None)})

    def known(self, requests: Mapping[str, ChatRequest]) -> dict[str, Reply]:
        """Those of these requests, by their keys, that have a reply on disk; what they cost is counted."""
        found = dict[str, Reply]()
        for key, request in requests.items():
            for number in range(self.cache.losses(key)):
                self._pay_loss(key, request, number)
            if (reply := self.cache.find(key)) is not None:
                found[key] = reply
                self.purse.pay(key, *self.cost(request, reply))
        return found

    def store(self, key: str, request: ChatRequest, reply: Reply) -> None:
        # Kept before it is counted: whatever stops the run afterwards, no paid reply is lost.
        # To wait for the disk takes longer than a small model's reply; what costs nothing can be made again.
        self.cache.store(key, reply, sync=self.prices != FREE)
        self.purse.pay(key, *self.cost(request, reply))

    def lose(self, key: str, request: ChatRequest) -> None:
        """Count a request that was sent and whose reply did not come: it may be charged all the same."""
        self._pay_loss(key, request, self.cache.add_loss(key) - 1)

    def _pay_loss(self, key: str, request: ChatRequest, number: int) -> None:
        # The server most likely wrote to the end, and how much that was nobody knows: the most is counted.
        self.purse.pay(f"{key} lost {number}", *self._most(request))

    def _most(self, request: ChatRequest) -> tuple[float, int]:
        prompt = request.prompt_tokens()
        cost = 0.0 if self.prices is None else self.prices.cost(prompt, request.max_tokens)
        return cost, prompt + request.max_tokens

    @contextmanager
    def reserved(self, request: ChatRequest) -> Iterator[None]:
        """While this lasts, what a request costs at most is put aside; `CapReachedError` for too much."""
        most = 0.0 if self.prices is None else self._most(request)[0]
        self.purse.reserve(most)
        try:
            yield
        finally:
            self.purse.settle(most)

    def cost(self, request: ChatRequest, reply: Reply) -> tuple[float, int]:
        """What a reply cost and how many tokens it took; by its length where nobody has counted."""
        prompt, replied = reply.prompt_tokens, reply.reply_tokens
        prompt = request.prompt_tokens(reply.number) if prompt is None else prompt
        replied = estimated_tokens(reply.text) if replied is None else replied
        return (0.0 if self.prices is None else self.prices.cost(prompt, replied)), prompt + replied

    def estimate(self, requests: Sequence[ChatRequest]) -> Estimate:
        by_key = {self.key(request): request for request in requests}
        cached = {key: reply for key in by_key if (reply := self.cache.find(key)) is not None}
        left = [request for key, request in by_key.items() if key not in cached]
        prompt = sum(request.prompt_tokens() for request in left)
        reply = sum(request.max_tokens for request in left)
        cost = None
        if self.prices is not None:
            paid = sum(self.cost(by_key[key], reply)[0] for key, reply in cached.items())
            paid += sum(self.cache.losses(key) * self._most(by_key[key])[0] for key in by_key)
            cost = paid + self.prices.cost(prompt, reply)
        return Estimate(
            questions=len(by_key), cached=len(cached), prompt_tokens=prompt, reply_tokens=reply, cost=cost
        )

    def spent(self, requests: Sequence[ChatRequest]) -> tuple[int, float]:
        tokens, price = 0, 0.0
        for request in requests:
            reply = self.cache.find(self.key(request))
            if reply is not None:
                cost, count = self.cost(request, reply)
                tokens, price = tokens + count, price + cost
        return tokens, price
