"""The policies that are attacked: a model of a folder, or one behind a server, asked as its users ask it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from plaudit.data.records import Message
from plaudit.engine.run_folder import hash_path
from plaudit.errors import UserError
from plaudit.evaluation.policies.generate import check_policy_folder
from plaudit.feedback.attacks.attempt import hash_of_turns
from plaudit.feedback.judges.cache import Reply, cache_key, reply_cache
from plaudit.feedback.judges.ledger import Asker, ChatRequest
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.money import Estimate
from plaudit.feedback.judges.wording import Conversation
from plaudit.feedback.judges.words import SERVER, parse_judge_word
from plaudit.rewards.comparing import judge_named
from plaudit.rewards.kinds import JudgeSettings
from plaudit.rewards.load import model_folder
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings, TextSampler

Turns = tuple[Message, ...]
"""A conversation that ends with a user's turn."""
ANSWERED_AT_ONCE = 64
"""After so many conversations the answers of a folder's model are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAnswer:
    text: str
    """The words; empty where it answered nothing."""
    ended: bool = True
    refused: bool = False
    failure: str | None = None
    """Why there is no answer: the server was not to be reached, say."""


class Target(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def hash(self) -> str: ...

    def answers(self, conversations: Sequence[Turns], n: int) -> list[list[TargetAnswer]]: ...

    def estimate(self, conversations: Sequence[Turns], n: int) -> Estimate | None:
        """What its answers cost at most; None where they cost nothing."""
        ...


class FolderTarget:
    def __init__(self, name: str, folder: Path, sampling: SamplingSettings, judges: JudgeSettings) -> None:
        """Refuse what is no policy; the model is loaded when it is asked."""
        check_policy_folder(folder)
        self.name = name
        self.folder = model_folder(folder)
        self.hash = hash_path(self.folder)
        self._sampling, self._device, self._dtype = sampling, judges.device, judges.dtype
        self._cache = reply_cache(judges.cache)
        self._sampler: TextSampler | None = None

    def answers(self, conversations: Sequence[Turns], n: int) -> list[list[TargetAnswer]]:
        """Drawn with random numbers of their own, and kept: the same conversation has the same answers."""
        who = {"policy": self.hash, "device": self._device, "dtype": self._dtype}
        who |= {"sampling": repr(self._sampling), "answers": n}
        keys = [cache_key({**who, "turns": hash_of_turns(turns)}) for turns in conversations]
        found = self._cache.cached(
            keys, lambda places: self._drawn([conversations[place] for place in places], n), ANSWERED_AT_ONCE
        )
        return [[TargetAnswer(text=text, ended=ended) for text, ended in row] for row in found]

    def _drawn(self, conversations: Sequence[Turns], n: int) -> list[list[tuple[str, bool]]]:
        if self._sampler is None:
            self._sampler = LocalSampler(self.folder, device=self._device, dtype=self._dtype)
        rows = self._sampler.generate_answers(conversations, self._sampling, n=n)
        return [[(answer.text, answer.ended) for answer in row] for row in rows]

    def estimate(self, conversations: Sequence[Turns], n: int) -> None:
        del conversations, n


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTarget:
    """A model behind an OpenAI-compatible server, through the cache and the purse of judges."""

    name: str
    hash: str
    """The hash of its address and name: what it holds nobody here knows."""
    asker: Asker
    sampling: SamplingSettings

    def answers(self, conversations: Sequence[Turns], n: int) -> list[list[TargetAnswer]]:
        """Nothing is asked twice, whatever ends the command in between."""
        found = iter(self.asker.replies(self._requests(conversations, n)))
        return [[_answer(next(found)) for _ in range(n)] for _ in conversations]

    def estimate(self, conversations: Sequence[Turns], n: int) -> Estimate:
        return self.asker.estimate(self._requests(conversations, n))

    def _requests(self, conversations: Sequence[Turns], n: int) -> list[ChatRequest]:
        return [
            ChatRequest(
                question=Conversation(turns=turns),
                temperature=self.sampling.temperature,
                max_tokens=self.sampling.max_tokens,
                seed=None if self.sampling.greedy else self.sampling.seed + draw,
            )
            for turns in conversations
            for draw in range(n)
        ]


def target_named(
    word: str, sampling: SamplingSettings, judges: JudgeSettings, *, name: str | None = None
) -> Target:
    """The policy of a word: ``openai:http://host:port/v1#model``, or a folder."""
    if not word.startswith(SERVER):
        folder = Path(word)
        return FolderTarget(name or _folder_name(folder), folder, sampling, judges)
    judge = judge_named(word, judges)
    assert isinstance(judge, ModelJudge), "a server's word"
    place = parse_judge_word(word).place
    return ServerTarget(
        name=name or judge.name, hash=hash_of_word(place), asker=judge.asker, sampling=sampling
    )


def hash_of_word(place: str) -> str:
    return hashlib.sha256(place.encode()).hexdigest()


def targets_named(
    words: Sequence[str], sampling: SamplingSettings, judges: JudgeSettings, *, names: Sequence[str] = ()
) -> list[Target]:
    if not words:
        raise UserError("name a model to attack: --model DIR, or --model openai:URL#model")
    if len({*words}) < len(words):
        raise UserError(f"--model: {', '.join(words)}: each policy is named once")
    found = [target_named(word, sampling, judges) for word in words]
    own = names or [target.name for target in found]
    # Two runs may each have a folder of the same name: then the words tell them from each other.
    chosen = own if len({*own}) == len(own) else words
    return [
        target if target.name == name else target_named(word, sampling, judges, name=name)
        for word, target, name in zip(words, found, chosen, strict=True)
    ]


def _answer(reply: Reply | str) -> TargetAnswer:
    if isinstance(reply, str):
        return TargetAnswer(text="", ended=False, failure=reply)
    return TargetAnswer(text=reply.text, ended=not reply.cut, refused=reply.refused)


def _folder_name(folder: Path) -> str:
    absolute = folder.absolute()
    return absolute.parent.name if absolute.name == "model" else absolute.name
