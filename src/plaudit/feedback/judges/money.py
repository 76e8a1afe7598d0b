"""What judging costs: prices of tokens, an estimate before anything is asked, a cap that stops cleanly."""

import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from plaudit.errors import UserError

BYTES_A_TOKEN = 3
"""Bytes (UTF-8) of a text for each token where no server has counted: English has four, so it is no less; of
scripts with three bytes to a letter each letter is a token."""
_PRICE = re.compile(r"(\d+(?:\.\d+)?)(?:/(\d+(?:\.\d+)?))?")


class CapReachedError(UserError):
    """What may be spent is spent; everything paid for is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a million tokens cost, in whichever currency."""

    prompt: float
    reply: float

    def cost(self, prompt_tokens: int, reply_tokens: int) -> float:
        return (prompt_tokens * self.prompt + reply_tokens * self.reply) / 1_000_000


FREE = Prices(prompt=0.0, reply=0.0)
"""Of a model of one's own, which costs time and no money."""


def parse_prices(word: str) -> Prices:
    """The prices of ``0.15/0.6``, of questions and of replies; one number is both.

    >>> parse_prices("0.15/0.6")
    Prices(prompt=0.15, reply=0.6)
    """
    found = _PRICE.fullmatch(word)
    if found is None:
        raise UserError(f"price {word!r}: give that of a million tokens, questions/replies, as in 0.15/0.6")
    return Prices(prompt=float(found[1]), reply=float(found[2] or found[1]))


def estimated_tokens(text: str) -> int:
    """How many tokens a text has, rather more than less, by its length in bytes.

    >>> estimated_tokens("What does the owl eat?"), estimated_tokens("猫头鹰")
    (8, 3)
    """
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_A_TOKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What is still to be asked, and what it will cost at most."""

    questions: int
    cached: int
    """Of how many the reply is there already."""
    prompt_tokens: int
    """Of the questions that are left, by their length."""
    reply_tokens: int
    cost: float | None
    """Of both, with what the replies that are there did cost; None without prices."""

    def sentence(self) -> str:
        """The estimate in words.

        >>> Estimate(questions=4, cached=1, prompt_tokens=900, reply_tokens=24, cost=None).sentence()
        '4 questions, 1 answered before; about 900 tokens to send and at most 24 to receive'
        """
        before = f", {self.cached:,} answered before" if self.cached else ""
        cost = "" if self.cost is None else f", {self.cost:.4g} at most in all"
        return (
            f"{self.questions:,} questions{before}; about {self.prompt_tokens:,} tokens to send and at most "
            f"{self.reply_tokens:,} to receive{cost}"
        )


def total_estimate(parts: Iterable[Estimate]) -> Estimate:
    """Several estimates together; the cost is known where all of them have one."""
    every = list(parts)
    costs = [part.cost for part in every]
    return Estimate(
        questions=sum(part.questions for part in every),
        cached=sum(part.cached for part in every),
        prompt_tokens=sum(part.prompt_tokens for part in every),
        reply_tokens=sum(part.reply_tokens for part in every),
        cost=None if None in costs else sum(cost for cost in costs if cost is not None),
    )


class Purse:
    """What may be spent, and what was: shared by all judges of a command and by all their threads.
    It counts what the replies of this work cost, whenever they were paid for. So the same command under the
    same cap, after it stopped there, asks nothing more."""

    def __init__(self, cap: float | None = None) -> None:
        if cap is not None and not 0 < cap < float("inf"):
            raise UserError(f"at most {cap}: expected an amount above 0")
        self.cap = cap
        self.spent = 0.0
        self.tokens = 0
        self._reserved, self._under_way = 0.0, 0
        self._paid = set[str]()
        self._lock = threading.Condition()

    def reserve(self, most: float) -> None:
        """Put aside what a request may cost; `CapReachedError` where that is no longer there."""
        with self._lock:
            # Requests under way mostly cost less than was put aside for them: what is left then may do.
            while self._is_short(most) and self._reserved > 0:
                self._lock.wait()
            if self._is_short(most):
                raise CapReachedError(
                    f"the cap of {self.cap:g} is reached: {self.spent:.4g} are spent, and the next question "
                    f"may cost {most:.4g}"
                )
            self._reserved += most
            self._under_way += 1

    def settle(self, most: float) -> None:
        """Give back what was put aside for a request, whatever came of it."""
        with self._lock:
            self._reserved -= most
            # Sums of floats do not come back to 0 by themselves, and nobody may wait for a crumb.
            self._under_way -= 1
            self._reserved = self._reserved if self._under_way else 0.0
            self._lock.notify_all()

    def _is_short(self, most: float) -> bool:
        return self.cap is not None and self.spent + self._reserved + most > self.cap

    def pay(self, key: str, cost: float, tokens: int) -> None:
        with self._lock:
            if key not in self._paid:
                self._paid.add(key)
                self.spent += cost
                self.tokens += tokens

    @property
    def sentences(self) -> tuple[str, ...]:
        """What it all came to; nothing where nothing was asked."""
        money = f", {self.spent:.4g} spent in all" if self.spent else ""
        return (f"{self.tokens:,} tokens{money}",) if self.tokens else ()
