"""A model that writes what is not a verdict: critiques, revisions, messages that test another model.

It is asked as a judge is (quoted, by wordings with versions, through the same cache and purse), and its reply
is the text itself. A refusal, a reply that is cut or empty and a server that is gone are told apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from plaudit.data.judging import NoVerdict
from plaudit.errors import UserError
from plaudit.feedback.judges.cache import Reply
from plaudit.feedback.judges.chat import ChatRequest
from plaudit.feedback.judges.ledger import Asker
from plaudit.feedback.judges.money import Estimate
from plaudit.feedback.judges.replies import CUT, REFUSED, UNREADABLE
from plaudit.feedback.judges.wording import Question, Wording
from plaudit.feedback.judges.words import JURY, SPREAD, asks_a_model, parse_judge_word

_SETTINGS = ("temperature", "max-tokens", "price", "requests", "token-from")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A text that a model wrote, and what it cost."""

    text: str
    tokens: int
    price: float
    """What these tokens cost; 0 without prices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    asker: Asker
    temperature: float = 0.7
    """The sampling temperature of its texts; at 0 there is nothing to draw, and no seed is sent."""
    max_tokens: int = 256

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf or self.max_tokens < 1:
            raise UserError(
                f"{self.name} is to write at temperature {self.temperature:g} at most {self.max_tokens} "
                "tokens: give a temperature of 0 or more, and at least 1 token"
            )

    @property
    def name(self) -> str:
        return self.asker.model

    def version(self, wording: Wording) -> str:
        """What a text hangs on besides model and question: the wording and how its reply is drawn.
        It is written as ``revise-1-t0.7-256``."""
        return f"{wording.name}-{wording.version}-t{self.temperature:g}-{self.max_tokens}"

    def texts(self, questions: Sequence[Question], seed: int) -> list[Written | NoVerdict]:
        """The text to each question, or why there is none; another seed draws other texts."""
        requests = [self._request(question, seed) for question in questions]
        replies = self.asker.replies(requests)
        return [self._read(*both) for both in zip(requests, replies, strict=True)]

    def estimate(self, questions: Sequence[Question], seed: int = 0) -> Estimate:
        return self.asker.estimate([self._request(question, seed) for question in questions])

    def spent(self, question: Question, seed: int = 0) -> tuple[int, float]:
        return self.asker.spent([self._request(question, seed)])

    def _request(self, question: Question, seed: int) -> ChatRequest:
        return ChatRequest(
            question=question,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=seed if self.temperature > 0 else None,
        )

    def _read(self, request: ChatRequest, reply: Reply | str) -> Written | NoVerdict:
        if isinstance(reply, str):
            return NoVerdict(reason=reply)
        if reply.refused:
            return NoVerdict(reason=REFUSED)
        # Half a text would teach to stop in the middle of a sentence.
        if reply.cut:
            return NoVerdict(reason=CUT)
        text = reply.text.strip()
        if not text:
            return NoVerdict(reason=UNREADABLE)
        tokens, price = self.asker.spent([request])
        return Written(text=text, tokens=tokens, price=price)


def check_writer(word: str) -> None:
    """Refuse the word of who cannot write, and settings of judges alone, before anything is loaded."""
    parsed = parse_judge_word(word)
    if not asks_a_model(word) or word.startswith((JURY, SPREAD)):
        raise UserError(f"{word} cannot write: name one model, openai:URL#model, model:DIR or call:FUNCTION")
    for name in parsed.settings:
        if name.replace("_", "-") not in _SETTINGS:
            raise UserError(f"{word}: a writer has no {name}; there is {', '.join(_SETTINGS)}")
