"""A chat model in a folder of this machine, asked to judge in the same words as a model behind a server.

Of a reply of one word the chances are those of the whole words with the token that ends the turn,
log P(word) = Σ log π(token | question, tokens before). Of a reply with reasons one is written.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

from plaudit.data.generative_judging import CritiqueSettings, GenerativeRewardSettings, PairwiseRankerSettings
from plaudit.data.records import Text, user_turn
from plaudit.errors import UserError
from plaudit.judges.cache import Reply
from plaudit.judges.chat import TOO_LONG, ChatRequest
from plaudit.judges.model_judge import YES_NO, ModelJudge
from plaudit.judges.money import Estimate, estimated_tokens
from plaudit.judges.words import LETTERS, LOCAL, HowToAsk, parse_judge_word
from plaudit.models.load import DtypeName, device_of, load_model, precision
from plaudit.models.policy import Policy
from plaudit.models.verify import choose_kernels, choose_layout
from plaudit.rewards.llm.generative import (
    LanguageJudgeModel,
    LanguageJudgeSpec,
    refuse_same_replies,
    reply_probabilities,
)
from plaudit.rollouts.build import sampler_of_folder
from plaudit.rollouts.sampler import SamplingSettings, TextSampler
from plaudit.tokens.encode import make_encoder

LONGEST_QUESTION = 32_768
"""The longest question in tokens where the model itself names no limit."""


class LocalChat:
    """A chat model of a folder, asked as a model behind a server is.

    Example: ``LocalChat(Path("runs/sft/model")).replies([request])``
    """

    def __init__(self, folder: Path, *, device: str = "auto", dtype: DtypeName = "auto") -> None:
        """Load the model in the layout that it is proven in."""
        self.folder = folder / "model" if (folder / "model").is_dir() else folder
        self.device = device_of(device)
        self._encoder = make_encoder(self.folder)
        products = precision(dtype, self.device).products
        self._policy = Policy(load_model(self.folder, dtype=products, device=self.device))
        layout, _ = choose_layout(self._policy, "packed")
        self._policy.use_layout(layout)
        choose_kernels(self._policy)
        self._policy.requires_grad_(False).eval()
        self._scorers = dict[tuple[str, ...], LanguageJudgeModel]()
        self._sampler: TextSampler | None = None

    @property
    def model(self) -> str:
        """What the model is called: its folder, or the run that it is of."""
        absolute = self.folder.absolute()
        return absolute.parent.name if absolute.name == "model" else absolute.name

    def estimate(self, requests: Sequence[ChatRequest]) -> Estimate:
        """How much is read and written; it costs nothing but time."""
        texts = [request.question.text() for request in requests]
        return Estimate(
            questions=len(texts),
            cached=0,
            prompt_tokens=sum(map(estimated_tokens, texts)),
            reply_tokens=sum(request.max_tokens for request in requests),
            cost=0.0,
        )

    def spent(self, requests: Sequence[ChatRequest]) -> tuple[int, float]:
        """The tokens of the questions, about; a model of one's own has no price."""
        # The same question in another form was asked once.
        return sum(map(estimated_tokens, {request.question.text() for request in requests})), 0.0

    def replies(self, requests: Sequence[ChatRequest]) -> list[Reply | str]:
        """The reply to each: by the chances of its words, or written where there are reasons."""
        found: list[Reply | str] = [TOO_LONG] * len(requests)
        by_words: dict[tuple[str, ...], list[int]] = {}
        for place, request in enumerate(requests):
            by_words.setdefault(request.words if request.is_word else (), []).append(place)
        for words, places in by_words.items():
            own = [requests[place] for place in places]
            replies = self._scored(words, own) if words else self._written(own)
            for place, reply in zip(places, replies, strict=True):
                found[place] = reply
        return found

    def _scored(self, words: tuple[str, ...], requests: Sequence[ChatRequest]) -> list[Reply | str]:
        logps = self._scorer(words).logps([self._shown(request, "") for request in requests])
        return [TOO_LONG if row is None else _reply_of_odds(words, row) for row in logps]

    def _scorer(self, words: tuple[str, ...]) -> LanguageJudgeModel:
        if words not in self._scorers:
            spec = LanguageJudgeSpec(settings=_settings_of(words), max_length=LONGEST_QUESTION)
            try:
                refuse_same_replies(self._encoder, spec)
            except UserError as error:
                known = str(error).partition(";")[0]
                raise UserError(
                    f"{self.folder}: {known}, so it cannot reply with {' or '.join(words)}; ask in another "
                    "way (how=points, how=answer, how=verdict), or train a ranker with words of its own"
                ) from error
            self._scorers[words] = LanguageJudgeModel(self.model, self._policy, self._encoder, spec)
        return self._scorers[words]

    def _shown(self, request: ChatRequest, number: str) -> Text:
        text = request.question.text(number, controls=self._encoder.info.specials)
        return text if self._encoder.chat_format is None else user_turn(text)

    def _written(self, requests: Sequence[ChatRequest]) -> list[Reply | str]:
        if self._sampler is None:
            self._sampler = sampler_of_folder(self.folder, device=str(self.device))
        by_settings: dict[SamplingSettings, list[int]] = {}
        for place, request in enumerate(requests):
            settings = SamplingSettings(
                temperature=request.temperature, max_tokens=request.max_tokens, seed=request.seed or 0
            )
            by_settings.setdefault(settings, []).append(place)
        found: list[Reply | str] = [TOO_LONG] * len(requests)
        for settings, places in by_settings.items():
            # From the system's randomness: whoever foresees it could close the delimiters with a verdict.
            numbers = [secrets.token_hex(8) for _ in places]
            shown = [self._shown(requests[p], number) for p, number in zip(places, numbers, strict=True)]
            answers = self._sampler.generate_answers(shown, settings)
            for place, number, [answer] in zip(places, numbers, answers, strict=True):
                found[place] = Reply(text=answer.text, number=number, refused=False, cut=not answer.ended)
        return found


def local_judge(
    word: str, *, device: str = "auto", dtype: str = "auto", ask: HowToAsk | None = None
) -> ModelJudge:
    """The judge of ``model:DIR,how=letter``; what its word does not set is as in ``ask``."""
    if dtype not in get_args(DtypeName):
        raise UserError(f"dtype {dtype!r}: use {', '.join(get_args(DtypeName))}")
    parsed = parse_judge_word(word)
    folder = Path(parsed.place.removeprefix(LOCAL))
    return ModelJudge(
        asker=LocalChat(folder, device=device, dtype=cast("DtypeName", dtype)), ask=parsed.how(ask)
    )


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
    odds = dict(zip(words, reply_probabilities(logps), strict=True))
    return Reply(text=max(odds, key=odds.__getitem__), number="", refused=False, cut=False, odds=odds)
