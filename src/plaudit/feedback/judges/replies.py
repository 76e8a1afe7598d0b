"""What a reply says: the verdict between its delimiters, one letter, word or number, and the chances of each.

Whatever is not exactly what was asked for is no verdict, and never a side.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from plaudit.data.judging import LOGPROBS_REFUSED
from plaudit.feedback.judges.cache import Reply
from plaudit.feedback.judges.ledger import Asker, ChatRequest
from plaudit.feedback.judges.wording import delimiters
from plaudit.files.chat import read_completion

REFUSED = "refused"
UNREADABLE = "not to be read"
CUT = "cut off"
MARKUP = " \t\r\n*_`\"'.()[]:<>/▁Ġ"
"""Signs around a word that mean nothing: Markdown, quotation marks, and how tokenizers write a blank."""


def parse_verdict(reply: str, number: str, words: Collection[str]) -> tuple[str | None, str]:
    """The last verdict between the delimiters of this number, and what stands before it; None for no word.

    >>> parse_verdict("[[A]] <verdict-00>A</verdict-00> No. <verdict-7f> **B** </verdict-7f>", "7f", "AB")
    ('B', '[[A]] <verdict-00>A</verdict-00> No.')
    >>> parse_verdict("Answer A is better.", "7f", "AB")[0] is None
    True
    """
    opened, closed = delimiters(number)
    before, begins, last = reply.rpartition(opened)
    inside, ends, _ = last.partition(closed)
    word = inside.strip(" \t\r\n*_`") if begins and ends else ""
    return (word if word and word in words else None), before.strip()


def parse_word(reply: str, words: Sequence[str]) -> str | None:
    """The word that a reply consists of, in Markdown or not; None where there is anything else.

    >>> parse_word(" **A**.", ("A", "B")), parse_word("A is better", ("A", "B"))
    ('A', None)
    """
    word = reply.strip(MARKUP)
    return word if word in words else None


def parse_chat_completion(url: str, content: bytes, number: str = "", words: Sequence[str] = ()) -> Reply:
    """What the server's JSON holds; a server that speaks another language is refused.

    words: those whose log-probs were asked for.
    """
    found = read_completion(url, content)
    return Reply(
        text=found.text,
        number=number,
        refused=found.refused,
        cut=found.cut,
        odds=word_odds(found.logprobs, words, delimiters(number)[0]) if words else None,
        prompt_tokens=found.prompt_tokens,
        reply_tokens=found.reply_tokens,
    )


def word_odds(logprobs: Any, words: Sequence[str], behind: str = "") -> Mapping[str, float] | None:
    """The chance of each word where the last of them stands; None where the server gives no log-probs there.

    behind: what the word stands behind where it is in the reply at all; a word before it is of the reasons.

    A word may be written by several tokens (``A``, `` A``, ``▁A``): their chances are added. One that is not
    among the alternatives has 0.

    >>> top = [{"token": t, "logprob": p} for t, p in ((" A", -0.1), ("B", -3.0), ("A", -4.0))]
    >>> found = word_odds({"content": [{**top[0], "top_logprobs": top}]}, ("A", "B"))
    >>> round(found["A"], 3), round(found["B"], 3)
    (0.923, 0.05)
    """
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    tail = ""
    for entry in reversed(content if isinstance(content, list) else []):
        if not isinstance(entry, dict) or _cleaned(entry) not in words:
            tail = f"{entry.get('token')}{tail}" if isinstance(entry, dict) else tail
            # The "A" of "Answer A is short" decides nothing, however the tokenizer cuts the verdict itself.
            if behind and behind in tail:
                return None
            continue
        odds = dict.fromkeys(words, 0.0)
        top = entry.get("top_logprobs")
        if not isinstance(top, list) or not top:
            return None
        for token, logp in _alternatives([*top, entry]):
            if token in odds:
                odds[token] += math.exp(logp)
        return odds if sum(odds.values()) > 0 else None
    return None


def _alternatives(entries: Iterable[Any]) -> Iterable[tuple[str, float]]:
    """Each token once, with its log-prob; the one that was drawn stands among the alternatives or not."""
    found = dict[str, tuple[str, float]]()
    for entry in entries:
        logp = entry.get("logprob") if isinstance(entry, dict) else None
        if isinstance(logp, int | float) and logp <= 1e-6:
            found.setdefault(str(entry.get("token")), (_cleaned(entry), float(logp)))
    return found.values()


def _cleaned(entry: Mapping[str, Any]) -> str:
    return str(entry.get("token")).strip(MARKUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What was read of a reply: the share of each word, or why there is none."""

    shares: dict[str, float] = field(default_factory=dict[str, float])
    reason: str | None = None
    text: str = ""
    reasons: str = ""


@dataclass(slots=True, kw_only=True)
class Reader:
    """Asks a model for words, and learns on the way whether it gives log-probs."""

    asker: Asker
    gives_logprobs: bool | None = None
    """None as long as it is not known."""

    def odds(
        self, requests: Sequence[ChatRequest], otherwise: Callable[[Sequence[ChatRequest]], list[Read]]
    ) -> list[Read]:
        """The share of each word by log-probs; of what has none as ``otherwise`` reads it."""
        if not requests:
            return []
        if self.gives_logprobs is None:
            # One question shows whether there are log-probs: without them no other is asked for any.
            [first] = self.asker.replies(requests[:1])
            self.gives_logprobs = False if _lacks_odds(first, requests[0]) else None
        if self.gives_logprobs is False:
            return otherwise(requests)
        found = self.asker.replies(requests)
        lacking = [n for n, reply in enumerate(found) if _lacks_odds(reply, requests[n])]
        reads = [read_word(reply, request) for reply, request in zip(found, requests, strict=True)]
        # One odd reply of a server that gives log-probs must not change how all later ones are asked.
        if any(isinstance(reply, Reply) and reply.odds is not None for reply in found):
            self.gives_logprobs = True
        elif lacking:
            self.gives_logprobs = False
        for n, read in zip(lacking, otherwise([requests[n] for n in lacking]), strict=True):
            reads[n] = read
        return reads

    def plain(self, requests: Sequence[ChatRequest]) -> list[Read]:
        found = self.asker.replies(plain_forms(requests))
        return [read_word(reply, request) for reply, request in zip(found, requests, strict=True)]

    def drawn(self, requests: Sequence[ChatRequest], draws: int) -> list[Read]:
        """The share of each word among several draws."""
        found = self.asker.replies(drawn_forms(requests, draws))
        rows = [found[at : at + draws] for at in range(0, len(found), draws)]
        return [_share(row, request) for row, request in zip(rows, requests, strict=True)]


def plain_forms(requests: Sequence[ChatRequest]) -> list[ChatRequest]:
    return [replace(request, words=(), is_word=False) for request in requests]


def drawn_forms(requests: Sequence[ChatRequest], draws: int) -> list[ChatRequest]:
    """Each request several times without log-probs, at a temperature at which draws differ."""
    return [
        replace(request, temperature=request.temperature or 1.0, seed=draw)
        for request in plain_forms(requests)
        for draw in range(draws)
    ]


def read_word(reply: Reply | str, request: ChatRequest) -> Read:
    """A reply of one word: the share of each word that was asked for."""
    if isinstance(reply, str):
        return Read(reason=reply)
    word = parse_word(reply.text, request.words)
    if reply.refused:
        return Read(reason=REFUSED, text=reply.text)
    # A reply that says more than the word is cut, for so few tokens it may have: what it means is not known.
    if word is None:
        return Read(reason=CUT if reply.cut else UNREADABLE, text=reply.text)
    if reply.odds is None:
        shares = {other: float(other == word) for other in request.words}
    else:
        total = sum(reply.odds.values())
        shares = {other: share / total for other, share in reply.odds.items()}
    return Read(shares=shares, text=reply.text)


def read_verdict(reply: Reply | str, shares_by_verdict: Mapping[str, Mapping[str, float]]) -> Read:
    """A reply with reasons: what they are, and the shares that the verdict between the delimiters means."""
    if isinstance(reply, str):
        return Read(reason=reply)
    verdict, reasons = parse_verdict(reply.text, reply.number, (*shares_by_verdict, "refuse"))
    if reply.refused or (verdict == "refuse" and not reply.cut):
        return Read(reason=REFUSED, text=reply.text)
    if verdict is None or reply.cut:
        return Read(reason=CUT if reply.cut else UNREADABLE, text=reply.text)
    return Read(shares=dict(shares_by_verdict[verdict]), text=reply.text, reasons=reasons)


def _lacks_odds(reply: Reply | str, request: ChatRequest) -> bool:
    if isinstance(reply, str):
        return reply == LOGPROBS_REFUSED
    return reply.odds is None and parse_word(reply.text, request.words) is not None


def _share(replies: Sequence[Reply | str], request: ChatRequest) -> Read:
    """The share of each word among the draws that can be read; of fewer than half it says nothing."""
    reads = [read_word(reply, request) for reply in replies]
    sound = [read for read in reads if read.reason is None]
    if 2 * len(sound) < len(reads):
        return next(read for read in reads if read.reason is not None)
    shares = {word: sum(read.shares[word] for read in sound) / len(sound) for word in request.words}
    return Read(shares=shares, text=" ".join(read.text.strip() for read in reads))
