"""A language model that judges by how likely it finds each of a few replies, and how it is to be asked.

A reply counts with the whole of its word and the end of its turn. How the model was asked in training lies
beside it, so that it is asked the same way again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from itertools import combinations
from math import exp
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol, runtime_checkable

from plaudit.data import generative_judging
from plaudit.data.generative_judging import CritiqueSettings, critique_prompt, points_prompt
from plaudit.data.records import Task, Text
from plaudit.errors import UserError
from plaudit.files.model_folder import read_json_object
from plaudit.models.policy import Policy
from plaudit.rewards.base import TaskScores
from plaudit.rewards.learned.batching import TOKENS_AT_ONCE, BatchScorer, longest_length, model_limits
from plaudit.rollouts.sampler import Answer, SamplingSettings
from plaudit.tokens.batch import Example
from plaudit.tokens.encode import Encoder

LANGUAGE_JUDGE_FILE = "worded.json"
"""The file that makes a folder a judge in words."""

LANGUAGE_JUDGE_KINDS: Mapping[str, type[generative_judging.LanguageJudgeSettings]] = {
    "text-reward": generative_judging.GenerativeRewardSettings,
    "ranker": generative_judging.PairwiseRankerSettings,
    "critic": generative_judging.CritiqueSettings,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageJudgeSpec:
    settings: generative_judging.LanguageJudgeSettings
    quote: generative_judging.QuoteSettings = field(default_factory=generative_judging.QuoteSettings)
    max_length: int = 2048
    """The longest row in tokens that was trained; longer ones are not judged."""

    @property
    def kind(self) -> str:
        """Which of the three it is."""
        return next(name for name, kind in LANGUAGE_JUDGE_KINDS.items() if isinstance(self.settings, kind))

    def form(self, encoder: Encoder) -> generative_judging.JudgePromptFormat:
        """How a question is put to the model of this tokenizer."""
        has_chat_template = encoder.chat_format is not None
        return generative_judging.JudgePromptFormat(
            quote=self.quote, has_chat_template=has_chat_template, control_tokens=encoder.info.specials
        )

    def question_templates(self) -> tuple[str, ...]:
        """The question templates for people to read, with names in braces where texts go."""
        form, pair = (
            generative_judging.JudgePromptFormat(quote=self.quote, has_chat_template=False),
            ("{prompt}", "{answer}"),
        )
        match self.settings:
            case generative_judging.GenerativeRewardSettings() as words:
                questions = [generative_judging.pointwise_prompt(words, form, *pair)]
            case generative_judging.PairwiseRankerSettings() as words:
                questions = [
                    generative_judging.pairwise_prompt(words, form, "{prompt}", ("{answer 1}", "{answer 2}"))
                ]
            case generative_judging.CritiqueSettings() as words:
                questions = [
                    generative_judging.critique_prompt(words, form, *pair),
                    generative_judging.points_prompt(words, form, pair, "{critique}"),
                ]
        return tuple(str(question) for question in questions)

    def to_json(self) -> dict[str, Any]:
        """The whole as a JSON object, as the model folder keeps it."""
        return {
            "kind": self.kind,
            "words": asdict(self.settings),
            "quote": asdict(self.quote),
            "max_length": self.max_length,
            "template": list(self.question_templates()),
        }


def read_language_judge_spec(folder: Path) -> LanguageJudgeSpec:
    """The wording of a model folder; what is damaged is named."""
    path = folder / LANGUAGE_JUDGE_FILE
    if not path.exists():
        raise UserError(
            f"{path}: no such file, so the folder says nothing of how its model is asked; it is written by "
            f"plaudit train {', '.join(LANGUAGE_JUDGE_KINDS)}"
        )
    fields_json = read_json_object(path)
    if fields_json.get("kind") not in LANGUAGE_JUDGE_KINDS:
        raise UserError(f"{path}: its kind is not one of {', '.join(LANGUAGE_JUDGE_KINDS)}")
    max_length = fields_json.get("max_length")
    if not isinstance(max_length, int) or isinstance(max_length, bool) or max_length < 1:
        raise UserError(f"{path}: max_length is {max_length!r}, and should be a whole number from 1")
    settings = _build_settings(
        LANGUAGE_JUDGE_KINDS[fields_json["kind"]], fields_json.get("words"), path, "words"
    )
    quote = _build_settings(generative_judging.QuoteSettings, fields_json.get("quote"), path, "quote")
    return LanguageJudgeSpec(settings=settings, quote=quote, max_length=max_length)


def _build_settings(kind: type[Any], values: object, path: Path, name: str) -> Any:
    """Settings from what the file says; each must be there and of the type that its default has."""
    if not isinstance(values, dict):
        raise UserError(f"{path}: {name} is not an object")
    defaults = {part.name: part.default for part in fields(kind)}
    for key, value in values.items():
        if key not in defaults or not _has_type_of(value, defaults[key]):
            raise UserError(f"{path}: {name}.{key} is {value!r}, which is no setting of {kind.__name__}")
    if missing := sorted(set(defaults) - set(values)):
        raise UserError(f"{path}: {name} lacks {', '.join(missing)}")
    return kind(**values)


def _has_type_of(value: object, default: object) -> bool:
    assert default is not MISSING
    if default is None:
        return value is None or isinstance(value, str)
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is type(default)


QUESTION_TOO_LONG = (
    "the question with what is judged has more than {most:,} tokens; a part of it is not judged"
)


class LanguageJudgeModel:
    """A language model, its tokenizer and the wording that it was trained with."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        encoder: Encoder,
        spec: LanguageJudgeSpec,
        *,
        tokens_at_once: int = TOKENS_AT_ONCE,
    ) -> None:
        """Take a model that is on its device, in the layout that it was proven in."""
        refuse_same_replies(encoder, spec)
        limits = model_limits([policy], tokens_at_once)
        positions = spec.max_length if limits.positions is None else limits.positions
        # Longer rows than in training were never seen, even where the model has places for them.
        limits = replace(limits, positions=min(positions, spec.max_length))
        self.name = name
        self.spec = spec
        self.form = spec.form(encoder)
        self.scorer = BatchScorer(name=name, encoder=encoder, limits=limits, device=policy.device)
        self.policy = policy

    def logps(self, questions: Sequence[Text]) -> list[tuple[float, ...] | None]:
        """For each question, log P of each reply; None where the question cannot be shown whole.
        log P(word) = Σ log π(token | question, tokens before) over all of the word's tokens and the token
        that ends the turn: words that begin alike, or one that begins with another, are told apart."""
        self.policy.eval()
        examples = [self._encode_question(question) for question in questions]
        distinct = dict.fromkeys(example for example in examples if example is not None)
        logps_by_example: dict[Example, tuple[float, ...]] = {}
        for micro_batch in self.scorer.micro_batches(list(distinct)):
            numbers = iter(
                self.scorer.finite_scores(lambda batch: self.policy.score(batch).logp_NT.sum(-1), micro_batch)
            )
            for example in micro_batch:
                logps_by_example[example] = tuple(next(numbers) for _ in example.completions)
        return [None if example is None else logps_by_example[example] for example in examples]

    def _encode_question(self, question: Text) -> Example | None:
        replies = [self.form.reply(word) for word in self.spec.settings.replies]
        try:
            example = self.scorer.encoder.encode(question, replies)
        except UserError as error:
            self.scorer.refused[str(error)] += 1
            return None
        max_tokens = self.scorer.limits.positions
        # A prompt cut from its start, as in other rows, could lose an answer or the mark of a quoted line.
        if max_tokens is not None and longest_length(example) > max_tokens:
            self.scorer.refused[QUESTION_TOO_LONG.format(most=max_tokens)] += 1
            return None
        return example


class RewardInWords:
    """What a reward by a language judge says of itself: its name, and what the model was not shown."""

    _model: LanguageJudgeModel

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def refused(self) -> Mapping[str, int]:
        return dict(self._model.scorer.refused)


def reply_probabilities(logps: Sequence[float]) -> tuple[float, ...]:
    """P of each reply among the replies: exp log Pᵢ / Σ exp log Pⱼ.

    >>> reply_probabilities((-1.0, -1.0))
    (0.5, 0.5)
    """
    # Log-probs of whole replies underflow exp; only their differences matter, so the highest goes to 0.
    highest = max(logps)
    weights = [exp(logp - highest) for logp in logps]
    return tuple(weight / sum(weights) for weight in weights)


def refuse_same_replies(encoder: Encoder, spec: LanguageJudgeSpec) -> None:
    """Complain about words that the tokenizer does not know, or cannot tell from each other."""
    form, replies = spec.form(encoder), spec.settings.replies
    example = encoder.encode(form.judge_prompt("", (), "?"), [form.reply(word) for word in replies])
    unknown_id = unknown_token(encoder)
    ids = [completion.ids for completion in example.completions]
    for word, word_ids in zip(replies, ids, strict=True):
        if unknown_id in word_ids:
            raise UserError(
                f"the tokenizer does not know the word {word!r}; choose another reply (--help-all lists the "
                "settings of words)"
            )
    for (first, first_ids), (second, second_ids) in combinations(zip(replies, ids, strict=True), 2):
        if first_ids == second_ids:
            raise UserError(f"the tokenizer makes the same of {first!r} and {second!r}; choose other words")


def unknown_token(encoder: Encoder) -> int | None:
    """What the tokenizer makes of a word that it does not know; None where it can spell any.
    Some name a token that ends texts as the unknown one too: they spell by bytes and never need it."""
    tokenizer = encoder.info.tokenizer
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    name = tokenizer.unk_token or getattr(model, "unk_token", None)
    if not isinstance(name, str):
        return None
    token = encoder.info.id_of(name)
    return None if token in encoder.stop_ids else token


def unknown_lines(encoder: Encoder, spec: LanguageJudgeSpec) -> tuple[str, ...]:
    """Which of the wording's own lines hold something that the tokenizer does not know."""
    unknown = unknown_token(encoder)
    if unknown is None:
        return ()
    mark = spec.quote.mark
    lines = dict.fromkeys(line for text in spec.question_templates() for line in text.splitlines())
    own_lines = [mark.strip(), *(line for line in lines if not line.startswith(mark))]

    def count_unknown(text: str) -> int:
        return encoder.info.encode(text).count(unknown)

    # Below another line, as it will stand; what is unknown of that one does not count.
    return tuple(line for line in own_lines if count_unknown(f"a\n{line}") > count_unknown("a\n"))


@runtime_checkable
class CritiqueWriter(Protocol):
    """Writes critiques; `LocalSampler` is one."""

    def check(self, prompt: Text) -> None: ...

    def generate_answers(
        self, prompts: Sequence[Text], settings: SamplingSettings, *, n: int = 1
    ) -> list[list[Answer]]:
        """For every question, ``n`` critiques."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CritiqueScore:
    critiques: tuple[str, ...]
    points: tuple[float | None, ...]
    """The points to expect after each; None where critique and answer together are too long to be shown."""
    score: float | None
    """Their mean; None where none is known."""


class CritiqueReward(RewardInWords):
    """A critique first, then points: 1/k Σ_j Σ_s s · P(s | answer, critique_j), with k of its own critiques.
    Critiques before the reward: Ankner et al. 2024, arXiv:2408.11791."""

    def __init__(self, model: LanguageJudgeModel, writer: CritiqueWriter, *, seed: int = 0) -> None:
        """Take a critique model and a sampler of the same model; the seed draws the critiques."""
        settings = model.spec.settings
        assert isinstance(settings, CritiqueSettings)
        self._model, self._settings, self._writer = model, settings, writer
        self._sampling = SamplingSettings(
            temperature=settings.temperature, max_tokens=settings.tokens, seed=seed
        )

    def scores(self, tasks: Sequence[Task]) -> tuple[TaskScores, ...]:
        """The expected points of every answer, on average over its critiques; None where there are none."""
        return tuple(tuple(item.score for item in row) for row in self.critique_scores(tasks))

    def critique_scores(self, tasks: Sequence[Task]) -> tuple[tuple[CritiqueScore, ...], ...]:
        """The critiques of every answer and what follows from them.
        The same answer to the same prompt gets the same critiques, whatever else is asked for."""
        settings, form = self._settings, self._model.form
        pairs = dict.fromkeys((task.prompt, answer) for task in tasks for answer in task.answers)
        questions = {pair: critique_prompt(settings, form, *pair) for pair in pairs}
        critiques_by_question = self._write_critiques(dict.fromkeys(questions.values()))
        critiqued = [
            (pair, critique) for pair in pairs for critique in critiques_by_question[questions[pair]]
        ]
        logps_by_critique = self._model.logps(
            [points_prompt(settings, form, pair, critique) for pair, critique in critiqued]
        )
        points_by_pair: dict[tuple[Text, Text], list[tuple[str, float | None]]] = {pair: [] for pair in pairs}
        for (pair, critique), logps in zip(critiqued, logps_by_critique, strict=True):
            points_by_pair[pair].append((critique, None if logps is None else _expected_points(logps)))
        return tuple(
            tuple(_critique_score(points_by_pair[task.prompt, answer]) for answer in task.answers)
            for task in tasks
        )

    def _write_critiques(self, questions: Mapping[Text, None]) -> dict[Text, tuple[str, ...]]:
        readable: list[Text] = []
        for question in questions:
            try:
                self._writer.check(question)
            except UserError as error:
                self._model.scorer.refused[str(error)] += 1
            else:
                readable.append(question)
        replies = []
        if readable:
            replies = self._writer.generate_answers(readable, self._sampling, n=self._settings.critiques)
        texts = {
            question: tuple(answer.text for answer in answers)
            for question, answers in zip(readable, replies, strict=True)
        }
        return {question: texts.get(question, ()) for question in questions}


def _expected_points(logps: Sequence[float]) -> float:
    """Σ s P(s), the points being 1, 2, …

    >>> round(_expected_points((-1.0, -1.0, -1.0)), 6)
    2.0
    """
    return sum(points * share for points, share in enumerate(reply_probabilities(logps), start=1))


def _critique_score(points_by_critique: Sequence[tuple[str, float | None]]) -> CritiqueScore:
    expected = [points for _, points in points_by_critique if points is not None]
    return CritiqueScore(
        critiques=tuple(critique for critique, _ in points_by_critique),
        points=tuple(points for _, points in points_by_critique),
        score=fmean(expected) if expected else None,
    )
