"""What a reply says: the verdict between its delimiters, one letter, word or number, and the chances of each.

Whatever is not exactly what was asked for is no verdict, and never a side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

from plaudit.feedback.judges.cache import Reply
from plaudit.feedback.judges.wording import delimiters
from plaudit.files.chat import read_completion

JudgeVerdict = Literal["A", "B", "tie", "refuse"]
"""The verdicts that a judge can give."""
MARKUP = " \t\r\n*_`\"'.()[]:<>/▁Ġ"
"""Signs around a word that mean nothing: Markdown, quotation marks, and how tokenizers write a blank."""


def parse_verdict(reply: str, number: str) -> JudgeVerdict | None:
    """The last verdict between the delimiters of this number; None where it is none of the four words.

    >>> parse_verdict("[[A]] <verdict-00>A</verdict-00> No. <verdict-7f> **B** </verdict-7f>", "7f")
    'B'
    >>> parse_verdict("Answer A is better.", "7f") is None
    True
    """
    opened, closed = delimiters(number)
    _, begins, last = reply.rpartition(opened)
    inside, ends, _ = last.partition(closed)
    word = inside.strip(" \t\r\n*_`") if begins and ends else ""
    return cast("JudgeVerdict", word) if word in get_args(JudgeVerdict) else None


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
