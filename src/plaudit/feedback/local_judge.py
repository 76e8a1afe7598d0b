"""A chat model in a folder of this machine, asked to judge in the same words as a model behind a server.

Of a reply of one word the chances are those of the whole words with the token that ends the turn,
log P(word) = Σ log π(token | question, tokens before). Of a reply with reasons one is written.
"""

import hashlib
import secrets
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from weakref import WeakValueDictionary

from plaudit.data.generative_judging import CritiqueSettings, GenerativeRewardSettings, PairwiseRankerSettings
from plaudit.data.records import Message, Part, Text, user_turn
from plaudit.errors import UserError
from plaudit.feedback.judges.cache import Reply, ReplyCache
from plaudit.feedback.judges.chat import TOO_LONG
from plaudit.feedback.judges.ledger import ChatRequest, ReplyLedger, WithLedger
from plaudit.feedback.judges.model_judge import ModelJudge
from plaudit.feedback.judges.modes import LETTERS, YES_NO, HowToAsk
from plaudit.feedback.judges.money import FREE, Purse
from plaudit.feedback.judges.words import LOCAL, parse_judge_word
from plaudit.models.load import device_of, load_model, precision
from plaudit.models.policy import Policy
from plaudit.models.verify import choose_kernels, choose_layout
from plaudit.rewards.llm import generative
from plaudit.rollouts.local import LocalSampler
from plaudit.rollouts.sampler import SamplingSettings
from plaudit.tokens.encode import make_encoder
from plaudit.tokens.prompts import encode_prompt

LONGEST_QUESTION = 32_768
"""The longest question in tokens where the model itself names no limit."""
QUESTIONS_AT_ONCE = 256
"""After so many questions their replies are kept."""


class _LocalModel:
    """A folder's model in memory: how likely it finds words, and what it writes."""

    def __init__(self, folder: Path, device: str, dtype: str) -> None:
        """Load it in the layout that it is proven in."""
        self.folder = folder
        self.encoder = make_encoder(folder)
        target = device_of(device)
        self.policy = Policy(load_model(folder, dtype=precision(dtype, target).products, device=target))
        layout, _ = choose_layout(self.policy, "packed")
        self.policy.use_layout(layout)
        choose_kernels(self.policy)
        self.policy.requires_grad_(False).eval()
        self._scorers = dict[tuple[str, ...], generative.LanguageJudgeModel]()

    @cached_property
    def sampler(self) -> LocalSampler:
        return LocalSampler.from_policy(self.policy, self.encoder)

    def scorer(self, words: tuple[str, ...], name: str) -> generative.LanguageJudgeModel:
        if words not in self._scorers:
            spec = generative.LanguageJudgeSpec(settings=_settings_of(words), max_length=LONGEST_QUESTION)
            try:
                generative.refuse_same_replies(self.encoder, spec)
            except UserError as error:
                known = str(error).partition(";")[0]
                raise UserError(
                    f"{self.folder}: {known}, so it cannot reply with {' or '.join(words)}; ask in another "
                    "way (how=points, how=answer, how=verdict), or train a ranker with words of its own"
                ) from error
            self._scorers[words] = generative.LanguageJudgeModel(name, self.policy, self.encoder, spec)
        return self._scorers[words]

    def fits(self, prompt: Text) -> bool:
        most = min(self.sampler.max_positions or LONGEST_QUESTION, LONGEST_QUESTION)
        return len(encode_prompt(prompt, self.encoder).prompt) < most


_LOADED: WeakValueDictionary[tuple[object, ...], _LocalModel] = WeakValueDictionary()
"""The models that somebody holds: two judges of one folder share one."""


class LocalChat(WithLedger):
    """A chat model of a folder, asked as a model behind a server is."""

    def __init__(
        self,
        folder: Path,
        *,
        cache: ReplyCache,
        purse: Purse | None = None,
        device: str = "auto",
        dtype: str = "auto",
    ) -> None:
        """Load the model, or take the one that is loaded already."""
        self.folder = folder / "model" if (folder / "model").is_dir() else folder
        target = device_of(device)
        content = folder_stamp(self.folder)
        who = (str(self.folder.resolve()), str(target), dtype, content)
        found = _LOADED.get(who)
        if found is None:
            _LOADED[who] = found = _LocalModel(self.folder, device, dtype)
        self._model = found
        identity = {"folder": who[0], "dtype": str(precision(dtype, target).products), "content": content}
        self._ledger = ReplyLedger(identity=identity, cache=cache, prices=FREE, purse=purse or Purse())

    @property
    def model(self) -> str:
        absolute = self.folder.absolute()
        return absolute.parent.name if absolute.name == "model" else absolute.name

    @property
    def ledger(self) -> ReplyLedger:
        return self._ledger

    def replies(self, requests: Sequence[ChatRequest]) -> list[Reply | str]:
        """The reply to each: from disk, by the chances of its words, or written where there are reasons."""
        keys = [self._ledger.key(request) for request in requests]
        by_key = dict(zip(keys, requests, strict=True))
        found: dict[str, Reply | str] = {**self._ledger.known(by_key)}
        by_words: dict[tuple[str, ...], list[str]] = {}
        for key, request in by_key.items():
            if key not in found:
                by_words.setdefault(request.words if request.is_word else (), []).append(key)
        for words, missing in by_words.items():
            # Some at a time: what a run that is stopped has computed by then is on disk.
            for start in range(0, len(missing), QUESTIONS_AT_ONCE):
                some = missing[start : start + QUESTIONS_AT_ONCE]
                own = [by_key[key] for key in some]
                replies = self._scored(words, own) if words else self._written(own)
                for key, reply in zip(some, replies, strict=True):
                    found[key] = reply
                    if isinstance(reply, Reply):
                        self._ledger.store(key, by_key[key], reply)
        return [found[key] for key in keys]

    def _scored(self, words: tuple[str, ...], requests: Sequence[ChatRequest]) -> list[Reply | str]:
        scorer = self._model.scorer(words, self.model)
        logps = scorer.logps([self._shown(request, "") for request in requests])
        return [TOO_LONG if row is None else _reply_of_odds(words, row) for row in logps]

    def _shown(self, request: ChatRequest, number: str) -> Text:
        encoder = self._model.encoder
        text = request.question.text(number, controls=encoder.info.specials)
        if sources := request.question.pictures:
            if encoder.read_extras is None:
                raise UserError(f"{self.folder}: this model sees no pictures, and a prompt has one")
            images = (Part(kind="image", source=source) for source in sources)
            return (Message(role="user", content=(*images, Part(kind="text", text=text))),)
        return text if encoder.chat_format is None else user_turn(text)

    def _written(self, requests: Sequence[ChatRequest]) -> list[Reply | str]:
        found: list[Reply | str] = [TOO_LONG] * len(requests)
        by_settings: dict[SamplingSettings, list[tuple[int, str, Text]]] = {}
        for place, request in enumerate(requests):
            settings = SamplingSettings(
                temperature=request.temperature, max_tokens=request.max_tokens, seed=request.seed or 0
            )
            # From the system's randomness: whoever foresees it could close the delimiters with a verdict.
            number = secrets.token_hex(8)
            shown = self._shown(request, number)
            if self._model.fits(shown):
                by_settings.setdefault(settings, []).append((place, number, shown))
        for settings, rows in by_settings.items():
            answers = self._model.sampler.generate_answers([shown for *_, shown in rows], settings)
            for (place, number, _), [answer] in zip(rows, answers, strict=True):
                found[place] = Reply(text=answer.text, number=number, refused=False, cut=not answer.ended)
        return found


def folder_stamp(folder: Path) -> str:
    """A hash of the names, sizes and times of a folder's files: weights that are written anew change it.
    By their times, since to read the weights of a large model would take as long as many questions."""
    stats = [(path.name, path.stat()) for path in sorted(folder.iterdir()) if path.is_file()]
    lines = [f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def local_judge(
    word: str,
    cache: ReplyCache,
    *,
    device: str = "auto",
    dtype: str = "auto",
    ask: HowToAsk | None = None,
    purse: Purse | None = None,
) -> ModelJudge:
    """The judge of ``model:DIR,how=letter``; what its word does not set is as in ``ask``."""
    parsed = parse_judge_word(word)
    folder = Path(parsed.place.removeprefix(LOCAL))
    asker = LocalChat(folder, cache=cache, purse=purse, device=device, dtype=dtype)
    return ModelJudge(asker=asker, ask=parsed.how(ask))


def _settings_of(
    words: tuple[str, ...],
) -> GenerativeRewardSettings | PairwiseRankerSettings | CritiqueSettings:
    """Settings whose replies are these words; how they ask is not used, for the wording does."""
    if words == LETTERS:
        return PairwiseRankerSettings(first=words[0], second=words[1])
    if words == YES_NO:
        return GenerativeRewardSettings(good=words[0], bad=words[1])
    return CritiqueSettings(points=len(words))


def _reply_of_odds(words: Sequence[str], logps: Sequence[float]) -> Reply:
    odds = dict(zip(words, generative.reply_probabilities(logps), strict=True))
    return Reply(text=max(odds, key=odds.__getitem__), number="", refused=False, cut=False, odds=odds)
