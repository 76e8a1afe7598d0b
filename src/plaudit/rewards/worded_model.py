"""How likely a language model finds each of a few replies: the whole of the word and the end of its turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import exp

from plaudit.batches.template import Encoder
from plaudit.batches.tokens import Example
from plaudit.errors import UserError
from plaudit.models.policy import Policy
from plaudit.records.messages import Text
from plaudit.rewards.asking import TOKENS_AT_ONCE, Reader, limits_of
from plaudit.rewards.worded_facts import Wording

TOO_LONG = "the question with what is judged has more than {most:,} tokens; a part of it is not judged"
"""Said of what cannot be shown to the model as a whole."""


class WordedModel:
    """A language model, its tokenizer and the wording that it was trained with.

    Example: ``WordedModel("helpful", policy, encoder, wording).logps([question])``
    """

    def __init__(
        self,
        name: str,
        policy: Policy,
        encoder: Encoder,
        wording: Wording,
        *,
        tokens_at_once: int = TOKENS_AT_ONCE,
    ) -> None:
        """Take a model that is on its device, in the layout that it was proven in."""
        refuse_same_replies(encoder, wording)
        limits = limits_of([policy], tokens_at_once)
        positions = wording.max_length if limits.positions is None else limits.positions
        limits = replace(limits, positions=min(positions, wording.max_length))
        self.name = name
        self.wording = wording
        self.form = wording.form(encoder)
        self.reader = Reader(name=name, encoder=encoder, limits=limits, device=policy.device)
        self._policy = policy

    def logps(self, questions: Sequence[Text]) -> list[tuple[float, ...] | None]:
        """For each question, log P of each reply; None where the question cannot be shown whole.

        log P(word) = Σ log π(token | question, tokens before) over all of the word's tokens and the token
        that ends the turn: words that begin alike, or one that begins with another, are told apart.
        """
        self._policy.eval()
        found = [self._encoded(question) for question in questions]
        distinct = dict.fromkeys(example for example in found if example is not None)
        said: dict[Example, tuple[float, ...]] = {}
        for piece in self.reader.pieces(list(distinct)):
            numbers = iter(
                self.reader.numbers(lambda batch: self._policy.score(batch).logp_NT.sum(-1), piece)
            )
            for example in piece:
                said[example] = tuple(next(numbers) for _ in example.completions)
        return [None if example is None else said[example] for example in found]

    def _encoded(self, question: Text) -> Example | None:
        replies = [self.form.reply(word) for word in self.wording.settings.words]
        try:
            example = self.reader.encoder.encode(question, replies)
        except UserError as error:
            self.reader.refused[str(error)] += 1
            return None
        most = self.reader.limits.positions
        # A prompt cut from its start, as in other rows, could lose an answer or the mark of a quoted line.
        if most is not None and longest(example) > most:
            self.reader.refused[TOO_LONG.format(most=most)] += 1
            return None
        return example


def longest(example: Example) -> int:
    """The tokens of the prompt with its longest completion."""
    return len(example.prompt) + max(len(completion.ids) for completion in example.completions)


def shares(logps: Sequence[float]) -> tuple[float, ...]:
    """P of each reply among the replies: exp log Pᵢ / Σ exp log Pⱼ.

    >>> shares((-1.0, -1.0))
    (0.5, 0.5)
    """
    most = max(logps)
    weights = [exp(logp - most) for logp in logps]
    return tuple(weight / sum(weights) for weight in weights)


def refuse_same_replies(encoder: Encoder, wording: Wording) -> None:
    """Complain about words that the tokenizer does not know, or cannot tell from each other."""
    form, said = wording.form(encoder), wording.settings.words
    example = encoder.encode(form.question("", (), "?"), [form.reply(word) for word in said])
    unknown = unknown_token(encoder)
    ids = [completion.ids for completion in example.completions]
    for word, own in zip(said, ids, strict=True):
        if unknown in own:
            raise UserError(
                f"the tokenizer does not know the word {word!r}; choose another reply (--help-all lists the "
                "settings of words)"
            )
    for (one, one_ids), (other, other_ids) in combinations(zip(said, ids, strict=True), 2):
        if one_ids == other_ids:
            raise UserError(f"the tokenizer makes the same of {one!r} and {other!r}; choose other words")


def unknown_token(encoder: Encoder) -> int | None:
    """What the tokenizer makes of a word that it does not know; None where it can spell any.

    Some name a token that ends texts as the unknown one too: they spell by bytes and never need it.
    """
    tokenizer = encoder.info.tokenizer
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    name = tokenizer.unk_token or getattr(model, "unk_token", None)
    if not isinstance(name, str):
        return None
    token = encoder.info.id_of(name)
    return None if token in encoder.stop_ids else token


def unknown_lines(encoder: Encoder, wording: Wording) -> tuple[str, ...]:
    """Which of the wording's own lines hold something that the tokenizer does not know."""
    unknown = unknown_token(encoder)
    if unknown is None:
        return ()
    mark = wording.quote.mark
    lines = dict.fromkeys(line for text in wording.template() for line in text.splitlines())
    own = [mark.strip(), *(line for line in lines if not line.startswith(mark))]

    def strange(text: str) -> int:
        return encoder.info.encode(text).count(unknown)

    # Below another line, as it will stand; what is unknown of that one does not count.
    return tuple(line for line in own if strange(f"a\n{line}") > strange("a\n"))
