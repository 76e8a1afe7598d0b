"""Models that judge in words: tiny random ones, what transformers alone says of them, and planted ones."""

import json
from collections.abc import Callable, Sequence
from math import exp
from pathlib import Path

import torch

from plaudit.data.generative_judging import LanguageJudgeSettings, QuoteSettings
from plaudit.data.judging import Task
from plaudit.data.records import Text, plain_text
from plaudit.models.load import load_model
from plaudit.models.policy import Policy
from plaudit.rewards.learned.batching import BatchScorer, ModelLimits
from plaudit.rewards.llm.generative import LANGUAGE_JUDGE_FILE, LanguageJudgeModel, LanguageJudgeSpec
from plaudit.rollouts.sampler import Answer, SamplingSettings
from plaudit.tokens.encode import Encoder, make_encoder
from tests.models.reward_zoo import CPU, start


def worded_folder(where: Path, settings: LanguageJudgeSettings, *, max_length: int = 256) -> Path:
    where.mkdir(parents=True, exist_ok=True)
    folder = start(where)
    wording = LanguageJudgeSpec(settings=settings, quote=QuoteSettings(), max_length=max_length)
    (folder / LANGUAGE_JUDGE_FILE).write_text(json.dumps(wording.to_json()), encoding="utf-8")
    return folder


def worded_model(
    folder: Path, settings: LanguageJudgeSettings, *, tokens_at_once: int = 8192
) -> LanguageJudgeModel:
    policy = Policy(load_model(folder, dtype=torch.float64, device=CPU))
    wording = LanguageJudgeSpec(settings=settings, max_length=256)
    return LanguageJudgeModel("zoo", policy, make_encoder(folder), wording, tokens_at_once=tokens_at_once)


def by_transformers(folder: Path, encoder: Encoder, question: Text, reply: Text) -> float:
    """log P of a reply and its end of turn, one forward pass of the plain model."""
    model = load_model(folder, dtype=torch.float64, device=CPU)
    example = encoder.encode(question, [reply])
    (completion,) = example.completions
    ids = torch.tensor([[*example.prompt, *completion.ids]])
    with torch.no_grad():
        logp_SV = model(input_ids=ids, use_cache=False).logits[0].log_softmax(-1)
    at = len(example.prompt) - 1
    pairs = zip(completion.ids, completion.mask, strict=True)
    return sum(float(logp_SV[at + t, i]) for t, (i, chosen) in enumerate(pairs) if chosen)


def sigmoid(gap: float) -> float:
    """1 / (1 + exp −gap)."""
    return 1 / (1 + exp(-gap))


def task(prompt: str, *answers: str) -> Task:
    return Task(prompt=prompt, answers=answers, ended=(True,) * len(answers))


class Planted(LanguageJudgeModel):
    """Judges numbers: the greater is the better answer, and whoever stands first gets a bonus.

    The log-probs are those numbers; where points are asked for, they are the number that the critique is.
    ``points`` beats that: log-probs by the critique.
    """

    def __init__(
        self,
        settings: LanguageJudgeSettings,
        *,
        bonus: float = 0.0,
        most: int = 1000,
        points: Callable[[str], tuple[float, ...] | None] | None = None,
    ) -> None:
        encoder = make_encoder_of_words()
        self.name = "planted"
        self.spec = LanguageJudgeSpec(settings=settings)
        self.form = self.spec.form(encoder)
        self.scorer = BatchScorer(
            name="planted", encoder=encoder, limits=ModelLimits(positions=None, vocabulary=61), device=CPU
        )
        self.bonus, self.most, self.points = bonus, most, points
        self.asked: list[str] = []

    def logps(self, questions: Sequence[Text]) -> list[tuple[float, ...] | None]:
        return [self._logps(plain_text(question)) for question in questions]

    def _logps(self, question: str) -> tuple[float, ...] | None:
        self.asked.append(question)
        if len(question) > self.most:
            return None
        quoted = [line[2:] for line in question.splitlines() if line.startswith("> ")]
        if len(self.spec.settings.replies) == 2:
            return float(quoted[-2]) + self.bonus, float(quoted[-1])
        if self.points is not None:
            return self.points(quoted[-1])
        return tuple(0.0 if point == int(quoted[-1]) else -50.0 for point in range(1, 6))


class Typist:
    """A writer whose critiques are points: those of the answer, then one less, then one more."""

    def __init__(self) -> None:
        self.prompts: list[Text] = []

    def check(self, prompt: Text) -> None:
        from plaudit.errors import UserError

        if "long" in plain_text(prompt):
            raise UserError("too long to be read")

    def generate_answers(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Answer]]:
        self.prompts += prompts
        return [[self._said(plain_text(prompt), settings.seed + k) for k in range(n)] for prompt in prompts]

    def _said(self, question: str, draw: int) -> Answer:
        quoted = [line[2:] for line in question.splitlines() if line.startswith("> ")]
        return Answer(text=str(int(quoted[-1]) + (0, -1, 1)[draw % 3]), tokens=2, ended=True)


def make_encoder_of_words() -> Encoder:
    from plaudit.tokens.tokenizer import tokenizer_info
    from tests.models.reward_zoo import make_tokenizer

    return make_encoder(tokenizer_info(make_tokenizer("<pad>")))
