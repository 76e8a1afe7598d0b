"""Any Python function as a model: ``call:module:function`` or ``call:file.py:function``.

So a model that is reached in another way than by the usual protocol judges, criticises and revises as well: a
program, a client of one's own, or a mind of known quality in this very process.
"""

import hashlib
import math
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plaudit.errors import UserError
from plaudit.feedback.judges.cache import Reply, ReplyCache
from plaudit.feedback.judges.ledger import ChatRequest, ReplyLedger, WithLedger
from plaudit.feedback.judges.money import FREE, CapReachedError, Prices, Purse
from plaudit.files.user_code import accepted_arguments, call_user_function

ARGUMENTS = ("question", "temperature", "max_tokens", "seed", "words", "pictures")
"""What a function may take, by name; ``question`` it must."""
_FIELDS = ("text", "odds", "refused", "cut")
_EXPECTED = "expected a text, or a mapping with text, odds, refused or cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionChat(WithLedger):
    """A function that replies to questions, with the replies that it gave."""

    word: str
    """``module:function`` or ``file.py:function``."""
    function: Callable[..., object]
    """From a question to its reply: a text, or a mapping with text, odds of words, refused and cut."""
    cache: ReplyCache
    source: str | None = None
    """The hash of the file that it is written in: an edited function is asked anew; None: not known."""
    requests_at_once: int = 1
    """In how many threads it is called at the same time."""
    prices: Prices | None = None
    """What its tokens cost, by the length of the texts; None: it costs nothing."""
    purse: Purse = field(default_factory=Purse, compare=False)

    def __post_init__(self) -> None:
        accepted_arguments(self.word, self.function, ARGUMENTS, required=ARGUMENTS[:1])

    @property
    def model(self) -> str:
        return self.word.rpartition(":")[2]

    def replies(self, requests: Sequence[ChatRequest]) -> list[Reply | str]:
        keys = [self.ledger.key(request) for request in requests]
        by_key = dict(zip(keys, requests, strict=True))
        found = self.ledger.known(by_key)
        missing = [key for key in by_key if key not in found]
        size, caps = self.requests_at_once, list[CapReachedError]()
        with ThreadPoolExecutor(size) as pool:
            # Some at a time: after an error nothing more is called.
            for start in range(0, len(missing), size):
                some = missing[start : start + size]
                given = pool.map(lambda key: self._reply(key, by_key[key]), some)
                for key, reply in zip(some, given, strict=True):
                    if isinstance(reply, CapReachedError):
                        caps.append(reply)
                    else:
                        found[key] = reply
        if caps:
            raise caps[-1]
        return [found[key] for key in keys]

    @property
    def ledger(self) -> ReplyLedger:
        # By its content where that is known, from whichever folder the file is named.
        name = self.word if self.source is None else self.model
        identity = {"call": name, "source": self.source}
        return ReplyLedger(identity=identity, cache=self.cache, prices=self.prices or FREE, purse=self.purse)

    def _reply(self, key: str, request: ChatRequest) -> Reply | CapReachedError:
        # From the system's randomness: whoever foresees it could close the delimiters with a verdict.
        number = secrets.token_hex(8)
        available = {
            "question": request.question.text(number),
            "temperature": float(request.temperature),
            "max_tokens": request.max_tokens,
            "seed": request.seed,
            "words": request.words,
            "pictures": request.question.pictures,
        }
        required = ("question", "pictures") if request.question.pictures else ARGUMENTS[:1]
        accepted = accepted_arguments(self.word, self.function, ARGUMENTS, required=required)
        try:
            with self.ledger.reserved(request):
                value = call_user_function(
                    self.word, self.function, {name: available[name] for name in accepted}
                )
                reply = _parsed(self.word, value, number, request.words)
                self.ledger.store(key, request, reply)
        except CapReachedError as cap:
            # A shorter question may still fit. Where none does, the same command asks nothing more.
            return cap
        return reply


def source_of(word: str) -> str | None:
    """The hash of the file in which the function of a word is written; None where none is known."""
    module = word.rpartition(":")[0]
    # A module is loaded by now: its function was looked up.
    file = module if module.endswith(".py") else getattr(sys.modules.get(module), "__file__", None)
    if file is None or not Path(file).is_file():
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _parsed(word: str, value: object, number: str, words: Sequence[str]) -> Reply:
    fields: Mapping[Any, Any] = value if isinstance(value, Mapping) else {"text": value}
    for name in fields:
        if name not in _FIELDS:
            raise UserError(f"{word}: its reply has {name!r}; {_EXPECTED}")
    refused, cut = fields.get("refused", False), fields.get("cut", False)
    text = fields.get("text", "" if refused else None)
    if not isinstance(text, str) or not isinstance(refused, bool) or not isinstance(cut, bool):
        raise UserError(f"{word}: it gave {value!r:.80}; {_EXPECTED}")
    odds = _odds(word, fields.get("odds"), words)
    return Reply(text=text, number=number, refused=refused, cut=cut, odds=odds)


def _odds(word: str, value: object, words: Sequence[str]) -> Mapping[str, float] | None:
    if value is None or not words:
        return None
    is_mapping = isinstance(value, Mapping)
    if not is_mapping or not all(_is_share(share) for share in value.values()):
        raise UserError(f"{word}: its odds are {value!r:.80}; expected a share, 0 or more, for each word")
    odds = {name: float(value.get(name, 0.0)) for name in words}
    return odds if sum(odds.values()) > 0 else None


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
